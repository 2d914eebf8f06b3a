#include "cuda/norm.h"

#include "cuda/fragment.cuh"
#include "cuda/launch.cuh"
#include "cuda/layout.cuh"

static const int THREADS = 256;

/* Sum over the block, in a fixed order; every thread gets it. */
__device__ __forceinline__ float block_sum(float v)
{
    __shared__ float part[THREADS / 32];

    v = warp_sum(v);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = v;
    __syncthreads();
    v = 0;
    for (int i = 0; i < THREADS / 32; i++)
        v += part[i];
    return v;
}

/* v: the thread's chunks of eight columns, chunk i at column 8 (i * THREADS + threadIdx.x); w: its part of the weights */
template <int CHUNKS>
__device__ __forceinline__ void put_norm(const float (*v)[8], bf16 *y, int row, int cap, const uint4 (&w)[CHUNKS],
                                         float eps, int hidden)
{
    float sum = 0;

#pragma unroll
    for (int i = 0; i < CHUNKS; i++)
#pragma unroll
        for (int j = 0; j < 8; j++)
            sum += v[i][j] * v[i][j];
    const float scale = rsqrtf(block_sum(sum) / hidden + eps);
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) {
        const int col = (i * THREADS + threadIdx.x) * 8;
        if (col < hidden) {
            const uint32_t ws[4] = {w[i].x, w[i].y, w[i].z, w[i].w};
            uint32_t o[4];
            for (int j = 0; j < 4; j++) {
                const float2 f = __bfloat1622float2(*(const __nv_bfloat162 *)&ws[j]);
                o[j] = pack2(v[i][2 * j] * scale * f.x, v[i][2 * j + 1] * scale * f.y);
            }
            *(uint4 *)(y + act_at(row, col, cap)) = make_uint4(o[0], o[1], o[2], o[3]);
        }
    }
}

template <int CHUNKS> __device__ __forceinline__ void get_weights(uint4 (&to)[CHUNKS], const bf16 *w, int hidden)
{
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) {
        const int col = (i * THREADS + threadIdx.x) * 8;
        to[i] = col < hidden ? *(const uint4 *)(w + col) : make_uint4(0, 0, 0, 0);
    }
}

template <int CHUNKS>
__global__ __launch_bounds__(THREADS) void embed_norm_kernel(float *x, bf16 *y, int cap, const bf16 *table, int m_tiles,
                                                             const int *tokens, const bf16 *w, float eps, int hidden)
{
    const int row = blockIdx.x;
    float v[CHUNKS][8];
    uint4 weights[CHUNKS];

    get_weights<CHUNKS>(weights, w, hidden);
    grid_wait();
    grid_release();
    const int token = tokens[row];
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) {
        const int col = (i * THREADS + threadIdx.x) * 8;
        uint4 t = make_uint4(0, 0, 0, 0);
        if (col < hidden && token >= 0)
            t = *(const uint4 *)(table + weight_at(token, col, m_tiles));
        const uint32_t ts[4] = {t.x, t.y, t.z, t.w};
        for (int j = 0; j < 4; j++) {
            const float2 f = __bfloat1622float2(*(const __nv_bfloat162 *)&ts[j]);
            v[i][2 * j] = f.x;
            v[i][2 * j + 1] = f.y;
        }
        if (col < hidden) {
            float4 *to = (float4 *)(x + (size_t)row * hidden + col);
            to[0] = make_float4(v[i][0], v[i][1], v[i][2], v[i][3]);
            to[1] = make_float4(v[i][4], v[i][5], v[i][6], v[i][7]);
        }
    }
    put_norm<CHUNKS>(v, y, row, cap, weights, eps, hidden);
}

/* Eight columns of a part of a sum, added to v. */
__device__ __forceinline__ void add_part(float (&v)[8], const float *part)
{
    const float4 a = ((const float4 *)part)[0], b = ((const float4 *)part)[1];

    v[0] += a.x, v[1] += a.y, v[2] += a.z, v[3] += a.w;
    v[4] += b.x, v[5] += b.y, v[6] += b.z, v[7] += b.w;
}

__device__ __forceinline__ void add_part(float (&v)[8], const bf16 *part)
{
    const uint4 a = *(const uint4 *)part;
    const uint32_t pairs[4] = {a.x, a.y, a.z, a.w};

#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float2 f = __bfloat1622float2(*(const __nv_bfloat162 *)&pairs[j]);
        v[2 * j] += f.x;
        v[2 * j + 1] += f.y;
    }
}

template <int CHUNKS, typename PART>
__global__ __launch_bounds__(THREADS) void residual_norm_kernel(float *x, const PART *part, int splits, int part_cap,
                                                                int ld, bf16 *y, int cap, int first, const int *pick,
                                                                const bf16 *w, float eps, int hidden)
{
    float v[CHUNKS][8];
    float4 old[CHUNKS][2];
    uint4 weights[CHUNKS];

    /* x and pick are older than the kernel before this one: they are there already (launch.cuh) */
    const int row = pick ? pick[blockIdx.x] : blockIdx.x;
    get_weights<CHUNKS>(weights, w, hidden);
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) {
        const int col = (i * THREADS + threadIdx.x) * 8;
        if (col < hidden) {
            old[i][0] = *(const float4 *)(x + (size_t)row * hidden + col);
            old[i][1] = *(const float4 *)(x + (size_t)row * hidden + col + 4);
        }
    }
    grid_wait();
    grid_release();
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) {
        const int col = (i * THREADS + threadIdx.x) * 8;
        for (int j = 0; j < 8; j++)
            v[i][j] = 0;
        if (col >= hidden)
            continue;
#pragma unroll 4
        for (int s = 0; s < splits; s++)
            add_part(v[i], part + ((size_t)s * part_cap + row) * ld + col);
        const float4 a = old[i][0], b = old[i][1];
        v[i][0] += a.x, v[i][1] += a.y, v[i][2] += a.z, v[i][3] += a.w;
        v[i][4] += b.x, v[i][5] += b.y, v[i][6] += b.z, v[i][7] += b.w;
        float4 *to = (float4 *)(x + (size_t)row * hidden + col);
        to[0] = make_float4(v[i][0], v[i][1], v[i][2], v[i][3]);
        to[1] = make_float4(v[i][4], v[i][5], v[i][6], v[i][7]);
    }
    put_norm<CHUNKS>(v, y, first + blockIdx.x, cap, weights, eps, hidden);
}

static int chunks_of(int hidden)
{
    int n = 1;

    while (n * THREADS * 8 < hidden)
        n *= 2;
    return n;
}

template <int CHUNKS>
static enum err_code run_embed(float *x, bf16 *y, int cap, const struct matrix *table, const int *token, int rows,
                               const struct norm *n, const struct gpu *g, struct err *e)
{
    /* the pass begins: ordinary, so that the step's lists are complete before anything of it starts */
    return launch(g, "embed_norm", embed_norm_kernel<CHUNKS>, dim3(rows), THREADS, 0, false, e, x, y, cap, table->w,
                  table->m_tiles, token, n->w, n->eps, n->hidden);
}

enum err_code embed_norm(float *x, bf16 *y, int cap, const struct matrix *table, const int *token, int rows,
                         const struct norm *n, const struct gpu *g, struct err *e)
{
    switch (chunks_of(n->hidden)) {
    case 1: return run_embed<1>(x, y, cap, table, token, rows, n, g, e);
    case 2: return run_embed<2>(x, y, cap, table, token, rows, n, g, e);
    case 4: return run_embed<4>(x, y, cap, table, token, rows, n, g, e);
    default: return run_embed<8>(x, y, cap, table, token, rows, n, g, e);
    }
}

template <int CHUNKS, typename PART>
static enum err_code run_chunks(float *x, const PART *part, int splits, int part_cap, int ld, bf16 *y, int cap,
                                int first, const int *pick, int rows, const struct norm *n, const struct gpu *g,
                                struct err *e)
{
    return launch(g, "residual_norm", residual_norm_kernel<CHUNKS, PART>, dim3(rows), THREADS, 0, true, e, x, part,
                  splits, part_cap, ld, y, cap, first, pick, n->w, n->eps, n->hidden);
}

template <typename PART>
static enum err_code run_residual(float *x, const PART *part, int splits, int part_cap, int ld, bf16 *y, int cap,
                                  int first, const int *pick, int rows, const struct norm *n, const struct gpu *g,
                                  struct err *e)
{
    switch (chunks_of(n->hidden)) {
    case 1: return run_chunks<1>(x, part, splits, part_cap, ld, y, cap, first, pick, rows, n, g, e);
    case 2: return run_chunks<2>(x, part, splits, part_cap, ld, y, cap, first, pick, rows, n, g, e);
    case 4: return run_chunks<4>(x, part, splits, part_cap, ld, y, cap, first, pick, rows, n, g, e);
    default: return run_chunks<8>(x, part, splits, part_cap, ld, y, cap, first, pick, rows, n, g, e);
    }
}

enum err_code residual_norm(float *x, const float *part, int splits, int part_cap, int ld, bf16 *y, int cap, int first,
                            const int *pick, int rows, const struct norm *n, const struct gpu *g, struct err *e)
{
    return run_residual(x, part, splits, part_cap, ld, y, cap, first, pick, rows, n, g, e);
}

enum err_code residual_norm_rounded(float *x, const bf16 *sums, int ld, bf16 *y, int cap, int first, const int *pick,
                                    int rows, const struct norm *n, const struct gpu *g, struct err *e)
{
    return run_residual(x, sums, 1, 0, ld, y, cap, first, pick, rows, n, g, e);
}
