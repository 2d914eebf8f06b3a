#include "tests/ref/ref.h"

#include <math.h>
#include <string.h>

float ref_from_bf16(uint16_t v)
{
    const uint32_t bits = (uint32_t)v << 16;
    float f;

    memcpy(&f, &bits, sizeof f);
    return f;
}

uint16_t ref_to_bf16(float v)
{
    uint32_t bits;

    memcpy(&bits, &v, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Tiles of 128 rows by 64 columns; the eight chunks of a row are permuted by the row's last three bits. */
size_t ref_weight_at(int64_t row, int col, int m_tiles)
{
    const int64_t tile = col / 64 * (int64_t)m_tiles + row / 128;
    const int chunk = col % 64 / 8 ^ (int)(row % 8);

    return (size_t)(tile * 128 * 64 + row % 128 * 64 + chunk * 8 + col % 8);
}

size_t ref_act_at(int row, int col, int cap)
{
    const int chunk = col % 64 / 8 ^ row % 8;

    return ((size_t)(col / 64) * (size_t)cap + (size_t)row) * 64 + (size_t)(chunk * 8 + col % 8);
}

/* Sub-blocks of sixteen positions, K then V, chunks of eight permuted by the position. */
static size_t kv_at(int block, int t, int head, int i, int block_tokens, int kv_heads, int d, int is_value)
{
    const size_t sub =
        ((size_t)block * (size_t)kv_heads + (size_t)head) * (size_t)(block_tokens / 16) + (size_t)(t / 16);

    return (sub * 2 + (size_t)is_value) * 16 * (size_t)d + (size_t)(t % 16 * d + (i / 8 ^ t % 8) * 8 + i % 8);
}

size_t ref_key_at(int block, int t, int head, int i, int block_tokens, int kv_heads, int d)
{
    return kv_at(block, t, head, i, block_tokens, kv_heads, d, 0);
}

size_t ref_value_at(int block, int t, int head, int i, int block_tokens, int kv_heads, int d)
{
    return kv_at(block, t, head, i, block_tokens, kv_heads, d, 1);
}

double ref_dot(const float *w, const float *x, int k)
{
    double s = 0;

    for (int i = 0; i < k; i++)
        s += (double)w[i] * x[i];
    return s;
}

double ref_silu(double v)
{
    return v / (1 + exp(-v));
}

void ref_norm(float *y, const float *x, const float *w, int n, float eps)
{
    double s = 0;

    for (int i = 0; i < n; i++)
        s += (double)x[i] * x[i];
    s = 1 / sqrt(s / n + eps);
    for (int i = 0; i < n; i++)
        y[i] = (float)(x[i] * s * w[i]);
}

void ref_rope(float *x, int d, int position, double base)
{
    for (int i = 0; i < d / 2; i++) {
        const double angle = position * pow(base, -2.0 * i / d), c = cos(angle), s = sin(angle);
        const double a = x[i], b = x[i + d / 2];
        x[i] = (float)(a * c - b * s);
        x[i + d / 2] = (float)(b * c + a * s);
    }
}

void ref_attention(float *out, const float *q, const float *k, const float *v, int n, int d)
{
    double most = -INFINITY, sum = 0, acc[256] = {0};

    for (int t = 0; t < n; t++)
        most = fmax(most, ref_dot(q, k + (size_t)t * (size_t)d, d) / sqrt(d));
    for (int t = 0; t < n; t++) {
        const double p = exp(ref_dot(q, k + (size_t)t * (size_t)d, d) / sqrt(d) - most);
        sum += p;
        for (int i = 0; i < d; i++)
            acc[i] += p * v[(size_t)t * (size_t)d + (size_t)i];
    }
    for (int i = 0; i < d; i++)
        out[i] = (float)(acc[i] / sum);
}
