#include "cpu/kernels.h"

static int supported(const struct kernels **sets)
{
    int n = 0;

#if defined(__x86_64__)
    __builtin_cpu_init();
    if (kernels_avx512 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        sets[n++] = kernels_avx512;
    /* every processor with AVX2 and FMA has F16C, and __builtin_cpu_supports() of older compilers does not know it */
    if (kernels_avx2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        sets[n++] = kernels_avx2;
#endif
    sets[n++] = kernels_portable;
    return n;
}

const struct kernels *kernels_at(int i)
{
    const struct kernels *sets[3] = {NULL};
    int n = supported(sets);

    return i >= 0 && i < n ? sets[i] : NULL;
}

const struct kernels *kernels_best(void)
{
    return kernels_at(0);
}
