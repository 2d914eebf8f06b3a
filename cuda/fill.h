/* fill.h -- made-up weights: normal with the given deviation, a function of (seed, index) alone. */
#ifndef CUDA_FILL_H
#define CUDA_FILL_H

#ifdef __cplusplus
extern "C" {
#endif

#include "cuda/gpu.h"

MUST_CHECK enum err_code fill_normal(bf16 *to, size_t n, uint64_t seed, uint64_t first, float deviation,
                                     const struct gpu *g, struct err *e);
MUST_CHECK enum err_code fill_value(bf16 *to, size_t n, float value, const struct gpu *g, struct err *e);

#ifdef __cplusplus
}
#endif
#endif
