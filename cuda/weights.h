/* weights.h -- a model's weights on the card: matrices packed, q/k/v fused, gate and up interleaved.
 * Owns:   one allocation.
 * A tied head and embedding lie there once: rows of the embedding are read out of the packed head. */
#ifndef CUDA_WEIGHTS_H
#define CUDA_WEIGHTS_H

#include "cuda/gpu.h"
#include "cuda/product.h"
#include "model/model.h"

struct layer {
    struct matrix qkv, o, gate_up, down;
    const bf16 *input_norm, *post_norm, *q_norm, *k_norm; /* q_norm, k_norm NULL: none */
};

struct weights {
    struct matrix embed, head; /* embed.w == head.w where tied */
    const bf16 *norm;
    struct layer *layers;
    void *memory;
    size_t bytes;
};

/* Shapes and sizes; nothing on the card yet.  Release with weights_close(). */
MUST_CHECK enum err_code weights_plan(struct weights *w, const struct model *m, const struct gpu *g, struct err *e);
/* Allocates and fills: from the model's mappings, or with is_random from a generator (normal, 0.02; norms 1). */
MUST_CHECK enum err_code weights_load(struct weights *w, const struct model *m, bool is_random, const struct gpu *g,
                                      struct err *e);
void weights_close(struct weights *w);

#endif
