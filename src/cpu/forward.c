#include "cpu/forward.h"

#include "cpu/rope.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    SEGMENT = 8,             /* most tokens of one sequence whose attention is one task */
    SCORE_FLOATS = 1 << 20,  /* most scores that a thread holds, unless one token alone needs more */
    SERIAL_FLOATS = 1 << 13, /* rows smaller than this in all are not worth a hand-over to other threads */
    ROW_CHUNK = 96           /* rows of a product that are split off when the columns alone make too few tasks */
};

struct norms {
    float *input, *post, *q, *k; /* q and k NULL without qk_norm */
};

/* one thread's own */
struct scratch {
    float *panel;  /* [KERNEL_COLS, widest k] */
    float *query;  /* [SEGMENT * group, head_dim] */
    float *mixed;  /* the same: weighted values */
    float *scores; /* [segment * group, score_stride] */
    float *sums;   /* [SEGMENT * group] */
};

struct segment {
    int first, n; /* tokens */
};

struct forward {
    const struct model *m;
    const struct dims *d;
    const struct kernels *k;
    struct pool *pool;
    int block_tokens, max_tokens, group, segment_tokens;
    size_t qkv_width, q_width, score_stride, block_floats, kv_bytes, workspace_bytes;
    double *frequency; /* [head_dim / 2], radians a position */
    float *kv;         /* [blocks, layers, kv_heads, keys | values, block_tokens, head_dim] */
    float *x, *h;      /* [max_tokens, hidden] */
    float *qkv;        /* [max_tokens, q | k | v] */
    float *attended;   /* [max_tokens, heads * head_dim] */
    float *gate, *up;  /* [max_tokens, inter] */
    float *cos, *sin;  /* [max_tokens, head_dim / 2] */
    float *final_norm;
    struct norms *norms;     /* [layers] */
    struct scratch *scratch; /* [threads] */
    struct segment *segments;
    /* this run */
    const struct forward_token *tokens;
    int n, n_segments, layer;
};

/* --- opening --- */

/* Zeroed, 64-byte aligned; counts what it gives. */
static void *take(struct forward *f, size_t n, size_t size, bool *ok)
{
    size_t bytes = (n * size + 63) / 64 * 64;
    void *p = *ok ? aligned_alloc(64, bytes ? bytes : 64) : NULL;

    if (!p) {
        *ok = false;
        return NULL;
    }
    memset(p, 0, bytes);
    f->workspace_bytes += bytes;
    return p;
}

static float *take_norm(struct forward *f, const struct tensor *t, bool *ok)
{
    float *w = t->data ? take(f, (size_t)t->rows, sizeof *w, ok) : NULL;

    if (w)
        f->k->widen(w, t->data, t->dtype, (size_t)t->rows);
    return w;
}

static bool take_norms(struct forward *f)
{
    bool ok = true;

    f->norms = take(f, (size_t)f->d->layers, sizeof *f->norms, &ok);
    for (int i = 0; ok && i < f->d->layers; i++) {
        const struct layer_weights *w = &f->m->layers[i];

        f->norms[i].input = take_norm(f, &w->input_norm, &ok);
        f->norms[i].post = take_norm(f, &w->post_norm, &ok);
        f->norms[i].q = take_norm(f, &w->q_norm, &ok);
        f->norms[i].k = take_norm(f, &w->k_norm, &ok);
    }
    f->final_norm = take_norm(f, &f->m->norm, &ok);
    return ok;
}

static bool take_scratch(struct forward *f)
{
    size_t heads = (size_t)SEGMENT * (size_t)f->group, dim = (size_t)f->d->head_dim;
    size_t widest = f->q_width;
    bool ok = true;

    if ((size_t)f->d->hidden > widest)
        widest = (size_t)f->d->hidden;
    if ((size_t)f->d->inter > widest)
        widest = (size_t)f->d->inter;
    f->scratch = take(f, (size_t)pool_threads(f->pool), sizeof *f->scratch, &ok);
    for (int i = 0; ok && i < pool_threads(f->pool); i++) {
        struct scratch *s = &f->scratch[i];

        s->panel = take(f, KERNEL_COLS * widest, sizeof(float), &ok);
        s->query = take(f, heads * dim, sizeof(float), &ok);
        s->mixed = take(f, heads * dim, sizeof(float), &ok);
        s->sums = take(f, heads, sizeof(float), &ok);
        s->scores = take(f, (size_t)(f->segment_tokens * f->group) * f->score_stride, sizeof(float), &ok);
    }
    return ok;
}

static bool take_activations(struct forward *f)
{
    size_t n = (size_t)f->max_tokens, half = (size_t)f->d->head_dim / 2;
    bool ok = true;

    f->x = take(f, n * (size_t)f->d->hidden, sizeof(float), &ok);
    f->h = take(f, n * (size_t)f->d->hidden, sizeof(float), &ok);
    f->qkv = take(f, n * f->qkv_width, sizeof(float), &ok);
    f->attended = take(f, n * f->q_width, sizeof(float), &ok);
    f->gate = take(f, n * (size_t)f->d->inter, sizeof(float), &ok);
    f->up = take(f, n * (size_t)f->d->inter, sizeof(float), &ok);
    f->cos = take(f, n * half, sizeof(float), &ok);
    f->sin = take(f, n * half, sizeof(float), &ok);
    f->segments = take(f, n, sizeof *f->segments, &ok);
    f->frequency = take(f, half, sizeof(double), &ok);
    if (ok)
        rope_frequencies(f->frequency, f->d->rope_base, f->d->head_dim);
    return ok;
}

/* Pages of it become real when they are first written. */
static bool map_kv(struct forward *f, int blocks)
{
    void *p;

    f->kv_bytes = (size_t)blocks * f->block_floats * sizeof(float);
    p = mmap(NULL, f->kv_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    f->kv = p == MAP_FAILED ? NULL : p;
    return f->kv;
}

enum err_code forward_open(struct forward **out, const struct forward_options *o, struct err *e)
{
    const struct dims *d = &o->model->dims;
    struct forward *f;
    size_t per_token;

    *out = NULL;
    if (d->head_dim % 16 != 0)
        return err_set(e, ERR_UNSUPPORTED, ERR_STOP, "cpu: head_dim %d is not a multiple of 16", d->head_dim);
    if (!(f = calloc(1, sizeof *f)))
        return err_set(e, ERR_NOMEM, ERR_STOP, "cpu: out of memory");
    f->m = o->model;
    f->d = d;
    f->k = o->kernels;
    f->pool = o->pool;
    f->block_tokens = o->block_tokens;
    f->max_tokens = o->max_tokens;
    f->group = d->heads / d->kv_heads;
    f->q_width = (size_t)d->heads * (size_t)d->head_dim;
    f->qkv_width = f->q_width + 2 * (size_t)d->kv_heads * (size_t)d->head_dim;
    f->score_stride = ((size_t)o->max_positions / KERNEL_MAX_LANES + 1) * KERNEL_MAX_LANES;
    f->block_floats = forward_block_bytes(d, o->block_tokens) / sizeof(float);
    per_token = (size_t)f->group * f->score_stride;
    f->segment_tokens = per_token * SEGMENT <= SCORE_FLOATS ? SEGMENT : (int)(SCORE_FLOATS / per_token);
    if (f->segment_tokens < 1)
        f->segment_tokens = 1;
    if (!take_norms(f) || !take_scratch(f) || !take_activations(f) || !map_kv(f, o->blocks)) {
        forward_close(f);
        return err_set(e, ERR_NOMEM, ERR_STOP, "cpu: no memory for %d KV blocks and the workspace", o->blocks);
    }
    *out = f;
    return ERR_OK;
}

static void free_norms(struct forward *f)
{
    for (int i = 0; f->norms && i < f->d->layers; i++) {
        free(f->norms[i].input);
        free(f->norms[i].post);
        free(f->norms[i].q);
        free(f->norms[i].k);
    }
    free(f->norms);
    free(f->final_norm);
}

static void free_scratch(struct forward *f)
{
    for (int i = 0; f->scratch && i < pool_threads(f->pool); i++) {
        free(f->scratch[i].panel);
        free(f->scratch[i].query);
        free(f->scratch[i].mixed);
        free(f->scratch[i].sums);
        free(f->scratch[i].scores);
    }
    free(f->scratch);
}

void forward_close(struct forward *f)
{
    if (!f)
        return;
    free_norms(f);
    free_scratch(f);
    if (f->kv)
        munmap(f->kv, f->kv_bytes);
    free(f->x);
    free(f->h);
    free(f->qkv);
    free(f->attended);
    free(f->gate);
    free(f->up);
    free(f->cos);
    free(f->sin);
    free(f->segments);
    free(f->frequency);
    free(f);
}

/* --- KV blocks --- */

size_t forward_block_bytes(const struct dims *d, int block_tokens)
{
    return (size_t)d->layers * (size_t)d->kv_heads * 2 * (size_t)block_tokens * (size_t)d->head_dim * sizeof(float);
}

size_t forward_workspace_bytes(const struct forward *f)
{
    return f->workspace_bytes;
}

/* keys of a block in the current layer; its values lie block_tokens * head_dim behind */
static float *block_keys(const struct forward *f, int32_t block, int kv_head)
{
    size_t half = (size_t)f->block_tokens * (size_t)f->d->head_dim;

    return f->kv + (size_t)block * f->block_floats +
           ((size_t)f->layer * (size_t)f->d->kv_heads + (size_t)kv_head) * 2 * half;
}

void forward_copy_block(struct forward *f, int src, int dst, int n)
{
    size_t half = (size_t)f->block_tokens * (size_t)f->d->head_dim;
    size_t bytes = (size_t)n * (size_t)f->d->head_dim * sizeof(float);
    const float *from = f->kv + (size_t)src * f->block_floats;
    float *to = f->kv + (size_t)dst * f->block_floats;

    for (size_t i = 0; i < f->block_floats; i += half)
        memcpy(to + i, from + i, bytes);
}

/* --- products, shared out by columns --- */

struct part {
    const struct tensor *w; /* [cols, k] */
    float *out;
    size_t out_stride;
    int cols;
};

struct product {
    struct forward *f;
    const float *x;
    size_t x_stride;
    int rows, k, n_parts, chunk, row_chunk, row_tasks;
    bool add, swiglu; /* swiglu: parts are gate and up, and share a task */
    struct part parts[3];
};

static void product_part(const struct product *p, const struct part *w, int column, int row, int rows, int thread)
{
    int cols = w->cols - column < p->chunk ? w->cols - column : p->chunk;
    size_t size = w->w->dtype == DTYPE_F32 ? 4 : 2;
    const char *from = (const char *)w->w->data + (size_t)column * (size_t)p->k * size;

    p->f->k->product(w->out + (size_t)row * w->out_stride + column, w->out_stride, p->x + (size_t)row * p->x_stride,
                     p->x_stride, rows, from, w->w->dtype, cols, p->k, p->add, p->f->scratch[thread].panel);
}

static void product_task(void *arg, int task, int thread)
{
    const struct product *p = arg;
    int row = task % p->row_tasks * p->row_chunk, part = 0;
    int rows = p->rows - row < p->row_chunk ? p->rows - row : p->row_chunk;

    task /= p->row_tasks;
    while (!p->swiglu && task >= (p->parts[part].cols + p->chunk - 1) / p->chunk)
        task -= (p->parts[part].cols + p->chunk - 1) / p->chunk, part++;
    product_part(p, &p->parts[part], task * p->chunk, row, rows, thread);
    if (p->swiglu) {
        const struct part *g = &p->parts[0], *u = &p->parts[1];
        int column = task * p->chunk, cols = g->cols - column < p->chunk ? g->cols - column : p->chunk;

        product_part(p, u, column, row, rows, thread);
        p->f->k->swiglu(g->out + (size_t)row * g->out_stride + column, g->out_stride,
                        u->out + (size_t)row * u->out_stride + column, u->out_stride, rows, cols);
    }
}

/* Enough tasks that threads of unequal speed end together, as large as that allows. */
static void product_run(struct product *p)
{
    int total = 0, tasks = 0, threads = pool_threads(p->f->pool), parts = p->swiglu ? 1 : p->n_parts;

    for (int i = 0; i < parts; i++)
        total += p->parts[i].cols;
    p->chunk = total / (threads * 8) / KERNEL_COLS * KERNEL_COLS;
    if (p->chunk < KERNEL_COLS)
        p->chunk = KERNEL_COLS;
    if (p->chunk > 16 * KERNEL_COLS)
        p->chunk = 16 * KERNEL_COLS;
    for (int i = 0; i < parts; i++)
        tasks += (p->parts[i].cols + p->chunk - 1) / p->chunk;
    p->row_chunk = tasks < threads * 4 && p->rows > ROW_CHUNK ? ROW_CHUNK : p->rows;
    p->row_tasks = (p->rows + p->row_chunk - 1) / p->row_chunk;
    pool_run(p->f->pool, product_task, p, tasks * p->row_tasks);
}

/* --- rows: what is done token by token --- */

static void share_rows(struct forward *f, pool_fn *fn, int n, size_t floats_each)
{
    if ((size_t)n * floats_each >= SERIAL_FLOATS)
        pool_run(f->pool, fn, f, n);
    else
        for (int i = 0; i < n; i++)
            fn(f, i, 0);
}

/* A token's embedding, and the angles of its position. */
static void embed_task(void *arg, int i, int thread)
{
    struct forward *f = arg;
    size_t hidden = (size_t)f->d->hidden, half = (size_t)f->d->head_dim / 2;
    const struct forward_token *t = &f->tokens[i];
    const struct tensor *w = &f->m->embed;
    size_t size = w->dtype == DTYPE_F32 ? 4 : 2;

    (void)thread;
    f->k->widen(f->x + (size_t)i * hidden, (const char *)w->data + (size_t)t->id * hidden * size, w->dtype, hidden);
    rope_angles(f->cos + (size_t)i * half, f->sin + (size_t)i * half, f->frequency, f->d->head_dim, t->position);
}

static void norm_row(struct forward *f, int to, int from, const float *w)
{
    size_t hidden = (size_t)f->d->hidden;

    f->k->rmsnorm(f->h + (size_t)to * hidden, f->x + (size_t)from * hidden, w, f->d->hidden, f->d->norm_eps);
}

static void input_norm_task(void *arg, int i, int thread)
{
    struct forward *f = arg;

    (void)thread;
    norm_row(f, i, i, f->norms[f->layer].input);
}

static void post_norm_task(void *arg, int i, int thread)
{
    struct forward *f = arg;

    (void)thread;
    norm_row(f, i, i, f->norms[f->layer].post);
}

static void final_norm_task(void *arg, int i, int thread)
{
    struct forward *f = arg;

    (void)thread;
    if (f->tokens[i].logits >= 0)
        norm_row(f, f->tokens[i].logits, i, f->final_norm);
}

/* Rotation first, then the norm of each head; keys and values go to the cache. */
static void place_task(void *arg, int i, int thread)
{
    struct forward *f = arg;
    const struct norms *w = &f->norms[f->layer];
    const struct forward_token *t = &f->tokens[i];
    int dim = f->d->head_dim, heads = f->d->heads, kv_heads = f->d->kv_heads;
    const float *c = f->cos + (size_t)i * (size_t)(dim / 2), *s = f->sin + (size_t)i * (size_t)(dim / 2);
    float *x = f->qkv + (size_t)i * f->qkv_width;
    size_t bytes = (size_t)dim * sizeof *x, half = (size_t)f->block_tokens * (size_t)dim;

    (void)thread;
    for (int head = 0; head < heads + kv_heads; head++) {
        const float *norm = head < heads ? w->q : w->k;
        float *y = x + (size_t)head * (size_t)dim;

        f->k->rotate(y, c, s, dim);
        if (norm)
            f->k->rmsnorm(y, y, norm, dim, f->d->norm_eps);
    }
    for (int head = 0; head < kv_heads; head++) {
        float *keys = block_keys(f, t->blocks[t->position / f->block_tokens], head);
        size_t at = (size_t)(t->position % f->block_tokens) * (size_t)dim;

        memcpy(keys + at, x + f->q_width + (size_t)head * (size_t)dim, bytes);
        memcpy(keys + half + at, x + f->q_width + (size_t)(kv_heads + head) * (size_t)dim, bytes);
    }
}

/* --- attention --- */

/* scores[token * group + g][j] = q . k_j for all positions up to the segment's last */
static void score_segment(const struct forward *f, const struct segment *g, int kv_head, struct scratch *s)
{
    const struct forward_token *t = &f->tokens[g->first];
    int dim = f->d->head_dim, end = t[g->n - 1].position + 1;
    size_t width = (size_t)f->group * (size_t)dim;

    for (int i = 0; i < g->n; i++)
        memcpy(s->query + (size_t)i * width, f->qkv + (size_t)(g->first + i) * f->qkv_width + (size_t)kv_head * width,
               width * sizeof(float));
    for (int from = 0; from < end; from += f->block_tokens) {
        int n = end - from < f->block_tokens ? end - from : f->block_tokens;
        const float *keys = block_keys(f, t->blocks[from / f->block_tokens], kv_head);

        f->k->product(s->scores + from, f->score_stride, s->query, (size_t)dim, g->n * f->group, keys, DTYPE_F32, n,
                      dim, false, NULL);
    }
}

/* Each token over its own past: positions behind it, although scored, take no part. */
static void mix_segment(const struct forward *f, const struct segment *g, int kv_head, struct scratch *s)
{
    const struct forward_token *t = &f->tokens[g->first];
    int dim = f->d->head_dim, end = t[g->n - 1].position + 1;
    size_t width = (size_t)f->group * (size_t)dim, half = (size_t)f->block_tokens * (size_t)dim;
    float scale = (float)(1.0 / sqrt((double)dim));

    for (int r = 0; r < g->n * f->group; r++)
        s->sums[r] = f->k->softmax(s->scores + (size_t)r * f->score_stride, t[r / f->group].position + 1, scale);
    memset(s->mixed, 0, (size_t)g->n * width * sizeof *s->mixed);
    for (int from = 0; from < end; from += f->block_tokens) {
        const float *values = block_keys(f, t->blocks[from / f->block_tokens], kv_head) + half;

        for (int i = 0; i < g->n; i++) {
            int n = t[i].position + 1 - from;
            if (n > 0)
                f->k->weigh(s->mixed + (size_t)i * width, (size_t)dim,
                            s->scores + (size_t)(i * f->group) * f->score_stride + from, f->score_stride, f->group,
                            values, n < f->block_tokens ? n : f->block_tokens, dim);
        }
    }
    for (int r = 0; r < g->n * f->group; r++) {
        const float *from = s->mixed + (size_t)r * (size_t)dim;
        float *to = f->attended + (size_t)(g->first + r / f->group) * f->q_width + (size_t)kv_head * width +
                    (size_t)(r % f->group) * (size_t)dim;
        float inverse = 1.0f / s->sums[r];

        for (int c = 0; c < dim; c++)
            to[c] = from[c] * inverse;
    }
}

static void attention_task(void *arg, int task, int thread)
{
    const struct forward *f = arg;
    const struct segment *g = &f->segments[task / f->d->kv_heads];
    int kv_head = task % f->d->kv_heads;

    score_segment(f, g, kv_head, &f->scratch[thread]);
    mix_segment(f, g, kv_head, &f->scratch[thread]);
}

static void find_segments(struct forward *f)
{
    struct segment *g = NULL;

    f->n_segments = 0;
    for (int i = 0; i < f->n; i++) {
        if (g && g->n < f->segment_tokens && f->tokens[i].blocks == f->tokens[i - 1].blocks) {
            g->n++;
        } else {
            g = &f->segments[f->n_segments++];
            *g = (struct segment){.first = i, .n = 1};
        }
    }
}

/* --- the decoder --- */

static void run_attention(struct forward *f)
{
    const struct layer_weights *w = &f->m->layers[f->layer];
    size_t kv_width = (size_t)f->d->kv_heads * (size_t)f->d->head_dim;
    struct product qkv = {
        .f = f,
        .x = f->h,
        .x_stride = (size_t)f->d->hidden,
        .rows = f->n,
        .k = f->d->hidden,
        .n_parts = 3,
        .parts = {{&w->q, f->qkv, f->qkv_width, (int)f->q_width},
                  {&w->k, f->qkv + f->q_width, f->qkv_width, (int)kv_width},
                  {&w->v, f->qkv + f->q_width + kv_width, f->qkv_width, (int)kv_width}},
    };
    struct product o = {
        .f = f,
        .x = f->attended,
        .x_stride = f->q_width,
        .rows = f->n,
        .k = (int)f->q_width,
        .n_parts = 1,
        .add = true,
        .parts = {{&w->o, f->x, (size_t)f->d->hidden, f->d->hidden}},
    };

    share_rows(f, input_norm_task, f->n, (size_t)f->d->hidden);
    product_run(&qkv);
    share_rows(f, place_task, f->n, f->qkv_width);
    pool_run(f->pool, attention_task, f, f->n_segments * f->d->kv_heads);
    product_run(&o);
}

static void run_mlp(struct forward *f)
{
    const struct layer_weights *w = &f->m->layers[f->layer];
    size_t hidden = (size_t)f->d->hidden, inter = (size_t)f->d->inter;
    struct product in = {
        .f = f,
        .x = f->h,
        .x_stride = hidden,
        .rows = f->n,
        .k = f->d->hidden,
        .n_parts = 2,
        .swiglu = true,
        .parts = {{&w->gate, f->gate, inter, f->d->inter}, {&w->up, f->up, inter, f->d->inter}},
    };
    struct product down = {
        .f = f,
        .x = f->gate,
        .x_stride = inter,
        .rows = f->n,
        .k = f->d->inter,
        .n_parts = 1,
        .add = true,
        .parts = {{&w->down, f->x, hidden, f->d->hidden}},
    };

    share_rows(f, post_norm_task, f->n, hidden);
    product_run(&in);
    product_run(&down);
}

void forward_run(struct forward *f, const struct forward_token *tokens, int n, float *logits, int n_logits, int columns)
{
    struct product head = {
        .f = f,
        .x = f->h,
        .x_stride = (size_t)f->d->hidden,
        .rows = n_logits,
        .k = f->d->hidden,
        .n_parts = 1,
        .parts = {{&f->m->head, logits, (size_t)columns, columns}},
    };

    f->tokens = tokens;
    f->n = n;
    find_segments(f);
    share_rows(f, embed_task, n, (size_t)f->d->hidden);
    for (f->layer = 0; f->layer < f->d->layers; f->layer++) {
        run_attention(f);
        run_mlp(f);
    }
    if (n_logits > 0) {
        share_rows(f, final_norm_task, n, (size_t)f->d->hidden);
        product_run(&head);
    }
}
