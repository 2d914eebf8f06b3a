/* AVX-512: 16 lanes, 32 registers. */
#include "cpu/kernels.h"

#if defined(__x86_64__)

#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c"))),              \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c,prefer-vector-width=512")
#endif

#define LANES       16
#define TILE_ROWS   6     /* 24 sums, 4 weights, 1 activation */
#define WIDE_STRIPS 10000 /* never: widening in registers hides behind 24 products */
#define SET_NAME    "AVX-512"

typedef float vec __attribute__((vector_size(64)));
typedef int ivec __attribute__((vector_size(64)));

#define INLINE static inline __attribute__((always_inline))

INLINE vec v_fma(vec a, vec b, vec c)
{
    return (vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}

INLINE vec v_max(vec a, vec b)
{
    return (vec)_mm512_max_ps((__m512)a, (__m512)b); /* b where a is not a number */
}

INLINE vec v_load_bf16(const void *p)
{
    return (vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p)), 16);
}

INLINE vec v_load_f16(const void *p)
{
    return (vec)_mm512_cvtph_ps(_mm256_loadu_si256(p));
}

INLINE __m256 fold(vec a)
{
    return _mm256_add_ps(_mm512_castps512_ps256((__m512)a), _mm512_extractf32x8_ps((__m512)a, 1));
}

/* out[i] = the sum of the lanes of the i-th argument */
INLINE void v_sum4(float out[4], vec a, vec b, vec c, vec d)
{
    __m256 abcd = _mm256_hadd_ps(_mm256_hadd_ps(fold(a), fold(b)), _mm256_hadd_ps(fold(c), fold(d)));

    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(abcd), _mm256_extractf128_ps(abcd, 1)));
}

#include "cpu/kernels_body.h"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

const struct kernels *const kernels_avx512 = &set;

#else

const struct kernels *const kernels_avx512 = NULL;

#endif
