/* attention-bench [ROWS CONTEXT]... -- attention alone, with the 1.8B's heads: microseconds of a step of ROWS rows that
 * have CONTEXT positions each and TB/s of keys and values; then those of 2,048 prompt tokens, CONTEXT each.
 * Four caches in turn, so that keys and values come from memory as they do in a pass. */
#include "cuda/attention.h"
#include "cuda/fill.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    COPIES = 4,
    LAUNCHES = 24,
    HEADS = 16,
    KV_HEADS = 4,
    D = 128,
    LD = (HEADS + 2 * KV_HEADS) * D,
    SPLITS = 2,
    TOKENS = 2048
};

struct bench {
    struct gpu g;
    struct attention a[COPIES];
    int rows, context, tokens, n_tiles;
    int *row, *pos, *prompt_row, *prompt_pos;
    struct query_tile *tiles;
    float *part;
    bf16 *out;
};

static void fail(const struct err *e)
{
    fprintf(stderr, "attention-bench: %s\n", e->msg);
    exit(1);
}

static void *take(size_t bytes)
{
    void *p = NULL;

    if (cudaMalloc(&p, bytes) != cudaSuccess)
        exit(1);
    return p;
}

static void *upload(const void *from, size_t bytes)
{
    void *p = take(bytes);

    if (cudaMemcpy(p, from, bytes, cudaMemcpyHostToDevice) != cudaSuccess)
        exit(1);
    return p;
}

static void open_bench(struct bench *b)
{
    const int per_row = (b->context + 16) / 16, blocks = per_row * b->rows;
    int *list = calloc((size_t)(blocks + TOKENS), sizeof *list);
    struct query_tile *tiles = calloc(4 * TOKENS, sizeof *tiles);
    const size_t kv = (size_t)blocks * KV_HEADS * 16 * 2 * D;
    struct err e = {0};

    if (!list || !tiles)
        exit(1);
    for (int i = 0; i < blocks; i++)
        list[i] = i;
    const int *tables = upload(list, (size_t)blocks * sizeof *list);
    for (int i = 0; i < b->rows; i++)
        list[i] = i;
    b->row = upload(list, (size_t)b->rows * sizeof *list);
    for (int i = 0; i < b->rows; i++)
        list[i] = b->context - 1;
    b->pos = upload(list, (size_t)b->rows * sizeof *list);
    b->tokens = TOKENS / b->context * b->context;
    if (b->tokens > b->rows * b->context)
        b->tokens = b->rows * b->context;
    for (int i = 0; i < b->tokens; i++)
        list[i] = i / b->context;
    b->prompt_row = upload(list, TOKENS * sizeof *list);
    for (int i = 0; i < b->tokens; i++)
        list[i] = i % b->context;
    b->prompt_pos = upload(list, TOKENS * sizeof *list);
    b->n_tiles = 0;
    for (int p = (b->context + 15) / 16 * 16 - 16; p >= 0; p -= 16) /* the longest first */
        for (int r = 0; r < b->tokens / b->context; r++)
            for (int i = p; i < p + 16; i += 4) {
                const int left = b->context - i;
                tiles[b->n_tiles++] = (struct query_tile){r * b->context + (left > 0 ? i : 0),
                                                          left > 4   ? 4
                                                          : left > 0 ? left
                                                                     : 0,
                                                          r, left > 0 ? i : b->context - 1};
            }
    b->tiles = upload(tiles, (size_t)b->n_tiles * sizeof *tiles);
    const size_t part = (size_t)SPLITS * (size_t)(b->rows > TOKENS ? b->rows : TOKENS) * LD;
    b->part = take(part * 4);
    b->out = take((size_t)(b->rows + TOKENS + 8) * HEADS * D * 2);
    float *rope = take((size_t)(b->context + 1) * D * 4);
    if (rope_table(rope, b->context + 1, D, 1e7, &b->g, &e) != ERR_OK ||
        fill_normal((bf16 *)b->part, part * 2, 7, 0, 1, &b->g, &e) != ERR_OK)
        fail(&e);
    bf16 *norms = take(D * 2);
    if (fill_normal(norms, D, 8, 1, 0.1f, &b->g, &e) != ERR_OK)
        fail(&e);
    for (int i = 0; i < COPIES; i++) {
        b->a[i] = (struct attention){.heads = HEADS,
                                     .kv_heads = KV_HEADS,
                                     .d = D,
                                     .block_shift = 4,
                                     .max_blocks = per_row,
                                     .tables = tables,
                                     .rope = rope,
                                     .q_norm = norms,
                                     .k_norm = norms,
                                     .eps = 1e-5f,
                                     .kv = take(kv * 2)};
        if (fill_normal(b->a[i].kv, kv, (uint64_t)i, 0, 1, &b->g, &e) != ERR_OK)
            fail(&e);
    }
    free(list);
    free(tiles);
}

static enum err_code launch_one(struct bench *b, int kind, int i, struct err *e)
{
    const struct attention *a = &b->a[i % COPIES];
    const struct qkv_parts parts = {b->part, SPLITS, b->rows, LD};

    return kind == 0 ? attention_decode(a, &parts, b->row, b->pos, b->rows, b->out, (b->rows + 7) / 8 * 8, &b->g, e)
           : kind == 1
               ? attention_append(a, (const bf16 *)b->part, LD, b->prompt_row, b->prompt_pos, b->tokens, &b->g, e)
               : attention_prompt(a, (const bf16 *)b->part, LD, b->tiles, b->n_tiles, b->out, TOKENS, &b->g, e);
}

static double time_kind(struct bench *b, int kind)
{
    cudaEvent_t begin, end;
    struct err e = {0};
    float ms = 0;

    (void)cudaEventCreate(&begin);
    (void)cudaEventCreate(&end);
    for (int i = -COPIES; i < LAUNCHES; i++) {
        if (i == 0)
            (void)cudaEventRecord(begin, b->g.stream);
        if (launch_one(b, kind, i + COPIES, &e) != ERR_OK)
            fail(&e);
    }
    (void)cudaEventRecord(end, b->g.stream);
    if (cudaEventSynchronize(end) != cudaSuccess)
        exit(1);
    (void)cudaEventElapsedTime(&ms, begin, end);
    return ms * 1e3 / LAUNCHES;
}

int main(int argc, char **argv)
{
    struct bench b = {0};
    struct err e = {0};

    if (gpu_open(&b.g, 0, &e) != ERR_OK || attention_prepare(&e) != ERR_OK)
        fail(&e);
    for (int i = 1; i + 1 < argc; i += 2) {
        b.rows = atoi(argv[i]);
        b.context = atoi(argv[i + 1]);
        open_bench(&b);
        const double us = time_kind(&b, 0), bytes = (double)b.rows * b.context * KV_HEADS * D * 4;
        printf("%4d rows of %d: step %7.2f us %5.2f TB/s; %d prompt tokens: append %6.2f us, attention %6.2f us\n",
               b.rows, b.context, us, bytes / us * 1e-6, b.tokens, time_kind(&b, 1), time_kind(&b, 2));
    }
    return 0;
}
