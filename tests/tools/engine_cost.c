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

int main(int argc, char **argv)
{
    const int rows = argc > 1 ? atoi(argv[1]) : 256, n = 4 * rows;
    static const int eos[] = {-5};
    static int64_t turns[OUTPUT * 8];
    struct request *requests = calloc((size_t)n, sizeof *requests), **all = calloc((size_t)n, sizeof *all);
    struct request **done = calloc((size_t)n, sizeof *done);
    int32_t *ids = calloc((size_t)n, (PROMPT + OUTPUT) * sizeof *ids);
    struct engine *en;
    struct err e;
    int n_turns = 0, n_done;

    if (rows < 1 || !requests || !all || !done || !ids)
        return 1;
    device.info = (struct backend_info){.rows = rows,
                                        .blocks = rows * 40,
                                        .block_tokens = 16,
                                        .step_tokens = 1 << 20,
                                        .max_positions = 1024,
                                        .run_ahead = 2};
    const struct engine_options o = {
        .max_requests = n, .max_sequence = 1024, .prefix_cache = true, .eos = eos, .n_eos = 1};
    if (engine_open(&en, &ops, &device, &o, &e) != ERR_OK) {
        fprintf(stderr, "engine_cost: %s\n", e.msg);
        return 1;
    }
    for (int i = 0; i < n; i++) {
        int32_t *prompt = ids + (size_t)i * (PROMPT + OUTPUT);
        for (int k = 0; k < PROMPT; k++)
            prompt[k] = k < 20 ? k + i % 5 * 100 : i * 64 + k; /* 5 templates of 20 tokens, then a text */
        requests[i] = (struct request){.prompt = prompt,
                                       .n_prompt = PROMPT,
                                       .max_output = OUTPUT,
                                       .output = prompt + PROMPT,
                                       .sampling = {.top_p = 1, .repetition_penalty = 1}};
        all[i] = &requests[i];
    }
    int64_t t = clock_mono_ns();
    if (engine_submit(en, all, n, &e) != ERR_OK)
        return 1;
    printf("submit: %.2f us a request\n", (double)(clock_mono_ns() - t) / n / 1e3);
    while (engine_is_busy(en) && n_turns < OUTPUT * 8) {
        t = clock_mono_ns();
        if (engine_step(en, done, n, &n_done, &e) != ERR_OK)
            return 1;
        turns[n_turns++] = clock_mono_ns() - t;
    }
    printf("first turns (joins): %.1f, %.1f us\n", (double)turns[0] / 1e3, (double)turns[1] / 1e3);
    qsort(turns, (size_t)n_turns, sizeof turns[0], by_value);
    printf("%d rows, %d turns: median %.1f us, 99%% %.1f us, longest %.1f us\n", rows, n_turns,
           (double)turns[n_turns / 2] / 1e3, (double)turns[n_turns * 99 / 100] / 1e3, (double)turns[n_turns - 1] / 1e3);
    engine_close(en);
    free(requests);
    free(all);
    free(done);
    free(ids);
    return 0;
}
