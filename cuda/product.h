/* product.h -- y = W x for a handful of rows or for thousands: every matrix product of the model.
 * W [m, k] and x [rows, k] are bf16 and packed (cuda/layout.cuh), sums are f32.  Each output element is a sum over k in
 * one fixed order for a given number of splits: it depends neither on the number of rows nor on the launch's shape. */
#ifndef CUDA_PRODUCT_H
#define CUDA_PRODUCT_H

#ifdef __cplusplus
extern "C" {
#endif

#include "cuda/gpu.h"

struct matrix {
    bf16 *w; /* packed, on the card */
    int m, k;
    int m_tiles, k_blocks;
    int splits; /* how many parts the sum over k has when rows are few, so that every multiprocessor has work */
};

/* Shape and split of an [m, k] matrix on this card; w stays NULL.  bytes of its packed form. */
void matrix_shape(struct matrix *a, int m, int k, const struct gpu *g);
size_t matrix_bytes(const struct matrix *a);

/* Packs src [rows, k] (element size and kind by dtype: 0 bf16, 1 f16, 2 f32) into rows of a: row r goes to
 * first + (r / 8) * stride + r % 8.  stride 8 puts them side by side, 16 leaves every other group of eight free. */
MUST_CHECK enum err_code matrix_pack(const struct matrix *a, const void *src, int dtype, int64_t rows, int64_t first,
                                     int stride, const struct gpu *g, struct err *e);

/* out [splits, out_cap, 128 m_tiles] f32: the parts of the sum, to be added in order.  out_cap >= rows. */
MUST_CHECK enum err_code product_sums(const struct matrix *a, const bf16 *x, int x_cap, int rows, int splits,
                                      float *out, int out_cap, const struct gpu *g, struct err *e);

/* out [rows, 128 m_tiles] bf16: whole sums, rounded. */
MUST_CHECK enum err_code product_rounded(const struct matrix *a, const bf16 *x, int x_cap, int rows, bf16 *out,
                                         const struct gpu *g, struct err *e);

/* a's rows are gates and ups in turns of eight.  out [rows, m / 2] packed: silu(gate) * up. */
MUST_CHECK enum err_code product_swiglu(const struct matrix *a, const bf16 *x, int x_cap, int rows, bf16 *out,
                                        int out_cap, const struct gpu *g, struct err *e);

/* Once per card, before anything is captured: shared memory limits. */
MUST_CHECK enum err_code product_prepare(const struct gpu *g, struct err *e);

#ifdef __cplusplus
}
#endif
#endif
