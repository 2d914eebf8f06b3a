/* sample.h -- from logits to tokens, the specification in src/cpu/sampler.h: repetition penalty over the ids seen,
 * temperature, top-k (equal logits: lowest id first), top-p, then a draw that walks the kept ids in their order.
 * Two kernels: one reads all logits once and leaves, for each group of 128 ids, the largest penalized logit and the
 * group's share of the softmax; one, a block a row, finds what may be drawn, draws, and moves the row on.
 * Exact for any top-k: up to SAMPLE_FAST candidates through a sort in shared memory, more through searches over the
 * whole vocabulary. */
#ifndef CUDA_SAMPLE_H
#define CUDA_SAMPLE_H

#ifdef __cplusplus
extern "C" {
#endif

#include "cuda/gpu.h"
#include "cuda/rows.h"

enum { SAMPLE_GROUP = 128, SAMPLE_FAST = 1024 };

struct sampled { /* in pinned memory: struct step_token of the engine, by place among the logits */
    int token;
    float logprob;
    int end;
};

struct sample_job {
    const float *logits; /* [places, ld]; not changed */
    int ld, vocab;       /* vocab: ids that may be sampled */
    float *group_max;    /* [places, groups] largest penalized logit */
    float2
        *group_sum; /* [places, groups] largest logit, sum of exp(logit - it); not a number: some logit is not finite */
    const int *row, *pos; /* [places] row (-1: none), position of the token to draw */
    const int *turn;      /* answers go to out + *turn * stride */
    int stride;
    float *distribution; /* [vocab] of place 0, for checks; or NULL */
};

MUST_CHECK enum err_code sample(const struct sample_job *job, const struct row_table *t, int places,
                                struct sampled *out, const struct gpu *g, struct err *e);

#ifdef __cplusplus
}
#endif
#endif
