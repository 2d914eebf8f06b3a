/* forward.h -- the decoder over a paged KV cache: ids in, logits out.
 * Owns:   activations for max_tokens tokens, the KV blocks, the norm weights widened to f32.  The matrices stay
 *         where the model has them, in their own type.
 * KV:     f32; block b of layer l, kv head h: keys [block_tokens, head_dim], then values of the same shape.
 * Result: of a token, a function of its sequence alone: not of the other tokens of the run, nor of how the
 *         sequence was cut into runs.
 * Thread: one; it shares the work out over the pool. */
#ifndef CPU_FORWARD_H
#define CPU_FORWARD_H

#include "base/err.h"
#include "cpu/kernels.h"
#include "cpu/pool.h"
#include "model/model.h"

#include <stddef.h>
#include <stdint.h>

struct forward;

struct forward_options {
    const struct model *model; /* outlives it */
    const struct kernels *kernels;
    struct pool *pool;
    int blocks, block_tokens;
    int max_tokens;    /* in one run */
    int max_positions; /* of a sequence */
};

/* Tokens of one sequence stand together, positions rising by one; that is what the same block list means. */
struct forward_token {
    int32_t id;
    int position;
    const int32_t *blocks; /* of the sequence, enough for position */
    int logits;            /* which row of the logits it fills; -1 = none */
};

/* ERR_UNSUPPORTED: a head_dim that is no multiple of 16. */
MUST_CHECK enum err_code forward_open(struct forward **out, const struct forward_options *o, struct err *e);
void forward_close(struct forward *f); /* NULL is fine */

/* logits: [n_logits, columns], the first `columns` ids of the vocabulary. */
void forward_run(struct forward *f, const struct forward_token *tokens, int n, float *logits, int n_logits,
                 int columns);

/* The first n positions of block src to block dst, all layers. */
void forward_copy_block(struct forward *f, int src, int dst, int n);

size_t forward_block_bytes(const struct dims *d, int block_tokens);
size_t forward_workspace_bytes(const struct forward *f); /* without the KV blocks */

#endif
