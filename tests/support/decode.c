#include "tests/support/decode.h"

#include <stdlib.h>

struct run {
    const struct backend_ops *ops;
    struct backend *b;
    struct backend_info info;
    struct decode_job *jobs;
    int n, own_blocks; /* of a job that has no list */
    int32_t *list;
    int *fed; /* per job: prompt tokens fed; -1 = not joined, -2 = done */
    struct step_row *rows;
    struct step_token *tokens;
    int *in_step; /* job of each row of the step */
};

struct sampling decode_greedy(void)
{
    return (struct sampling){.temperature = 0, .top_p = 1, .repetition_penalty = 1, .top_k = 0};
}

static enum err_code join(struct run *r, int i, struct err *e)
{
    struct decode_job *j = &r->jobs[i];
    int need = (j->n_prompt + j->max_output + r->info.block_tokens - 1) / r->info.block_tokens;
    struct row_join join = {.row = i,
                            .tokens = j->prompt,
                            .n_tokens = j->n_prompt,
                            .n_cached = j->n_cached,
                            .blocks = j->blocks,
                            .n_blocks = need,
                            .sampling = j->sampling,
                            .eos = j->eos,
                            .n_eos = j->n_eos,
                            .max_length = j->n_prompt + j->max_output};

    if (!j->blocks) {
        for (int k = 0; k < need; k++)
            r->list[k] = i * r->own_blocks + k;
        join.blocks = r->list;
    }
    j->n_output = 0;
    j->end = BACKEND_END_NONE;
    r->fed[i] = j->n_cached;
    return r->ops->join(r->b, &join, e);
}

/* What row i does in this step within the budget; false: nothing. */
static bool plan_row(struct run *r, int i, int *budget, struct step_row *s)
{
    const struct decode_job *j = &r->jobs[i];
    int rest = j->n_prompt - r->fed[i];

    if (j->chunk > 0 && rest > j->chunk)
        rest = j->chunk;
    if (rest > *budget)
        rest = *budget;
    if (rest == 0 && r->fed[i] < j->n_prompt)
        return false;
    *s = (struct step_row){.row = i, .n_tokens = rest};
    *budget -= rest;
    return true;
}

static enum err_code take_token(struct run *r, int i, const struct step_token *t, struct err *e)
{
    struct decode_job *j = &r->jobs[i];

    if (t->token >= 0) {
        j->output[j->n_output] = t->token;
        j->logprobs[j->n_output++] = t->logprob;
    }
    j->end = t->end;
    if (t->end == BACKEND_END_NONE)
        return ERR_OK;
    r->fed[i] = -2;
    return r->ops->leave(r->b, i, e);
}

static enum err_code one_step(struct run *r, int n_rows, struct err *e)
{
    bool ready = false;
    enum err_code rc;

    if ((rc = r->ops->step(r->b, r->rows, n_rows, e)) != ERR_OK)
        return rc;
    if ((rc = r->ops->collect(r->b, r->tokens, r->info.rows, true, &ready, e)) != ERR_OK)
        return rc;
    for (int k = 0; k < n_rows; k++) {
        r->fed[r->in_step[k]] += r->rows[k].n_tokens;
        if ((rc = take_token(r, r->in_step[k], &r->tokens[k], e)) != ERR_OK)
            return rc;
    }
    return ERR_OK;
}

static enum err_code run_all(struct run *r, struct err *e)
{
    enum err_code rc;

    for (int step = 0, left = r->n; left > 0; step++) {
        int budget = r->info.step_tokens, n_rows = 0;

        for (int i = 0; i < r->n; i++) {
            if (r->fed[i] == -1 && r->jobs[i].start <= step && (rc = join(r, i, e)) != ERR_OK)
                return rc;
            if (r->fed[i] >= 0 && plan_row(r, i, &budget, &r->rows[n_rows]))
                r->in_step[n_rows++] = i;
        }
        if (n_rows > 0 && (rc = one_step(r, n_rows, e)) != ERR_OK)
            return rc;
        left = 0;
        for (int i = 0; i < r->n; i++)
            left += r->fed[i] != -2;
    }
    return ERR_OK;
}

enum err_code decode_jobs(const struct backend_ops *ops, struct backend *b, struct decode_job *jobs, int n,
                          struct err *e)
{
    struct run r = {.ops = ops, .b = b, .jobs = jobs, .n = n};
    enum err_code rc = ERR_OK;
    size_t rows;

    ops->info(b, &r.info);
    rows = (size_t)r.info.rows;
    for (int i = 0; i < n; i++) {
        int need = (jobs[i].n_prompt + jobs[i].max_output + r.info.block_tokens - 1) / r.info.block_tokens;
        r.own_blocks = need > r.own_blocks ? need : r.own_blocks;
    }
    if (n > r.info.rows || n * r.own_blocks > r.info.blocks)
        return err_set(e, ERR_USAGE, ERR_STOP, "decode: %d jobs of %d blocks do not fit", n, r.own_blocks);
    r.list = calloc((size_t)r.own_blocks, sizeof *r.list);
    r.fed = calloc(rows, sizeof *r.fed);
    r.rows = calloc(rows, sizeof *r.rows);
    r.tokens = calloc(rows, sizeof *r.tokens);
    r.in_step = calloc(rows, sizeof *r.in_step);
    if (!r.list || !r.fed || !r.rows || !r.tokens || !r.in_step)
        rc = err_set(e, ERR_NOMEM, ERR_STOP, "decode: out of memory");
    for (int i = 0; rc == ERR_OK && i < n; i++)
        r.fed[i] = -1;
    if (rc == ERR_OK)
        rc = run_all(&r, e);
    free(r.list);
    free(r.fed);
    free(r.rows);
    free(r.tokens);
    free(r.in_step);
    return rc;
}
