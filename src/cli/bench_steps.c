/* Steps of a backend, timed; and the time that they need at the least. */
#include "cli/bench_steps.h"

#include "base/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WARM_UP = 3 };

struct bench_bound bench_bound(const struct dims *d, size_t weight_bytes, size_t kv_token_bytes,
                               const struct bench_machine *m, int rows, int tokens_a_row, double context, int heads_out)
{
    double width = (double)d->head_dim, tokens = (double)rows * tokens_a_row;
    double layer = (2.0 * d->heads + 2.0 * d->kv_heads) * width * d->hidden + 3.0 * d->inter * d->hidden;
    double attention = 2.0 * d->heads * width * context;
    struct bench_bound b = {
        .flops = 2.0 * (tokens * d->layers * (layer + attention) + (double)heads_out * d->vocab_used * d->hidden),
        .bytes = (double)weight_bytes + (double)rows * context * (double)kv_token_bytes,
    };
    double by_flops = b.flops / m->flops, by_bytes = b.bytes / m->copy;

    b.seconds = fmax(by_flops, by_bytes);
    b.by = by_flops >= by_bytes ? "flops" : "bytes";
    return b;
}

/* --- one run of rows --- */

struct run {
    const struct backend_ops *ops;
    struct backend *b;
    struct backend_info info;
    int rows, n_blocks;
    int32_t *prompt, *blocks;
    struct step_row *steps;
    struct step_token *tokens;
    double *seconds;
};

static void close_run(struct run *r)
{
    free(r->prompt);
    free(r->blocks);
    free(r->steps);
    free(r->tokens);
    free(r->seconds);
}

/* n: most timed steps */
static enum err_code open_run(struct run *r, const struct backend_ops *ops, struct backend *b, int vocab, int rows,
                              int n_prompt, int length, int n, struct err *e)
{
    *r = (struct run){.ops = ops, .b = b, .rows = rows};
    ops->info(b, &r->info);
    r->n_blocks = (length + r->info.block_tokens - 1) / r->info.block_tokens;
    if (rows > r->info.rows || length > r->info.max_positions || (int64_t)rows * r->n_blocks > r->info.blocks)
        return err_set(e, ERR_USAGE, ERR_STOP,
                       "bench: %d rows of %d tokens do not fit (%d rows, %d positions, %d blocks of %d)", rows, length,
                       r->info.rows, r->info.max_positions, r->info.blocks, r->info.block_tokens);
    r->prompt = calloc((size_t)n_prompt, sizeof *r->prompt);
    r->blocks = calloc((size_t)r->n_blocks, sizeof *r->blocks);
    r->steps = calloc((size_t)rows, sizeof *r->steps);
    r->tokens = calloc((size_t)r->info.rows, sizeof *r->tokens);
    r->seconds = calloc((size_t)n + 1, sizeof *r->seconds);
    if (!r->prompt || !r->blocks || !r->steps || !r->tokens || !r->seconds)
        return err_set(e, ERR_NOMEM, ERR_STOP, "bench: out of memory");
    for (int i = 0; i < n_prompt; i++)
        r->prompt[i] = (int32_t)((unsigned)i * 7919u % (unsigned)vocab);
    return ERR_OK;
}

static enum err_code join(struct run *r, int row, int n_prompt, int length, const struct sampling *s, struct err *e)
{
    struct row_join j = {.row = row,
                         .tokens = r->prompt,
                         .n_tokens = n_prompt,
                         .blocks = r->blocks,
                         .n_blocks = r->n_blocks,
                         .sampling = *s,
                         .max_length = length};

    for (int i = 0; i < r->n_blocks; i++)
        r->blocks[i] = row * r->n_blocks + i;
    j.sampling.seed = (uint64_t)row;
    return r->ops->join(r->b, &j, e);
}

static enum err_code collect(struct run *r, int n, struct err *e)
{
    bool ready;
    enum err_code rc = r->ops->collect(r->b, r->tokens, r->info.rows, true, &ready, e);

    for (int i = 0; rc == ERR_OK && i < n; i++)
        if (r->tokens[i].end == BACKEND_END_BAD)
            rc = err_set(e, ERR_NUMERICAL, ERR_STOP, "bench: row %d has logits that are not finite", i);
    return rc;
}

/* Feeds every row's prompt, as many whole rows a step as the backend takes, long prompts in pieces. */
static enum err_code feed_prompts(struct run *r, int n_prompt, struct err *e)
{
    int piece = n_prompt < r->info.step_tokens ? n_prompt : r->info.step_tokens;
    int rows_a_step = r->info.step_tokens / piece;
    enum err_code rc;

    for (int row = 0; row < r->rows; row += rows_a_step)
        for (int fed = 0; fed < n_prompt; fed += piece) {
            int n = r->rows - row < rows_a_step ? r->rows - row : rows_a_step;

            for (int i = 0; i < n; i++)
                r->steps[i] =
                    (struct step_row){.row = row + i, .n_tokens = n_prompt - fed < piece ? n_prompt - fed : piece};
            if ((rc = r->ops->step(r->b, r->steps, n, e)) != ERR_OK || (rc = collect(r, n, e)) != ERR_OK)
                return rc;
        }
    return ERR_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_value);
    return x[n / 2];
}

enum err_code bench_decode(const struct backend_ops *ops, struct backend *b, int vocab, int rows, int n_prompt,
                           int steps, const struct sampling *s, struct bench_steps *out, struct err *e)
{
    struct run r;
    int length = n_prompt + 1 + WARM_UP + steps + 1, queued = 0, done = 0, all = WARM_UP + steps;
    enum err_code rc = open_run(&r, ops, b, vocab, rows, n_prompt, length, all, e);
    int64_t last = 0;

    for (int i = 0; rc == ERR_OK && i < rows; i++)
        rc = join(&r, i, n_prompt, length, s, e);
    if (rc == ERR_OK)
        rc = feed_prompts(&r, n_prompt, e);
    for (int i = 0; rc == ERR_OK && i < rows; i++)
        r.steps[i] = (struct step_row){.row = i};
    while (rc == ERR_OK && done < all) {
        while (rc == ERR_OK && queued < all && queued - done < r.info.run_ahead) {
            rc = ops->step(b, r.steps, rows, e);
            queued++;
        }
        if (rc == ERR_OK && (rc = collect(&r, rows, e)) == ERR_OK) {
            int64_t now = clock_mono_ns();

            if (done >= WARM_UP)
                r.seconds[done - WARM_UP] = (double)(now - last) * 1e-9;
            last = now;
            done++;
        }
    }
    if (rc == ERR_OK) {
        out->step_seconds = median(r.seconds, steps);
        out->context = n_prompt + 1 + WARM_UP + steps / 2.0;
    }
    for (int i = 0; rc == ERR_OK && i < rows; i++)
        rc = ops->leave(b, i, e);
    close_run(&r);
    return rc;
}

enum err_code bench_prompt(const struct backend_ops *ops, struct backend *b, int vocab, int n_prompt, int prompts,
                           struct bench_steps *out, struct err *e)
{
    static const struct sampling greedy = {.top_p = 1, .repetition_penalty = 1};
    struct run r;
    enum err_code rc = open_run(&r, ops, b, vocab, 1, n_prompt, n_prompt + 1, prompts, e);

    for (int i = 0; rc == ERR_OK && i <= prompts; i++) { /* the first warms up */
        int64_t start = clock_mono_ns();

        if ((rc = join(&r, 0, n_prompt, n_prompt + 1, &greedy, e)) != ERR_OK ||
            (rc = feed_prompts(&r, n_prompt, e)) != ERR_OK)
            break;
        if (i > 0)
            r.seconds[i - 1] = (double)(clock_mono_ns() - start) * 1e-9;
        rc = ops->leave(b, 0, e);
    }
    if (rc == ERR_OK) {
        out->step_seconds = median(r.seconds, prompts);
        out->context = n_prompt / 2.0;
    }
    close_run(&r);
    return rc;
}
