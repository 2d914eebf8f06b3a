/* pass.h -- the order of the kernels: a forward pass over prompt tokens, one over rows that decode, head and sampling.
 *   x [rows, hidden] f32 is the residual stream; each product leaves parts of its sums, which the kernel after it adds
 *   (prompts: the whole sum, rounded to bf16):
 *   embed+norm -> { q/k/v -> RoPE, norm, append, attention -> o -> residual+norm -> gate/up, SwiGLU -> down ->
 *   residual+norm } per layer -> head -> sample.  Seven launches a layer for rows that decode, eight for prompts.
 * Owns:   the workspace and the KV cache, one allocation each.
 * Nothing here waits for the card. */
#ifndef CUDA_PASS_H
#define CUDA_PASS_H

#include "cuda/attention.h"
#include "cuda/gpu.h"
#include "cuda/rows.h"
#include "cuda/sample.h"
#include "cuda/weights.h"

struct pass {
    const struct gpu *g;
    const struct weights *w;
    struct dims d;
    int rows, step_tokens, positions, block_tokens, blocks;
    int cap;    /* rows of the activations: room for prompts and for decoding rows */
    int places; /* room for logits */
    int head_cap;

    float *x, *part, *logits, *group_max, *rope;
    float2 *group_sum;
    bf16 *normed, *attended, *inner, *head_in;
    size_t part_floats;
    bf16 *kv;
    size_t layer_elems, block_elems;
    struct row_table table;
    struct step_lists lists;
    void *workspace;
    size_t workspace_bytes, kv_bytes;
};

/* Fills the sizes: dims, rows, step_tokens, positions, block_tokens must be set.  workspace_bytes is then known. */
void pass_plan(struct pass *f);
/* blocks must be set: allocates workspace and cache. */
MUST_CHECK enum err_code pass_open(struct pass *f, struct err *e);
void pass_close(struct pass *f);

size_t pass_block_bytes(const struct pass *f); /* of one block, all layers */

/* Prompt tokens of lists.feed_*: the cache is filled; head_in[place..] gets the picked slots. */
MUST_CHECK enum err_code pass_prompt(const struct pass *f, int tokens, int tiles, int picks, int first_place,
                                     struct err *e);
/* Slots of lists.row, one token each; head_in[0..slots). */
MUST_CHECK enum err_code pass_decode(const struct pass *f, int slots, struct err *e);
/* Logits of head_in[0..places). */
MUST_CHECK enum err_code pass_head(const struct pass *f, int places, struct err *e);
/* distribution: for checks, or NULL. */
MUST_CHECK enum err_code pass_sample(const struct pass *f, int places, struct sampled *out, float *distribution,
                                     struct err *e);

#endif
