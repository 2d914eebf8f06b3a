#define _GNU_SOURCE /* asprintf */
#include "tests/support/st_writer.h"

#include <dirent.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"

enum { MAX_TENSORS = 1024 };

struct st_writer {
    char *header; /* grows with every tensor */
    size_t header_bytes;
    unsigned char *data;
    size_t bytes;
    char *names[MAX_TENSORS];
    int n;
};

__attribute__((noreturn, format(printf, 1, 2))) static void give_up(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    abort();
}

static void *must(void *p)
{
    if (!p)
        give_up("st_writer: out of memory");
    return p;
}

/* Paths handed out live as long as the test's process; the list keeps them reachable for leak checkers. */
struct folder {
    struct folder *next;
    char path[];
};

const char *st_folder(const char *name)
{
    static struct folder *folders;
    char path[PATH_MAX];

    if ((mkdir("build", 0777) != 0 && access("build", W_OK) != 0) ||
        (mkdir("build/tmp", 0777) != 0 && access("build/tmp", W_OK) != 0))
        give_up("st_writer: build/tmp cannot be made");
    snprintf(path, sizeof path, "build/tmp/%s-XXXXXX", name);
    if (!mkdtemp(path))
        give_up("st_writer: %s cannot be made", path);
    size_t n = strlen(path) + 1;
    struct folder *f = must(malloc(sizeof *f + n));
    memcpy(f->path, path, n);
    f->next = folders;
    folders = f;
    return f->path;
}

void st_remove(const char *folder)
{
    DIR *d = opendir(folder);
    char path[PATH_MAX];

    for (struct dirent *x; d && (x = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", folder, x->d_name);
        if (strcmp(x->d_name, ".") != 0 && strcmp(x->d_name, "..") != 0 && unlink(path) != 0)
            rmdir(path);
    }
    if (d)
        closedir(d);
    rmdir(folder);
}

void st_write_bytes(const char *folder, const char *file, const void *data, size_t n)
{
    char path[PATH_MAX];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", folder, file);
    f = fopen(path, "wb");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f) != 0)
        give_up("st_writer: %s cannot be written", path);
}

void st_write_text(const char *folder, const char *file, const char *text)
{
    st_write_bytes(folder, file, text, strlen(text));
}

unsigned char *st_raw(const char *header, const void *data, size_t n, size_t *total)
{
    uint64_t len = strlen(header);
    unsigned char *b = must(malloc(8 + len + n));

    for (int i = 0; i < 8; i++)
        b[i] = (unsigned char)(len >> 8 * i);
    memcpy(b + 8, header, len);
    if (n)
        memcpy(b + 8 + len, data, n);
    *total = 8 + len + n;
    return b;
}

void st_write_raw(const char *folder, const char *file, const char *header, const void *data, size_t n)
{
    size_t total;
    unsigned char *b = st_raw(header, data, n, &total);

    st_write_bytes(folder, file, b, total);
    free(b);
}

static __attribute__((format(printf, 2, 3))) void append(struct st_writer *w, const char *fmt, ...)
{
    char text[512];
    va_list ap;

    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    w->header = must(realloc(w->header, w->header_bytes + (size_t)n + 1));
    memcpy(w->header + w->header_bytes, text, (size_t)n + 1);
    w->header_bytes += (size_t)n;
}

struct st_writer *st_writer_open(void)
{
    struct st_writer *w = must(calloc(1, sizeof *w));

    append(w, "{\"__metadata__\":{\"format\":\"pt\"}");
    return w;
}

static void put_value(unsigned char *to, const char *dtype, float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    if (strcmp(dtype, "F32") == 0) {
        memcpy(to, &bits, 4);
    } else if (strcmp(dtype, "F16") == 0) {
        /* through the compiler's own half where it is small; a normal of 0.02 and 1.0 both fit */
        uint32_t sign = bits >> 16 & 0x8000, mag = bits & 0x7FFFFFFF;
        int exp = (int)(mag >> 23) - 127 + 15;
        uint16_t h = exp <= 0 ? (uint16_t)sign : (uint16_t)(sign | ((uint32_t)exp << 10) | (mag >> 13 & 0x3FF));
        memcpy(to, &h, 2);
    } else {
        uint16_t h = (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
        memcpy(to, &h, 2);
    }
}

static float normal(uint64_t key, uint64_t i)
{
    uint64_t a = hash_mix(key, i * 2 + 1), b = hash_mix(key ^ 0x5DEECE66Du, i * 2 + 2);
    double u = ((double)(a >> 11) + 1) / 9007199254740993.0, v = (double)(b >> 11) / 9007199254740992.0;

    return (float)(0.02 * sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

void st_writer_add(struct st_writer *w, const char *name, const char *dtype, int64_t rows, int64_t cols, uint64_t seed,
                   float fill)
{
    size_t width = strcmp(dtype, "F32") == 0 ? 4 : 2, n = (size_t)(rows * (cols ? cols : 1));
    uint64_t key = hash_bytes(name, strlen(name), seed);

    if (w->n == MAX_TENSORS)
        give_up("st_writer: more than %d tensors", MAX_TENSORS);
    w->names[w->n++] = must(strdup(name));
    w->data = must(realloc(w->data, w->bytes + n * width + 1));
    for (size_t i = 0; i < n; i++)
        put_value(w->data + w->bytes + i * width, dtype, seed ? normal(key, i) : fill);
    if (cols)
        append(w, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%lld,%lld],\"data_offsets\":[%zu,%zu]}", name, dtype,
               (long long)rows, (long long)cols, w->bytes, w->bytes + n * width);
    else
        append(w, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%lld],\"data_offsets\":[%zu,%zu]}", name, dtype,
               (long long)rows, w->bytes, w->bytes + n * width);
    w->bytes += n * width;
}

void st_writer_save(struct st_writer *w, const char *folder, const char *file)
{
    append(w, "}");
    while (w->header_bytes % 8 != 0)
        append(w, " ");
    st_write_raw(folder, file, w->header, w->data, w->bytes);
    for (int i = 0; i < w->n; i++)
        free(w->names[i]);
    free(w->header);
    free(w->data);
    free(w);
}

/* --- checkpoints --- */

struct st_checkpoint st_small(void)
{
    return (struct st_checkpoint){
        .dims = {.hidden = 32,
                 .layers = 2,
                 .heads = 4,
                 .kv_heads = 2,
                 .head_dim = 16,
                 .inter = 48,
                 .vocab = 64,
                 .max_positions = 256,
                 .norm_eps = 1e-5f,
                 .qk_norm = true,
                 .tied = true},
    };
}

struct shard_set {
    const struct st_checkpoint *c;
    const char *folder;
    struct st_writer *shard[16];
    int n, next; /* next: counts tensors, dealt to the shards in turn */
};

static void put(struct shard_set *s, const char *name, int64_t rows, int64_t cols, bool ones, uint64_t other)
{
    const struct st_checkpoint *c = s->c;
    uint64_t seed = (c->seed ? c->seed : 1) + other;

    if (c->leave_out && strcmp(c->leave_out, name) == 0)
        return;
    st_writer_add(s->shard[s->next++ % s->n], name, c->dtype ? c->dtype : "BF16", rows, cols, ones ? 0 : seed, 1.0f);
}

static void put_layer(struct shard_set *s, int layer, const char *part, int64_t rows, int64_t cols)
{
    char name[96];

    snprintf(name, sizeof name, "model.layers.%d.%s.weight", layer, part);
    put(s, name, rows, cols, cols == 0, 0);
}

static void put_layers(struct shard_set *s)
{
    const struct dims *d = &s->c->dims;
    int64_t q = (int64_t)d->heads * d->head_dim, kv = (int64_t)d->kv_heads * d->head_dim;

    for (int i = 0; i < d->layers; i++) {
        put_layer(s, i, "input_layernorm", d->hidden, 0);
        put_layer(s, i, "self_attn.q_proj", q, d->hidden);
        put_layer(s, i, "self_attn.k_proj", kv, d->hidden);
        put_layer(s, i, "self_attn.v_proj", kv, d->hidden);
        put_layer(s, i, "self_attn.o_proj", d->hidden, q);
        if (d->qk_norm) {
            put_layer(s, i, "self_attn.query_layernorm", d->head_dim, 0);
            put_layer(s, i, "self_attn.key_layernorm", d->head_dim, 0);
        }
        put_layer(s, i, "post_attention_layernorm", d->hidden, 0);
        if (s->c->fused_mlp) {
            put_layer(s, i, "mlp.gate_and_up_proj", 2 * (int64_t)d->inter, d->hidden);
        } else {
            put_layer(s, i, "mlp.gate_proj", d->inter, d->hidden);
            put_layer(s, i, "mlp.up_proj", d->inter, d->hidden);
        }
        put_layer(s, i, "mlp.down_proj", d->hidden, d->inter);
    }
}

static void put_all(struct shard_set *s)
{
    const struct st_checkpoint *c = s->c;
    const struct dims *d = &c->dims;

    put(s, "model.embed_tokens.weight", d->vocab, d->hidden, false, 0);
    put_layers(s);
    put(s, "model.norm.weight", d->hidden, 0, true, 0);
    if (!d->tied || c->other_head) {
        put(s, "lm_head.weight", d->vocab, d->hidden, false, 7);
    } else if (c->store_head) { /* the embedding's values under another name */
        struct st_writer *w = s->shard[s->next++ % s->n];
        const size_t bytes = (size_t)d->vocab * (size_t)d->hidden * 2;
        const struct st_writer *from = s->shard[0]; /* the embedding is its first tensor */

        st_writer_add(w, "lm_head.weight", "BF16", d->vocab, d->hidden, 0, 0.0f);
        memcpy(w->data + w->bytes - bytes, from->data, bytes);
    }
    if (c->add)
        put(s, c->add, 8, 0, true, 0);
}

static void write_shards(struct shard_set *s)
{
    char file[64], *index = must(strdup("{\"metadata\":{},\"weight_map\":{")), *grown;
    bool first = true;

    for (int i = 0; i < s->n; i++) {
        snprintf(file, sizeof file, "model-%05d-of-%05d.safetensors", i + 1, s->n);
        for (int k = 0; k < s->shard[i]->n; k++, first = false) {
            if (asprintf(&grown, "%s%s\"%s\":\"%s\"", index, first ? "" : ",", s->shard[i]->names[k], file) < 0)
                give_up("st_writer: out of memory");
            free(index);
            index = grown;
        }
        st_writer_save(s->shard[i], s->folder, file);
    }
    if (asprintf(&grown, "%s}}", index) < 0)
        give_up("st_writer: out of memory");
    st_write_text(s->folder, "model.safetensors.index.json", grown);
    free(index);
    free(grown);
}

static void write_config(const char *folder, const struct st_checkpoint *c)
{
    const struct dims *d = &c->dims;
    char *text;

    if (asprintf(&text,
                 "{\"architectures\": [\"HunYuanDenseV1ForCausalLM\"], \"model_type\": \"hunyuan_v1_dense\",\n"
                 "%s \"hidden_size\": %d, \"num_hidden_layers\": %d, \"num_attention_heads\": %d,\n"
                 "\"num_key_value_heads\": %d, \"head_dim\": %d, \"intermediate_size\": %d, \"vocab_size\": %d,\n"
                 "\"max_position_embeddings\": %d, \"rms_norm_eps\": %g, \"use_qk_norm\": %s,\n"
                 "\"tie_word_embeddings\": %s, \"hidden_act\": \"silu\", \"bos_token_id\": 1, \"eos_token_id\": 2,\n"
                 "\"rope_theta\": 10000.0, \"rope_scaling\": {\"type\": \"dynamic\", \"alpha\": 1000.0}}\n",
                 c->config_extra ? c->config_extra : "", d->hidden, d->layers, d->heads, d->kv_heads, d->head_dim,
                 d->inter, d->vocab, d->max_positions, (double)d->norm_eps, d->qk_norm ? "true" : "false",
                 d->tied ? "true" : "false") < 0)
        give_up("st_writer: out of memory");
    st_write_text(folder, "config.json", text);
    free(text);
}

void st_write_checkpoint(const char *folder, const struct st_checkpoint *c)
{
    struct shard_set s = {.c = c, .folder = folder, .n = c->shards > 1 ? c->shards : 1};

    if (s.n > (int)(sizeof s.shard / sizeof *s.shard))
        give_up("st_writer: more than %zu shards", sizeof s.shard / sizeof *s.shard);
    for (int i = 0; i < s.n; i++)
        s.shard[i] = st_writer_open();
    put_all(&s);
    if (c->shards > 1)
        write_shards(&s);
    else
        st_writer_save(s.shard[0], folder, "model.safetensors");
    write_config(folder, c);
    if (c->generation)
        st_write_text(folder, "generation_config.json", c->generation);
}
