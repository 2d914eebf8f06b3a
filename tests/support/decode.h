/* decode.h -- drives a backend by hand, without an engine: for golden and determinism checks. */
#ifndef TESTS_SUPPORT_DECODE_H
#define TESTS_SUPPORT_DECODE_H

#include "engine/backend.h"

struct decode_job {
    /* in */
    const int32_t *prompt;
    int n_prompt, max_output;
    struct sampling sampling;
    const int32_t *eos;
    int n_eos;
    int chunk;             /* prompt tokens a step; 0 = as many as the backend takes */
    int start;             /* the step before which it joins */
    const int32_t *blocks; /* its whole block list; NULL: its own ones, chosen by decode_jobs() */
    int n_cached;          /* leading positions that already lie in blocks */
    /* out, for the caller to provide room: max_output each */
    int32_t *output;
    float *logprobs;
    int n_output; /* the end token included */
    enum backend_end end;
};

/* Runs all jobs (at most info.rows at once, and n times the longest job's blocks must exist) to their ends. */
MUST_CHECK enum err_code decode_jobs(const struct backend_ops *ops, struct backend *b, struct decode_job *jobs, int n,
                                     struct err *e);

/* greedy, no penalty */
struct sampling decode_greedy(void);

#endif
