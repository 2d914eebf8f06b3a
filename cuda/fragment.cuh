/* fragment.cuh -- small pieces around m16n8k16 tensor-core products, for compute capability 8.0 and later.
 * Lane l has g = l / 4, c = l % 4.  Accumulators: rows g (0, 1) and g + 8 (2, 3), columns 2 c and 2 c + 1. */
#ifndef CUDA_FRAGMENT_CUH
#define CUDA_FRAGMENT_CUH

#include <cuda_bf16.h>
#include <stdint.h>

__device__ __forceinline__ void mma(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                    uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* Four 8 x 8 matrices out of shared memory; lane l gives the address of row l % 8 of matrix l / 8. */
__device__ __forceinline__ void ldmatrix4(uint32_t (&r)[4], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

__device__ __forceinline__ void ldmatrix4_transposed(uint32_t (&r)[4], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

/* Compute capability 9.0 and later.  Four 8 x 8 matrices into shared memory, each transposed: lane l gives the address of row l % 8 of matrix l / 8 there. */
__device__ __forceinline__ void stmatrix4_transposed(uint32_t at, const uint32_t (&r)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(r[0]),
                 "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}

/* The transpose of an 8 x 8 matrix of 16-bit elements that the warp holds two a lane. */
__device__ __forceinline__ uint32_t transposed(uint32_t v)
{
    uint32_t r;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(v));
    return r;
}

__device__ __forceinline__ uint32_t pack2(float low, float high)
{
    __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<uint32_t *>(&v);
}

__device__ __forceinline__ float warp_sum(float v)
{
    for (int m = 16; m > 0; m /= 2)
        v += __shfl_xor_sync(0xffffffff, v, m);
    return v;
}

__device__ __forceinline__ float warp_max(float v)
{
    for (int m = 16; m > 0; m /= 2)
        v = fmaxf(v, __shfl_xor_sync(0xffffffff, v, m));
    return v;
}

#endif
