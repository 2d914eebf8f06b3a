/* norm.h -- the residual stream x [rows, hidden] f32 and its RMSNorm, packed bf16: the input of the next product.
 * y = x / sqrt(mean(x^2) + eps) * w.  Sums in f32, in one fixed order. */
#ifndef CUDA_NORM_H
#define CUDA_NORM_H

#ifdef __cplusplus
extern "C" {
#endif

#include "cuda/gpu.h"
#include "cuda/product.h"

struct norm {
    const bf16 *w; /* [hidden] */
    float eps;
    int hidden; /* a multiple of 8, at most NORM_MAX_HIDDEN */
};

enum { NORM_MAX_HIDDEN = 16384 };

/* x[i] = row token[i] of the packed table, y[i] = its norm, i < rows.  A token below 0 gives zeros. */
MUST_CHECK enum err_code embed_norm(float *x, bf16 *y, int cap, const struct matrix *table, const int *token, int rows,
                                    const struct norm *n, const struct gpu *g, struct err *e);

/* For i < rows, r = pick ? pick[i] : i:  x[r] += part[0][r] + ... + part[splits - 1][r] (row pitch ld, split pitch
 * part_cap * ld); y[first + i] = norm(x[r]). */
MUST_CHECK enum err_code residual_norm(float *x, const float *part, int splits, int part_cap, int ld, bf16 *y, int cap,
                                       int first, const int *pick, int rows, const struct norm *n, const struct gpu *g,
                                       struct err *e);

/* The same of whole sums [.., ld] in bf16, as prompts have them. */
MUST_CHECK enum err_code residual_norm_rounded(float *x, const bf16 *sums, int ld, bf16 *y, int cap, int first,
                                               const int *pick, int rows, const struct norm *n, const struct gpu *g,
                                               struct err *e);

#ifdef __cplusplus
}
#endif
#endif
