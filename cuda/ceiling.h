/* ceiling.h -- what the card can do at most, measured where it stands: the figures that others are held against. */
#ifndef CUDA_CEILING_H
#define CUDA_CEILING_H

#ifdef __cplusplus
extern "C" {
#endif

#include "cuda/gpu.h"

/* Bytes read and written a second by a copy of `bytes` within the card. */
MUST_CHECK enum err_code ceiling_copy(void *memory, size_t bytes, double *per_second, const struct gpu *g,
                                      struct err *e);
/* Operations a second of bf16 products whose operands never leave shared memory or registers. */
MUST_CHECK enum err_code ceiling_matrix(float *scratch, double *per_second, const struct gpu *g, struct err *e);

#ifdef __cplusplus
}
#endif
#endif
