#include "cuda/attention.h"

#include "cuda/fragment.cuh"
#include "cuda/launch.cuh"
#include "cuda/layout.cuh"

#include <math_constants.h>

static const int DECODE_WARPS = 4, DECODE_HEADS = 8, PROMPT_WARPS = ATTENTION_TILES, PROMPT_COLUMNS = 16,
                 PROMPT_STAGES = 3, ROPE_WARPS = 8, ROPE_HEADS = 3;
static const float LOG2_E = 1.4426950408889634f;

/* --- RoPE, norm, append: one head, one warp; the same for both kinds of step --- */

/* The lane's elements of a head: E of each half, i = lane * E + e and d / 2 + i: the pairs that RoPE turns. */
template <int D> struct head {
    static constexpr int E = D / 64;
    float lo[E], hi[E];
};

template <int D> __device__ __forceinline__ head<D> head_load(const qkv_parts &p, int slot, int col)
{
    constexpr int E = head<D>::E;
    const int lane = threadIdx.x % 32;
    head<D> h;

    for (int e = 0; e < E; e++)
        h.lo[e] = h.hi[e] = 0;
#pragma unroll 4
    for (int s = 0; s < p.splits; s++) {
        const float *at = p.part + ((size_t)s * p.cap + slot) * p.ld + col + lane * E;
        if (E == 2) {
            const float2 a = *(const float2 *)at, b = *(const float2 *)(at + D / 2);
            h.lo[0] += a.x, h.lo[E - 1] += a.y, h.hi[0] += b.x, h.hi[E - 1] += b.y;
        } else {
            h.lo[0] += at[0];
            h.hi[0] += at[D / 2];
        }
    }
    return h;
}

/* What a head is turned and scaled by: constants, read before the wait. */
template <int D> struct turning {
    float2 turn[head<D>::E];                  /* cos, sin */
    float q_lo[head<D>::E], q_hi[head<D>::E]; /* norm weights */
    float k_lo[head<D>::E], k_hi[head<D>::E];

    __device__ __forceinline__ void load(const attention &a, int pos)
    {
        const int i = threadIdx.x % 32 * head<D>::E;

        for (int e = 0; e < head<D>::E; e++) {
            turn[e] = *(const float2 *)(a.rope + ((size_t)pos * (D / 2) + i + e) * 2);
            if (a.q_norm) {
                q_lo[e] = __bfloat162float(__ushort_as_bfloat16(a.q_norm[i + e]));
                q_hi[e] = __bfloat162float(__ushort_as_bfloat16(a.q_norm[D / 2 + i + e]));
                k_lo[e] = __bfloat162float(__ushort_as_bfloat16(a.k_norm[i + e]));
                k_hi[e] = __bfloat162float(__ushort_as_bfloat16(a.k_norm[D / 2 + i + e]));
            }
        }
    }
};

template <int D>
__device__ __forceinline__ void head_rope_norm(head<D> &h, const attention &a, const turning<D> &by, bool is_k)
{
    float sum = 0;

    for (int e = 0; e < head<D>::E; e++) {
        const float lo = h.lo[e], hi = h.hi[e];
        h.lo[e] = lo * by.turn[e].x - hi * by.turn[e].y;
        h.hi[e] = hi * by.turn[e].x + lo * by.turn[e].y;
        sum += h.lo[e] * h.lo[e] + h.hi[e] * h.hi[e];
    }
    if (!a.q_norm)
        return;
    const float scale = rsqrtf(warp_sum(sum) / D + a.eps);
    for (int e = 0; e < head<D>::E; e++) {
        h.lo[e] *= scale * (is_k ? by.k_lo[e] : by.q_lo[e]);
        h.hi[e] *= scale * (is_k ? by.k_hi[e] : by.q_hi[e]);
    }
}

__device__ __forceinline__ bf16 rounded(float v)
{
    return __bfloat16_as_ushort(__float2bfloat16_rn(v));
}

/* The sub-block of position t in its block. */
template <int D> __device__ __forceinline__ bf16 *sub_block_in(const attention &a, int block, int t, int kv_head)
{
    const int shift = a.block_shift - SUB_SHIFT; /* of sub-blocks a block */
    const int sub = (((block * a.kv_heads + kv_head) << shift) + (t >> SUB_SHIFT & ((1 << shift) - 1)));
    return a.kv + (size_t)(unsigned)sub * (2 * SUB_TOKENS * D);
}

/* Where the sub-block of position t lies. */
template <int D> __device__ __forceinline__ bf16 *sub_block(const attention &a, int row, int t, int kv_head)
{
    return sub_block_in<D>(a, a.tables[(size_t)row * a.max_blocks + (t >> a.block_shift)], t, kv_head);
}

template <int D> __device__ __forceinline__ void head_append(const head<D> &h, bf16 *sub, int t, bool is_k)
{
    constexpr int E = head<D>::E;
    const int lane = threadIdx.x % 32;

    if (!is_k)
        sub += SUB_TOKENS * D;
    for (int e = 0; e < E; e++) {
        sub[kv_element(t, lane * E + e, D)] = rounded(h.lo[e]);
        sub[kv_element(t, D / 2 + lane * E + e, D)] = rounded(h.hi[e]);
    }
}

template <int D> __device__ __forceinline__ void head_store(const head<D> &h, bf16 *q)
{
    constexpr int E = head<D>::E;
    const int lane = threadIdx.x % 32;

    for (int e = 0; e < E; e++) {
        q[lane * E + e] = rounded(h.lo[e]);
        q[D / 2 + lane * E + e] = rounded(h.hi[e]);
    }
}

/* --- sixteen positions against N * 8 columns (a column is a query token's head), one warp --- */

/* A row's blocks, thirty-two numbers at a time in a warp's lanes: no load lies between a position and its address. */
template <int D> struct blocks {
    const int *table;
    int first, mine; /* first: of the thirty-two; mine: the lane's number */

    __device__ __forceinline__ void open(const attention &a, int row, bool is_there)
    {
        table = a.tables + (size_t)row * a.max_blocks;
        first = 0;
        mine = is_there && (int)threadIdx.x % 32 < a.max_blocks ? table[threadIdx.x % 32] : 0;
    }

    /* The sub-block of position t; all lanes ask for the same. */
    __device__ __forceinline__ const char *at(const attention &a, int t, int kv_head)
    {
        const int i = t >> a.block_shift;
        if (i - first >= 32 || i < first) {
            first = i / 32 * 32;
            mine = first + (int)threadIdx.x % 32 < a.max_blocks ? table[first + threadIdx.x % 32] : 0;
        }
        const int block = __shfl_sync(0xffffffff, mine, i - first);
        return (const char *)sub_block_in<D>(a, block, t, kv_head);
    }
};

/* THREADS threads copy a sub-block, K and V, to shared memory: one group of asynchronous copies, empty without from. */
template <int D, int THREADS> __device__ __forceinline__ void request(char *to, const char *from, int thread)
{
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(to) + thread * 16;

    if (from) {
        from += thread * 16;
#pragma unroll
        for (int i = 0; i < SUB_TOKENS * D * 4; i += THREADS * 16)
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at + i), "l"(from + i) : "memory");
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int D, int N> struct columns {
    uint32_t q[N][D / 16][2]; /* B fragments */
    float o[N][D / 16][4];    /* [d, column] */
    float m[N][2], l[N][2];   /* running maximum (times log2 e / sqrt d) and the lane's part of the sum */

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int n = 0; n < N; n++) {
#pragma unroll
            for (int p = 0; p < D / 16; p++)
                o[n][p][0] = o[n][p][1] = o[n][p][2] = o[n][p][3] = 0;
            m[n][0] = m[n][1] = -CUDART_INF_F;
            l[n][0] = l[n][1] = 0;
        }
    }

    /* limit[n][i]: the last position that column 8 n + 2 c + i sees; first: position of the sub-block's first token;
     * last: last position that any column sees: what lies behind it may be anything, not a number included. */
    __device__ __forceinline__ void attend(const char *sub, int first, const int (&limit)[N][2], int last, float scale)
    {
        const int lane = threadIdx.x % 32, g = lane / 4, c = lane % 4;
        const int half = lane / 8 % 2, far_half = lane / 16, r = lane % 8; /* of ldmatrix's addresses; r: swizzle too */
        /* sub lies at a multiple of 1,024: the chunk's number can be exchanged by an exclusive or */
        const uint32_t at = (uint32_t)__cvta_generic_to_shared(sub);
        const uint32_t k_at = at + (half * 8 + r) * (D * 2) + ((far_half ^ r) << 4);
        const uint32_t v_at = at + (SUB_TOKENS + far_half * 8 + r) * (D * 2) + ((half ^ r) << 4);
        uint32_t v[D / 16][4];
        float s[N][4], odd[N][4]; /* two chains of products */

#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[n][i] = odd[n][i] = 0;
#pragma unroll
        for (int b = 0; b < D / 16; b++) {
            uint32_t k[4];
            ldmatrix4(k, k_at ^ (b << 5));
#pragma unroll
            for (int n = 0; n < N; n++)
                mma(b % 2 ? odd[n] : s[n], k[0], k[1], k[2], k[3], q[n][b][0], q[n][b][1]);
        }
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[n][i] += odd[n][i];
#pragma unroll
        for (int b = 0; b < D / 16; b++)
            ldmatrix4_transposed(v[b], v_at ^ (b << 5));
        if (first + SUB_TOKENS - 1 > last) { /* 0 times not-a-number is not 0 */
            const int t = first + c * 2;
            const uint32_t near = (t <= last ? 0xffffu : 0) | (t + 1 <= last ? 0xffff0000u : 0);
            const uint32_t far = (t + 8 <= last ? 0xffffu : 0) | (t + 9 <= last ? 0xffff0000u : 0);
#pragma unroll
            for (int b = 0; b < D / 16; b++)
                v[b][0] &= near, v[b][1] &= near, v[b][2] &= far, v[b][3] &= far;
        }
#pragma unroll
        for (int n = 0; n < N; n++) {
            float keep[2];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float near = first + g <= limit[n][i] ? s[n][i] * scale : -CUDART_INF_F;
                float far = first + g + 8 <= limit[n][i] ? s[n][2 + i] * scale : -CUDART_INF_F;
                float most = fmaxf(near, far);
                most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, 4));
                most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, 8));
                most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, 16));
                most = fmaxf(most, m[n][i]);
                keep[i] = exp2f(m[n][i] - most);
                m[n][i] = most;
                s[n][i] = exp2f(near - most);
                s[n][2 + i] = exp2f(far - most);
                l[n][i] = l[n][i] * keep[i] + (s[n][i] + s[n][2 + i]);
            }
            const uint32_t b0 = transposed(pack2(s[n][0], s[n][1])), b1 = transposed(pack2(s[n][2], s[n][3]));
            if (__any_sync(0xffffffff,
                           keep[0] != 1.0f || keep[1] != 1.0f)) /* a new maximum: rare after the first ones */
#pragma unroll
                for (int p = 0; p < D / 16; p++)
                    o[n][p][0] *= keep[0], o[n][p][1] *= keep[1], o[n][p][2] *= keep[0], o[n][p][3] *= keep[1];
#pragma unroll
            for (int p = 0; p < D / 16; p++)
                mma(o[n][p], v[p][0], v[p][1], v[p][2], v[p][3], b0, b1);
        }
    }

    /* l becomes the sum over all positions. */
    __device__ __forceinline__ void finish()
    {
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                for (int x = 4; x < 32; x *= 2)
                    l[n][i] += __shfl_xor_sync(0xffffffff, l[n][i], x);
    }
};

/* --- decode: a block a slot and kv head (and group of eight query heads); its warps take sub-blocks in turn, each with
 * two on their way --- */

template <int D> struct decode_smem {
    union {
        char kv[DECODE_WARPS][2][SUB_TOKENS * D * 4];
        float o[DECODE_WARPS][DECODE_HEADS][D]; /* once all sub-blocks are done with */
    };
    bf16 q[DECODE_HEADS][D], k[D], v[D]; /* k, v: the new token's */
    float m[DECODE_WARPS][DECODE_HEADS], l[DECODE_WARPS][DECODE_HEADS];
};

/* Heads of the new token: queries to shared memory, key and value there and to the cache.  Task i: query head i, then
 * the key, then the value; a warp takes i and i + DECODE_WARPS and so on, two loads at a time. */
template <int D>
__device__ __forceinline__ void new_token(decode_smem<D> &sm, const attention &a, const qkv_parts &p, int slot, int pos,
                                          int kv_head, int first_head, int n_heads, const turning<D> &by, bf16 *sub)
{
    const int warp = threadIdx.x / 32, tasks = n_heads + 2;
    const int k_col = (a.heads + kv_head) * D, v_col = (a.heads + a.kv_heads + kv_head) * D;

    for (int i = warp; i < tasks; i += 2 * DECODE_WARPS) {
        head<D> h[2];
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const int task = min(i + j * DECODE_WARPS, tasks - 1);
            h[j] = head_load<D>(p, slot, task < n_heads ? (first_head + task) * D : task == n_heads ? k_col : v_col);
        }
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const int task = i + j * DECODE_WARPS;
            if (task >= tasks)
                break;
            if (task <= n_heads)
                head_rope_norm<D>(h[j], a, by, task == n_heads);
            head_store<D>(h[j], task < n_heads ? sm.q[task] : task == n_heads ? sm.k : sm.v);
            if (task >= n_heads) /* with several groups of query heads each writes the same bits */
                head_append<D>(h[j], sub, pos % SUB_TOKENS, task == n_heads);
        }
    }
    for (int i = n_heads + warp; i < DECODE_HEADS; i += DECODE_WARPS) {
        const head<D> zero = {};
        head_store<D>(zero, sm.q[i]);
    }
}

template <int D>
__global__ __launch_bounds__(DECODE_WARPS * 32, 3) void attention_decode_kernel(const attention a, const qkv_parts p,
                                                                                const int *rows, const int *positions,
                                                                                bf16 *out, int out_cap)
{
    extern __shared__ __align__(1024) char smem_raw[];
    decode_smem<D> &sm = *(decode_smem<D> *)smem_raw;
    const int slot = blockIdx.y, warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, c = lane % 4;
    const int group = a.heads / a.kv_heads, groups = (group + DECODE_HEADS - 1) / DECODE_HEADS;
    const int kv_head = blockIdx.x / groups, h0 = blockIdx.x % groups * DECODE_HEADS;
    const int n_heads = min(DECODE_HEADS, group - h0), round = DECODE_WARPS * SUB_TOKENS;

    /* The step's lists and what earlier steps left in the cache are there before this pass begins: no need to wait.  The
     * new token's key and value are put in once they are known. */
    const int row = rows[slot], pos = positions[slot];
    blocks<D> list;
    list.open(a, row, row >= 0);
    for (int i = 0; i < 2; i++) {
        const int t = warp * SUB_TOKENS + i * round;
        request<D, 32>(sm.kv[warp][i], row >= 0 && t <= pos ? list.at(a, t, kv_head) : NULL, lane);
    }
    turning<D> by;
    by.load(a, pos);
    bf16 *sub_of_new = (bf16 *)list.at(a, pos, kv_head);
    grid_wait();
    grid_release();
    if (row < 0)
        return;
    new_token<D>(sm, a, p, slot, pos, kv_head, kv_head * group + h0, n_heads, by, sub_of_new);
    __syncthreads();

    columns<D, 1> s;
    const int limit[1][2] = {{pos, pos}};
    const float scale = LOG2_E * rsqrtf((float)D);
    for (int b = 0; b < D / 16; b++) {
        s.q[0][b][0] = *(const uint32_t *)&sm.q[g][b * 16 + c * 2];
        s.q[0][b][1] = *(const uint32_t *)&sm.q[g][b * 16 + c * 2 + 8];
    }
    s.clear();
    for (int t = warp * SUB_TOKENS, i = 0; t <= pos; t += round, i ^= 1) {
        bf16 *sub = (bf16 *)sm.kv[warp][i];
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        __syncwarp();
        if (t + SUB_TOKENS > pos) {
            for (int e = lane; e < D; e += 32) {
                sub[kv_element(pos - t, e, D)] = sm.k[e];
                sub[SUB_TOKENS * D + kv_element(pos - t, e, D)] = sm.v[e];
            }
            __syncwarp();
        }
        s.attend(sm.kv[warp][i], t, limit, pos, scale);
        __syncwarp();
        const int next = t + 2 * round;
        request<D, 32>(sm.kv[warp][i], next <= pos ? list.at(a, next, kv_head) : NULL, lane);
    }
    s.finish();
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    for (int i = 0; i < 2; i++) {
        const int h = c * 2 + i;
        if (h < n_heads) {
            for (int b = 0; b < D / 16; b++) {
                sm.o[warp][h][b * 16 + g] = s.o[0][b][i];
                sm.o[warp][h][b * 16 + g + 8] = s.o[0][b][2 + i];
            }
            if (g == 0) {
                sm.m[warp][h] = s.m[0][i];
                sm.l[warp][h] = s.l[0][i];
            }
        }
    }
    __syncthreads();
    const int used = min(DECODE_WARPS, pos / SUB_TOKENS + 1); /* warps that had a sub-block */
    for (int i = threadIdx.x; i < n_heads * (D / 2); i += DECODE_WARPS * 32) {
        const int h = i / (D / 2), at = i % (D / 2) * 2;
        float most = -CUDART_INF_F, sum = 0, x = 0, y = 0;
        for (int w = 0; w < used; w++)
            most = fmaxf(most, sm.m[w][h]);
        for (int w = 0; w < used; w++) {
            const float f = exp2f(sm.m[w][h] - most);
            const float2 o = *(const float2 *)&sm.o[w][h][at];
            sum += f * sm.l[w][h];
            x += f * o.x;
            y += f * o.y;
        }
        *(uint32_t *)(out + act_at(slot, (kv_head * group + h0 + h) * D + at, out_cap)) = pack2(x / sum, y / sum);
    }
}

/* --- prompts --- */

/* A block a token; a warp takes some heads at a time. */
template <int D>
__global__ __launch_bounds__(ROPE_WARPS * 32) void rope_append_kernel(const attention a, const qkv_parts p,
                                                                      const int *rows, const int *positions, bf16 *q)
{
    const int slot = blockIdx.x, all = a.heads + 2 * a.kv_heads;

    const int row = rows[slot], pos = positions[slot];
    turning<D> by;
    by.load(a, pos);
    grid_wait();
    grid_release();
    for (int first = threadIdx.x / 32; first < all; first += ROPE_WARPS * ROPE_HEADS) {
        head<D> h[ROPE_HEADS];
#pragma unroll
        for (int j = 0; j < ROPE_HEADS; j++)
            h[j] = head_load<D>(p, slot, min(first + j * ROPE_WARPS, all - 1) * D);
#pragma unroll
        for (int j = 0; j < ROPE_HEADS; j++) {
            const int i = first + j * ROPE_WARPS;
            if (i >= all)
                break;
            if (i < a.heads) {
                head_rope_norm<D>(h[j], a, by, false);
                head_store<D>(h[j], q + ((size_t)slot * a.heads + i) * D);
                continue;
            }
            const bool is_k = i < a.heads + a.kv_heads;
            const int kv_head = is_k ? i - a.heads : i - a.heads - a.kv_heads;
            if (is_k)
                head_rope_norm<D>(h[j], a, by, true);
            head_append<D>(h[j], sub_block<D>(a, row, pos, kv_head), pos % SUB_TOKENS, is_k);
        }
    }
}

/* A block's tiles are of one row: all its warps go through the row's sub-blocks together. */
template <int D>
__global__ __launch_bounds__(PROMPT_WARPS * 32, 3) void attention_prompt_kernel(const attention a, const bf16 *q,
                                                                                const query_tile *tiles, bf16 *out,
                                                                                int out_cap)
{
    constexpr int N = PROMPT_COLUMNS / 8, BYTES = SUB_TOKENS * D * 4;
    __shared__ __align__(1024) char kv[PROMPT_STAGES][BYTES];
    const int lane = threadIdx.x % 32, g = lane / 4, c = lane % 4;
    const int group = a.heads / a.kv_heads, groups = (group + PROMPT_COLUMNS - 1) / PROMPT_COLUMNS;
    const int kv_head = blockIdx.x / groups, h0 = blockIdx.x % groups * PROMPT_COLUMNS;
    const int width = min(group, PROMPT_COLUMNS); /* columns of a token */
    const int n_heads = min(width, group - h0);

    grid_wait();
    grid_release();
    /* from the last tile on: late positions have more to do, and what is left at the end should be short */
    const query_tile *block = tiles + (gridDim.y - 1 - blockIdx.y) * PROMPT_WARPS;
    const query_tile t = block[threadIdx.x / 32];
    const int last = t.pos + t.count - 1, end = block[PROMPT_WARPS - 1].pos + max(block[PROMPT_WARPS - 1].count - 1, 0);
    columns<D, N> s;
    int limit[N][2];

    blocks<D> list;
    list.open(a, t.row, true);
    auto ask = [&](int first) {
        request<D, PROMPT_WARPS * 32>(kv[first / SUB_TOKENS % PROMPT_STAGES],
                                      first <= end ? list.at(a, first, kv_head) : NULL, threadIdx.x);
    };
    ask(0);
    ask(SUB_TOKENS);
#pragma unroll
    for (int n = 0; n < N; n++) {
        const int token = (n * 8 + g) / width, h = (n * 8 + g) % width;
        const bool is_used = token < t.count && h < n_heads;
        const bf16 *from = q + ((size_t)(t.slot + token) * a.heads + kv_head * group + h0 + h) * D + c * 2;
#pragma unroll
        for (int b = 0; b < D / 16; b++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                s.q[n][b][i] = is_used ? *(const uint32_t *)(from + b * 16 + i * 8) : 0;
#pragma unroll
        for (int i = 0; i < 2; i++)
            limit[n][i] = min(last, t.pos + (n * 8 + c * 2 + i) / width);
    }
    s.clear();
    const float scale = LOG2_E * rsqrtf((float)D);
    for (int first = 0; first <= end; first += SUB_TOKENS) {
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        __syncthreads(); /* all have the sub-block, and are done with the one before, whose place is asked for now */
        ask(first + 2 * SUB_TOKENS);
        if (first <= last && t.count > 0) {
            s.attend(kv[first / SUB_TOKENS % PROMPT_STAGES], first, limit, last, scale);
        }
    }
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    s.finish();
#pragma unroll
    for (int n = 0; n < N; n++) {
        const float f0 = 1.0f / s.l[n][0], f1 = 1.0f / s.l[n][1];
        const int token = (n * 8 + g) / width, h = (n * 8 + g) % width; /* the lane's column after the transpose */
#pragma unroll
        for (int p = 0; p < D / 16; p++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const uint32_t v = transposed(pack2(s.o[n][p][r * 2] * f0, s.o[n][p][r * 2 + 1] * f1));
                if (token < t.count && h < n_heads)
                    *(uint32_t *)(out + act_at(t.slot + token, (kv_head * group + h0 + h) * D + p * 16 + r * 8 + c * 2,
                                               out_cap)) = v;
            }
    }
}

__global__ void rope_table_kernel(float *rope, int positions, int d, double base)
{
    const int64_t n = (int64_t)positions * (d / 2);

    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
        const double angle = (double)(i / (d / 2)) * pow(base, -2.0 * (double)(i % (d / 2)) / d);
        rope[i * 2] = (float)cos(angle);
        rope[i * 2 + 1] = (float)sin(angle);
    }
}

/* --- launching --- */

enum err_code rope_table(float *rope, int positions, int d, double base, const struct gpu *g, struct err *e)
{
    rope_table_kernel<<<g->sms * 4, 256, 0, g->stream>>>(rope, positions, d, base);
    return gpu_launched(g, cudaGetLastError(), "rope_table", e);
}

enum err_code attention_prepare(struct err *e)
{
    enum err_code rc =
        gpu_check(cudaFuncSetAttribute(attention_decode_kernel<128>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       sizeof(decode_smem<128>)),
                  "cannot give attention its shared memory", e);

    return rc != ERR_OK
               ? rc
               : gpu_check(cudaFuncSetAttribute(attention_decode_kernel<64>,
                                                cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(decode_smem<64>)),
                           "cannot give attention its shared memory", e);
}

template <int D>
static enum err_code run_decode(const struct attention *a, const struct qkv_parts *p, const int *row, const int *pos,
                                int slots, bf16 *out, int out_cap, const struct gpu *g, struct err *e)
{
    const int groups = (a->heads / a->kv_heads + DECODE_HEADS - 1) / DECODE_HEADS;

    return launch(g, "attention_decode", attention_decode_kernel<D>, dim3(a->kv_heads * groups, slots),
                  DECODE_WARPS * 32, sizeof(decode_smem<D>), true, e, *a, *p, row, pos, out, out_cap);
}

enum err_code attention_decode(const struct attention *a, const struct qkv_parts *p, const int *row, const int *pos,
                               int slots, bf16 *out, int out_cap, const struct gpu *g, struct err *e)
{
    return a->d == 128 ? run_decode<128>(a, p, row, pos, slots, out, out_cap, g, e)
                       : run_decode<64>(a, p, row, pos, slots, out, out_cap, g, e);
}

enum err_code rope_append(const struct attention *a, const struct qkv_parts *p, const int *row, const int *pos,
                          int tokens, bf16 *q, const struct gpu *g, struct err *e)
{
    const dim3 grid(tokens);

    return a->d == 128 ? launch(g, "rope_append", rope_append_kernel<128>, grid, ROPE_WARPS * 32, 0, true, e, *a, *p,
                                row, pos, q)
                       : launch(g, "rope_append", rope_append_kernel<64>, grid, ROPE_WARPS * 32, 0, true, e, *a, *p,
                                row, pos, q);
}

int attention_tile_tokens(const struct attention *a)
{
    const int group = a->heads / a->kv_heads;

    return group >= PROMPT_COLUMNS ? 1 : PROMPT_COLUMNS / group;
}

enum err_code attention_prompt(const struct attention *a, const bf16 *q, const struct query_tile *tiles, int n_tiles,
                               bf16 *out, int out_cap, const struct gpu *g, struct err *e)
{
    const int groups = (a->heads / a->kv_heads + PROMPT_COLUMNS - 1) / PROMPT_COLUMNS;
    const dim3 grid(a->kv_heads * groups, n_tiles / ATTENTION_TILES); /* heads first: a block of the cache as a whole */

    return a->d == 128 ? launch(g, "attention_prompt", attention_prompt_kernel<128>, grid, PROMPT_WARPS * 32, 0, true,
                                e, *a, q, tiles, out, out_cap)
                       : launch(g, "attention_prompt", attention_prompt_kernel<64>, grid, PROMPT_WARPS * 32, 0, true, e,
                                *a, q, tiles, out, out_cap);
}
