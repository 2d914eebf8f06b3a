/* The CUDA backend behind engine/backend.h.
 *
 * A step: the host writes its orders (joins, new blocks, which rows decode, which prompts are fed) into the next of
 * TURNS pinned buffers and queues: block copies, joins, rows_begin, then either the graph of a bucket of decoding rows
 * or, with prompts, the launches one by one; the sampler writes tokens into the turn's pinned answers; an event marks
 * the end.  collect() waits for the oldest event.  The card reads the orders where they are, so a buffer is not written
 * again before its step was collected.
 *
 * What a row computes depends on its own tokens and lengths alone, not on the bucket, the other rows, or how its prompt
 * was cut.  One thing is not bitwise the same: keys and values of tokens that were decoded (kernels that split their
 * sums) and of the same tokens fed again as a prompt after the row was put back (kernels that do not, and round them);
 * they agree to rounding.  info.decode_rounds tells the engine, which then shares the blocks of prompts alone.
 *
 * Row places.  Decoding rows have the places 0..slots of the logits, prompts that end the ones behind. */
#include "cuda/ceiling.h"
#include "cuda/pass.h"
#include "cuda/norm.h"
#include "engine/backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RUN_AHEAD = 3,
    TURNS = RUN_AHEAD + 1,
    MAX_BUCKETS = 40,
    MOST_ROWS = 1024,
    LEAST_ROWS = 64,
    TYPICAL_ROW = 256,
    DEFAULT_STEP_TOKENS = 2048
};
enum { DEFAULT_POSITIONS = 8192, ORDER_INTS = (int)(sizeof(struct row_order) / sizeof(int)) };

struct turn {
    int *buffer; /* pinned: joins, then what used counts */
    struct sampled *answers;
    cudaEvent_t begun, done;
    int used;
    int n_joins, n_grow, n_copies;
    int *place; /* [rows] of the step's rows: place among the answers, -1 none */
    int n;
};

struct row_mirror { /* what the host knows of a row */
    int n_blocks, fed, n_tokens;
    int joined_in; /* turns opened when it was joined: one join a turn */
};

struct backend {
    struct gpu gpu;
    const struct model *model;
    struct weights weights;
    struct pass f;
    struct backend_info info;
    struct row_mirror *rows;

    void *pinned;
    struct sampled *answers;
    int buffer_ints, grow_cap, copy_cap, joins_at, copies_at, grows_at, fixed;
    struct turn turns[TURNS];
    int first, queued; /* turns[first..first + queued) are under way; the next one collects orders */
    unsigned opened;
    double busy_seconds;

    int buckets[MAX_BUCKETS], n_buckets;
    cudaGraphExec_t graphs[MAX_BUCKETS];
};

/* The card is a property of the thread, and the engine's may not be the one that opened. */
static enum err_code use_card(const struct backend *b, struct err *e)
{
    return gpu_check(cudaSetDevice(b->gpu.index), "cannot use the card", e);
}

static struct turn *open_turn(struct backend *b)
{
    return &b->turns[(b->first + b->queued) % TURNS];
}

/* --- opening --- */

static enum err_code check_shape(const struct model *m, const struct backend_options *o, struct err *e)
{
    const struct dims *d = &m->dims;

    if (d->head_dim != 64 && d->head_dim != 128)
        return err_set(e, ERR_UNSUPPORTED, ERR_STOP, "cuda: head size %d: there are kernels for 64 and 128",
                       d->head_dim);
    if (d->hidden % 8 != 0 || d->hidden > NORM_MAX_HIDDEN || d->inter % 8 != 0)
        return err_set(e, ERR_UNSUPPORTED, ERR_STOP,
                       "cuda: hidden size %d, inner size %d: multiples of 8 are needed, the first at most %d",
                       d->hidden, d->inter, NORM_MAX_HIDDEN);
    if (o->block_tokens != 0 && (o->block_tokens < 16 || (o->block_tokens & (o->block_tokens - 1)) != 0))
        return err_set(e, ERR_CONFIG, ERR_STOP, "cuda: KV blocks of %d tokens: a power of two from 16 on is needed",
                       o->block_tokens);
    return ERR_OK;
}

static void choose_sizes(struct backend *b, const struct backend_options *o)
{
    struct pass *f = &b->f;
    const int longest = b->model->dims.max_positions;

    f->g = &b->gpu;
    f->w = &b->weights;
    f->d = b->model->dims;
    f->rows = o->rows > 0 ? o->rows : MOST_ROWS;
    f->step_tokens = o->step_tokens > 0 ? o->step_tokens : DEFAULT_STEP_TOKENS;
    f->block_tokens = o->block_tokens > 0 ? o->block_tokens : 16;
    f->positions = o->max_positions > 0 ? o->max_positions : longest < DEFAULT_POSITIONS ? longest : DEFAULT_POSITIONS;
    if (f->d.vocab_used <= 0 || f->d.vocab_used > f->d.vocab)
        f->d.vocab_used = f->d.vocab;
}

/* Without a word on rows: as many as find room for TYPICAL_ROW tokens each. */
static enum err_code choose_rows(struct backend *b, const struct backend_options *o, struct err *e)
{
    struct pass *f = &b->f;
    size_t free_bytes, total_bytes;
    enum err_code rc = gpu_check(cudaMemGetInfo(&free_bytes, &total_bytes), "cannot ask for free memory", e);

    while (rc == ERR_OK && o->rows <= 0 && f->rows > LEAST_ROWS) {
        const double may = (double)free_bytes * (o->memory_fraction > 0 ? o->memory_fraction : 0.9);
        const double left = may - (double)b->weights.bytes - (double)f->workspace_bytes;
        const double kv = o->kv_bytes && (double)o->kv_bytes < left ? (double)o->kv_bytes : left;
        if (kv >= (double)f->rows * TYPICAL_ROW / f->block_tokens * (double)pass_block_bytes(f))
            break;
        f->rows /= 2;
        pass_plan(f);
    }
    return rc;
}

/* How many blocks: what is asked for, or what memory_fraction leaves, but never more than all rows can fill. */
static enum err_code choose_blocks(struct backend *b, const struct backend_options *o, struct err *e)
{
    struct pass *f = &b->f;
    const size_t block = pass_block_bytes(f), gib = 1 << 30;
    const double fraction = o->memory_fraction > 0 ? o->memory_fraction : 0.9;
    const size_t most = (size_t)f->rows * (size_t)f->table.max_blocks;
    size_t free_bytes, total_bytes, kv = o->kv_bytes;
    enum err_code rc = gpu_check(cudaMemGetInfo(&free_bytes, &total_bytes), "cannot ask for free memory", e);

    if (rc != ERR_OK)
        return rc;
    const size_t fixed = b->weights.bytes + f->workspace_bytes;
    const size_t may = (size_t)((double)free_bytes * (o->kv_bytes ? 1 : fraction));
    if (kv == 0)
        kv = may > fixed ? may - fixed : 0;
    f->blocks = (int)(kv / block < most ? kv / block : most);
    if (fixed + kv > may || f->blocks < 1 || f->blocks < f->table.max_blocks)
        return err_set(e, ERR_NOMEM, ERR_STOP,
                       "cuda: does not fit: weights %.2f GiB, workspace %.2f GiB, KV of one row of %d tokens %.2f GiB; "
                       "%.2f of %.2f GiB are free, %.2f may be used",
                       (double)b->weights.bytes / (double)gib, (double)f->workspace_bytes / (double)gib, f->positions,
                       (double)block * f->table.max_blocks / (double)gib, (double)free_bytes / (double)gib,
                       (double)total_bytes / (double)gib, (double)may / (double)gib);
    b->info.free_bytes = free_bytes;
    b->info.total_bytes = total_bytes;
    return ERR_OK;
}

/* What lies in pinned memory begins at a multiple of 64 bytes. */
static size_t round_up(size_t n)
{
    return (n + 63) / 64 * 64;
}

static enum err_code open_turns(struct backend *b, struct err *e)
{
    const struct pass *f = &b->f;
    const size_t rows = (size_t)f->rows, answers = round_up(TURNS * (size_t)f->places * sizeof(struct sampled));
    enum err_code rc;

    /* One turn's buffer: joins | block copies | new blocks | decode, feeds, tiles, picks | tokens and blocks of joins */
    b->grow_cap = 4 * f->rows + 1024;
    b->copy_cap = f->rows + 64;
    b->joins_at = 0;
    b->copies_at = b->joins_at + f->rows * ORDER_INTS;
    b->grows_at = b->copies_at + b->copy_cap * 2;
    b->fixed = b->grows_at + b->grow_cap * 3;
    b->buffer_ints = b->fixed + f->rows * (1 + 4 + 3) + (f->step_tokens + 4 * f->rows) * 4 + f->rows * 256 +
                     2 * (f->positions + f->table.max_blocks);
    b->buffer_ints = (int)round_up((size_t)b->buffer_ints);
    b->rows = calloc(rows, sizeof *b->rows);
    for (int i = 0; i < TURNS; i++)
        b->turns[i].place = calloc(rows, sizeof(int));
    for (int i = 0; i < TURNS; i++)
        if (!b->turns[i].place || !b->rows)
            return err_set(e, ERR_NOMEM, ERR_STOP, "cuda: out of memory");
    rc = gpu_check(cudaHostAlloc(&b->pinned, answers + TURNS * (size_t)b->buffer_ints * sizeof(int),
                                 cudaHostAllocMapped),
                   "cannot allocate pinned memory", e);
    if (rc != ERR_OK)
        return rc;
    b->answers = b->pinned;
    for (int i = 0; i < TURNS && rc == ERR_OK; i++) {
        struct turn *t = &b->turns[i];
        t->answers = b->answers + (size_t)i * (size_t)f->places;
        t->buffer = (int *)((char *)b->pinned + answers) + (size_t)i * (size_t)b->buffer_ints;
        t->used = b->fixed;
        rc = gpu_check(cudaEventCreate(&t->begun), "cannot make an event", e);
        if (rc == ERR_OK)
            rc = gpu_check(cudaEventCreate(&t->done), "cannot make an event", e);
    }
    return rc;
}

static enum err_code decode_launches(struct backend *b, int slots, int places, struct err *e)
{
    enum err_code rc = pass_decode(&b->f, slots, e);

    if (rc == ERR_OK)
        rc = pass_head(&b->f, places, e);
    return rc == ERR_OK ? pass_sample(&b->f, places, b->answers, NULL, e) : rc;
}

static enum err_code capture(struct backend *b, int slots, cudaGraphExec_t *out, struct err *e)
{
    cudaGraph_t graph = NULL;
    enum err_code rc =
        gpu_check(cudaStreamBeginCapture(b->gpu.stream, cudaStreamCaptureModeThreadLocal), "cannot begin a graph", e);

    if (rc != ERR_OK)
        return rc;
    rc = decode_launches(b, slots, slots, e);
    const cudaError_t ended = cudaStreamEndCapture(b->gpu.stream, &graph);
    if (rc == ERR_OK)
        rc = gpu_check(ended, "cannot end a graph", e);
    if (rc == ERR_OK)
        rc = gpu_check(cudaGraphInstantiate(out, graph, 0), "cannot make a graph", e);
    if (rc == ERR_OK)
        rc = gpu_check(cudaGraphUpload(*out, b->gpu.stream), "cannot upload a graph", e);
    if (graph)
        (void)cudaGraphDestroy(graph); /* the executable one does not need it */
    return rc;
}

/* 1, 2, 4, 8, then steps that waste at most about a quarter, up to all rows. */
static enum err_code open_graphs(struct backend *b, struct err *e)
{
    enum err_code rc = ERR_OK;
    int n = 1;

    while (rc == ERR_OK && b->n_buckets < MAX_BUCKETS) {
        const int slots = n < b->f.rows && b->n_buckets < MAX_BUCKETS - 1 ? n : b->f.rows;
        b->buckets[b->n_buckets] = slots;
        if (!b->gpu.careful)
            rc = capture(b, slots, &b->graphs[b->n_buckets], e);
        b->n_buckets++;
        if (slots == b->f.rows)
            break;
        n += n < 8 ? n : n < 32 ? 8 : n < 64 ? 16 : n < 256 ? 32 : 64;
    }
    return rc;
}

static void cuda_close(struct backend *b)
{
    if (!b)
        return;
    if (b->gpu.stream)
        (void)cudaStreamSynchronize(b->gpu.stream); /* whatever it says, everything goes */
    for (int i = 0; i < b->n_buckets; i++)
        if (b->graphs[i])
            (void)cudaGraphExecDestroy(b->graphs[i]);
    for (int i = 0; i < TURNS; i++) {
        if (b->turns[i].begun)
            (void)cudaEventDestroy(b->turns[i].begun);
        if (b->turns[i].done)
            (void)cudaEventDestroy(b->turns[i].done);
        free(b->turns[i].place);
    }
    if (b->pinned)
        (void)cudaFreeHost(b->pinned);
    pass_close(&b->f);
    weights_close(&b->weights);
    gpu_close(&b->gpu);
    free(b->rows);
    free(b);
}

static void fill_info(struct backend *b)
{
    struct backend_info *i = &b->info;
    struct cudaDeviceProp p;

    if (cudaGetDeviceProperties(&p, b->gpu.index) == cudaSuccess)
        (void)snprintf(i->device, sizeof i->device, "%.127s", p.name);
    i->rows = b->f.rows;
    i->blocks = b->f.blocks;
    i->block_tokens = b->f.block_tokens;
    i->step_tokens = b->f.step_tokens;
    i->max_positions = b->f.positions;
    i->run_ahead = RUN_AHEAD;
    i->weight_bytes = b->weights.bytes;
    i->kv_bytes = b->f.kv_bytes;
    i->workspace_bytes = b->f.workspace_bytes;
}

static enum err_code cuda_open(struct backend **out, const struct model *m, const struct backend_options *o,
                               struct err *e)
{
    struct backend *b = calloc(1, sizeof *b);
    enum err_code rc;

    *out = NULL;
    if (!b)
        return err_set(e, ERR_NOMEM, ERR_STOP, "cuda: out of memory");
    b->model = m;
    if ((rc = check_shape(m, o, e)) != ERR_OK || (rc = gpu_open(&b->gpu, o->device, e)) != ERR_OK)
        goto out;
    b->gpu.careful = o->check_launches;
    if (b->gpu.careful)
        b->gpu.overlap = false;
    choose_sizes(b, o);
    if ((rc = weights_plan(&b->weights, m, &b->gpu, e)) != ERR_OK)
        goto out;
    pass_plan(&b->f);
    if ((rc = choose_rows(b, o, e)) != ERR_OK || (rc = choose_blocks(b, o, e)) != ERR_OK ||
        (rc = product_prepare(&b->gpu, e)) != ERR_OK || (rc = attention_prepare(e)) != ERR_OK ||
        (rc = weights_load(&b->weights, m, o->random_weights, &b->gpu, e)) != ERR_OK ||
        (rc = pass_open(&b->f, e)) != ERR_OK || (rc = open_turns(b, e)) != ERR_OK || (rc = open_graphs(b, e)) != ERR_OK)
        goto out;
    if ((rc = gpu_check(cudaStreamSynchronize(b->gpu.stream), "cannot start", e)) != ERR_OK)
        goto out;
    fill_info(b);
    b->info.decode_rounds = o->deterministic;
    *out = b;
    b = NULL;
out:
    cuda_close(b);
    return rc;
}

static enum err_code cuda_probe(int device, char *text, size_t cap, struct err *e)
{
    return gpu_describe(device, text, cap, e);
}

static void cuda_info(const struct backend *b, struct backend_info *info)
{
    *info = b->info;
}

/* --- orders --- */

static enum err_code flush_copies(struct backend *b, struct err *e)
{
    struct turn *t = open_turn(b);
    const int n = t->n_copies;

    if (n == 0)
        return ERR_OK;
    t->n_copies = 0;
    return rows_copy_blocks(b->f.kv, b->f.block_elems, b->f.layer_elems, b->f.d.layers, t->buffer + b->copies_at, n,
                            &b->gpu, e);
}

static enum err_code flush_joins(struct backend *b, struct err *e)
{
    struct turn *t = open_turn(b);
    const int n = t->n_joins;

    if (n == 0)
        return ERR_OK;
    t->n_joins = 0;
    return rows_join(&b->f.table, (const struct row_order *)(t->buffer + b->joins_at), n, t->buffer, &b->gpu, e);
}

/* Carries out what was ordered so far and waits for it, so that the buffer is empty again: rare. */
static enum err_code flush_all(struct backend *b, struct err *e)
{
    struct turn *t = open_turn(b);
    const struct step_orders o = {.n_grow = t->n_grow, .grow = b->grows_at};
    enum err_code rc;

    if ((rc = use_card(b, e)) != ERR_OK || (rc = flush_copies(b, e)) != ERR_OK || (rc = flush_joins(b, e)) != ERR_OK)
        return rc;
    if (t->n_grow > 0)
        rc = rows_begin(&b->f.table, &b->f.lists, &o, t->buffer, &b->gpu, e);
    if (rc == ERR_OK)
        rc = gpu_check(cudaStreamSynchronize(b->gpu.stream), "waiting for orders", e);
    t->n_grow = 0;
    t->used = b->fixed;
    b->opened++;
    return rc;
}

static int append(struct turn *t, const int32_t *values, int n)
{
    const int at = t->used;

    memcpy(t->buffer + at, values, (size_t)n * sizeof(int));
    t->used += n;
    return at;
}

static enum err_code cuda_join(struct backend *b, const struct row_join *j, struct err *e)
{
    struct row_mirror *row = &b->rows[j->row];
    struct turn *t = open_turn(b);
    /* what step() appends must find room in any case */
    const int reserved = b->f.rows * (1 + 4 + 3) + (b->f.step_tokens + 4 * b->f.rows) * 4;
    enum err_code rc;

    if (t->n_joins == b->f.rows || t->used + j->n_tokens + j->n_blocks + reserved > b->buffer_ints ||
        row->joined_in == (int)(b->opened + 1)) {
        if ((rc = flush_all(b, e)) != ERR_OK)
            return rc;
    }
    int *grows = t->buffer + b->grows_at, kept = 0; /* blocks for whoever had the row before are void */
    for (int i = 0; i < t->n_grow; i++)
        if (grows[i * 3] != j->row) {
            memmove(grows + kept * 3, grows + i * 3, 3 * sizeof(int));
            kept++;
        }
    t->n_grow = kept;

    struct row_order *o = (struct row_order *)(t->buffer + b->joins_at) + t->n_joins++;
    *o = (struct row_order){.row = j->row,
                            .n_tokens = j->n_tokens,
                            .n_blocks = j->n_blocks,
                            .tokens = append(t, j->tokens, j->n_tokens),
                            .state = {.pos = j->n_cached,
                                      .max_length = j->max_length,
                                      .temperature = j->sampling.temperature,
                                      .top_p = j->sampling.top_p,
                                      .penalty = j->sampling.repetition_penalty,
                                      .top_k = j->sampling.top_k,
                                      .seed = j->sampling.seed,
                                      .n_eos = j->n_eos}};
    o->blocks = append(t, j->blocks, j->n_blocks);
    for (int i = 0; i < j->n_eos && i < ROW_MAX_EOS; i++)
        o->state.eos[i] = j->eos[i];
    *row = (struct row_mirror){j->n_blocks, j->n_cached, j->n_tokens, (int)(b->opened + 1)};
    return ERR_OK;
}

static enum err_code cuda_grow(struct backend *b, int row, const int32_t *blocks, int n, struct err *e)
{
    enum err_code rc = ERR_OK;

    for (int i = 0; i < n && rc == ERR_OK; i++) {
        struct turn *t = open_turn(b);
        if (t->n_grow == b->grow_cap)
            rc = flush_all(b, e);
        int *g = t->buffer + b->grows_at + t->n_grow++ * 3;
        g[0] = row;
        g[1] = b->rows[row].n_blocks++;
        g[2] = blocks[i];
    }
    return rc;
}

static enum err_code cuda_leave(struct backend *b, int row, struct err *e)
{
    (void)e;
    b->rows[row].n_tokens = 0; /* the card needs no word: the row is in no further step */
    return ERR_OK;
}

static enum err_code cuda_copy_block(struct backend *b, int src, int dst, int n, struct err *e)
{
    struct turn *t = open_turn(b);
    int *pairs = t->buffer + b->copies_at;
    bool clash = t->n_copies == b->copy_cap;
    enum err_code rc = ERR_OK;

    (void)n; /* whole blocks: what lies behind is written before it is read */
    for (int i = 0; i < t->n_copies; i++)
        clash |= pairs[i * 2 + 1] == src || pairs[i * 2 + 1] == dst || pairs[i * 2] == dst;
    if (clash)
        rc = flush_all(b, e);
    pairs[t->n_copies * 2] = src;
    pairs[t->n_copies * 2 + 1] = dst;
    t->n_copies++;
    return rc;
}

/* --- steps --- */

/* A block of tiles: tokens i.. of a feed (row, first position, count, first slot). */
static void add_block(struct turn *t, const int *feed, int i, int each)
{
    for (int k = 0; k < ATTENTION_TILES; k++, i += each) {
        const int left = i < feed[2] ? feed[2] - i : 0; /* none: only to fill the block */
        const int32_t tile[4] = {feed[3] + (left ? i : 0), left < each ? left : each, feed[0],
                                 feed[1] + (left ? i : feed[2] - 1)};
        (void)append(t, tile, 4); /* they follow each other: the first one's place is the list's */
    }
}

/* All feeds' tiles, blocks at late positions first. */
static int add_tiles(struct backend *b, struct turn *t, const int *feeds, int n)
{
    const struct attention shape = {.heads = b->f.d.heads, .kv_heads = b->f.d.kv_heads};
    const int each = attention_tile_tokens(&shape), width = each * ATTENTION_TILES;
    int end = 0, tiles = 0;

    for (int f = 0; f < n; f++)
        end = feeds[f * 4 + 1] + feeds[f * 4 + 2] > end ? feeds[f * 4 + 1] + feeds[f * 4 + 2] : end;
    for (int at = end / width * width; at >= 0; at -= width)
        for (int f = 0; f < n; f++) {
            const int *feed = feeds + f * 4, ahead = at - feed[1];
            const int i = ahead > 0 ? (ahead + width - 1) / width * width : 0; /* the first block from `at` on */
            if (i < feed[2] && feed[1] + i >= at && feed[1] + i < at + width) {
                add_block(t, feed, i, each);
                tiles += ATTENTION_TILES;
            }
        }
    return tiles;
}

/* Writes the step's lists into the open turn. */
static enum err_code write_step(struct backend *b, struct turn *t, const struct step_row *rows, int n,
                                struct step_orders *o, int *tokens, struct err *e)
{
    *o = (struct step_orders){.n_grow = t->n_grow, .grow = b->grows_at, .turn = (int)(t - b->turns)};
    *tokens = 0;
    o->decode = t->used;
    for (int i = 0; i < n; i++)
        if (rows[i].n_tokens == 0) {
            t->place[i] = o->n_decode++;
            (void)append(t, (const int32_t[]){rows[i].row}, 1);
        }
    o->feeds = t->used;
    for (int i = 0; i < n; i++)
        if (rows[i].n_tokens > 0) {
            const int32_t feed[4] = {rows[i].row, b->rows[rows[i].row].fed, rows[i].n_tokens, *tokens};
            (void)append(t, feed, 4);
            o->n_feeds++;
            *tokens += rows[i].n_tokens;
        }
    if (*tokens > b->f.step_tokens || o->n_decode > b->f.rows)
        return err_set(e, ERR_DEVICE, ERR_STOP, "cuda: a step of %d prompt tokens, at most %d are possible", *tokens,
                       b->f.step_tokens);
    o->tiles = t->used;
    o->n_tiles = add_tiles(b, t, t->buffer + o->feeds, o->n_feeds);
    return ERR_OK;
}

static void write_picks(struct backend *b, struct turn *t, const struct step_row *rows, int n, struct step_orders *o)
{
    int slot = 0;

    o->picks = t->used;
    for (int i = 0; i < n; i++) {
        struct row_mirror *row = &b->rows[rows[i].row];
        if (rows[i].n_tokens == 0)
            continue;
        slot += rows[i].n_tokens;
        row->fed += rows[i].n_tokens;
        t->place[i] = -1;
        if (row->fed == row->n_tokens) {
            const int32_t pick[3] = {slot - 1, rows[i].row, row->fed};
            (void)append(t, pick, 3);
            t->place[i] = o->slots + o->n_picks++;
        }
    }
}

static int bucket_of(const struct backend *b, int n)
{
    int i = 0;

    while (b->buckets[i] < n)
        i++;
    return i;
}

static enum err_code run_step(struct backend *b, struct turn *t, const struct step_orders *o, int tokens, struct err *e)
{
    const int places = o->slots + o->n_picks;
    enum err_code rc = rows_begin(&b->f.table, &b->f.lists, o, t->buffer, &b->gpu, e);

    if (rc == ERR_OK && tokens > 0)
        rc = pass_prompt(&b->f, tokens, o->n_tiles, o->n_picks, o->slots, e);
    if (rc != ERR_OK)
        return rc;
    if (o->slots > 0 && tokens == 0 && !b->gpu.careful)
        return gpu_check(cudaGraphLaunch(b->graphs[bucket_of(b, o->slots)], b->gpu.stream), "cannot run a step", e);
    if (o->slots > 0)
        return decode_launches(b, o->slots, places, e);
    if (places > 0)
        rc = pass_head(&b->f, places, e);
    return places > 0 && rc == ERR_OK ? pass_sample(&b->f, places, b->answers, NULL, e) : rc;
}

static enum err_code cuda_step(struct backend *b, const struct step_row *rows, int n, struct err *e)
{
    struct turn *t = open_turn(b);
    struct step_orders o;
    int tokens;
    enum err_code rc;

    if (b->queued == RUN_AHEAD)
        return err_set(e, ERR_DEVICE, ERR_STOP, "cuda: %d steps are queued already", b->queued);
    if ((rc = use_card(b, e)) != ERR_OK || (rc = flush_copies(b, e)) != ERR_OK || (rc = flush_joins(b, e)) != ERR_OK ||
        (rc = write_step(b, t, rows, n, &o, &tokens, e)) != ERR_OK)
        return rc;
    o.slots = o.n_decode;
    if (tokens == 0 && o.n_decode > 0)
        o.slots = b->buckets[bucket_of(b, o.n_decode)];
    write_picks(b, t, rows, n, &o);
    if ((rc = gpu_check(cudaEventRecord(t->begun, b->gpu.stream), "cannot mark a step's begin", e)) != ERR_OK ||
        (rc = run_step(b, t, &o, tokens, e)) != ERR_OK ||
        (rc = gpu_check(cudaEventRecord(t->done, b->gpu.stream), "cannot mark a step's end", e)) != ERR_OK)
        return rc;
    t->n = n;
    t->n_grow = 0;
    b->queued++;
    b->opened++;
    open_turn(b)->used = b->fixed;
    return ERR_OK;
}

static enum err_code cuda_collect(struct backend *b, struct step_token *out, int cap, bool wait, bool *ready,
                                  struct err *e)
{
    struct turn *t = &b->turns[b->first];
    enum err_code rc;

    *ready = false;
    if (b->queued == 0)
        return ERR_OK;
    if (!wait) {
        const cudaError_t state = cudaEventQuery(t->done);
        if (state == cudaErrorNotReady)
            return ERR_OK;
        rc = gpu_check(state, "a step failed", e);
    } else {
        rc = gpu_check(cudaEventSynchronize(t->done), "a step failed", e);
    }
    if (rc != ERR_OK)
        return rc;
    float ms;
    if ((rc = gpu_check(cudaEventElapsedTime(&ms, t->begun, t->done), "a step failed", e)) != ERR_OK)
        return rc;
    b->busy_seconds += ms * 1e-3;
    for (int i = 0; i < t->n && i < cap; i++) {
        out[i] = (struct step_token){.token = -1};
        if (t->place[i] >= 0) {
            const struct sampled *s = &t->answers[t->place[i]];
            out[i] = (struct step_token){s->token, s->logprob, (uint8_t)s->end};
        }
    }
    b->first = (b->first + 1) % TURNS;
    b->queued--;
    *ready = true;
    return ERR_OK;
}

/* --- checks --- */

/* Joins row 0 with blocks 0, 1, 2 .. */
static enum err_code join_for_check(struct backend *b, const int32_t *tokens, int n, const struct sampling *s,
                                    struct err *e)
{
    const int blocks = (n + b->f.block_tokens - 1) / b->f.block_tokens;
    int32_t *list;
    enum err_code rc;

    if (n < 1 || n > b->f.positions || blocks > b->f.blocks)
        return err_set(e, ERR_DEVICE, ERR_SKIP, "cuda: %d tokens to check, 1 to %d are possible", n, b->f.positions);
    if (b->queued > 0)
        return err_set(e, ERR_DEVICE, ERR_STOP, "cuda: a check while steps are queued");
    if ((rc = use_card(b, e)) != ERR_OK)
        return rc;
    list = malloc((size_t)blocks * sizeof *list);
    if (!list)
        return err_set(e, ERR_NOMEM, ERR_STOP, "cuda: out of memory");
    for (int i = 0; i < blocks; i++)
        list[i] = i;
    rc = cuda_join(b,
                   &(struct row_join){.row = 0,
                                      .tokens = tokens,
                                      .n_tokens = n,
                                      .blocks = list,
                                      .n_blocks = blocks,
                                      .sampling = s ? *s : (struct sampling){.top_p = 1, .repetition_penalty = 1},
                                      .max_length = b->f.positions},
                   e);
    free(list);
    return rc == ERR_OK ? flush_joins(b, e) : rc;
}

/* Feeds n tokens of row 0 from position pos on; the last `picks` of them go to head_in[0..picks). */
static enum err_code feed_for_check(struct backend *b, int pos, int n, int picks, struct err *e)
{
    struct turn *t = open_turn(b);
    const struct step_row row = {0, n};
    struct step_orders o;
    int tokens;
    enum err_code rc;

    b->rows[0].fed = pos;
    if ((rc = write_step(b, t, &row, 1, &o, &tokens, e)) != ERR_OK)
        return rc;
    o.picks = t->used;
    o.n_picks = picks;
    for (int i = 0; i < picks; i++) {
        const int32_t pick[3] = {n - picks + i, 0, pos + n - picks + i + 1};
        (void)append(t, pick, 3);
    }
    rc = rows_begin(&b->f.table, &b->f.lists, &o, t->buffer, &b->gpu, e);
    if (rc == ERR_OK)
        rc = pass_prompt(&b->f, tokens, o.n_tiles, picks, 0, e);
    if (rc == ERR_OK && picks > 0)
        rc = pass_head(&b->f, picks, e);
    if (rc == ERR_OK) /* the orders are read where they are */
        rc = gpu_check(cudaStreamSynchronize(b->gpu.stream), "a check failed", e);
    t->used = b->fixed;
    t->n_grow = 0;
    b->opened++;
    return rc;
}

static enum err_code cuda_logits(struct backend *b, const int32_t *tokens, int n, int last, int chunk, float *out,
                                 struct err *e)
{
    const size_t ld = (size_t)b->weights.head.m_tiles * 128, row = (size_t)b->f.d.vocab * sizeof(float);
    const int most = b->f.step_tokens < b->f.places ? b->f.step_tokens : b->f.places;
    enum err_code rc = join_for_check(b, tokens, n, NULL, e);

    if (chunk <= 0 || chunk > b->f.step_tokens)
        chunk = b->f.step_tokens;
    for (int pos = 0; pos < n && rc == ERR_OK;) {
        int step = n - pos < chunk ? n - pos : chunk, picks = pos + step - (n - last);
        if (picks > most) { /* more logits than there is room for: a shorter chunk */
            step -= picks - most;
            picks = most;
        }
        if (picks > step)
            picks = step;
        if (picks < 0)
            picks = 0;
        rc = feed_for_check(b, pos, step, picks, e);
        pos += step;
        if (rc == ERR_OK && picks > 0)
            rc = gpu_check(cudaMemcpy2D(out + (size_t)(pos - picks - (n - last)) * (size_t)b->f.d.vocab, row,
                                        b->f.logits, ld * sizeof(float), row, (size_t)picks, cudaMemcpyDeviceToHost),
                           "cannot read logits", e);
    }
    return rc;
}

static enum err_code cuda_distribution(struct backend *b, const int32_t *tokens, int n, const struct sampling *s,
                                       float *out, struct err *e)
{
    const size_t bytes = (size_t)b->f.d.vocab * sizeof(float);
    float *there = b->f.logits + (size_t)b->weights.head.m_tiles * 128; /* place 1 is not in use */
    enum err_code rc = join_for_check(b, tokens, n, s, e);

    for (int pos = 0; pos < n && rc == ERR_OK; pos += b->f.step_tokens) {
        const int step = n - pos < b->f.step_tokens ? n - pos : b->f.step_tokens;
        rc = feed_for_check(b, pos, step, pos + step == n, e);
    }
    if (rc == ERR_OK)
        rc = gpu_check(cudaMemsetAsync(there, 0, bytes, b->gpu.stream), "cannot clear memory", e);
    if (rc == ERR_OK)
        rc = pass_sample(&b->f, 1, b->answers, there, e);
    if (rc == ERR_OK)
        rc = gpu_check(cudaStreamSynchronize(b->gpu.stream), "a check failed", e);
    if (rc == ERR_OK)
        rc = gpu_check(cudaMemcpy(out, there, bytes, cudaMemcpyDeviceToHost), "cannot read the distribution", e);
    return rc;
}

static enum err_code cuda_ceilings(struct backend *b, double *copy, double *matrix, struct err *e)
{
    /* Half of the cache, at most 4 GiB: what lies there is lost, and with it whatever a prefix index says */
    const size_t bytes = b->f.kv_bytes < (size_t)8 << 30 ? b->f.kv_bytes : (size_t)8 << 30;
    enum err_code rc = use_card(b, e);

    if (rc == ERR_OK)
        rc = ceiling_copy(b->f.kv, bytes, copy, &b->gpu, e);
    return rc == ERR_OK ? ceiling_matrix(b->f.part, matrix, &b->gpu, e) : rc;
}

static double cuda_busy_seconds(const struct backend *b)
{
    return b->busy_seconds;
}

__attribute__((visibility("default"))) extern const struct backend_ops translate_worker_backend;
const struct backend_ops translate_worker_backend = {.abi = BACKEND_ABI,
                                                     .name = "cuda",
                                                     .probe = cuda_probe,
                                                     .open = cuda_open,
                                                     .close = cuda_close,
                                                     .info = cuda_info,
                                                     .join = cuda_join,
                                                     .grow = cuda_grow,
                                                     .leave = cuda_leave,
                                                     .copy_block = cuda_copy_block,
                                                     .step = cuda_step,
                                                     .collect = cuda_collect,
                                                     .logits = cuda_logits,
                                                     .distribution = cuda_distribution,
                                                     .ceilings = cuda_ceilings,
                                                     .busy_seconds = cuda_busy_seconds};
