/* What every machine has: 4 lanes by the compilers' vector extensions, NEON's own instructions on arm64. */
#include "cpu/kernels.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#endif
#include <stdint.h>
#include <string.h>

#define LANES       4
#define WIDE_STRIPS 2

typedef float vec __attribute__((vector_size(16)));
typedef int ivec __attribute__((vector_size(16)));

#define INLINE static inline __attribute__((always_inline))

#if defined(__aarch64__)

#define TILE_ROWS 4
#define SET_NAME  "NEON"

INLINE vec v_fma(vec a, vec b, vec c)
{
    return (vec)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}

INLINE vec v_load_f16(const void *p)
{
    float16x4_t h;

    memcpy(&h, p, sizeof h);
    return (vec)vcvt_f32_f16(h);
}

INLINE void v_sum4(float out[4], vec a, vec b, vec c, vec d)
{
    vst1q_f32(out, vpaddq_f32(vpaddq_f32((float32x4_t)a, (float32x4_t)b), vpaddq_f32((float32x4_t)c, (float32x4_t)d)));
}

#else

#define TILE_ROWS 2
#define SET_NAME  "portable"

INLINE vec v_fma(vec a, vec b, vec c)
{
    return a * b + c;
}

/* IEEE binary16 to binary32: rebias the exponent by a product, which also settles subnormals. */
INLINE float half_to_float(uint16_t h)
{
    uint32_t bits = (uint32_t)(h & 0x7fffu) << 13;
    float f;

    if ((h & 0x7c00u) == 0x7c00u) {
        bits |= 0x7f800000u; /* infinite or not a number */
        memcpy(&f, &bits, sizeof f);
    } else {
        memcpy(&f, &bits, sizeof f);
        f *= 0x1p112f;
    }
    return h & 0x8000u ? -f : f;
}

INLINE vec v_load_f16(const void *p)
{
    uint16_t h[4];

    memcpy(h, p, sizeof h);
    return (vec){half_to_float(h[0]), half_to_float(h[1]), half_to_float(h[2]), half_to_float(h[3])};
}

INLINE void v_sum4(float out[4], vec a, vec b, vec c, vec d)
{
    out[0] = (a[0] + a[1]) + (a[2] + a[3]);
    out[1] = (b[0] + b[1]) + (b[2] + b[3]);
    out[2] = (c[0] + c[1]) + (c[2] + c[3]);
    out[3] = (d[0] + d[1]) + (d[2] + d[3]);
}

#endif

INLINE vec v_max(vec a, vec b)
{
    ivec more = (ivec)(a > b);

    return (vec)(((ivec)a & more) | ((ivec)b & ~more)); /* b where a is not a number */
}

INLINE vec v_load_bf16(const void *p)
{
    uint16_t __attribute__((vector_size(8))) h;

    memcpy(&h, p, sizeof h);
    return (vec)(__builtin_convertvector(h, ivec) << 16);
}

#include "cpu/kernels_body.h"

const struct kernels *const kernels_portable = &set;
