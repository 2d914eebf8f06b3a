#include "cuda/pass.h"

#include "cuda/norm.h"

#include <string.h>

/* A tile of rows of the widest product may reach this far behind the last row of its input. */
enum { TILE_SLACK = 256, LEAST_PLACES = 64 };

static int round_up(int n, int to)
{
    return (n + to - 1) / to * to;
}

static int matrix_ld(const struct matrix *a)
{
    return a->m_tiles * 128;
}

static int columns_packed(int columns)
{
    return round_up(columns, 64);
}

/* --- memory --- */

static void *take(char *base, size_t *used, size_t bytes)
{
    void *p = base ? base + *used : NULL;

    *used += (bytes + 1023) / 1024 * 1024;
    return p;
}

static bf16 *take_packed(char *base, size_t *used, int cap, int columns)
{
    return take(base, used, (size_t)columns_packed(columns) * (size_t)cap * sizeof(bf16) + TILE_SLACK * 128);
}

static size_t most(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Parts of sums: rows that decode leave `splits` of them in f32, prompts one in bf16. */
static size_t part_floats(const struct pass *f)
{
    const struct layer *l = &f->w->layers[0];
    const struct matrix *all[3] = {&l->qkv, &l->o, &l->down};
    size_t n = 0;

    for (int i = 0; i < 3; i++) {
        const size_t ld = (size_t)matrix_ld(all[i]), splits = (size_t)all[i]->splits;
        n = most(n, splits * (size_t)f->rows * ld);
        n = most(n, (size_t)f->step_tokens * ld / 2);
    }
    return n;
}

static void place_all(struct pass *f, char *base)
{
    const struct dims *d = &f->d;
    const size_t places = (size_t)f->places, slots = (size_t)f->step_tokens + places;
    const size_t groups = ((size_t)d->vocab + SAMPLE_GROUP - 1) / SAMPLE_GROUP;
    size_t used = 0;

    f->x = take(base, &used, (size_t)f->cap * (size_t)d->hidden * sizeof(float));
    f->part = take(base, &used, f->part_floats * sizeof(float));
    f->logits = take(base, &used, places * (size_t)matrix_ld(&f->w->head) * sizeof(float));
    f->group_max = take(base, &used, places * groups * sizeof(float));
    f->group_sum = take(base, &used, places * groups * sizeof(float2));
    f->rope = take(base, &used, (size_t)f->positions * (size_t)d->head_dim * sizeof(float));
    f->normed = take_packed(base, &used, f->cap, d->hidden);
    f->attended = take_packed(base, &used, f->cap, d->heads * d->head_dim);
    f->inner = take_packed(base, &used, f->cap, d->inter);
    f->head_in = take_packed(base, &used, f->head_cap, d->hidden);

    f->table.state = take(base, &used, (size_t)f->rows * sizeof(struct row_state));
    f->table.tables = take(base, &used, (size_t)f->rows * (size_t)f->table.max_blocks * sizeof(int));
    f->table.tokens = take(base, &used, (size_t)f->rows * (size_t)f->positions * sizeof(int));
    f->table.seen = take(base, &used, (size_t)f->rows * (size_t)f->table.words * sizeof(unsigned));
    int **lists[] = {&f->lists.token,    &f->lists.row,  &f->lists.pos,        &f->lists.feed_token, &f->lists.feed_row,
                     &f->lists.feed_pos, &f->lists.pick, &f->lists.sample_row, &f->lists.sample_pos, &f->lists.turn};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        *lists[i] = take(base, &used, slots * sizeof(int));
    f->lists.tiles = take(base, &used, 4 * slots * sizeof(struct query_tile)); /* blocks of four, not all full */
    f->workspace_bytes = used;
}

void pass_plan(struct pass *f)
{
    const struct dims *d = &f->d;

    f->places = f->rows > LEAST_PLACES ? f->rows : LEAST_PLACES;
    f->head_cap = round_up(f->places, 8);
    f->cap = round_up(f->rows > f->step_tokens ? f->rows : f->step_tokens, 8);
    f->part_floats = part_floats(f);
    f->table.rows = f->rows;
    f->table.max_positions = f->positions;
    f->table.max_blocks = (f->positions + f->block_tokens - 1) / f->block_tokens;
    f->table.words = (d->vocab + 127) / 128 * 4;
    f->block_elems = (size_t)d->kv_heads * (size_t)f->block_tokens * 2 * (size_t)d->head_dim;
    place_all(f, NULL);
}

size_t pass_block_bytes(const struct pass *f)
{
    return f->block_elems * (size_t)f->d.layers * sizeof(bf16);
}

enum err_code pass_open(struct pass *f, struct err *e)
{
    enum err_code rc;

    f->layer_elems = f->block_elems * (size_t)f->blocks;
    f->kv_bytes = pass_block_bytes(f) * (size_t)f->blocks;
    if ((rc = gpu_check(cudaMalloc(&f->workspace, f->workspace_bytes), "cannot allocate the workspace", e)) != ERR_OK ||
        (rc = gpu_check(cudaMalloc((void **)&f->kv, f->kv_bytes), "cannot allocate the KV cache", e)) != ERR_OK ||
        (rc = gpu_check(cudaMemsetAsync(f->workspace, 0, f->workspace_bytes, f->g->stream), "cannot clear memory",
                        e)) != ERR_OK ||
        (rc = gpu_check(cudaMemsetAsync(f->kv, 0, f->kv_bytes, f->g->stream), "cannot clear memory", e)) != ERR_OK)
        return rc;
    place_all(f, f->workspace);
    return rope_table(f->rope, f->positions, f->d.head_dim, f->d.rope_base, f->g, e);
}

void pass_close(struct pass *f)
{
    if (f->workspace)
        (void)cudaFree(f->workspace); /* an error here is an earlier one, reported where it happened */
    if (f->kv)
        (void)cudaFree(f->kv);
    f->workspace = NULL;
    f->kv = NULL;
}

/* --- the pass --- */

static struct attention attention_of(const struct pass *f, int layer)
{
    const struct layer *l = &f->w->layers[layer];

    return (struct attention){.heads = f->d.heads,
                              .kv_heads = f->d.kv_heads,
                              .d = f->d.head_dim,
                              .block_shift = __builtin_ctz((unsigned)f->block_tokens),
                              .max_blocks = f->table.max_blocks,
                              .tables = f->table.tables,
                              .rope = f->rope,
                              .q_norm = l->q_norm,
                              .k_norm = l->k_norm,
                              .eps = f->d.norm_eps,
                              .kv = f->kv + (size_t)layer * f->layer_elems};
}

static struct norm norm_of(const struct pass *f, const bf16 *w)
{
    return (struct norm){w, f->d.norm_eps, f->d.hidden};
}

/* One layer of rows that decode, up to the parts of its down product. */
static enum err_code layer_decode(const struct pass *f, int layer, int rows, struct err *e)
{
    const struct layer *l = &f->w->layers[layer];
    const struct attention a = attention_of(f, layer);
    const struct norm post = norm_of(f, l->post_norm);
    const struct qkv_parts parts = {f->part, l->qkv.splits, rows, matrix_ld(&l->qkv)};
    enum err_code rc;

    if ((rc = product_sums(&l->qkv, f->normed, f->cap, rows, parts.splits, f->part, rows, f->g, e)) != ERR_OK ||
        (rc = attention_decode(&a, &parts, f->lists.row, f->lists.pos, rows, f->attended, f->cap, f->g, e)) != ERR_OK ||
        (rc = product_sums(&l->o, f->attended, f->cap, rows, l->o.splits, f->part, rows, f->g, e)) != ERR_OK ||
        (rc = residual_norm(f->x, f->part, l->o.splits, rows, matrix_ld(&l->o), f->normed, f->cap, 0, NULL, rows, &post,
                            f->g, e)) != ERR_OK ||
        (rc = product_swiglu(&l->gate_up, f->normed, f->cap, rows, f->inner, f->cap, f->g, e)) != ERR_OK)
        return rc;
    return product_sums(&l->down, f->inner, f->cap, rows, l->down.splits, f->part, rows, f->g, e);
}

/* One layer of prompt tokens: its sums are whole and rounded. */
static enum err_code layer_prompt(const struct pass *f, int layer, int rows, int tiles, struct err *e)
{
    const struct layer *l = &f->w->layers[layer];
    const struct attention a = attention_of(f, layer);
    const struct norm post = norm_of(f, l->post_norm);
    const int ld = matrix_ld(&l->qkv);
    bf16 *sums = (bf16 *)f->part;
    enum err_code rc;

    if ((rc = product_rounded(&l->qkv, f->normed, f->cap, rows, sums, f->g, e)) != ERR_OK ||
        (rc = attention_append(&a, sums, ld, f->lists.feed_row, f->lists.feed_pos, rows, f->g, e)) != ERR_OK ||
        (rc = attention_prompt(&a, sums, ld, f->lists.tiles, tiles, f->attended, f->cap, f->g, e)) != ERR_OK ||
        (rc = product_rounded(&l->o, f->attended, f->cap, rows, sums, f->g, e)) != ERR_OK ||
        (rc = residual_norm_rounded(f->x, sums, matrix_ld(&l->o), f->normed, f->cap, 0, NULL, rows, &post, f->g, e)) !=
            ERR_OK ||
        (rc = product_swiglu(&l->gate_up, f->normed, f->cap, rows, f->inner, f->cap, f->g, e)) != ERR_OK)
        return rc;
    return product_rounded(&l->down, f->inner, f->cap, rows, sums, f->g, e);
}

/* Adds what layer's down product left of `rows` rows (pick: which) to the residual; the norm goes to y[first..]. */
static enum err_code add_down(const struct pass *f, int layer, int part_rows, const int *pick, int rows, bool is_prompt,
                              const bf16 *norm_w, bf16 *y, int cap, int first, struct err *e)
{
    const struct matrix *down = &f->w->layers[layer].down;
    const struct norm n = norm_of(f, norm_w);

    return is_prompt ? residual_norm_rounded(f->x, (const bf16 *)f->part, matrix_ld(down), y, cap, first, pick, rows,
                                             &n, f->g, e)
                     : residual_norm(f->x, f->part, down->splits, part_rows, matrix_ld(down), y, cap, first, pick, rows,
                                     &n, f->g, e);
}

/* tiles < 0: rows that decode. */
static enum err_code layers_run(const struct pass *f, const int *token, int rows, int tiles, struct err *e)
{
    const struct norm first = norm_of(f, f->w->layers[0].input_norm);
    enum err_code rc = embed_norm(f->x, f->normed, f->cap, &f->w->embed, token, rows, &first, f->g, e);

    for (int i = 0; i < f->d.layers && rc == ERR_OK; i++) {
        rc = tiles < 0 ? layer_decode(f, i, rows, e) : layer_prompt(f, i, rows, tiles, e);
        if (rc == ERR_OK && i + 1 < f->d.layers)
            rc = add_down(f, i, rows, NULL, rows, tiles >= 0, f->w->layers[i + 1].input_norm, f->normed, f->cap, 0, e);
    }
    return rc;
}

/* The last layer's residual and the final norm, of `rows` rows (pick: which), to head_in[place..]. */
static enum err_code finish_rows(const struct pass *f, int part_rows, const int *pick, int rows, int place,
                                 bool is_prompt, struct err *e)
{
    return add_down(f, f->d.layers - 1, part_rows, pick, rows, is_prompt, f->w->norm, f->head_in, f->head_cap, place,
                    e);
}

enum err_code pass_prompt(const struct pass *f, int tokens, int tiles, int picks, int first_place, struct err *e)
{
    enum err_code rc = layers_run(f, f->lists.feed_token, tokens, tiles, e);

    if (rc == ERR_OK && picks > 0)
        rc = finish_rows(f, tokens, f->lists.pick, picks, first_place, true, e);
    return rc;
}

enum err_code pass_decode(const struct pass *f, int slots, struct err *e)
{
    enum err_code rc = layers_run(f, f->lists.token, slots, -1, e);

    return rc == ERR_OK ? finish_rows(f, slots, NULL, slots, 0, false, e) : rc;
}

enum err_code pass_head(const struct pass *f, int places, struct err *e)
{
    return product_sums(&f->w->head, f->head_in, f->head_cap, places, 1, f->logits, places, f->g, e);
}

enum err_code pass_sample(const struct pass *f, int places, struct sampled *out, float *distribution, struct err *e)
{
    const struct sample_job job = {.logits = f->logits,
                                   .ld = matrix_ld(&f->w->head),
                                   .vocab = f->d.vocab_used,
                                   .group_max = f->group_max,
                                   .group_sum = f->group_sum,
                                   .row = f->lists.sample_row,
                                   .pos = f->lists.sample_pos,
                                   .turn = f->lists.turn,
                                   .stride = f->places,
                                   .distribution = distribution};

    return sample(&job, &f->table, places, out, f->g, e);
}
