/* kernels.h -- the inner loops of the CPU backend, one set an instruction set, chosen when the backend opens.
 * Order:  the sum behind an output element is defined by its length alone: lane l takes the elements l, l + LANES,
 *         ..., and one fixed tree adds the lanes.  So a result does not depend on how many rows or columns are
 *         computed together, on the weight's way into registers, or on the number of threads.
 * Shapes: matrices are row-major; a row's stride is given where it may differ from its length.
 * Thread: any; each call writes only its outputs and its scratch. */
#ifndef CPU_KERNELS_H
#define CPU_KERNELS_H

#include "model/model.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    KERNEL_COLS = 16,      /* columns that product() widens at a time: its scratch is KERNEL_COLS * k floats */
    KERNEL_MAX_LANES = 16, /* softmax() pads its row to a multiple of this */
};

struct kernels {
    const char *name; /* "AVX-512" */
    int lanes;

    /* out[r][c] = sum_i x[r][i] * w[c][i], or += with add; c < cols, r < rows; w is [cols, k] of type t, aligned to
     * its element.  scratch: KERNEL_COLS * k floats. */
    void (*product)(float *out, size_t out_stride, const float *x, size_t x_stride, int rows, const void *w,
                    enum dtype t, int cols, int k, bool add, float *scratch);
    /* out[r][0..d) += sum_j p[r][j] * v[j][0..d), j < n in this order; d a multiple of 16. */
    void (*weigh)(float *out, size_t out_stride, const float *p, size_t p_stride, int rows, const float *v, int n,
                  int d);
    /* s[j] = exp((s[j] - max s) * scale) for j < n; returns their sum.  s has room for n rounded up to
     * KERNEL_MAX_LANES; what lies behind n is overwritten. */
    float (*softmax)(float *s, int n, float scale);
    /* y = x / sqrt(mean(x^2) + eps) * w; y may be x. */
    void (*rmsnorm)(float *y, const float *x, const float *w, int n, float eps);
    /* Rotates the pairs (x[i], x[i + d/2]) by the angles behind cos and sin [d/2]; d a multiple of 16. */
    void (*rotate)(float *x, const float *cos, const float *sin, int d);
    /* gate[r][c] = silu(gate[r][c]) * up[r][c]. */
    void (*swiglu)(float *gate, size_t gate_stride, const float *up, size_t up_stride, int rows, int cols);
    /* Largest of x[0..n) and the sum of exp(x - max); false when one of them is not finite. */
    bool (*log_sum)(const float *x, int n, float *max, float *sum);
    void (*widen)(float *out, const void *w, enum dtype t, size_t n);
};

/* The widest set that this processor runs.  Never NULL. */
const struct kernels *kernels_best(void);
/* The i-th set that this processor runs, the best first; NULL past the last: for tests. */
const struct kernels *kernels_at(int i);

/* Each is NULL on a processor family that cannot have it. */
extern const struct kernels *const kernels_avx512, *const kernels_avx2, *const kernels_portable;

#endif
