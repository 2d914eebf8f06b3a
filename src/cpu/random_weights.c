#include "cpu/random_weights.h"

#include "engine/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    TABLE = 1 << 16, /* normal numbers that 16 random bits choose from */
    PIECE = 1 << 16  /* weights a task */
};

static const uint16_t bf16_one = 0x3f80;

struct random_weights {
    struct model m;
    struct layer_weights *layers;
    uint16_t *data, *table;
};

static uint16_t to_bf16(float f)
{
    uint32_t u;

    memcpy(&u, &f, sizeof u);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* Box-Muller, two at a time. */
static void fill_table(uint16_t *table)
{
    for (int i = 0; i < TABLE; i += 2) {
        double u = random_uniform(1, (uint64_t)i), v = random_uniform(1, (uint64_t)i + 1);
        double r = 0.02 * sqrt(-2 * log(1 - u)), angle = 2 * M_PI * v;

        table[i] = to_bf16((float)(r * cos(angle)));
        table[i + 1] = to_bf16((float)(r * sin(angle)));
    }
}

static void fill_task(void *arg, int task, int thread)
{
    struct random_weights *w = arg;
    uint16_t *to = w->data + (size_t)task * PIECE;

    (void)thread;
    for (int i = 0; i < PIECE; i += 8) {
        uint32_t r[4];

        random_block(2, ((uint64_t)task * PIECE + (uint64_t)i) / 8, 1, r);
        for (int j = 0; j < 8; j++)
            to[i + j] = w->table[r[j / 2] >> (j % 2 * 16) & 0xffff];
    }
}

/* Gives *t the next rows * cols weights; with data NULL only counts. */
static size_t place(struct tensor *t, uint16_t *data, size_t at)
{
    t->dtype = DTYPE_BF16;
    t->data = data ? data + at : NULL;
    return at + (size_t)t->rows * (size_t)t->cols;
}

static size_t place_all(struct random_weights *w, uint16_t *data)
{
    size_t at = place(&w->m.embed, data, 0);

    w->m.head = w->m.embed;
    for (int i = 0; i < w->m.dims.layers; i++) {
        struct layer_weights *l = &w->layers[i];
        struct tensor *all[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};

        for (size_t j = 0; j < sizeof all / sizeof *all; j++)
            at = place(all[j], data, at);
    }
    return at;
}

static void set_shapes(struct random_weights *w)
{
    const struct dims *d = &w->m.dims;
    int64_t q = (int64_t)d->heads * d->head_dim, kv = (int64_t)d->kv_heads * d->head_dim;

    w->m.embed = (struct tensor){.rows = d->vocab, .cols = d->hidden};
    for (int i = 0; i < d->layers; i++) {
        struct layer_weights *l = &w->layers[i];

        l->q = (struct tensor){.rows = q, .cols = d->hidden};
        l->k = l->v = (struct tensor){.rows = kv, .cols = d->hidden};
        l->o = (struct tensor){.rows = d->hidden, .cols = q};
        l->gate = l->up = (struct tensor){.rows = d->inter, .cols = d->hidden};
        l->down = (struct tensor){.rows = d->hidden, .cols = d->inter};
    }
}

/* All norms share one vector of ones. */
static void set_norms(struct random_weights *w, uint16_t *ones)
{
    const struct dims *d = &w->m.dims;
    struct tensor hidden = {.data = ones, .rows = d->hidden, .cols = 1, .dtype = DTYPE_BF16};
    struct tensor head = {.data = d->qk_norm ? ones : NULL, .rows = d->head_dim, .cols = 1, .dtype = DTYPE_BF16};
    int n = d->hidden > d->head_dim ? d->hidden : d->head_dim;

    for (int i = 0; i < n; i++)
        ones[i] = bf16_one;
    w->m.norm = hidden;
    for (int i = 0; i < d->layers; i++) {
        w->layers[i].input_norm = w->layers[i].post_norm = hidden;
        w->layers[i].q_norm = w->layers[i].k_norm = head;
    }
}

enum err_code random_weights_open(struct random_weights **out, const struct model *shape, struct pool *p, struct err *e)
{
    struct random_weights *w = calloc(1, sizeof *w);
    const struct dims *d = &shape->dims;
    size_t norm = (size_t)(d->hidden > d->head_dim ? d->hidden : d->head_dim), total = 0, pieces = 0;

    *out = NULL;
    if (w) {
        w->m = *shape;
        w->m.layers = w->layers = calloc((size_t)d->layers, sizeof *w->layers);
        w->table = malloc(TABLE * sizeof *w->table);
    }
    if (w && w->layers && w->table) {
        set_shapes(w);
        total = place_all(w, NULL);
        pieces = (total + PIECE - 1) / PIECE;
        w->data = pieces <= POOL_MAX_TASKS ? malloc((pieces * PIECE + norm) * sizeof *w->data) : NULL;
    }
    if (!w || !w->data) {
        random_weights_close(w);
        return err_set(e, ERR_NOMEM, ERR_STOP, "cpu: no memory for random weights");
    }
    place_all(w, w->data);
    set_norms(w, w->data + pieces * PIECE);
    fill_table(w->table);
    pool_run(p, fill_task, w, (int)pieces);
    w->m.weight_bytes = total * sizeof *w->data;
    *out = w;
    return ERR_OK;
}

void random_weights_close(struct random_weights *w)
{
    if (!w)
        return;
    free(w->data);
    free(w->table);
    free(w->layers);
    free(w);
}

const struct model *random_weights_model(const struct random_weights *w)
{
    return &w->m;
}
