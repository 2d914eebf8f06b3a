#include "cuda/ceiling.h"

#include "cuda/fragment.cuh"
#include "cuda/wgmma.cuh"
#include "engine/random.h"

enum { ROUNDS = 4096, REPEATS = 5 };

/* Fills shared memory with random bf16 numbers between -2 and 2: zeros would draw less power and run faster. */
__device__ void fill_random(uint32_t *to, int words)
{
    for (int i = threadIdx.x; i < words; i += blockDim.x) {
        uint32_t r[4];
        random_block(1, i, 2, r);
        to[i] = (r[0] & 0xbf7fbf7fu) | 0x3f003f00u;
    }
}

/* Two warpgroups a block, each 64 x 256 x 16 at a time. */
__global__ __launch_bounds__(256, 1) void matrix_wgmma(float *out)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ char raw[];
    char *smem = raw + (1024 - smem_address(raw) % 1024) % 1024;
    float d[128];

    fill_random((uint32_t *)smem, (16384 + 32768) / 4);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    const uint64_t a = wgmma_operand(smem + threadIdx.x / 128 * 8192), b = wgmma_operand(smem + 16384);
    for (int i = 0; i < ROUNDS; i++) {
        wgmma_begin();
        for (int k = 0; k < 4; k++)
            wgmma_n<256>(d, a + k * 2, b + k * 2, i > 0 || k > 0);
        wgmma_commit();
        wgmma_wait<0>();
    }
    float s = 0;
    for (int i = 0; i < 128; i++)
        s += d[i];
    out[blockIdx.x * 256 + threadIdx.x] = s;
#else
    (void)out;
#endif
}

/* Eight warps a block, each with eight accumulators of 16 x 8. */
__global__ __launch_bounds__(256) void matrix_mma(float *out)
{
    __shared__ uint32_t operands[1024];
    float d[8][4] = {};

    fill_random(operands, 1024);
    __syncthreads();
    const uint32_t *v = operands + threadIdx.x % 32 * 16;
    uint32_t a[4], b[8][2];
    for (int i = 0; i < 4; i++)
        a[i] = v[i];
    for (int i = 0; i < 8; i++)
        b[i][0] = v[i + 4], b[i][1] = operands[threadIdx.x + i * 64];
    for (int i = 0; i < ROUNDS; i++)
#pragma unroll
        for (int j = 0; j < 8; j++)
            mma(d[j], a[0], a[1], a[2], a[3], b[j][0], b[j][1]);
    float s = 0;
    for (int j = 0; j < 8; j++)
        s += d[j][0] + d[j][1] + d[j][2] + d[j][3];
    out[blockIdx.x * 256 + threadIdx.x] = s;
}

struct stopwatch {
    cudaEvent_t begin, end;
};

static cudaError_t stopwatch_open(struct stopwatch *w)
{
    const cudaError_t rc = cudaEventCreate(&w->begin);
    return rc != cudaSuccess ? rc : cudaEventCreate(&w->end);
}

/* Seconds of one repeat; closes the watch. */
static cudaError_t stopwatch_read(struct stopwatch *w, double *seconds)
{
    float ms = 0;
    cudaError_t rc = cudaEventSynchronize(w->end);

    if (rc == cudaSuccess)
        rc = cudaEventElapsedTime(&ms, w->begin, w->end);
    (void)cudaEventDestroy(w->begin);
    (void)cudaEventDestroy(w->end);
    *seconds = ms * 1e-3 / REPEATS;
    return rc;
}

enum err_code ceiling_copy(void *memory, size_t bytes, double *per_second, const struct gpu *g, struct err *e)
{
    struct stopwatch w;
    double seconds = 1;
    cudaError_t rc = stopwatch_open(&w);

    bytes = bytes / 2 / 4096 * 4096;
    for (int i = -1; i < REPEATS && rc == cudaSuccess; i++) {
        if (i == 0)
            rc = cudaEventRecord(w.begin, g->stream);
        if (rc == cudaSuccess)
            rc = cudaMemcpyAsync(memory, (char *)memory + bytes, bytes, cudaMemcpyDeviceToDevice, g->stream);
    }
    if (rc == cudaSuccess)
        rc = cudaEventRecord(w.end, g->stream);
    if (rc == cudaSuccess)
        rc = stopwatch_read(&w, &seconds);
    *per_second = 2.0 * (double)bytes / seconds;
    return gpu_check(rc, "cannot measure a copy", e);
}

enum err_code ceiling_matrix(float *scratch, double *per_second, const struct gpu *g, struct err *e)
{
    struct stopwatch w;
    double seconds = 1;
    const int blocks = g->wgmma ? g->sms : g->sms * 4;
    const double each = g->wgmma ? 2.0 * 2 * 64 * 256 * 16 * 4 * ROUNDS : 8.0 * 8 * 2 * 16 * 8 * 16 * ROUNDS;
    const int smem = 16384 + 32768 + 1024;
    cudaError_t rc = cudaFuncSetAttribute(matrix_wgmma, cudaFuncAttributeMaxDynamicSharedMemorySize, smem);

    if (rc == cudaSuccess)
        rc = stopwatch_open(&w);
    for (int i = -2; i < REPEATS && rc == cudaSuccess; i++) {
        if (i == 0)
            rc = cudaEventRecord(w.begin, g->stream);
        if (g->wgmma)
            matrix_wgmma<<<blocks, 256, smem, g->stream>>>(scratch);
        else
            matrix_mma<<<blocks, 256, 0, g->stream>>>(scratch);
        if (rc == cudaSuccess)
            rc = cudaGetLastError();
    }
    if (rc == cudaSuccess)
        rc = cudaEventRecord(w.end, g->stream);
    if (rc == cudaSuccess)
        rc = stopwatch_read(&w, &seconds);
    *per_second = each * blocks / seconds;
    return gpu_check(rc, "cannot measure products", e);
}
