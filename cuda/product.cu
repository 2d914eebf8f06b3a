#include "cuda/product.h"

#include "cuda/fragment.cuh"
#include "cuda/launch.cuh"
#include "cuda/layout.cuh"
#include "cuda/wgmma.cuh"

#include <cuda_fp16.h>

/* One launch.  Its work is units (row tile of W, split, tile of rows of x), counted with the rows of x fastest, so
 * that blocks that run together read the same weights. */
enum product_out { OUT_SUMS, OUT_ROUNDED, OUT_SWIGLU };

struct product_job {
    const char *w, *x;
    void *out;
    int m_tiles, k_blocks, splits;
    int x_cap, rows, n_tiles, out_cap;
    product_out kind;
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

template <int BLOCKS>
__device__ __forceinline__ void put_rounded(const product_job &job, const float (*d)[4], int m, int n)
{
    const int lane = threadIdx.x % 32;
    const size_t ld = (size_t)job.m_tiles * TILE_M;
    bf16 *out = (bf16 *)job.out + m + lane % 4 * 2;

#pragma unroll
    for (int j = 0; j < BLOCKS; j++) {
        const uint32_t near = transposed(pack2(d[j][0], d[j][1])), far = transposed(pack2(d[j][2], d[j][3]));
        const int row = n + j * 8 + lane / 4;
        if (row < job.rows) {
            *(uint32_t *)(out + row * ld) = near;
            *(uint32_t *)(out + row * ld + 8) = far;
        }
    }
}

/* Sums as each kind of output wants them, straight from registers. */
template <int BLOCKS>
__device__ __forceinline__ void put(const product_job &job, const float (*d)[4], int m, int n, int split)
{
    if (job.kind == OUT_SUMS)
        put_sums<BLOCKS>(job, d, m, n, split);
    else if (job.kind == OUT_ROUNDED)
        put_rounded<BLOCKS>(job, d, m, n);
    else
        put_swiglu<BLOCKS>(job, d, m, n);
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
        put<BN / 8>(job, d, mt * TILE_M + warp * 16, n0, split);
    }
}

/* --- compute capability 9.0: one warp requests tiles with the bulk copy engine, warpgroups multiply --- */

/* A block has GROUPS warpgroups, each with 64 rows of W, and one warp that loads. */
template <int BN, int GROUPS, int PER_SM> struct wg_shape {
    /* three warpgroups with 128 sums a thread leave no registers for one more warp: one of theirs loads */
    static constexpr bool IS_LARGE = GROUPS == 3 && BN == 256;
    static constexpr int THREADS = GROUPS * 128 + (IS_LARGE ? 0 : 32);
    static constexpr int WIDTH = BN, W_BYTES = GROUPS * (W_TILE_BYTES / 2);
    static constexpr int STAGE = W_BYTES + BN * 128;
    static constexpr bool STAGED = PER_SM == 1; /* bf16 leaves through shared memory */
    static constexpr int GROUP_OUT = STAGED ? BN * 64 : 0, OUT_BYTES = GROUPS * GROUP_OUT;
    static constexpr int ROOM = (228 * 1024) / PER_SM - 1024 - 1024 - 256 - OUT_BYTES;
    static constexpr int STAGES = ROOM / STAGE < 16 ? ROOM / STAGE : 16;
    static constexpr int SMEM = STAGES * STAGE + OUT_BYTES + 1024; /* the stages start at a multiple of 1,024 */
};

/* put_swiglu() and put_rounded() by way of shared memory, so that whole sectors are written.  Each warpgroup has a place of
 * its own: while one puts its outputs away, the others go on multiplying, as far ahead as there are stages. */
__device__ __forceinline__ void group_sync(int group)
{
    asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
}

/* Where chunk 0..3 of a row lies: two rows in 128 bytes, free of bank conflicts. */
__device__ __forceinline__ int staged_at(int row, int chunk)
{
    return row / 2 * 128 + ((((row & 1) << 2 | chunk) ^ (row / 2 & 3)) << 4);
}

/* feature: the first of the warpgroup's 32; stage: BN * 64 bytes. */
template <int BN>
__device__ __forceinline__ void stage_swiglu(const product_job &job, const float (*d)[4], char *stage, int feature,
                                             int n, int group)
{
    const int thread = threadIdx.x % 128, lane = thread % 32, warp = thread / 32;
    bf16 *out = (bf16 *)job.out;

    group_sync(group); /* what lay here before has been read */
#pragma unroll
    for (int j = 0; j < BN / 8; j += 4) {
        uint32_t v[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            v[i] = pack2(swiglu(d[j + i][0], d[j + i][2]), swiglu(d[j + i][1], d[j + i][3]));
        stmatrix4_transposed(smem_address(stage) + staged_at((j + lane / 8) * 8 + lane % 8, warp), v);
    }
    group_sync(group);
#pragma unroll
    for (int i = 0; i < BN / 32; i++) {
        const int row = i * 32 + thread / 4, chunk = thread % 4;
        if (n + row < job.rows)
            *(uint4 *)(out + act_at(n + row, feature + chunk * 8, job.out_cap)) =
                *(const uint4 *)(stage + staged_at(row, chunk));
    }
}

/* m: the warpgroup's first row of W.  One half of the rows of x at a time. */
template <int BN>
__device__ __forceinline__ void stage_rounded(const product_job &job, const float (*d)[4], char *stage, int m, int n,
                                              int group)
{
    const int thread = threadIdx.x % 128, lane = thread % 32, warp = thread / 32;
    const size_t ld = (size_t)job.m_tiles * TILE_M;
    bf16 *out = (bf16 *)job.out + m;

#pragma unroll
    for (int half = 0; half < 2; half++) {
        group_sync(group);
#pragma unroll
        for (int i = 0; i < BN / 16; i += 2) {
            const int j = half * (BN / 16) + i, row = (i + lane / 16) * 8 + lane % 8, chunk = warp * 2 + lane / 8 % 2;
            const uint32_t v[4] = {pack2(d[j][0], d[j][1]), pack2(d[j][2], d[j][3]), pack2(d[j + 1][0], d[j + 1][1]),
                                   pack2(d[j + 1][2], d[j + 1][3])};
            stmatrix4_transposed(smem_address(stage) + row * 128 + ((chunk ^ (row & 7)) << 4), v);
        }
        group_sync(group);
#pragma unroll
        for (int i = 0; i < BN / 32; i++) {
            const int row = i * 16 + thread / 8, chunk = thread % 8, x_row = n + half * (BN / 2) + row;
            if (x_row < job.rows)
                *(uint4 *)(out + x_row * ld + chunk * 8) =
                    *(const uint4 *)(stage + row * 128 + ((chunk ^ (row & 7)) << 4));
        }
    }
}

/* What the thread that loads for large units goes on with: in shared memory, for want of registers. */
struct loading {
    const char *w, *x;
    int unit, left, asked; /* left: blocks of 64 columns of the unit; asked: of all units */
};

template <typename shape>
__device__ __forceinline__ void load_unit(const product_job &job, int units, loading &l, int u)
{
    const int n0 = u % job.n_tiles * shape::WIDTH, split = u / job.n_tiles % job.splits;
    const int mt = u / job.n_tiles / job.splits, k0 = (int)((int64_t)job.k_blocks * split / job.splits);

    l.unit = u;
    l.left = u < units ? (int)((int64_t)job.k_blocks * (split + 1) / job.splits) - k0 : 0;
    l.w = job.w + (size_t)k0 * job.m_tiles * W_TILE_BYTES + (size_t)mt * shape::W_BYTES;
    l.x = job.x + ((size_t)k0 * job.x_cap + n0) * 128;
}

/* The weights of the first stages: they need not wait for the kernel before. */
template <typename shape>
__device__ __forceinline__ void load_first(const product_job &job, int units, loading &l, char *smem, uint64_t *full)
{
    load_unit<shape>(job, units, l, blockIdx.x);
    for (int i = 0; i < shape::STAGES && i < l.left; i++) {
        barrier_expect(&full[i], shape::STAGE);
        bulk_copy(smem + i * shape::STAGE, l.w + (size_t)i * job.m_tiles * W_TILE_BYTES, shape::W_BYTES, &full[i],
                  policy_normal());
    }
}

/* Asks for the next stage once all warpgroups are done with what lies there. */
template <typename shape>
__device__ __forceinline__ void load_next(const product_job &job, int units, loading &l, char *smem, uint64_t *full,
                                          uint64_t *empty)
{
    const int it = l.asked, stage = it % shape::STAGES;

    if (l.left == 0)
        load_unit<shape>(job, units, l, l.unit + gridDim.x);
    if (l.left == 0)
        return;
    if (it >= shape::STAGES)
        barrier_wait(&empty[stage], (it / shape::STAGES + 1) & 1);
    barrier_expect(&full[stage], shape::STAGE);
    bulk_copy(smem + stage * shape::STAGE, l.w, shape::W_BYTES, &full[stage], policy_normal());
    bulk_copy(smem + stage * shape::STAGE + shape::W_BYTES, l.x, shape::WIDTH * 128, &full[stage], policy_keep());
    l.w += (size_t)job.m_tiles * W_TILE_BYTES;
    l.x += (size_t)job.x_cap * 128;
    l.left--;
    l.asked = it + 1;
}

/* The rest of the first stages. */
template <typename shape>
__device__ __forceinline__ void load_rest(const product_job &job, int units, loading &l, char *smem, uint64_t *full,
                                          uint64_t *empty)
{
    l.asked = min(shape::STAGES, l.left);
    for (int i = 0; i < l.asked; i++) {
        bulk_copy(smem + i * shape::STAGE + shape::W_BYTES, l.x, shape::WIDTH * 128, &full[i], policy_keep());
        l.x += (size_t)job.x_cap * 128;
    }
    l.w += (size_t)l.asked * job.m_tiles * W_TILE_BYTES;
    l.left -= l.asked;
    for (int i = l.asked; i < shape::STAGES; i++)
        load_next<shape>(job, units, l, smem, full, empty);
}

template <int BN, int GROUPS, int PER_SM>
__global__ __launch_bounds__((wg_shape<BN, GROUPS, PER_SM>::THREADS), PER_SM) void product_wgmma(const product_job job)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using shape = wg_shape<BN, GROUPS, PER_SM>;
    extern __shared__ char smem_raw[];
    __shared__ uint64_t full[shape::STAGES], empty[shape::STAGES];
    __shared__ loading load;
    char *smem = smem_raw + (1024 - smem_address(smem_raw) % 1024) % 1024;
    const int warp = threadIdx.x / 32;
    const int units = job.m_tiles * 2 / GROUPS * job.splits * job.n_tiles;

    if (threadIdx.x == 0) {
        for (int s = 0; s < shape::STAGES; s++) {
            barrier_init(&full[s], 1);
            barrier_init(&empty[s], GROUPS);
        }
        barrier_init_done();
    }
    __syncthreads();

    if (!shape::IS_LARGE && warp >= GROUPS * 4) {
        if (threadIdx.x == GROUPS * 128) {
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
                              job.w + (size_t)kb * job.m_tiles * W_TILE_BYTES + (size_t)mt * shape::W_BYTES,
                              shape::W_BYTES, &full[stage], w_policy);
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

        if (shape::IS_LARGE && threadIdx.x == 0)
            load_first<shape>(job, units, load, smem, full);
        grid_wait();
        grid_release();
        if (shape::IS_LARGE && threadIdx.x == 0)
            load_rest<shape>(job, units, load, smem, full, empty);
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
                    if (shape::IS_LARGE && threadIdx.x == 0)
                        load_next<shape>(job, units, load, smem, full, empty);
                }
            }
            wgmma_wait<0>();
            if (threadIdx.x % 128 == 0)
                barrier_arrive(&empty[(it - 1) % shape::STAGES]);
            if (shape::IS_LARGE && threadIdx.x == 0)
                load_next<shape>(job, units, load, smem, full, empty);
            const int m = (mt * GROUPS + group) * 64;
            const float(*f)[4] = (const float(*)[4])d;
            char *out = smem + shape::STAGES * shape::STAGE + group * shape::GROUP_OUT;
            if (!shape::STAGED || job.kind == OUT_SUMS)
                put<BN / 8>(job, f, m + warp % 4 * 16, n0, split);
            else if (job.kind == OUT_ROUNDED)
                stage_rounded<BN>(job, f, out, m, n0, group);
            else
                stage_swiglu<BN>(job, f, out, m / 2, n0, group);
        }
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
    const int units = job.m_tiles * 2 / GROUPS * job.splits * job.n_tiles, most = g->sms * PER_SM;
    return launch(g, "product_wgmma", product_wgmma<BN, GROUPS, PER_SM>, dim3(units < most ? units : most),
                  shape::THREADS, shape::SMEM, true, e, job);
}

/* A unit: `width` rows of x and 64 groups rows of W; time: what it takes, relative to the others.  A narrow one loads the
 * weights again for fewer columns. */
struct unit_shape {
    int width, groups, time;
};

static const unit_shape unit_shapes[] = {{8, 2, 168},   {16, 2, 176},  {32, 2, 192},  {64, 2, 224},  {96, 2, 256},
                                         {128, 2, 288}, {192, 2, 352}, {256, 2, 416}, {128, 3, 400}, {256, 3, 624}};

/* The shape that takes least: rounds of units over the multiprocessors times the time of one. */
static unit_shape choose_shape(const product_job &job, const struct gpu *g)
{
    unit_shape best = {};
    int least = 0;

    for (const unit_shape &u : unit_shapes) {
        const int n_tiles = (job.rows + u.width - 1) / u.width;
        const int units = job.m_tiles * 2 / u.groups * job.splits * n_tiles, rounds = (units + g->sms - 1) / g->sms;
        if ((!g->wgmma && (u.width == 96 || u.width > 128 || u.groups == 3)) || (n_tiles > 1 && u.width < 128) ||
            job.m_tiles * 2 % u.groups != 0)
            continue;
        if (best.width == 0 || rounds * u.time < least) {
            best = u;
            least = rounds * u.time;
        }
    }
    return best;
}

/* 100 width + 10 warpgroups + blocks a multiprocessor.  Few rows: as many blocks as can be, to ask for all the memory
 * gives; more: deep pipelines, one block a multiprocessor. */
static int variant(const product_job &job, const unit_shape &u, const struct gpu *g)
{
    const int units = job.m_tiles * job.splits;

    if (u.width == 8)
        return units > 2 * g->sms ? 822 : job.kind == OUT_SWIGLU ? 812 : 813;
    if (u.width == 16)
        return units > 2 * g->sms ? 1622 : 1612;
    if (u.width == 128 && u.groups == 2 && units > g->sms)
        return 12822;
    return u.width * 100 + u.groups * 10 + 1;
}

static enum err_code run(product_job job, const struct gpu *g, struct err *e)
{
    const unit_shape shape = choose_shape(job, g);

    if (!g->wgmma)
        switch (shape.width) {
        case 8: return run_mma<8>(job, g, e);
        case 16: return run_mma<16>(job, g, e);
        case 32: return run_mma<32>(job, g, e);
        case 64: return run_mma<64>(job, g, e);
        default: return run_mma<128>(job, g, e);
        }
    switch (g->force ? g->force : variant(job, shape, g)) {
    case 822: return run_wgmma<8, 2, 2>(job, g, e);
    case 813: return run_wgmma<8, 1, 3>(job, g, e);
    case 812: return run_wgmma<8, 1, 2>(job, g, e);
    case 1622: return run_wgmma<16, 2, 2>(job, g, e);
    case 1612: return run_wgmma<16, 1, 2>(job, g, e);
    case 3221: return run_wgmma<32, 2, 1>(job, g, e);
    case 6421: return run_wgmma<64, 2, 1>(job, g, e);
    case 9621: return run_wgmma<96, 2, 1>(job, g, e);
    case 12822: return run_wgmma<128, 2, 2>(job, g, e);
    case 12831: return run_wgmma<128, 3, 1>(job, g, e);
    case 25631: return run_wgmma<256, 3, 1>(job, g, e);
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
    job.kind = OUT_SWIGLU;
    return run(job, g, e);
}

enum err_code product_rounded(const struct matrix *a, const bf16 *x, int x_cap, int rows, bf16 *out,
                              const struct gpu *g, struct err *e)
{
    product_job job = job_of(a, x, x_cap, rows, 1);

    job.out = out;
    job.kind = OUT_ROUNDED;
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
                                        allow_wgmma<128, 2, 1>, allow_wgmma<192, 2, 1>, allow_wgmma<256, 2, 1>,
                                        allow_wgmma<128, 3, 1>, allow_wgmma<256, 3, 1>};
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
