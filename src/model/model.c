#include "model/model.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/utf8.h"
#include "model/digest.h"
#include "model/eos.h"
#include "model/layout.h"
#include "model/model_files.h"

enum { MAX_JSON_BYTES = 1 << 20, HEAD_SAMPLES = 64, HEAD_SAMPLE_BYTES = 4096 };
static const char config_name[] = "config.json";
static const char generation_name[] = "generation_config.json";
static const char tied_head_name[] = "lm_head.weight";

/* The published shapes, for measuring without their weights. */
static const struct dims shape_1_8b = {
    .hidden = 2048,
    .layers = 32,
    .heads = 16,
    .kv_heads = 4,
    .head_dim = 128,
    .inter = 6144,
    .vocab = 120818,
    .vocab_used = 120818,
    .max_positions = 262144,
    .norm_eps = 1e-5f,
    .rope_base = 11158839.925,
    .qk_norm = true,
    .tied = true,
    .bos = 120000,
    .pad = 120002,
};
static const struct dims shape_7b = {
    .hidden = 4096,
    .layers = 32,
    .heads = 32,
    .kv_heads = 8,
    .head_dim = 128,
    .inter = 14336,
    .vocab = 128167,
    .vocab_used = 128167,
    .max_positions = 262144,
    .norm_eps = 1e-5f,
    .rope_base = 11158839.925,
    .qk_norm = true,
    .tied = true,
    .bos = 127958,
    .pad = 127961,
};
static const struct generation published_sampling = {
    .do_sample = true,
    .temperature = 0.7f,
    .top_p = 0.8f,
    .repetition_penalty = 1.05f,
    .top_k = 20,
};

/* --- small files --- */

/* The whole of dir/name; *text NULL with ERR_OK where it is not there.  The caller frees *text. */
static enum err_code read_text(char **text, size_t *n, const char *dir, const char *name, struct err *e)
{
    char path[PATH_MAX];
    enum err_code rc = ERR_OK;
    struct stat st;
    int fd;

    *text = NULL;
    *n = 0;
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path)
        return err_set(e, ERR_IO, ERR_STOP, "%.60s...: the path is too long", dir);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT ? ERR_OK : err_set(e, ERR_IO, ERR_STOP, "%.180s: %s", path, strerror(errno));
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        rc = err_set(e, ERR_IO, ERR_STOP, "%.180s: not a regular file", path);
    } else if (st.st_size > MAX_JSON_BYTES) {
        rc = err_set(e, ERR_MODEL, ERR_STOP, "%.160s: %lld bytes, at most %d are allowed", path, (long long)st.st_size,
                     MAX_JSON_BYTES);
    } else if (!(*text = malloc((size_t)st.st_size + 1))) {
        rc = err_set(e, ERR_NOMEM, ERR_STOP, "model: out of memory");
    } else {
        ssize_t got = read(fd, *text, (size_t)st.st_size);

        if (got < 0)
            rc = err_set(e, ERR_IO, ERR_STOP, "%.180s: %s", path, strerror(errno));
        else
            *n = (size_t)got;
    }
    close(fd);
    return rc;
}

static enum err_code read_config(struct model *m, struct digest *digest, const char *dir, struct err *e)
{
    int eos[MODEL_MAX_EOS], n_eos;
    enum err_code rc;
    struct stat st;
    char *text;
    size_t n;

    if (!*dir)
        return err_set(e, ERR_MODEL, ERR_STOP, "model.path is not set: the folder of a checkpoint");
    if (stat(dir, &st) != 0)
        return err_set(e, ERR_IO, ERR_STOP, "%.180s: %s", dir, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return err_set(e, ERR_IO, ERR_STOP, "%.120s: not a folder (a model is a folder with %s and its weights)", dir,
                       config_name);
    if ((rc = read_text(&text, &n, dir, config_name, e)) != ERR_OK)
        goto out;
    if (!text) {
        rc = err_set(e, ERR_IO, ERR_STOP, "%.160s: no %s there", dir, config_name);
        goto out;
    }
    digest_bytes(digest, text, n);
    if ((rc = model_parse_config(&m->dims, eos, &n_eos, text, n, config_name, e)) != ERR_OK)
        goto out;
    free(text);
    if ((rc = read_text(&text, &n, dir, generation_name, e)) != ERR_OK ||
        (rc = model_parse_generation(&m->generation, text, n, generation_name, e)) != ERR_OK)
        goto out;
    for (int i = 0; i < n_eos; i++)
        if (!eos_add(m->generation.eos, &m->generation.n_eos, eos[i])) {
            rc = err_set(e, ERR_MODEL, ERR_STOP, "%s and %s: eos_token_id: more than %d ids", config_name,
                         generation_name, MODEL_MAX_EOS);
            goto out;
        }
out:
    free(text);
    return rc;
}

static enum err_code check_ends(const struct model *m, struct err *e)
{
    const struct generation *g = &m->generation;

    if (g->n_eos == 0)
        return err_set(e, ERR_MODEL, ERR_STOP, "%s: eos_token_id is missing, there and in %s", config_name,
                       generation_name);
    for (int i = 0; i < g->n_eos; i++)
        if (g->eos[i] >= m->dims.vocab)
            return err_set(e, ERR_MODEL, ERR_STOP, "%s: eos_token_id: found %d, allowed are 0 to %d", generation_name,
                           g->eos[i], m->dims.vocab - 1);
    return ERR_OK;
}

/* --- weights --- */

static enum err_code bad_tensor(struct err *e, enum err_code code, const char *path, const char *name, const char *what)
{
    const char *slash = path ? strrchr(path, '/') : NULL;

    return err_set(e, code, ERR_STOP, "%.60s: %.80s: %s",
                   slash  ? slash + 1
                   : path ? path
                          : "model.safetensors",
                   name, what);
}

static void print_shape(char *out, size_t cap, const struct st_tensor *t)
{
    size_t n = (size_t)snprintf(out, cap, "[");

    for (int i = 0; i < t->n_dims && n < cap; i++)
        n += (size_t)snprintf(out + n, cap - n, i ? ", %lld" : "%lld", (long long)t->shape[i]);
    if (n < cap)
        snprintf(out + n, cap - n, "]");
}

static enum err_code check_shape(const struct st_tensor *t, const char *path, int n_dims, int64_t rows, int64_t cols,
                                 struct err *e)
{
    char found[64], text[144];

    if (t->n_dims == n_dims && t->shape[0] == rows && (n_dims == 1 || t->shape[1] == cols))
        return ERR_OK;
    print_shape(found, sizeof found, t);
    if (n_dims == 1)
        snprintf(text, sizeof text, "shape %s, config.json asks for [%lld]", found, (long long)rows);
    else
        snprintf(text, sizeof text, "shape %s, config.json asks for [%lld, %lld]", found, (long long)rows,
                 (long long)cols);
    return bad_tensor(e, ERR_MODEL, path, t->name, text);
}

static enum err_code fill_tensor(struct tensor *out, const struct st_tensor *t, const char *path, int64_t rows,
                                 int64_t cols, struct err *e)
{
    char text[96];

    *out = (struct tensor){.data = t->data, .rows = rows, .cols = cols};
    if (strcmp(t->dtype, "BF16") == 0)
        out->dtype = DTYPE_BF16;
    else if (strcmp(t->dtype, "F16") == 0)
        out->dtype = DTYPE_F16;
    else if (strcmp(t->dtype, "F32") == 0)
        out->dtype = DTYPE_F32;
    else {
        snprintf(text, sizeof text, "dtype %s is not supported, allowed are BF16, F16 and F32", t->dtype);
        return bad_tensor(e, ERR_UNSUPPORTED, path, t->name, text);
    }
    if ((uintptr_t)t->data % (out->dtype == DTYPE_F32 ? 4 : 2) != 0)
        return bad_tensor(e, ERR_UNSUPPORTED, path, t->name,
                          "its data is not aligned to its elements (save the file again with a current library)");
    return ERR_OK;
}

/* Older checkpoints store [up; gate] as one matrix: two contiguous halves, so both are still views. */
static enum err_code take_from_fused(struct model *m, const struct layout_item *x, bool *done, struct err *e)
{
    struct layer_weights *w = &m->layers[x->layer];
    bool gate = x->tensor == &w->gate, qkv = x->tensor == &w->q || x->tensor == &w->k || x->tensor == &w->v;
    const struct st_tensor *t;
    const char *path;
    char name[96];
    enum err_code rc;

    *done = false;
    snprintf(name, sizeof name, "model.layers.%d.self_attn.qkv_proj.weight", x->layer);
    if (qkv && model_files_take(m->files, name, &path))
        return bad_tensor(e, ERR_UNSUPPORTED, path, name,
                          "fused q, k and v are not supported, allowed are separate "
                          "q_proj, k_proj and v_proj");
    snprintf(name, sizeof name, "model.layers.%d.mlp.gate_and_up_proj.weight", x->layer);
    if (!(gate || x->tensor == &w->up) || !(t = model_files_take(m->files, name, &path)))
        return ERR_OK;
    if ((rc = check_shape(t, path, 2, 2 * x->rows, x->cols, e)) != ERR_OK ||
        (rc = fill_tensor(x->tensor, t, path, x->rows, x->cols, e)) != ERR_OK)
        return rc;
    if (gate)
        x->tensor->data = (const char *)t->data + t->bytes / 2;
    *done = true;
    return ERR_OK;
}

static enum err_code take_tensor(void *ctx, const struct layout_item *x, struct err *e)
{
    struct model *m = ctx;
    const char *path;
    const struct st_tensor *t = model_files_take(m->files, x->name, &path);
    enum err_code rc;
    bool done = false;

    if (!t && x->layer >= 0 && ((rc = take_from_fused(m, x, &done, e)) != ERR_OK || done))
        return rc;
    if (!t)
        return bad_tensor(e, ERR_MODEL, NULL, x->name, "this tensor is missing");
    if ((rc = check_shape(t, path, x->n_dims, x->rows, x->cols, e)) != ERR_OK)
        return rc;
    return fill_tensor(x->tensor, t, path, x->rows, x->cols, e);
}

/* An untied head differs everywhere, so samples tell; reading a gigabyte for it would not be cheap. */
static bool head_differs(const struct st_tensor *head, const struct tensor *embed)
{
    size_t n = head->bytes, step;
    const char *a = head->data, *b = embed->data;

    if (n != tensor_bytes(embed))
        return true;
    if (n <= HEAD_SAMPLES * HEAD_SAMPLE_BYTES)
        return memcmp(a, b, n) != 0;
    step = (n - HEAD_SAMPLE_BYTES) / (HEAD_SAMPLES - 1);
    for (size_t i = 0; i < HEAD_SAMPLES; i++)
        if (memcmp(a + i * step, b + i * step, HEAD_SAMPLE_BYTES) != 0)
            return true;
    return false;
}

static enum err_code check_tied_head(struct model *m, struct err *e)
{
    const char *path;
    const struct st_tensor *t = model_files_take(m->files, tied_head_name, &path);
    enum err_code rc;

    m->head = m->embed;
    if (!t)
        return ERR_OK;
    if ((rc = check_shape(t, path, 2, m->embed.rows, m->embed.cols, e)) != ERR_OK)
        return rc;
    if (head_differs(t, &m->embed))
        log_event(LOG_WARN, "tied_head_differs", "model=%s tensor=%s used=model.embed_tokens.weight", m->name,
                  tied_head_name);
    return ERR_OK;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);

    return n >= k && strcmp(s + n - k, end) == 0;
}

static enum err_code check_left_over(const struct model *m, struct err *e)
{
    const struct st_tensor *t;
    const char *path;
    size_t at = 0;

    while ((t = model_files_left_over(m->files, &at, &path)))
        if (!ends_with(t->name, "rotary_emb.inv_freq")) /* older checkpoints store it; it is derived */
            return bad_tensor(e, ERR_MODEL, path, t->name, "this tensor is unknown to the architecture");
    return ERR_OK;
}

static enum err_code add_to_digest(void *ctx, const struct layout_item *x, struct err *e)
{
    (void)e; /* the walk's signature; a digest cannot fail */
    digest_tensor(ctx, x->name, x->tensor);
    return ERR_OK;
}

static enum err_code add_weight(void *ctx, const struct layout_item *x, struct err *e)
{
    (void)e; /* as above */
    *(size_t *)ctx += tensor_bytes(x->tensor);
    return ERR_OK;
}

static enum err_code allocate_layers(struct model *m, struct err *e)
{
    m->layers = calloc((size_t)m->dims.layers, sizeof *m->layers);
    if (!m->layers)
        return err_set(e, ERR_NOMEM, ERR_STOP, "model: out of memory");
    return ERR_OK;
}

static enum err_code summarise(struct model *m, struct digest *digest, struct err *e)
{
    enum err_code rc;

    if ((rc = layout_walk(m, add_weight, &m->weight_bytes, e)) != ERR_OK ||
        (rc = layout_walk(m, add_to_digest, digest, e)) != ERR_OK)
        return rc;
    digest_print(digest, m->digest);
    return ERR_OK;
}

static enum err_code load_weights(struct model *m, const char *dir, struct err *e)
{
    enum err_code rc;

    if ((rc = model_files_open(&m->files, dir, e)) != ERR_OK || (rc = allocate_layers(m, e)) != ERR_OK ||
        (rc = layout_walk(m, take_tensor, m, e)) != ERR_OK)
        return rc;
    if (m->dims.tied && (rc = check_tied_head(m, e)) != ERR_OK)
        return rc;
    return check_left_over(m, e);
}

/* The last component of dir, as valid UTF-8: results carry it. */
static void name_after(struct model *m, const char *dir)
{
    char real[PATH_MAX];
    const char *base;
    size_t n = strlen(dir), begin, bad;

    while (n > 1 && dir[n - 1] == '/')
        n--;
    for (begin = n; begin > 0 && dir[begin - 1] != '/'; begin--)
        ;
    base = dir + begin;
    n -= begin;
    if ((n == 1 && base[0] == '.') || (n == 2 && base[0] == '.' && base[1] == '.')) {
        if (!realpath(dir, real))
            return;
        base = strrchr(real, '/') + 1;
        n = strlen(base);
    }
    snprintf(m->name, sizeof m->name, "%.*s", (int)n, base);
    while ((bad = utf8_valid(m->name, strlen(m->name))) < strlen(m->name))
        m->name[bad] = '?';
}

/* To the caller a file that is away or unreadable is a checkpoint that cannot be used. */
static enum err_code as_checkpoint(struct err *e)
{
    if (e)
        e->code = ERR_MODEL;
    return ERR_MODEL;
}

enum err_code model_open(struct model **out, const char *dir, struct err *e)
{
    struct model *m = calloc(1, sizeof *m);
    struct digest digest = {0};
    enum err_code rc;

    *out = NULL;
    if (!m)
        return err_set(e, ERR_NOMEM, ERR_STOP, "model: out of memory");
    name_after(m, dir);
    if ((rc = read_config(m, &digest, dir, e)) != ERR_OK || (rc = check_ends(m, e)) != ERR_OK ||
        (rc = load_weights(m, dir, e)) != ERR_OK || (rc = summarise(m, &digest, e)) != ERR_OK) {
        if (rc == ERR_IO)
            rc = as_checkpoint(e);
        else if (*dir && (rc == ERR_MODEL || rc == ERR_UNSUPPORTED))
            err_prefix(e, "model %.60s", m->name);
        goto out;
    }
    model_files_read_whole(m->files);
    *out = m;
    m = NULL;
out:
    model_close(m);
    return rc;
}

static enum err_code give_shape(void *ctx, const struct layout_item *x, struct err *e)
{
    (void)ctx; /* the walk's signature; a shape cannot fail */
    (void)e;
    *x->tensor = (struct tensor){.rows = x->rows, .cols = x->cols, .dtype = DTYPE_BF16};
    return ERR_OK;
}

static enum err_code read_shape(struct model *m, struct digest *digest, const char *shape, struct err *e)
{
    enum err_code rc;

    if (strcmp(shape, "1.8b") == 0 || strcmp(shape, "7b") == 0) {
        bool small = strcmp(shape, "1.8b") == 0;

        m->dims = small ? shape_1_8b : shape_7b;
        m->generation = published_sampling;
        m->generation.eos[m->generation.n_eos++] = small ? 120020 : 127960;
        if (!small)
            m->generation.eos[m->generation.n_eos++] = 127967;
        snprintf(m->name, sizeof m->name, "random-%s", shape);
        return ERR_OK;
    }
    name_after(m, shape);
    if ((rc = read_config(m, digest, shape, e)) != ERR_OK) {
        if (rc != ERR_IO)
            return rc;
        err_prefix(e, "neither 1.8b nor 7b nor a folder");
        return as_checkpoint(e);
    }
    return check_ends(m, e);
}

enum err_code model_open_shape(struct model **out, const char *shape, struct err *e)
{
    struct model *m = calloc(1, sizeof *m);
    struct digest digest = {0};
    enum err_code rc;

    *out = NULL;
    if (!m)
        return err_set(e, ERR_NOMEM, ERR_STOP, "model: out of memory");
    if ((rc = read_shape(m, &digest, shape, e)) != ERR_OK || (rc = allocate_layers(m, e)) != ERR_OK ||
        (rc = layout_walk(m, give_shape, NULL, e)) != ERR_OK)
        goto out;
    if (m->dims.tied)
        m->head = m->embed;
    if ((rc = summarise(m, &digest, e)) != ERR_OK)
        goto out;
    *out = m;
    m = NULL;
out:
    model_close(m);
    return rc;
}

void model_close(struct model *m)
{
    if (!m)
        return;
    model_files_close(m->files);
    free(m->layers);
    free(m);
}
