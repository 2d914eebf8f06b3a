/* build/engine_cost [ROWS] -- what the engine itself costs the host: microseconds a turn on a device that takes no time.
 * A GPU step is 1 to 3 ms; with run_ahead 2 a turn must only stay below that. */
#include "base/clock.h"
#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPT = 64, OUTPUT = 400 };

/* Answers every row with a token at once. */
struct backend {
    struct backend_info info;
    int first, n_queued;
    int n[4];
    uint32_t draws;
};

static struct backend device;

static void idle_info(const struct backend *b, struct backend_info *info)
{
    *info = b->info;
}

static enum err_code idle_join(struct backend *b, const struct row_join *j, struct err *e)
{
    (void)b, (void)j, (void)e;
    return ERR_OK;
}

static enum err_code idle_grow(struct backend *b, int row, const int32_t *blocks, int n, struct err *e)
{
    (void)b, (void)row, (void)blocks, (void)n, (void)e;
    return ERR_OK;
}

static enum err_code idle_leave(struct backend *b, int row, struct err *e)
{
    (void)b, (void)row, (void)e;
    return ERR_OK;
}

static enum err_code idle_copy(struct backend *b, int src, int dst, int n, struct err *e)
{
    (void)b, (void)src, (void)dst, (void)n, (void)e;
    return ERR_OK;
}

static enum err_code idle_step(struct backend *b, const struct step_row *rows, int n, struct err *e)
{
    (void)rows, (void)e;
    b->n[(b->first + b->n_queued++) % 4] = n;
    return ERR_OK;
}

static enum err_code idle_collect(struct backend *b, struct step_token *out, int cap, bool wait, bool *ready,
                                  struct err *e)
{
    (void)cap, (void)e;
    *ready = wait;
    if (!wait)
        return ERR_OK;
    for (int i = 0; i < b->n[b->first]; i++)
        out[i] = (struct step_token){.token = (int32_t)(b->draws = b->draws * 1664525 + 1013904223) >> 20 & 1023};
    b->first = (b->first + 1) % 4;
    b->n_queued--;
    return ERR_OK;
}

static const struct backend_ops ops = {.abi = BACKEND_ABI,
                                       .name = "idle",
                                       .info = idle_info,
                                       .join = idle_join,
                                       .grow = idle_grow,
                                       .leave = idle_leave,
                                       .copy_block = idle_copy,
                                       .step = idle_step,
                                       .collect = idle_collect};

static int by_value(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

struct work {
    int n;
    struct request *requests, **all, **done;
    int32_t *ids; /* [n, PROMPT + OUTPUT] */
};

static void *zeroed(size_t n, size_t size)
{
    void *p = calloc(n, size);

    if (!p) {
        fprintf(stderr, "engine_cost: out of memory\n");
        exit(1);
    }
    return p;
}

/* 5 templates of 20 tokens, then a text. */
static struct work work_make(int n)
{
    struct work w = {.n = n,
                     .requests = zeroed((size_t)n, sizeof *w.requests),
                     .all = zeroed((size_t)n, sizeof *w.all),
                     .done = zeroed((size_t)n, sizeof *w.done),
                     .ids = zeroed((size_t)n * (PROMPT + OUTPUT), sizeof *w.ids)};

    for (int i = 0; i < n; i++) {
        int32_t *prompt = w.ids + (size_t)i * (PROMPT + OUTPUT);
        for (int k = 0; k < PROMPT; k++)
            prompt[k] = k < 20 ? k + i % 5 * 100 : i * 64 + k;
        w.requests[i] = (struct request){.prompt = prompt,
                                         .n_prompt = PROMPT,
                                         .max_output = OUTPUT,
                                         .output = prompt + PROMPT,
                                         .sampling = {.top_p = 1, .repetition_penalty = 1}};
        w.all[i] = &w.requests[i];
    }
    return w;
}

static void work_free(struct work *w)
{
    free(w->requests);
    free(w->all);
    free(w->done);
    free(w->ids);
}

static enum err_code measure(struct engine *en, struct work *w, int rows, struct err *e)
{
    static int64_t turns[OUTPUT * 8];
    int n = 0, n_done;
    int64_t t = clock_mono_ns();
    enum err_code rc = engine_submit(en, w->all, w->n, e);

    if (rc != ERR_OK)
        return rc;
    printf("submit: %.2f us a request\n", (double)(clock_mono_ns() - t) / w->n / 1e3);
    while (engine_is_busy(en) && n < OUTPUT * 8) {
        t = clock_mono_ns();
        if ((rc = engine_step(en, w->done, w->n, &n_done, e)) != ERR_OK)
            return rc;
        turns[n++] = clock_mono_ns() - t;
    }
    printf("first turns (joins): %.1f, %.1f us\n", (double)turns[0] / 1e3, (double)turns[1] / 1e3);
    qsort(turns, (size_t)n, sizeof turns[0], by_value);
    printf("%d rows, %d turns: median %.1f us, 99%% %.1f us, longest %.1f us\n", rows, n, (double)turns[n / 2] / 1e3,
           (double)turns[n * 99 / 100] / 1e3, (double)turns[n - 1] / 1e3);
    return ERR_OK;
}

int main(int argc, char **argv)
{
    static const int eos[] = {-5};
    const int rows = argc > 1 ? atoi(argv[1]) : 256;
    struct engine *en;
    struct err e;

    if (rows < 1 || rows > 4096) {
        fprintf(stderr, "usage: engine_cost [ROWS], 1 to 4096\n");
        return 2;
    }
    struct work w = work_make(4 * rows);
    const struct engine_options o = {
        .max_requests = w.n, .max_sequence = 1024, .prefix_cache = true, .eos = eos, .n_eos = 1};
    device.info = (struct backend_info){.rows = rows,
                                        .blocks = rows * 40,
                                        .block_tokens = 16,
                                        .step_tokens = 1 << 20,
                                        .max_positions = 1024,
                                        .run_ahead = 2};
    enum err_code rc = engine_open(&en, &ops, &device, &o, &e);
    if (rc == ERR_OK)
        rc = measure(en, &w, rows, &e);
    if (rc != ERR_OK)
        fprintf(stderr, "engine_cost: %s\n", e.msg);
    engine_close(en);
    work_free(&w);
    return rc != ERR_OK;
}
