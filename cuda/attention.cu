#include "cuda/attention.h"

#include "cuda/fragment.cuh"
#include "cuda/launch.cuh"
#include "cuda/layout.cuh"

#include <math_constants.h>

static const int DECODE_WARPS = 4, DECODE_HEADS = 8, PROMPT_WARPS = 4, PROMPT_COLUMNS = 16;
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

template <int D>
__device__ __forceinline__ void head_rope_norm(head<D> &h, const float *rope, int pos, const bf16 *w, float eps)
{
    constexpr int E = head<D>::E;
    const int lane = threadIdx.x % 32;
    float sum = 0;

    for (int e = 0; e < E; e++) {
        const float2 t = *(const float2 *)(rope + ((size_t)pos * (D / 2) + lane * E + e) * 2);
        const float a = h.lo[e], b = h.hi[e];
        h.lo[e] = a * t.x - b * t.y;
        h.hi[e] = b * t.x + a * t.y;
        sum += h.lo[e] * h.lo[e] + h.hi[e] * h.hi[e];
    }
    if (!w)
        return;
    const float scale = rsqrtf(warp_sum(sum) / D + eps);
    for (int e = 0; e < E; e++) {
        h.lo[e] *= scale * __bfloat162float(__ushort_as_bfloat16(w[lane * E + e]));
        h.hi[e] *= scale * __bfloat162float(__ushort_as_bfloat16(w[D / 2 + lane * E + e]));
    }
}

__device__ __forceinline__ bf16 rounded(float v)
{
    return __bfloat16_as_ushort(__float2bfloat16_rn(v));
}

/* Where the sub-block of position t lies. */
template <int D> __device__ __forceinline__ bf16 *sub_block(const attention &a, int row, int t, int kv_head)
{
    const int block = a.tables[(size_t)row * a.max_blocks + t / a.block_tokens];
    return a.kv + kv_at(block, t % a.block_tokens / SUB_TOKENS, kv_head, a.block_tokens / SUB_TOKENS, a.kv_heads, D);
}

template <int D> __device__ __forceinline__ void head_append(const head<D> &h, bf16 *sub, int t, bool is_k)
{
    constexpr int E = head<D>::E;
    const int lane = threadIdx.x % 32;

    for (int e = 0; e < E; e++) {
        const int i = lane * E + e;
        if (is_k) {
            sub[k_at(t, i)] = rounded(h.lo[e]);
            sub[k_at(t, D / 2 + i)] = rounded(h.hi[e]);
        } else {
            sub[SUB_TOKENS * D + v_at(t, i)] = rounded(h.lo[e]);
            sub[SUB_TOKENS * D + v_at(t, D / 2 + i)] = rounded(h.hi[e]);
        }
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

template <int D> struct fragments {
    uint4 k[D / 32][2], v[D / 16]; /* A fragments */

    __device__ __forceinline__ void load(const bf16 *sub)
    {
        const int lane = threadIdx.x % 32;

#pragma unroll
        for (int b = 0; b < D / 32; b++)
            for (int j = 0; j < 2; j++)
                k[b][j] = *(const uint4 *)(sub + ((b * 2 + j) * 32 + lane) * 8);
#pragma unroll
        for (int p = 0; p < D / 16; p++)
            v[p] = *(const uint4 *)(sub + SUB_TOKENS * D + (p * 32 + lane) * 8);
    }
};

/* A warp's request for a sub-block, K and V, to shared memory: one group of asynchronous copies, empty if !is_there. */
template <int D> __device__ __forceinline__ void request(char *to, const bf16 *sub, bool is_there)
{
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(to);

    if (is_there)
#pragma unroll
        for (int i = 0; i < SUB_TOKENS * D * 4 / 512; i++) {
            const int byte = (i * 32 + threadIdx.x % 32) * 16;
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at + byte), "l"((const char *)sub + byte)
                         : "memory");
        }
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int D, int N> struct columns {
    uint4 q[N][D / 32];     /* B fragments */
    float o[N][D / 16][4];  /* [d, column] */
    float m[N][2], l[N][2]; /* running maximum (times log2 e / sqrt d) and the lane's part of the sum */

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
    __device__ __forceinline__ void attend(fragments<D> &f, int first, const int (&limit)[N][2], int last, float scale)
    {
        const int lane = threadIdx.x % 32, g = lane / 4, c = lane % 4;
        uint4(&k)[D / 32][2] = f.k, (&v)[D / 16] = f.v;
        float s[N][4];

#pragma unroll
        for (int n = 0; n < N; n++) {
            s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
#pragma unroll
            for (int b = 0; b < D / 32; b++) {
                mma(s[n], k[b][0].x, k[b][1].x, k[b][0].y, k[b][1].y, q[n][b].x, q[n][b].y);
                mma(s[n], k[b][0].z, k[b][1].z, k[b][0].w, k[b][1].w, q[n][b].z, q[n][b].w);
            }
        }
        if (first + SUB_TOKENS - 1 > last) { /* 0 times not-a-number is not 0 */
            const int t = first + c * 2;
            const uint32_t near = (t <= last ? 0xffffu : 0) | (t + 1 <= last ? 0xffff0000u : 0);
            const uint32_t far = (t + 8 <= last ? 0xffffu : 0) | (t + 9 <= last ? 0xffff0000u : 0);
#pragma unroll
            for (int p = 0; p < D / 16; p++)
                v[p].x &= near, v[p].y &= near, v[p].z &= far, v[p].w &= far;
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
#pragma unroll
            for (int p = 0; p < D / 16; p++) {
                o[n][p][0] *= keep[0], o[n][p][1] *= keep[1], o[n][p][2] *= keep[0], o[n][p][3] *= keep[1];
                mma(o[n][p], v[p].x, v[p].y, v[p].z, v[p].w, b0, b1);
            }
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
__device__ __forceinline__ void new_token(decode_smem<D> &sm, const attention &a, const qkv_parts &p, int slot, int row,
                                          int pos, int kv_head, int first_head, int n_heads)
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
                head_rope_norm<D>(h[j], a.rope, pos, task < n_heads ? a.q_norm : a.k_norm, a.eps);
            head_store<D>(h[j], task < n_heads ? sm.q[task] : task == n_heads ? sm.k : sm.v);
            if (task >= n_heads) /* with several groups of query heads each writes the same bits */
                head_append<D>(h[j], sub_block<D>(a, row, pos, kv_head), pos % SUB_TOKENS, task == n_heads);
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
    extern __shared__ __align__(128) char smem_raw[];
    decode_smem<D> &sm = *(decode_smem<D> *)smem_raw;
    const int slot = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, c = lane % 4;
    const int group = a.heads / a.kv_heads, groups = (group + DECODE_HEADS - 1) / DECODE_HEADS;
    const int kv_head = blockIdx.y / groups, h0 = blockIdx.y % groups * DECODE_HEADS;
    const int n_heads = min(DECODE_HEADS, group - h0), round = DECODE_WARPS * SUB_TOKENS;

    /* The step's lists and what earlier steps left in the cache are there before this pass begins: no need to wait.  The
     * new token's key and value are put in once they are known. */
    const int row = rows[slot], pos = positions[slot];
    for (int i = 0; i < 2; i++) {
        const int t = warp * SUB_TOKENS + i * round;
        const bool is_there = row >= 0 && t <= pos;
        request<D>(sm.kv[warp][i], is_there ? sub_block<D>(a, row, t, kv_head) : NULL, is_there);
    }
    grid_wait();
    grid_release();
    if (row < 0)
        return;
    new_token<D>(sm, a, p, slot, row, pos, kv_head, kv_head * group + h0, n_heads);
    __syncthreads();

    columns<D, 1> s;
    const int limit[1][2] = {{pos, pos}};
    const float scale = LOG2_E * rsqrtf((float)D);
    for (int b = 0; b < D / 32; b++)
        s.q[0][b] = *(const uint4 *)&sm.q[g][b * 32 + c * 8];
    s.clear();
    for (int t = warp * SUB_TOKENS, i = 0; t <= pos; t += round, i ^= 1) {
        bf16 *sub = (bf16 *)sm.kv[warp][i];
        fragments<D> f;
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        __syncwarp();
        if (t + SUB_TOKENS > pos) {
            for (int e = lane; e < D; e += 32) {
                sub[k_at(pos - t, e)] = sm.k[e];
                sub[SUB_TOKENS * D + v_at(pos - t, e)] = sm.v[e];
            }
            __syncwarp();
        }
        f.load(sub);
        s.attend(f, t, limit, pos, scale);
        __syncwarp();
        const int next = t + 2 * round;
        request<D>(sm.kv[warp][i], next <= pos ? sub_block<D>(a, row, next, kv_head) : NULL, next <= pos);
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

template <int D>
__global__ __launch_bounds__(256) void rope_append_kernel(const attention a, const qkv_parts p, const int *rows,
                                                          const int *positions, bf16 *q)
{
    const int slot = blockIdx.x, i = blockIdx.y * 8 + threadIdx.x / 32;

    grid_wait();
    grid_release();
    if (i >= a.heads + 2 * a.kv_heads)
        return;
    const int row = rows[slot], pos = positions[slot];
    head<D> h = head_load<D>(p, slot, i * D);
    if (i < a.heads) {
        head_rope_norm<D>(h, a.rope, pos, a.q_norm, a.eps);
        head_store<D>(h, q + ((size_t)slot * a.heads + i) * D);
        return;
    }
    const bool is_k = i < a.heads + a.kv_heads;
    const int kv_head = is_k ? i - a.heads : i - a.heads - a.kv_heads;
    if (is_k)
        head_rope_norm<D>(h, a.rope, pos, a.k_norm, a.eps);
    head_append<D>(h, sub_block<D>(a, row, pos, kv_head), pos % SUB_TOKENS, is_k);
}

template <int D>
__global__ __launch_bounds__(PROMPT_WARPS * 32) void attention_prompt_kernel(const attention a, const bf16 *q,
                                                                             const query_tile *tiles, int n_tiles,
                                                                             bf16 *out, int out_cap)
{
    constexpr int N = PROMPT_COLUMNS / 8;
    const int lane = threadIdx.x % 32, g = lane / 4, c = lane % 4;
    const int tile = blockIdx.x * PROMPT_WARPS + threadIdx.x / 32;
    const int group = a.heads / a.kv_heads, groups = (group + PROMPT_COLUMNS - 1) / PROMPT_COLUMNS;
    const int kv_head = blockIdx.y / groups, h0 = blockIdx.y % groups * PROMPT_COLUMNS;
    const int width = min(group, PROMPT_COLUMNS); /* columns of a token */
    const int n_heads = min(width, group - h0);

    grid_wait();
    grid_release();
    if (tile >= n_tiles)
        return;
    const query_tile t = tiles[tile];
    const int last = t.pos + t.count - 1;
    columns<D, N> s;
    int limit[N][2];

#pragma unroll
    for (int n = 0; n < N; n++) {
        const int token = (n * 8 + g) / width, h = (n * 8 + g) % width;
        const bool is_used = token < t.count && h < n_heads;
#pragma unroll
        for (int b = 0; b < D / 32; b++)
            s.q[n][b] = is_used
                            ? *(const uint4 *)(q + ((size_t)(t.slot + token) * a.heads + kv_head * group + h0 + h) * D +
                                               b * 32 + c * 8)
                            : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int i = 0; i < 2; i++)
            limit[n][i] = min(last, t.pos + (n * 8 + c * 2 + i) / width);
    }
    s.clear();
    const float scale = LOG2_E * rsqrtf((float)D);
    for (int first = 0; first <= last; first += SUB_TOKENS) {
        fragments<D> f;
        f.load(sub_block<D>(a, t.row, first, kv_head));
        s.attend(f, first, limit, last, scale);
    }
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

    return launch(g, "attention_decode", attention_decode_kernel<D>, dim3(slots, a->kv_heads * groups),
                  DECODE_WARPS * 32, sizeof(decode_smem<D>), 1, e, *a, *p, row, pos, out, out_cap);
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
    const dim3 grid(tokens, (a->heads + 2 * a->kv_heads + 7) / 8);

    return a->d == 128 ? launch(g, "rope_append", rope_append_kernel<128>, grid, 256, 0, 1, e, *a, *p, row, pos, q)
                       : launch(g, "rope_append", rope_append_kernel<64>, grid, 256, 0, 1, e, *a, *p, row, pos, q);
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
    const dim3 grid((n_tiles + PROMPT_WARPS - 1) / PROMPT_WARPS, a->kv_heads * groups);

    return a->d == 128 ? launch(g, "attention_prompt", attention_prompt_kernel<128>, grid, PROMPT_WARPS * 32, 0, 1, e,
                                *a, q, tiles, n_tiles, out, out_cap)
                       : launch(g, "attention_prompt", attention_prompt_kernel<64>, grid, PROMPT_WARPS * 32, 0, 1, e,
                                *a, q, tiles, n_tiles, out, out_cap);
}
