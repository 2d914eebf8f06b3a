#include "cuda/weights.h"

#include "cuda/fill.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 32 << 20, COPIERS = 8 };

/* --- the plan --- */

/* Hands out pieces of one allocation; with base NULL it only counts. */
struct carver {
    char *base;
    size_t used;
};

static void *carve(struct carver *c, size_t bytes)
{
    void *p = c->base ? c->base + c->used : NULL;

    c->used += (bytes + 1023) / 1024 * 1024; /* tiles are copied by 16 KiB and want the start of a line */
    return p;
}

static void carve_matrix(struct carver *c, struct matrix *a)
{
    a->w = carve(c, matrix_bytes(a));
}

static void carve_all(struct weights *w, const struct dims *d, struct carver *c)
{
    const size_t norm_bytes = (size_t)d->hidden * sizeof(bf16), head_bytes = (size_t)d->head_dim * sizeof(bf16);

    carve_matrix(c, &w->head);
    if (d->tied)
        w->embed = w->head;
    else
        carve_matrix(c, &w->embed);
    w->norm = carve(c, norm_bytes);
    for (int i = 0; i < d->layers; i++) {
        struct layer *l = &w->layers[i];
        carve_matrix(c, &l->qkv);
        carve_matrix(c, &l->o);
        carve_matrix(c, &l->gate_up);
        carve_matrix(c, &l->down);
        l->input_norm = carve(c, norm_bytes);
        l->post_norm = carve(c, norm_bytes);
        l->q_norm = d->qk_norm ? carve(c, head_bytes) : NULL;
        l->k_norm = d->qk_norm ? carve(c, head_bytes) : NULL;
    }
}

enum err_code weights_plan(struct weights *w, const struct model *m, const struct gpu *g, struct err *e)
{
    const struct dims *d = &m->dims;
    struct carver c = {0};

    memset(w, 0, sizeof *w);
    w->layers = calloc((size_t)d->layers, sizeof *w->layers);
    if (!w->layers)
        return err_set(e, ERR_NOMEM, ERR_STOP, "cuda: out of memory");
    matrix_shape(&w->head, d->vocab, d->hidden, g);
    matrix_shape(&w->embed, d->vocab, d->hidden, g);
    for (int i = 0; i < d->layers; i++) {
        struct layer *l = &w->layers[i];
        matrix_shape(&l->qkv, (d->heads + 2 * d->kv_heads) * d->head_dim, d->hidden, g);
        matrix_shape(&l->o, d->hidden, d->heads * d->head_dim, g);
        matrix_shape(&l->gate_up, 2 * d->inter, d->hidden, g);
        matrix_shape(&l->down, d->hidden, d->inter, g);
    }
    carve_all(w, d, &c);
    w->bytes = c.used;
    return ERR_OK;
}

void weights_close(struct weights *w)
{
    if (w->memory)
        (void)cudaFree(w->memory); /* an error here is an earlier one, reported where it happened */
    free(w->layers);
    memset(w, 0, sizeof *w);
}

/* --- loading: mapping -> pinned buffer (several threads) -> card -> packed, two buffers in turn --- */

struct loader {
    const struct gpu *g;
    bool is_random;
    uint64_t drawn; /* elements of the generator */
    char *pinned[2], *card[2];
    cudaEvent_t free[2]; /* the card has taken what pinned[i] and card[i] held */
    int turn;
};

struct copy_part {
    char *to;
    const char *from;
    size_t bytes;
};

static void *copy_thread(void *arg)
{
    const struct copy_part *p = arg;

    memcpy(p->to, p->from, p->bytes);
    return NULL;
}

/* One thread cannot fill the bus; the page faults of the mapping are its main work. */
static void copy_wide(char *to, const char *from, size_t bytes)
{
    struct copy_part part[COPIERS];
    pthread_t thread[COPIERS];
    bool started[COPIERS] = {false};
    const size_t step = bytes / COPIERS + 1;

    for (int i = 0; i < COPIERS; i++) {
        const size_t at = (size_t)i * step < bytes ? (size_t)i * step : bytes;
        part[i] = (struct copy_part){to + at, from + at, bytes - at < step ? bytes - at : step};
        if (i > 0 && part[i].bytes > 0 && bytes > 1 << 20)
            started[i] = pthread_create(&thread[i], NULL, copy_thread, &part[i]) == 0;
    }
    for (int i = 0; i < COPIERS; i++) {
        if (started[i])
            (void)pthread_join(thread[i], NULL); /* cannot fail: it was started here */
        else
            (void)copy_thread(&part[i]);
    }
}

/* Puts n elements of src, from element `first`, into the loader's next buffer on the card: *out.  To be followed by the
 * kernel that reads it and by loader_used(). */
static enum err_code loader_bring(struct loader *l, const struct tensor *t, size_t first, size_t n, void **out,
                                  struct err *e)
{
    const size_t size = t->dtype == DTYPE_F32 ? 4 : 2;
    enum err_code rc;

    *out = l->card[l->turn];
    if (l->is_random) {
        rc = fill_normal(*out, n, 1, l->drawn, 0.02f, l->g, e);
        l->drawn += n;
        return rc;
    }
    if ((rc = gpu_check(cudaEventSynchronize(l->free[l->turn]), "loading weights", e)) != ERR_OK)
        return rc;
    copy_wide(l->pinned[l->turn], (const char *)t->data + first * size, n * size);
    return gpu_check(cudaMemcpyAsync(*out, l->pinned[l->turn], n * size, cudaMemcpyHostToDevice, l->g->stream),
                     "loading weights", e);
}

static enum err_code loader_used(struct loader *l, struct err *e)
{
    enum err_code rc = gpu_check(cudaEventRecord(l->free[l->turn], l->g->stream), "loading weights", e);

    l->turn ^= 1;
    return rc;
}

/* made_up: a tensor without data is bf16. */
static int dtype_of(const struct loader *l, const struct tensor *t)
{
    if (l->is_random)
        return 0;
    return t->dtype == DTYPE_BF16 ? 0 : t->dtype == DTYPE_F16 ? 1 : 2;
}

static enum err_code load_matrix(struct loader *l, const struct matrix *a, const struct tensor *t, int64_t first,
                                 int stride, struct err *e)
{
    const size_t row_bytes = (size_t)t->cols * (t->dtype == DTYPE_F32 ? 4 : 2);
    const int64_t step = (int64_t)(CHUNK_BYTES / row_bytes) / 8 * 8; /* chunks of whole groups of eight rows */

    for (int64_t r = 0; r < t->rows; r += step) {
        const int64_t n = t->rows - r < step ? t->rows - r : step;
        void *src;
        enum err_code rc = loader_bring(l, t, (size_t)(r * t->cols), (size_t)(n * t->cols), &src, e);
        if (rc == ERR_OK)
            rc = matrix_pack(a, src, dtype_of(l, t), n, first + r / 8 * stride, stride, l->g, e);
        if (rc == ERR_OK)
            rc = loader_used(l, e);
        if (rc != ERR_OK)
            return rc;
    }
    return ERR_OK;
}

/* IEEE half precision; not every compiler of C17 has the type. */
static float half_value(uint16_t h)
{
    const int exponent = h >> 10 & 31, fraction = h & 1023;
    const float size = exponent == 31  ? fraction ? NAN : INFINITY
                       : exponent == 0 ? ldexpf((float)fraction, -24)
                                       : ldexpf((float)(fraction | 1024), exponent - 25);

    return h & 0x8000 ? -size : size;
}

static bf16 bf16_of(const struct tensor *t, int64_t i)
{
    float v;
    uint32_t bits;

    if (t->dtype == DTYPE_BF16)
        return ((const bf16 *)t->data)[i];
    if (t->dtype == DTYPE_F16) {
        v = half_value(((const uint16_t *)t->data)[i]);
    } else {
        memcpy(&v, (const char *)t->data + i * 4, sizeof v);
    }
    memcpy(&bits, &v, sizeof bits);
    if ((bits & 0x7f800000) == 0x7f800000) /* not finite: no rounding, it may turn one into the other */
        return (bf16)(bits >> 16 | ((bits & 0xffff) != 0));
    return (bf16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static enum err_code load_vector(struct loader *l, const bf16 *to, const struct tensor *t, struct err *e)
{
    bf16 *host = (bf16 *)l->pinned[0];
    enum err_code rc;

    if (!to)
        return ERR_OK;
    if (l->is_random)
        return fill_value((bf16 *)to, (size_t)t->rows, 1, l->g, e);
    if ((rc = gpu_check(cudaEventSynchronize(l->free[0]), "loading weights", e)) != ERR_OK)
        return rc;
    for (int64_t i = 0; i < t->rows; i++)
        host[i] = bf16_of(t, i);
    rc = gpu_check(cudaMemcpyAsync((bf16 *)to, host, (size_t)t->rows * sizeof(bf16), cudaMemcpyHostToDevice,
                                   l->g->stream),
                   "loading weights", e);
    return rc == ERR_OK ? gpu_check(cudaEventRecord(l->free[0], l->g->stream), "loading weights", e) : rc;
}

static enum err_code load_layer(struct loader *l, const struct layer *to, const struct layer_weights *from,
                                struct err *e)
{
    const int64_t q = from->q.rows, k = from->k.rows;
    enum err_code rc;

    if ((rc = load_matrix(l, &to->qkv, &from->q, 0, 8, e)) != ERR_OK ||
        (rc = load_matrix(l, &to->qkv, &from->k, q, 8, e)) != ERR_OK ||
        (rc = load_matrix(l, &to->qkv, &from->v, q + k, 8, e)) != ERR_OK ||
        (rc = load_matrix(l, &to->o, &from->o, 0, 8, e)) != ERR_OK ||
        (rc = load_matrix(l, &to->gate_up, &from->gate, 0, 16, e)) != ERR_OK ||
        (rc = load_matrix(l, &to->gate_up, &from->up, 8, 16, e)) != ERR_OK ||
        (rc = load_matrix(l, &to->down, &from->down, 0, 8, e)) != ERR_OK ||
        (rc = load_vector(l, to->input_norm, &from->input_norm, e)) != ERR_OK ||
        (rc = load_vector(l, to->post_norm, &from->post_norm, e)) != ERR_OK ||
        (rc = load_vector(l, to->q_norm, &from->q_norm, e)) != ERR_OK)
        return rc;
    return load_vector(l, to->k_norm, &from->k_norm, e);
}

static enum err_code load_all(struct loader *l, struct weights *w, const struct model *m, struct err *e)
{
    enum err_code rc = load_matrix(l, &w->head, &m->head, 0, 8, e);

    if (rc == ERR_OK && w->embed.w != w->head.w)
        rc = load_matrix(l, &w->embed, &m->embed, 0, 8, e);
    if (rc == ERR_OK)
        rc = load_vector(l, w->norm, &m->norm, e);
    for (int i = 0; i < m->dims.layers && rc == ERR_OK; i++)
        rc = load_layer(l, &w->layers[i], &m->layers[i], e);
    if (rc == ERR_OK)
        rc = gpu_check(cudaStreamSynchronize(l->g->stream), "loading weights", e);
    return rc;
}

static void loader_close(struct loader *l)
{
    for (int i = 0; i < 2; i++) { /* on the way out, after an error or when all is loaded */
        (void)cudaFreeHost(l->pinned[i]);
        (void)cudaFree(l->card[i]);
        if (l->free[i])
            (void)cudaEventDestroy(l->free[i]);
    }
}

static enum err_code loader_open(struct loader *l, bool is_random, const struct gpu *g, struct err *e)
{
    cudaError_t rc = cudaSuccess;

    memset(l, 0, sizeof *l);
    l->g = g;
    l->is_random = is_random;
    for (int i = 0; i < 2 && rc == cudaSuccess; i++) {
        rc = cudaMalloc((void **)&l->card[i], CHUNK_BYTES);
        if (rc == cudaSuccess)
            rc = cudaHostAlloc((void **)&l->pinned[i], is_random ? 4096 : CHUNK_BYTES, cudaHostAllocDefault);
        if (rc == cudaSuccess)
            rc = cudaEventCreateWithFlags(&l->free[i], cudaEventDisableTiming);
    }
    return gpu_check(rc, "cannot allocate the buffers for loading", e);
}

enum err_code weights_load(struct weights *w, const struct model *m, bool is_random, const struct gpu *g, struct err *e)
{
    struct carver c = {0};
    struct loader l;
    enum err_code rc = loader_open(&l, is_random, g, e);

    if (rc == ERR_OK)
        rc = gpu_check(cudaMalloc(&w->memory, w->bytes), "cannot allocate the weights", e);
    if (rc == ERR_OK) /* the padding of tiles is zero */
        rc = gpu_check(cudaMemsetAsync(w->memory, 0, w->bytes, g->stream), "cannot clear the weights", e);
    if (rc == ERR_OK) {
        c.base = w->memory;
        carve_all(w, &m->dims, &c);
        rc = load_all(&l, w, m, e);
    }
    loader_close(&l);
    return rc;
}
