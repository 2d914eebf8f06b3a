/* ref.h -- what the kernels of cuda/ compute, in plain loops: the specification.
 * Sums in f64, inputs as the kernels see them: bf16 rounded by the caller. */
#ifndef TESTS_REF_REF_H
#define TESTS_REF_REF_H

#include <stddef.h>
#include <stdint.h>

float ref_from_bf16(uint16_t v);
uint16_t ref_to_bf16(float v); /* to nearest, ties to even */

/* --- layouts (cuda/layout.cuh): where an element lies --- */
size_t ref_weight_at(int64_t row, int col, int m_tiles);
size_t ref_act_at(int row, int col, int cap);
size_t ref_key_at(int block, int t, int head, int i, int block_tokens, int kv_heads, int d);
size_t ref_value_at(int block, int t, int head, int i, int block_tokens, int kv_heads, int d);

/* sum_i w[i] x[i] */
double ref_dot(const float *w, const float *x, int k);
double ref_silu(double v);
/* y = x / sqrt(mean(x^2) + eps) * w */
void ref_norm(float *y, const float *x, const float *w, int n, float eps);
/* Rotate-half RoPE in place, x [d]. */
void ref_rope(float *x, int d, int position, double base);
/* softmax(q k^T / sqrt(d)) v of one head over n positions: k, v [n, d]. */
void ref_attention(float *out, const float *q, const float *k, const float *v, int n, int d);

#endif
