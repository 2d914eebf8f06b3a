/* AVX2 with FMA: 8 lanes, 16 registers. */
#include "cpu/kernels.h"

#if defined(__x86_64__)

#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

#define LANES       8
#define TILE_ROWS   3 /* 12 sums, 3 activations, 1 weight */
#define WIDE_STRIPS 2
#define SET_NAME    "AVX2"

typedef float vec __attribute__((vector_size(32)));
typedef int ivec __attribute__((vector_size(32)));

#define INLINE static inline __attribute__((always_inline))

INLINE vec v_fma(vec a, vec b, vec c)
{
    return (vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}

INLINE vec v_max(vec a, vec b)
{
    return (vec)_mm256_max_ps((__m256)a, (__m256)b); /* b where a is not a number */
}

INLINE vec v_load_bf16(const void *p)
{
    return (vec)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(p)), 16);
}

INLINE vec v_load_f16(const void *p)
{
    return (vec)_mm256_cvtph_ps(_mm_loadu_si128(p));
}

/* out[i] = the sum of the lanes of the i-th argument */
INLINE void v_sum4(float out[4], vec a, vec b, vec c, vec d)
{
    __m256 abcd = _mm256_hadd_ps(_mm256_hadd_ps((__m256)a, (__m256)b), _mm256_hadd_ps((__m256)c, (__m256)d));

    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(abcd), _mm256_extractf128_ps(abcd, 1)));
}

#include "cpu/kernels_body.h"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

const struct kernels *const kernels_avx2 = &set;

#else

const struct kernels *const kernels_avx2 = NULL;

#endif
