#include "tests/support/ref_kernels.h"

#include <math.h>
#include <string.h>

void ref_product(double *out, const float *x, size_t x_stride, int rows, const float *w, int cols, int k)
{
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < cols; c++) {
            double sum = 0;

            for (int i = 0; i < k; i++)
                sum += (double)x[(size_t)r * x_stride + (size_t)i] * w[(size_t)c * (size_t)k + (size_t)i];
            out[r * cols + c] = sum;
        }
}

void ref_weigh(double *out, const float *p, size_t p_stride, int rows, const float *v, int n, int d)
{
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < d; c++) {
            double sum = 0;

            for (int j = 0; j < n; j++)
                sum += (double)p[(size_t)r * p_stride + (size_t)j] * v[(size_t)j * (size_t)d + (size_t)c];
            out[r * d + c] = sum;
        }
}

double ref_softmax(double *e, const float *s, int n, double scale)
{
    double max = -INFINITY, sum = 0;

    for (int i = 0; i < n; i++)
        max = fmax(max, s[i]);
    for (int i = 0; i < n; i++)
        sum += e[i] = exp((s[i] - max) * scale);
    return sum;
}

void ref_rmsnorm(double *y, const float *x, const float *w, int n, double eps)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    for (int i = 0; i < n; i++)
        y[i] = x[i] / sqrt(sum / n + eps) * w[i];
}

void ref_rotate(double *y, const float *x, const float *cos, const float *sin, int d)
{
    for (int i = 0, half = d / 2; i < half; i++) {
        y[i] = (double)x[i] * cos[i] - (double)x[half + i] * sin[i];
        y[half + i] = (double)x[half + i] * cos[i] + (double)x[i] * sin[i];
    }
}

double ref_swiglu(double gate, double up)
{
    return gate / (1 + exp(-gate)) * up;
}

uint16_t ref_to_bf16(float f, float *exact)
{
    uint32_t u, wide;
    uint16_t h;

    memcpy(&u, &f, sizeof u);
    h = (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
    wide = (uint32_t)h << 16;
    memcpy(exact, &wide, sizeof wide);
    return h;
}

/* By the value, not by the bits: a multiple of the step that the exponent allows. */
uint16_t ref_to_f16(float f, float *exact)
{
    int exponent;
    uint16_t sign = signbit(f) ? 0x8000 : 0;
    double a = fabs((double)f), step, units;

    (void)frexp(a, &exponent); /* a = m * 2^exponent, m in [0.5, 1) */
    if (a == 0 || exponent < -13)
        exponent = -13; /* subnormal: steps of 2^-24 */
    step = ldexp(1, exponent - 11);
    units = nearbyint(a / step); /* below 1024 only for subnormals */
    *exact = (float)(sign ? -units * step : units * step);
    return sign | (uint16_t)(units + 1024 * (exponent + 13));
}
