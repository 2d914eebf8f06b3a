/* ref_kernels.h -- the loops of cpu/kernels.h in double, without tricks: the specification.
 * Same argument order; weights already as float. */
#ifndef TESTS_SUPPORT_REF_KERNELS_H
#define TESTS_SUPPORT_REF_KERNELS_H

#include <stddef.h>
#include <stdint.h>

void ref_product(double *out, const float *x, size_t x_stride, int rows, const float *w, int cols, int k);
void ref_weigh(double *out, const float *p, size_t p_stride, int rows, const float *v, int n, int d); /* overwrites */
double ref_softmax(double *e, const float *s, int n, double scale);
void ref_rmsnorm(double *y, const float *x, const float *w, int n, double eps);
void ref_rotate(double *y, const float *x, const float *cos, const float *sin, int d);
double ref_swiglu(double gate, double up);

/* Round to nearest even; what they give back widens to exactly the value returned in *exact. */
uint16_t ref_to_bf16(float f, float *exact);
uint16_t ref_to_f16(float f, float *exact); /* for |f| < 65,504 */

#endif
