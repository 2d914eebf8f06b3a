#include "cuda/product.h"

#include "cuda/fragment.cuh"
#include "cuda/launch.cuh"
#include "cuda/layout.cuh"
#include "cuda/wgmma.cuh"

#include <cuda_fp16.h>

/* One launch.  Its work is units (row tile of W, split, tile of rows of x), counted with the rows of x fastest, so
 * that blocks that run together read the same weights. */
struct product_job {
    const char *w, *x;
    void *out;
    int m_tiles, k_blocks, splits;
    int x_cap, rows, n_tiles, out_cap;
    bool swiglu;
};

static const int W_TILE_BYTES = TILE_ELEMS * 2; /* 16 KiB */

/* --- where the sums go, the same for both kernels: d[j] holds rows m + g (+ 8), columns n + 8 j + 2 c (+ 1) --- */

__device__ __forceinline__ float swiglu(float gate, float up)
{
    return __fdividef(gate, 1.0f + __expf(-gate)) * up; /* -inf: the exponential is infinite, the quotient 0 */
}

template <int BLOCKS>
__device__ __forceinline__ void put_sums(const product_job &job, const float (*d)[4], int m, int n, int split)
{
    const int lane = threadIdx.x % 32, g = lane / 4, c = lane % 4;
    const size_t ld = (size_t)job.m_tiles * TILE_M;
    float *out = (float *)job.out + (size_t)split * job.out_cap * ld + m + g;

#pragma unroll
    for (int j = 0; j < BLOCKS; j++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int row = n + j * 8 + c * 2 + i;
            if (row < job.rows) {
                out[row * ld] = d[j][i];
                out[row * ld + 8] = d[j][2 + i];
            }
        }
}

template <int BLOCKS>
__device__ __forceinline__ void put_swiglu(const product_job &job, const float (*d)[4], int m, int n)
{
    const int lane = threadIdx.x % 32;
    bf16 *out = (bf16 *)job.out;

#pragma unroll
    for (int j = 0; j < BLOCKS; j++) {
        uint32_t v = transposed(pack2(swiglu(d[j][0], d[j][2]), swiglu(d[j][1], d[j][3])));
        int row = n + j * 8 + lane / 4; /* after the transpose: one row of x, two neighbouring features */
        if (row < job.rows)
            *(uint32_t *)(out + act_at(row, m / 2 + lane % 4 * 2, job.out_cap)) = v;
    }
}

/* --- compute capability 8.0 and later: cp.async, ldmatrix, m16n8k16 --- */

__device__ __forceinline__ void copy16(uint32_t to, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

static const int MMA_THREADS = 256, MMA_STAGES = 3;

template <int BN> __global__ __launch_bounds__(MMA_THREADS) void product_mma(const product_job job)
{
    extern __shared__ __align__(1024) char smem[];
    constexpr int STAGE = W_TILE_BYTES + BN * 128;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int units = job.m_tiles * job.splits * job.n_tiles;
    bool waited = false;

    for (int u = blockIdx.x; u < units; u += gridDim.x) {
        const int n0 = u % job.n_tiles * BN, split = u / job.n_tiles % job.splits, mt = u / job.n_tiles / job.splits;
        const int k0 = (int)((int64_t)job.k_blocks * split / job.splits);
        const int k1 = (int)((int64_t)job.k_blocks * (split + 1) / job.splits);
        float d[BN / 8][4];

        auto load_w = [&](int kb) {
            const char *from = job.w + ((size_t)kb * job.m_tiles + mt) * W_TILE_BYTES;
            uint32_t to = smem_address(smem + (kb - k0) % MMA_STAGES * STAGE);
            for (int i = threadIdx.x; i < W_TILE_BYTES / 16; i += MMA_THREADS)
                copy16(to + i * 16, from + i * 16);
        };
        auto load_x = [&](int kb) {
            const char *from = job.x + ((size_t)kb * job.x_cap + n0) * 128;
            uint32_t to = smem_address(smem + (kb - k0) % MMA_STAGES * STAGE + W_TILE_BYTES);
            for (int i = threadIdx.x; i < BN * 8; i += MMA_THREADS)
                copy16(to + i * 16, from + i * 16);
        };

        for (int j = 0; j < BN / 8; j++)
            d[j][0] = d[j][1] = d[j][2] = d[j][3] = 0;
        for (int kb = k0; kb < k0 + MMA_STAGES - 1 && kb < k1; kb++)
            load_w(kb);
        if (!waited) {
            grid_wait();
            grid_release();
            waited = true;
        }
        for (int kb = k0; kb < k0 + MMA_STAGES - 1; kb++) {
            if (kb < k1)
                load_x(kb);
            asm volatile("cp.async.commit_group;" ::: "memory");
        }
        for (int kb = k0; kb < k1; kb++) {
            asm volatile("cp.async.wait_group %0;" ::"n"(MMA_STAGES - 2) : "memory");
            __syncthreads();
            if (kb + MMA_STAGES - 1 < k1) {
                load_w(kb + MMA_STAGES - 1);
                load_x(kb + MMA_STAGES - 1);
            }
            asm volatile("cp.async.commit_group;" ::: "memory");
            const uint32_t w = smem_address(smem + (kb - k0) % MMA_STAGES * STAGE), x = w + W_TILE_BYTES;
            const int r = warp * 16 + lane % 16, q = lane % 8 + lane / 16 * 8;
#pragma unroll
            for (int kk = 0; kk < TILE_K / 16; kk++) {
                uint32_t a[4], b[4];
                ldmatrix4(a, w + r * 128 + (((kk * 2 + lane / 16) ^ (r & 7)) << 4));
#pragma unroll
                for (int j = 0; j < BN / 8; j += 2) {
                    /* with BN 8 the second half of the lanes repeats the first: x has but eight rows here */
                    int t = BN == 8 ? lane % 8 : j * 8 + q;
                    ldmatrix4(b, x + t * 128 + (((kk * 2 + lane / 8 % 2) ^ (t & 7)) << 4));
                    mma(d[j], a[0], a[1], a[2], a[3], b[0], b[1]);
                    if (BN > 8)
                        mma(d[(j + 1) % (BN / 8)], a[0], a[1], a[2], a[3], b[2], b[3]);
                }
            }
        }
        asm volatile("cp.async.wait_group 0;" ::: "memory");
        __syncthreads(); /* the next unit writes the stages that slower warps read */
        if (job.swiglu)
            put_swiglu<BN / 8>(job, d, mt * TILE_M + warp * 16, n0);
        else
            put_sums<BN / 8>(job, d, mt * TILE_M + warp * 16, n0, split);
    }
}

/* --- compute capability 9.0: one warp requests tiles with the bulk copy engine, warpgroups multiply --- */

/* A block has GROUPS warpgroups, each with 64 rows of W, and one warp that loads. */
template <int BN, int GROUPS, int PER_SM> struct wg_shape {
    static constexpr int THREADS = GROUPS * 128 + 32;
    static constexpr int W_BYTES = GROUPS * (W_TILE_BYTES / 2);
    static constexpr int STAGE = W_BYTES + BN * 128;
    static constexpr bool STAGED = PER_SM == 1 && GROUPS == 2; /* gates times ups leave through shared memory */
    static constexpr int OUT_BYTES = STAGED ? BN * 128 : 0;
    static constexpr int ROOM = (228 * 1024) / PER_SM - 1024 - 1024 - 256 - OUT_BYTES;
    static constexpr int STAGES = ROOM / STAGE < 16 ? ROOM / STAGE : 16;
    static constexpr int SMEM = STAGES * STAGE + OUT_BYTES + 1024; /* the stages start at a multiple of 1,024 */
};

/* put_swiglu() for two warpgroups, by way of shared memory: their 64 features are one block of columns, whose rows lie
 * side by side, so that one copy takes them out while the next unit is multiplied. */
template <int BLOCKS>
__device__ __forceinline__ void stage_swiglu(const product_job &job, const float (*d)[4], char *stage, int mt, int n)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    if (threadIdx.x == 0)
        bulk_store_wait<0>(); /* of the unit before */
    asm volatile("bar.sync 1, 256;" ::: "memory");
#pragma unroll
    for (int j = 0; j < BLOCKS; j++) {
        const uint32_t v = transposed(pack2(swiglu(d[j][0], d[j][2]), swiglu(d[j][1], d[j][3])));
        const int row = j * 8 + lane / 4;
        *(uint32_t *)(stage + row * 128 + ((warp ^ (row & 7)) << 4) + lane % 4 * 4) = v;
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("bar.sync 1, 256;" ::: "memory");
    if (threadIdx.x == 0)
        bulk_store((char *)job.out + ((size_t)mt * job.out_cap + n) * 128, stage, min(BLOCKS * 8, job.rows - n) * 128);
}

template <int BN, int GROUPS, int PER_SM>
__global__ __launch_bounds__((wg_shape<BN, GROUPS, PER_SM>::THREADS), PER_SM) void product_wgmma(const product_job job)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using shape = wg_shape<BN, GROUPS, PER_SM>;
    constexpr int PER_TILE = 2 / GROUPS; /* blocks that share a tile of 128 rows */
    extern __shared__ char smem_raw[];
    __shared__ uint64_t full[shape::STAGES], empty[shape::STAGES];
    char *smem = smem_raw + (1024 - smem_address(smem_raw) % 1024) % 1024;
    const int warp = threadIdx.x / 32;
    const int units = job.m_tiles * PER_TILE * job.splits * job.n_tiles;

    if (threadIdx.x == 0) {
        for (int s = 0; s < shape::STAGES; s++) {
            barrier_init(&full[s], 1);
            barrier_init(&empty[s], GROUPS);
        }
        barrier_init_done();
    }
    __syncthreads();

    if (warp == GROUPS * 4) {
        if (threadIdx.x % 32 == 0) {
            /* weights that are read by one block alone leave the cache first */
            const uint64_t w_policy = job.n_tiles == 1 ? policy_read_once() : policy_normal(), x_policy = policy_keep();
            int it = 0;

            auto load_x = [&](int kb, int n0, int stage) {
                bulk_copy(smem + stage * shape::STAGE + shape::W_BYTES, job.x + ((size_t)kb * job.x_cap + n0) * 128,
                          BN * 128, &full[stage], x_policy);
            };
            for (int u = blockIdx.x; u < units; u += gridDim.x) {
                const int n0 = u % job.n_tiles * BN, split = u / job.n_tiles % job.splits;
                const int mt = u / job.n_tiles / job.splits;
                const int k0 = (int)((int64_t)job.k_blocks * split / job.splits);
                const int k1 = (int)((int64_t)job.k_blocks * (split + 1) / job.splits);
                const int early = u == blockIdx.x ? min(k1 - k0, shape::STAGES) : 0;

                for (int kb = k0; kb < k1; kb++, it++) {
                    const int stage = it % shape::STAGES;
                    if (it >= shape::STAGES)
                        barrier_wait(&empty[stage], (it / shape::STAGES + 1) & 1);
                    barrier_expect(&full[stage], shape::STAGE);
                    bulk_copy(smem + stage * shape::STAGE,
                              job.w + ((size_t)kb * job.m_tiles * PER_TILE + mt) * shape::W_BYTES, shape::W_BYTES,
                              &full[stage], w_policy);
                    if (it + 1 == early) { /* the weights are on their way: now wait for what x is made of */
                        grid_wait();
                        grid_release();
                        for (int i = 0; i < early; i++)
                            load_x(k0 + i, n0, i);
                    } else if (it >= early) {
                        load_x(kb, n0, stage);
                    }
                }
            }
        }
    } else {
        const int group = warp / 4;
        int it = 0;

        grid_wait();
        grid_release();
        for (int u = blockIdx.x; u < units; u += gridDim.x) {
            const int n0 = u % job.n_tiles * BN, split = u / job.n_tiles % job.splits;
            const int mt = u / job.n_tiles / job.splits;
            const int k0 = (int)((int64_t)job.k_blocks * split / job.splits);
            const int k1 = (int)((int64_t)job.k_blocks * (split + 1) / job.splits);
            float d[BN / 2];

            for (int kb = k0; kb < k1; kb++, it++) {
                const int stage = it % shape::STAGES;
                char *at = smem + stage * shape::STAGE;

                barrier_wait(&full[stage], it / shape::STAGES & 1);
                const uint64_t a = wgmma_operand(at + group * (W_TILE_BYTES / 2));
                const uint64_t b = wgmma_operand(at + shape::W_BYTES);
                wgmma_begin();
#pragma unroll
                for (int kk = 0; kk < TILE_K / 16; kk++)
                    wgmma_n<BN>(d, a + kk * 2, b + kk * 2, kb > k0 || kk > 0);
                wgmma_commit();
                if (kb > k0) {
                    wgmma_wait<1>();
                    if (threadIdx.x % 128 == 0)
                        barrier_arrive(&empty[(it - 1) % shape::STAGES]);
                }
            }
            wgmma_wait<0>();
            if (threadIdx.x % 128 == 0)
                barrier_arrive(&empty[(it - 1) % shape::STAGES]);
            const int m = mt * (GROUPS * 64) + warp * 16;
            const float(*f)[4] = (const float(*)[4])d;
            if (!job.swiglu)
                put_sums<BN / 8>(job, f, m, n0, split);
            else if (shape::STAGED)
                stage_swiglu<BN / 8>(job, f, smem + shape::STAGES * shape::STAGE, mt, n0);
            else
                put_swiglu<BN / 8>(job, f, m, n0);
        }
        if (job.swiglu && shape::STAGED && threadIdx.x == 0)
            bulk_store_wait<0>();
    }
#else
    (void)job;
#endif
}

/* --- launching --- */

template <int BN> static enum err_code run_mma(product_job job, const struct gpu *g, struct err *e)
{
    int smem = MMA_STAGES * (W_TILE_BYTES + BN * 128);
    int per_sm = BN <= 32 ? 2 : 1;

    job.n_tiles = (job.rows + BN - 1) / BN;
    int units = job.m_tiles * job.splits * job.n_tiles, most = g->sms * per_sm;
    return launch(g, "product_mma", product_mma<BN>, dim3(units < most ? units : most), MMA_THREADS, smem, true, e,
                  job);
}

template <int BN, int GROUPS, int PER_SM>
static enum err_code run_wgmma(product_job job, const struct gpu *g, struct err *e)
{
    using shape = wg_shape<BN, GROUPS, PER_SM>;

    job.n_tiles = (job.rows + BN - 1) / BN;
    const int units = job.m_tiles * (2 / GROUPS) * job.splits * job.n_tiles, most = g->sms * PER_SM;
    return launch(g, "product_wgmma", product_wgmma<BN, GROUPS, PER_SM>, dim3(units < most ? units : most),
                  shape::THREADS, shape::SMEM, true, e, job);
}

/* The width of the tiles: the fewest rounds of blocks over the multiprocessors, counted in columns. */
static int choose_width(const product_job &job, const struct gpu *g)
{
    static const int widths[] = {8, 16, 32, 64, 96, 128, 192, 256};
    int best = 0;
    double least = 0;

    for (int i = 0; i < 8; i++) {
        const int w = widths[i], n_tiles = (job.rows + w - 1) / w;
        if (!g->wgmma && (w == 96 || w > 128))
            continue;
        if (n_tiles > 1 && w < 128)
            continue;
        const int units = job.m_tiles * job.splits * n_tiles;
        /* a narrow tile loads the weights again for fewer columns */
        const double c = (double)((units + g->sms - 1) / g->sms) * (w + 160);
        if (!best || c < least) {
            best = w;
            least = c;
        }
    }
    return best;
}

/* 100 width + 10 warpgroups + blocks a multiprocessor.  Few rows: as many blocks as can be, to ask for all the memory
 * gives; more: deep pipelines, one block a multiprocessor. */
static int variant(const product_job &job, int width, const struct gpu *g)
{
    const int units = job.m_tiles * job.splits;

    if (width == 8)
        return units > 2 * g->sms ? 822 : job.swiglu ? 812 : 813;
    if (width == 16)
        return units > 2 * g->sms ? 1622 : 1612;
    if (width == 128 && units > g->sms)
        return 12822;
    return width * 100 + 21;
}

static enum err_code run(product_job job, const struct gpu *g, struct err *e)
{
    const int width = choose_width(job, g);

    if (!g->wgmma)
        switch (width) {
        case 8: return run_mma<8>(job, g, e);
        case 16: return run_mma<16>(job, g, e);
        case 32: return run_mma<32>(job, g, e);
        case 64: return run_mma<64>(job, g, e);
        default: return run_mma<128>(job, g, e);
        }
    switch (g->force ? g->force : variant(job, width, g)) {
    case 822: return run_wgmma<8, 2, 2>(job, g, e);
    case 813: return run_wgmma<8, 1, 3>(job, g, e);
    case 812: return run_wgmma<8, 1, 2>(job, g, e);
    case 1622: return run_wgmma<16, 2, 2>(job, g, e);
    case 1612: return run_wgmma<16, 1, 2>(job, g, e);
    case 3221: return run_wgmma<32, 2, 1>(job, g, e);
    case 6421: return run_wgmma<64, 2, 1>(job, g, e);
    case 9621: return run_wgmma<96, 2, 1>(job, g, e);
    case 12822: return run_wgmma<128, 2, 2>(job, g, e);
    case 12821: return run_wgmma<128, 2, 1>(job, g, e);
    case 19221: return run_wgmma<192, 2, 1>(job, g, e);
    case 25621: return run_wgmma<256, 2, 1>(job, g, e);
    default: return err_set(e, ERR_DEVICE, ERR_STOP, "product: no variant %d", g->force);
    }
}

static product_job job_of(const struct matrix *a, const bf16 *x, int x_cap, int rows, int splits)
{
    product_job job = {};

    job.w = (const char *)a->w;
    job.x = (const char *)x;
    job.m_tiles = a->m_tiles;
    job.k_blocks = a->k_blocks;
    job.splits = splits;
    job.x_cap = x_cap;
    job.rows = rows;
    return job;
}

enum err_code product_sums(const struct matrix *a, const bf16 *x, int x_cap, int rows, int splits, float *out,
                           int out_cap, const struct gpu *g, struct err *e)
{
    product_job job = job_of(a, x, x_cap, rows, splits);

    job.out = out;
    job.out_cap = out_cap;
    return run(job, g, e);
}

enum err_code product_swiglu(const struct matrix *a, const bf16 *x, int x_cap, int rows, bf16 *out, int out_cap,
                             const struct gpu *g, struct err *e)
{
    product_job job = job_of(a, x, x_cap, rows, 1);

    job.out = out;
    job.out_cap = out_cap;
    job.swiglu = true;
    return run(job, g, e);
}

template <typename K> static enum err_code allow(K kernel, int smem, struct err *e)
{
    return gpu_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem),
                     "cannot give a product its shared memory", e);
}

template <int BN> static enum err_code allow_mma(struct err *e)
{
    return allow(product_mma<BN>, MMA_STAGES * (W_TILE_BYTES + BN * 128), e);
}

template <int BN, int GROUPS, int PER_SM> static enum err_code allow_wgmma(struct err *e)
{
    return allow(product_wgmma<BN, GROUPS, PER_SM>, wg_shape<BN, GROUPS, PER_SM>::SMEM, e);
}

enum err_code product_prepare(const struct gpu *g, struct err *e)
{
    typedef enum err_code step(struct err *);
    static step *const mma_steps[] = {allow_mma<8>, allow_mma<16>, allow_mma<32>, allow_mma<64>, allow_mma<128>};
    static step *const wgmma_steps[] = {allow_wgmma<8, 2, 2>,   allow_wgmma<8, 1, 3>,   allow_wgmma<8, 1, 2>,
                                        allow_wgmma<16, 2, 2>,  allow_wgmma<16, 1, 2>,  allow_wgmma<32, 2, 1>,
                                        allow_wgmma<64, 2, 1>,  allow_wgmma<96, 2, 1>,  allow_wgmma<128, 2, 2>,
                                        allow_wgmma<128, 2, 1>, allow_wgmma<192, 2, 1>, allow_wgmma<256, 2, 1>};
    enum err_code rc = ERR_OK;

    for (size_t i = 0; i < sizeof mma_steps / sizeof *mma_steps && rc == ERR_OK; i++)
        rc = mma_steps[i](e);
    for (size_t i = 0; g->wgmma && i < sizeof wgmma_steps / sizeof *wgmma_steps && rc == ERR_OK; i++)
        rc = wgmma_steps[i](e);
    return rc;
}

/* --- packing --- */

void matrix_shape(struct matrix *a, int m, int k, const struct gpu *g)
{
    a->w = NULL;
    a->m = m;
    a->k = k;
    a->m_tiles = (m + TILE_M - 1) / TILE_M;
    a->k_blocks = (k + TILE_K - 1) / TILE_K;
    a->splits = 1;
    /* enough units for a good part of the card, and none longer than half a megabyte of weights where that can be */
    while (a->m_tiles * a->splits * 2 <= g->sms && a->k_blocks / a->splits >= 16 &&
           (a->m_tiles * a->splits < 48 || a->k_blocks / a->splits > 32))
        a->splits *= 2;
}

size_t matrix_bytes(const struct matrix *a)
{
    return (size_t)a->m_tiles * a->k_blocks * W_TILE_BYTES;
}

__device__ __forceinline__ bf16 to_bf16(const void *src, int dtype, size_t i)
{
    if (dtype == 0)
        return ((const bf16 *)src)[i];
    float v = dtype == 1 ? __half2float(((const __half *)src)[i]) : ((const float *)src)[i];
    return __bfloat16_as_ushort(__float2bfloat16_rn(v));
}

/* A thread moves one chunk of eight columns; src need not be aligned beyond its elements. */
__global__ void pack(bf16 *w, int m_tiles, int k_blocks, const void *src, int dtype, int64_t rows, int k, int64_t first,
                     int stride)
{
    const int chunks = k_blocks * (TILE_K / 8);
    const int64_t n = rows * chunks;

    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t r = i / chunks;
        const int col = (int)(i % chunks) * 8;
        alignas(16) bf16 v[8];
        for (int j = 0; j < 8; j++)
            v[j] = col + j < k ? to_bf16(src, dtype, (size_t)r * k + col + j) : (bf16)0;
        *(uint4 *)(w + weight_at(first + r / 8 * stride + r % 8, col, m_tiles)) = *(const uint4 *)v;
    }
}

enum err_code matrix_pack(const struct matrix *a, const void *src, int dtype, int64_t rows, int64_t first, int stride,
                          const struct gpu *g, struct err *e)
{
    pack<<<g->sms * 8, 256, 0, g->stream>>>(a->w, a->m_tiles, a->k_blocks, src, dtype, rows, a->k, first, stride);
    return gpu_launched(g, cudaGetLastError(), "pack", e);
}
