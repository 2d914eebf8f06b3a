#include "cuda/attention.h"

#include "cuda/fragment.cuh"
#include "cuda/launch.cuh"
#include "cuda/layout.cuh"

#include <math_constants.h>

static const int DECODE_WARPS = 4, DECODE_HEADS = 8, DECODE_STAGES = 3, DECODE_ROUND = DECODE_WARPS * SUB_TOKENS,
                 PROMPT_WARPS = ATTENTION_TILES, PROMPT_COLUMNS = 16, PROMPT_STAGES = 3, PROMPT_CHUNK = 2 * SUB_TOKENS,
                 APPEND_WARPS = 8, APPEND_HEADS = 4;
static const float LOG2_E = 1.4426950408889634f;

/* --- RoPE, norm, append: one head, one warp; the same for both kinds of step --- */

/* The lane's elements of a head: E of each half, i = lane * E + e and d / 2 + i: the pairs that RoPE turns. */
template <int D> struct head {
    static constexpr int E = D / 64;
    float lo[E], hi[E];
};

template <int D> __device__ __forceinline__ head<D> head_part(const qkv_parts &p, int split, int slot, int col)
{
    constexpr int E = head<D>::E;
    const float *at = p.part + ((size_t)split * p.cap + slot) * p.ld + col + threadIdx.x % 32 * E;
    head<D> h;

    if (E == 2) {
        const float2 lo = *(const float2 *)at, hi = *(const float2 *)(at + D / 2);
        h.lo[0] = lo.x, h.lo[E - 1] = lo.y, h.hi[0] = hi.x, h.hi[E - 1] = hi.y;
    } else {
        h.lo[0] = at[0];
        h.hi[0] = at[D / 2];
    }
    return h;
}

template <int D> __device__ __forceinline__ void head_add(head<D> &h, const head<D> &part)
{
    for (int e = 0; e < head<D>::E; e++) {
        h.lo[e] += part.lo[e];
        h.hi[e] += part.hi[e];
    }
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
    if (E == 2) {
        *(uint32_t *)(sub + kv_element(t, lane * E, D)) = pack2(h.lo[0], h.lo[E - 1]);
        *(uint32_t *)(sub + kv_element(t, D / 2 + lane * E, D)) = pack2(h.hi[0], h.hi[E - 1]);
    } else {
        sub[kv_element(t, lane, D)] = rounded(h.lo[0]);
        sub[kv_element(t, D / 2 + lane, D)] = rounded(h.hi[0]);
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

/* --- decode: an item is a slot and kv head (and group of eight query heads); a block takes items in turn, its warps an
 * item's sub-blocks in turn, each with some on their way, those of the next item included --- */

template <int D> struct decode_smem {
    char kv[DECODE_WARPS][DECODE_STAGES][SUB_TOKENS * D * 4];
    bf16 q[DECODE_HEADS][D], k[D], v[D]; /* k, v: the new token's */
    float m[DECODE_WARPS][DECODE_HEADS], l[DECODE_WARPS][DECODE_HEADS];
    const float *o[DECODE_WARPS]; /* [heads, D], where the warp's last sub-block was */
};

template <int D> struct decode_item {
    int slot, row, pos, kv_head, h0, n_heads; /* row < 0: nothing to do, pos is -1 then */
    int block;                                /* where the new token goes */
    blocks<D> list;

    /* In two steps, so that no load has to be waited for: first the row ... */
    __device__ __forceinline__ void look(const attention &a, int i, int items, const int *rows, const int *positions)
    {
        const int group = a.heads / a.kv_heads, groups = (group + DECODE_HEADS - 1) / DECODE_HEADS;
        const int at = min(i, items - 1);

        slot = i < items ? at / (a.kv_heads * groups) : -1;
        kv_head = at / groups % a.kv_heads;
        h0 = at % groups * DECODE_HEADS;
        n_heads = min(DECODE_HEADS, group - h0);
        row = rows[max(slot, 0)];
        pos = positions[max(slot, 0)];
    }

    /* ... then its blocks. */
    __device__ __forceinline__ void find(const attention &a)
    {
        if (slot < 0 || row < 0)
            row = pos = -1;
        slot = max(slot, 0);
        block = a.tables[(size_t)max(row, 0) * a.max_blocks + (max(pos, 0) >> a.block_shift)];
        list.open(a, max(row, 0), true);
    }
};

/* A warp's sub-blocks on their way, in the order in which it takes them. */
template <int D> struct stream {
    char (*kv)[SUB_TOKENS * D * 4];
    blocks<D> list;
    int kv_head, pos, t;      /* what is asked for next: t <= pos, or nothing is left of the item */
    int pending, asked, used; /* asked, used: stages */

    __device__ __forceinline__ void open(const decode_item<D> &item)
    {
        list = item.list;
        kv_head = item.kv_head;
        pos = item.pos;
        t = threadIdx.x / 32 * SUB_TOKENS;
    }

    __device__ __forceinline__ void fill(const attention &a)
    {
        for (; pending < DECODE_STAGES && t <= pos; t += DECODE_ROUND, pending++) {
            request<D, 32>(kv[asked], list.at(a, t, kv_head), threadIdx.x % 32);
            asked = asked + 1 == DECODE_STAGES ? 0 : asked + 1;
        }
    }

    /* The oldest one; it stays until release(). */
    __device__ __forceinline__ char *take()
    {
        if (pending == 1)
            asm volatile("cp.async.wait_group 0;" ::: "memory");
        else if (pending == 2)
            asm volatile("cp.async.wait_group 1;" ::: "memory");
        else
            asm volatile("cp.async.wait_group 2;" ::: "memory");
        __syncwarp();
        return kv[used];
    }

    __device__ __forceinline__ void release()
    {
        pending--;
        used = used + 1 == DECODE_STAGES ? 0 : used + 1;
    }
};

/* Heads of the new token.  Task i: query head i, then the key, then the value; a warp takes i, i + DECODE_WARPS and so on.
 * The first two parts of its first two are asked for while the item before is worked on. */
template <int D> struct new_heads {
    head<D> part[2][2]; /* task, split */

    static __device__ __forceinline__ int column(const attention &a, const decode_item<D> &item, int task)
    {
        const int first = item.kv_head * (a.heads / a.kv_heads) + item.h0;
        const int h = task < item.n_heads    ? first + task
                      : task == item.n_heads ? a.heads + item.kv_head
                                             : a.heads + a.kv_heads + item.kv_head;
        return h * D;
    }

    __device__ __forceinline__ void load(const attention &a, const qkv_parts &p, const decode_item<D> &item)
    {
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const int task = min((int)threadIdx.x / 32 + j * DECODE_WARPS, item.n_heads + 1);
#pragma unroll
            for (int s = 0; s < 2; s++)
                part[j][s] = head_part<D>(p, min(s, p.splits - 1), item.slot, column(a, item, task));
        }
    }
};

/* Queries to shared memory, key and value there and to the cache. */
template <int D>
__device__ __forceinline__ void new_token(decode_smem<D> &sm, const attention &a, const qkv_parts &p,
                                          const decode_item<D> &item, const new_heads<D> &first, const turning<D> &by)
{
    const int warp = threadIdx.x / 32, n_heads = item.n_heads, t = item.pos % SUB_TOKENS;
    bf16 *sub = sub_block_in<D>(a, item.block, item.pos, item.kv_head);

    for (int i = warp; i < n_heads + 2; i += 2 * DECODE_WARPS) {
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const int task = i + j * DECODE_WARPS;
            head<D> h = {};
            if (task >= n_heads + 2)
                break;
            const bool is_there = i == warp;
            if (is_there) {
                head_add(h, first.part[j][0]);
                if (p.splits > 1)
                    head_add(h, first.part[j][1]);
            }
#pragma unroll 4
            for (int s = is_there ? 2 : 0; s < p.splits; s++)
                head_add(h, head_part<D>(p, s, item.slot, new_heads<D>::column(a, item, task)));
            if (task <= n_heads)
                head_rope_norm<D>(h, a, by, task == n_heads);
            head_store<D>(h, task < n_heads ? sm.q[task] : task == n_heads ? sm.k : sm.v);
            if (task >= n_heads) /* with several groups of query heads each writes the same bits */
                head_append<D>(h, sub, t, task == n_heads);
        }
    }
    for (int i = n_heads + warp; i < DECODE_HEADS; i += DECODE_WARPS) {
        const head<D> zero = {};
        head_store<D>(zero, sm.q[i]);
    }
}

/* Adds up what the warps found, in the order of the warps. */
template <int D>
__device__ __forceinline__ void merge(const decode_smem<D> &sm, const decode_item<D> &item, int first_head, bf16 *out,
                                      int out_cap)
{
    const int used = min(DECODE_WARPS, item.pos / SUB_TOKENS + 1); /* warps that had a sub-block */

    for (int i = threadIdx.x; i < item.n_heads * (D / 2); i += DECODE_WARPS * 32) {
        const int h = i / (D / 2), at = i % (D / 2) * 2;
        float most = -CUDART_INF_F, sum = 0, x = 0, y = 0;
#pragma unroll
        for (int w = 0; w < DECODE_WARPS; w++)
            most = w < used ? fmaxf(most, sm.m[w][h]) : most;
#pragma unroll
        for (int w = 0; w < DECODE_WARPS; w++) {
            if (w >= used)
                break;
            const float f = exp2f(sm.m[w][h] - most);
            const float2 o = *(const float2 *)(sm.o[w] + h * D + at);
            sum += f * sm.l[w][h];
            x += f * o.x;
            y += f * o.y;
        }
        *(uint32_t *)(out + act_at(item.slot, (first_head + h) * D + at, out_cap)) = pack2(x / sum, y / sum);
    }
}

template <int D>
__global__ __launch_bounds__(DECODE_WARPS * 32, 2) void attention_decode_kernel(const attention a, const qkv_parts p,
                                                                                const int *rows, const int *positions,
                                                                                int items, bf16 *out, int out_cap)
{
    extern __shared__ __align__(1024) char smem_raw[];
    decode_smem<D> &sm = *(decode_smem<D> *)smem_raw;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, c = lane % 4;
    const float scale = LOG2_E * rsqrtf((float)D);
    decode_item<D> item, next, after, later;
    stream<D> ring = {sm.kv[warp]};
    new_heads<D> first;
    turning<D> by;

    /* The step's lists and what earlier steps left in the cache are there before this pass begins: no need to wait.  The
     * new token's key and value are put in once they are known. */
    const int stride = gridDim.x;
    item.look(a, blockIdx.x, items, rows, positions);
    next.look(a, blockIdx.x + stride, items, rows, positions);
    after.look(a, blockIdx.x + 2 * stride, items, rows, positions);
    item.find(a);
    next.find(a);
    ring.open(item);
    ring.fill(a);
    by.load(a, max(item.pos, 0));
    grid_wait();
    grid_release();
    first.load(a, p, item);
    for (int i = blockIdx.x; i < items; i += stride, item = next, next = after, after = later) {
        const int first_head = item.kv_head * (a.heads / a.kv_heads) + item.h0, pos = item.pos;
        bool goes_on = false; /* the next item's sub-blocks are being asked for */

        auto refill = [&]() {
            ring.fill(a);
            if (!goes_on && ring.t > ring.pos) {
                goes_on = true;
                ring.open(next);
                ring.fill(a);
            }
        };
        after.find(a);
        later.look(a, i + 3 * stride, items, rows, positions);
        refill();
        if (item.row < 0) {
            first.load(a, p, next);
            by.load(a, max(next.pos, 0));
            continue;
        }
        new_token<D>(sm, a, p, item, first, by);
        first.load(a, p, next);
        by.load(a, max(next.pos, 0));
        __syncthreads();

        columns<D, 1> s;
        const int limit[1][2] = {{pos, pos}};
        for (int b = 0; b < D / 16; b++) {
            s.q[0][b][0] = *(const uint32_t *)&sm.q[g][b * 16 + c * 2];
            s.q[0][b][1] = *(const uint32_t *)&sm.q[g][b * 16 + c * 2 + 8];
        }
        s.clear();
        for (int t = warp * SUB_TOKENS; t <= pos; t += DECODE_ROUND) {
            bf16 *sub = (bf16 *)ring.take();
            if (t + SUB_TOKENS > pos) {
                for (int e = lane; e < D; e += 32) {
                    sub[kv_element(pos - t, e, D)] = sm.k[e];
                    sub[SUB_TOKENS * D + kv_element(pos - t, e, D)] = sm.v[e];
                }
                __syncwarp();
            }
            s.attend((const char *)sub, t, limit, pos, scale);
            __syncwarp();
            if (t + DECODE_ROUND <= pos) {
                ring.release();
                refill();
            }
        }
        s.finish();
        const bool is_used = warp * SUB_TOKENS <= pos;
        if (is_used) {
            float *o = (float *)sm.kv[warp][ring.used];
            for (int j = 0; j < 2; j++) {
                const int h = c * 2 + j;
                if (h < item.n_heads) {
                    for (int b = 0; b < D / 16; b++) {
                        o[h * D + b * 16 + g] = s.o[0][b][j];
                        o[h * D + b * 16 + g + 8] = s.o[0][b][2 + j];
                    }
                    if (g == 0) {
                        sm.m[warp][h] = s.m[0][j];
                        sm.l[warp][h] = s.l[0][j];
                    }
                }
            }
            if (lane == 0)
                sm.o[warp] = o;
        }
        __syncthreads();
        merge<D>(sm, item, first_head, out, out_cap);
        __syncthreads(); /* the stages that held the outputs are free again */
        if (is_used)
            ring.release();
        refill();
    }
}

/* --- prompts --- */

/* A warp takes some heads at a time, of keys and of values: task i is head i % (2 kv_heads) of token i / (2 kv_heads). */
template <int D>
__global__ __launch_bounds__(APPEND_WARPS * 32) void append_kernel(const attention a, const bf16 *sums, int ld,
                                                                   const int *rows, const int *positions, int tokens)
{
    constexpr int E = head<D>::E;
    const int lane = threadIdx.x % 32, each = 2 * a.kv_heads;
    const int first = blockIdx.x * (APPEND_WARPS * APPEND_HEADS) + threadIdx.x / 32;
    head<D> h[APPEND_HEADS];
    turning<D> by[APPEND_HEADS];
    bf16 *to[APPEND_HEADS];
    int pos[APPEND_HEADS];

#pragma unroll
    for (int j = 0; j < APPEND_HEADS; j++) {
        const int task = min(first + j * APPEND_WARPS, tokens * each - 1), slot = task / each, i = task % each;
        pos[j] = positions[slot];
        to[j] = sub_block<D>(a, rows[slot], pos[j], i % a.kv_heads);
        by[j].load(a, pos[j]);
    }
    grid_wait();
    grid_release();
#pragma unroll
    for (int j = 0; j < APPEND_HEADS; j++) {
        const int task = min(first + j * APPEND_WARPS, tokens * each - 1), slot = task / each, i = task % each;
        const bf16 *at = sums + (size_t)slot * ld + (a.heads + i) * D + lane * E;
        for (int e = 0; e < E; e++) {
            h[j].lo[e] = __bfloat162float(__ushort_as_bfloat16(at[e]));
            h[j].hi[e] = __bfloat162float(__ushort_as_bfloat16(at[D / 2 + e]));
        }
    }
#pragma unroll
    for (int j = 0; j < APPEND_HEADS; j++) {
        const int task = first + j * APPEND_WARPS;
        const bool is_k = task % each < a.kv_heads;
        if (task >= tokens * each)
            break;
        if (is_k)
            head_rope_norm<D>(h[j], a, by[j], true);
        head_append<D>(h[j], to[j], pos[j] % SUB_TOKENS, is_k);
    }
}

__device__ __forceinline__ float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float2 unpacked(uint32_t v)
{
    return __bfloat1622float2(*(const __nv_bfloat162 *)&v);
}

/* Sixteen columns against all positions, one warp; a column is a row of the products' fragments.
 * Lane l has columns g and g + 8, g = l / 4; c = l % 4. */
template <int D> struct queries {
    uint32_t q[D / 16][4];
    float o[D / 8][4];
    float m[2], l[2]; /* of columns g, g + 8: running maximum, as in columns, and the lane's part of the sum */
    int limit[2];     /* last position that the column sees */

    /* Column 0 or 1 of the lane: query head at `from`, turned and scaled for position pos. */
    __device__ __forceinline__ void load(const attention &a, int i, const bf16 *from, int pos)
    {
        const int c = threadIdx.x % 4;
        float v[D / 8][2], sum = 0;

#pragma unroll
        for (int b = 0; b < D / 8; b++) {
            const float2 f = unpacked(*(const uint32_t *)(from + b * 8 + c * 2));
            v[b][0] = f.x, v[b][1] = f.y;
        }
#pragma unroll
        for (int b = 0; b < D / 16; b++) {
            const float4 turn = *(const float4 *)(a.rope + ((size_t)pos * (D / 2) + b * 8 + c * 2) * 2);
            const float lo[2] = {v[b][0], v[b][1]}, hi[2] = {v[b + D / 16][0], v[b + D / 16][1]};
            v[b][0] = lo[0] * turn.x - hi[0] * turn.y;
            v[b][1] = lo[1] * turn.z - hi[1] * turn.w;
            v[b + D / 16][0] = hi[0] * turn.x + lo[0] * turn.y;
            v[b + D / 16][1] = hi[1] * turn.z + lo[1] * turn.w;
        }
        if (a.q_norm) {
#pragma unroll
            for (int b = 0; b < D / 8; b++)
                sum += v[b][0] * v[b][0] + v[b][1] * v[b][1];
            sum += __shfl_xor_sync(0xffffffff, sum, 1);
            sum += __shfl_xor_sync(0xffffffff, sum, 2);
            const float scale = rsqrtf(sum / D + a.eps);
#pragma unroll
            for (int b = 0; b < D / 8; b++) {
                const float2 w = unpacked(*(const uint32_t *)(a.q_norm + b * 8 + c * 2));
                v[b][0] *= scale * w.x;
                v[b][1] *= scale * w.y;
            }
        }
#pragma unroll
        for (int b = 0; b < D / 8; b++)
            q[b / 2][b % 2 * 2 + i] = pack2(v[b][0], v[b][1]);
    }

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int p = 0; p < D / 8; p++)
            o[p][0] = o[p][1] = o[p][2] = o[p][3] = 0;
        m[0] = m[1] = -CUDART_INF_F;
        l[0] = l[1] = 0;
    }

    /* at: two sub-blocks, the first one's positions from `first` on.  all_see: the last position that every column sees;
     * last: the last that any does; what lies behind it may be anything, not a number included. */
    __device__ __forceinline__ void attend(uint32_t at, int first, int all_see, int last, float scale)
    {
        constexpr int SUB_BYTES = SUB_TOKENS * D * 4, BLOCKS = PROMPT_CHUNK / 8;
        const int lane = threadIdx.x % 32, c = lane % 4;
        const int half = lane / 8 % 2, far_half = lane / 16, r = lane % 8; /* of ldmatrix's addresses; r: swizzle too */
        const uint32_t k_at = at + (far_half * 8 + r) * (D * 2) + ((half ^ r) << 4);
        const uint32_t v_at = at + (SUB_TOKENS + half * 8 + r) * (D * 2) + ((far_half ^ r) << 4);
        float s[BLOCKS][4], keep[2];

#pragma unroll
        for (int n = 0; n < BLOCKS; n++)
            s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
#pragma unroll
        for (int b = 0; b < D / 16; b++)
#pragma unroll
            for (int n = 0; n < BLOCKS; n += 2) {
                uint32_t k[4];
                ldmatrix4(k, (k_at + n / 2 * SUB_BYTES) ^ (b << 5));
                mma(s[n], q[b][0], q[b][1], q[b][2], q[b][3], k[0], k[1]);
                mma(s[n + 1], q[b][0], q[b][1], q[b][2], q[b][3], k[2], k[3]);
            }
        if (first + PROMPT_CHUNK - 1 > all_see)
#pragma unroll
            for (int n = 0; n < BLOCKS; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    if (first + n * 8 + c * 2 + i % 2 > limit[i / 2])
                        s[n][i] = -CUDART_INF_F;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float most = s[0][i * 2];
#pragma unroll
            for (int n = 0; n < BLOCKS; n++)
                most = fmaxf(most, fmaxf(s[n][i * 2], s[n][i * 2 + 1]));
            most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, 1));
            most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, 2));
            most = fmaxf(most * scale, m[i]);
            keep[i] = exp2_fast(m[i] - most);
            m[i] = most;
            l[i] *= keep[i];
#pragma unroll
            for (int n = 0; n < BLOCKS; n++)
#pragma unroll
                for (int x = i * 2; x < i * 2 + 2; x++) {
                    s[n][x] = exp2_fast(s[n][x] * scale - most);
                    l[i] += s[n][x];
                }
        }
        if (__any_sync(0xffffffff, keep[0] != 1.0f || keep[1] != 1.0f)) /* a new maximum: rare after the first ones */
#pragma unroll
            for (int p = 0; p < D / 8; p++)
                o[p][0] *= keep[0], o[p][1] *= keep[0], o[p][2] *= keep[1], o[p][3] *= keep[1];
#pragma unroll
        for (int n = 0; n < BLOCKS; n += 2) {
            const int t = first + n * 8 + c * 2;
            const uint32_t a0 = pack2(s[n][0], s[n][1]), a1 = pack2(s[n][2], s[n][3]);
            const uint32_t a2 = pack2(s[n + 1][0], s[n + 1][1]), a3 = pack2(s[n + 1][2], s[n + 1][3]);
            const bool is_whole = first + n * 8 + SUB_TOKENS - 1 <= last; /* 0 times not-a-number is not 0 */
            const uint32_t near = (t <= last ? 0xffffu : 0) | (t + 1 <= last ? 0xffff0000u : 0);
            const uint32_t far = (t + 8 <= last ? 0xffffu : 0) | (t + 9 <= last ? 0xffff0000u : 0);
#pragma unroll
            for (int p = 0; p < D / 16; p++) {
                uint32_t v[4];
                ldmatrix4_transposed(v, (v_at + n / 2 * SUB_BYTES) ^ (p << 5));
                if (!is_whole)
                    v[0] &= near, v[1] &= far, v[2] &= near, v[3] &= far;
                mma(o[p * 2], a0, a1, a2, a3, v[0], v[1]);
                mma(o[p * 2 + 1], a0, a1, a2, a3, v[2], v[3]);
            }
        }
    }

    /* The outputs, to 16 rows of shared memory, chunks of 16 bytes exchanged by the row's last three bits. */
    __device__ __forceinline__ void finish(char *to)
    {
        const int lane = threadIdx.x % 32, g = lane / 4, c = lane % 4;

#pragma unroll
        for (int i = 0; i < 2; i++) {
            l[i] += __shfl_xor_sync(0xffffffff, l[i], 1);
            l[i] += __shfl_xor_sync(0xffffffff, l[i], 2);
            const float f = 1.0f / l[i];
#pragma unroll
            for (int p = 0; p < D / 8; p++)
                *(uint32_t *)(to + (g + i * 8) * (D * 2) + ((p ^ g) << 4) + c * 4) =
                    pack2(o[p][i * 2] * f, o[p][i * 2 + 1] * f);
        }
    }
};

/* A block's tiles are of one row: all its warps go through the row's positions together. */
template <int D>
__global__ __launch_bounds__(PROMPT_WARPS * 32, 3) void attention_prompt_kernel(const attention a, const bf16 *sums,
                                                                                int ld, const query_tile *tiles,
                                                                                bf16 *out, int out_cap)
{
    constexpr int SUB_BYTES = SUB_TOKENS * D * 4, BYTES = PROMPT_CHUNK * D * 4;
    __shared__ __align__(1024) char kv[PROMPT_STAGES][BYTES];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4;
    const int group = a.heads / a.kv_heads, groups = (group + PROMPT_COLUMNS - 1) / PROMPT_COLUMNS;
    const int kv_head = blockIdx.x / groups, h0 = blockIdx.x % groups * PROMPT_COLUMNS;
    const int width = min(group, PROMPT_COLUMNS); /* columns of a token */
    const int n_heads = min(width, group - h0), first_head = kv_head * group + h0;
    const int per_width = (255 + width) / width; /* i / width is i * per_width / 256 for i < 16 */

    const query_tile *block = tiles + blockIdx.y * PROMPT_WARPS;
    const query_tile t = block[warp];
    const int last = t.pos + t.count - 1, end = block[PROMPT_WARPS - 1].pos + max(block[PROMPT_WARPS - 1].count - 1, 0);
    queries<D> s;
    blocks<D> list;

    /* the queries are older than the kernel before this one, which puts keys and values away (launch.cuh) */
    list.open(a, t.row, true);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int column = g + i * 8, of_tile = column * per_width >> 8;
        const int token = min(of_tile, max(t.count - 1, 0)), h = min(column - of_tile * width, n_heads - 1);
        s.limit[i] = t.pos + token;
        s.load(a, i, sums + (size_t)(t.slot + token) * ld + (first_head + h) * D, s.limit[i]);
    }
    s.clear();
    grid_wait();
    grid_release();
    auto ask = [&](int first) {
        char *to = kv[first / PROMPT_CHUNK % PROMPT_STAGES];
        for (int i = 0; i < PROMPT_CHUNK / SUB_TOKENS; i++) {
            const int at = first + i * SUB_TOKENS;
            request<D, PROMPT_WARPS * 32>(to + i * SUB_BYTES, at <= end ? list.at(a, at, kv_head) : NULL, threadIdx.x);
        }
    };
    ask(0);
    ask(PROMPT_CHUNK);
    const float scale = LOG2_E * rsqrtf((float)D);
    for (int first = 0; first <= end; first += PROMPT_CHUNK) {
        asm volatile("cp.async.wait_group %0;" ::"n"(PROMPT_CHUNK / SUB_TOKENS) : "memory");
        __syncthreads(); /* all have the chunk, and are done with the one before, whose place is asked for now */
        ask(first + 2 * PROMPT_CHUNK);
        if (first <= last && t.count > 0)
            s.attend((uint32_t)__cvta_generic_to_shared(kv[first / PROMPT_CHUNK % PROMPT_STAGES]), first, t.pos, last,
                     scale);
    }
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads(); /* keys and values are done with: outputs take their place */
    if (t.count == 0)
        return;
    char *mine = kv[0] + warp * (PROMPT_COLUMNS * D * 2);
    s.finish(mine);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        const int row = (i * 32 + lane) / (D / 8), chunk = (i * 32 + lane) % (D / 8);
        const int token = row * per_width >> 8, h = row - token * width;
        if (token < t.count && h < n_heads)
            *(uint4 *)(out + act_at(t.slot + token, (first_head + h) * D + chunk * 8, out_cap)) =
                *(const uint4 *)(mine + row * (D * 2) + ((chunk ^ (row & 7)) << 4));
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
    const int groups = (a->heads / a->kv_heads + DECODE_HEADS - 1) / DECODE_HEADS, items = a->kv_heads * groups * slots;

    return launch(g, "attention_decode", attention_decode_kernel<D>, dim3(items < 2 * g->sms ? items : 2 * g->sms),
                  DECODE_WARPS * 32, sizeof(decode_smem<D>), true, e, *a, *p, row, pos, items, out, out_cap);
}

enum err_code attention_decode(const struct attention *a, const struct qkv_parts *p, const int *row, const int *pos,
                               int slots, bf16 *out, int out_cap, const struct gpu *g, struct err *e)
{
    return a->d == 128 ? run_decode<128>(a, p, row, pos, slots, out, out_cap, g, e)
                       : run_decode<64>(a, p, row, pos, slots, out, out_cap, g, e);
}

enum err_code attention_append(const struct attention *a, const bf16 *sums, int ld, const int *row, const int *pos,
                               int tokens, const struct gpu *g, struct err *e)
{
    const int each = APPEND_WARPS * APPEND_HEADS;
    const dim3 grid((tokens * 2 * a->kv_heads + each - 1) / each);

    return a->d == 128 ? launch(g, "append", append_kernel<128>, grid, APPEND_WARPS * 32, 0, true, e, *a, sums, ld, row,
                                pos, tokens)
                       : launch(g, "append", append_kernel<64>, grid, APPEND_WARPS * 32, 0, true, e, *a, sums, ld, row,
                                pos, tokens);
}

int attention_tile_tokens(const struct attention *a)
{
    const int group = a->heads / a->kv_heads;

    return group >= PROMPT_COLUMNS ? 1 : PROMPT_COLUMNS / group;
}

enum err_code attention_prompt(const struct attention *a, const bf16 *sums, int ld, const struct query_tile *tiles,
                               int n_tiles, bf16 *out, int out_cap, const struct gpu *g, struct err *e)
{
    const int groups = (a->heads / a->kv_heads + PROMPT_COLUMNS - 1) / PROMPT_COLUMNS;
    const dim3 grid(a->kv_heads * groups, n_tiles / ATTENTION_TILES); /* heads first: a block of the cache as a whole */

    return a->d == 128 ? launch(g, "attention_prompt", attention_prompt_kernel<128>, grid, PROMPT_WARPS * 32, 0, true,
                                e, *a, sums, ld, tiles, out, out_cap)
                       : launch(g, "attention_prompt", attention_prompt_kernel<64>, grid, PROMPT_WARPS * 32, 0, true, e,
                                *a, sums, ld, tiles, out, out_cap);
}
