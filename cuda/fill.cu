#include "cuda/fill.h"

#include "engine/random.h"

#include <cuda_bf16.h>

/* Box-Muller over one counter block: four numbers. */
__global__ void fill_normal_kernel(bf16 *to, size_t n, uint64_t seed, uint64_t first, float deviation)
{
    for (size_t i = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * 4; i < n;
         i += (size_t)gridDim.x * blockDim.x * 4) {
        uint32_t r[4];
        random_block(seed, first + i, 1, r);
        for (int j = 0; j < 4; j += 2) {
            const float radius = sqrtf(-2.0f * logf(((float)(r[j] >> 8) + 0.5f) * (1.0f / 16777216.0f))) * deviation;
            const float turn = (float)(r[j + 1] >> 8) * (2.0f / 16777216.0f);
            if (i + j < n)
                to[i + j] = __bfloat16_as_ushort(__float2bfloat16_rn(radius * cospif(turn)));
            if (i + j + 1 < n)
                to[i + j + 1] = __bfloat16_as_ushort(__float2bfloat16_rn(radius * sinpif(turn)));
        }
    }
}

__global__ void fill_value_kernel(bf16 *to, size_t n, float value)
{
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        to[i] = __bfloat16_as_ushort(__float2bfloat16_rn(value));
}

enum err_code fill_normal(bf16 *to, size_t n, uint64_t seed, uint64_t first, float deviation, const struct gpu *g,
                          struct err *e)
{
    fill_normal_kernel<<<g->sms * 8, 256, 0, g->stream>>>(to, n, seed, first, deviation);
    return gpu_launched(g, cudaGetLastError(), "fill_normal", e);
}

enum err_code fill_value(bf16 *to, size_t n, float value, const struct gpu *g, struct err *e)
{
    fill_value_kernel<<<g->sms, 256, 0, g->stream>>>(to, n, value);
    return gpu_launched(g, cudaGetLastError(), "fill_value", e);
}
