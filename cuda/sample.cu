#include "cuda/sample.h"

#include "cuda/fragment.cuh"
#include "cuda/launch.cuh"
#include "engine/random.h"

#include <float.h>
#include <math_constants.h>

/* Ends, as in engine/backend.h. */
enum { END_NONE, END_EOS, END_LENGTH, END_BAD };

static const int THREADS = 256, WARPS = THREADS / 32, GROUPS_PER_WARP = 4;
static const float GREEDY_UNDER = 1e-6f;

/* Rising with the value, without a sign: 0 is below every number. */
__device__ __forceinline__ uint32_t key_of(float z)
{
    const uint32_t u = __float_as_uint(z + 0.0f); /* -0 and 0 are equal */
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}

__device__ __forceinline__ float value_of(uint32_t key)
{
    return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

/* A huge penalty leaves a number. */
__device__ __forceinline__ float penalized(float z, bool is_seen, float penalty)
{
    if (!is_seen || penalty == 1.0f)
        return z;
    return fminf(fmaxf(z < 0 ? z * penalty : z / penalty, -FLT_MAX), FLT_MAX);
}

/* --- first kernel: a warp a group of 128 ids, four a lane --- */

__global__ __launch_bounds__(THREADS) void sample_groups(const sample_job job, const row_table t)
{
    const int place = blockIdx.y, lane = threadIdx.x % 32;
    const int groups = (job.vocab + SAMPLE_GROUP - 1) / SAMPLE_GROUP;

    grid_wait();
    grid_release();
    const int row = job.row[place];
    if (row < 0)
        return;
    const float penalty = t.state[row].penalty;
    const float *logits = job.logits + (size_t)place * job.ld;

    for (int i = 0; i < GROUPS_PER_WARP; i++) {
        const int group = (blockIdx.x * GROUPS_PER_WARP + i) * WARPS + threadIdx.x / 32;
        if (group >= groups)
            return;
        const int id = group * SAMPLE_GROUP + lane * 4;
        const float4 v4 = *(const float4 *)(logits + id);
        const float v[4] = {v4.x, v4.y, v4.z, v4.w};
        const unsigned bits = id < job.vocab ? t.seen[(size_t)row * t.words + id / 32] >> (id % 32) : 0;
        float most = -CUDART_INF_F, most_penalized = -CUDART_INF_F, sum = 0;
        bool is_bad = false;

        for (int j = 0; j < 4; j++)
            if (id + j < job.vocab) {
                is_bad |= !isfinite(v[j]);
                most = fmaxf(most, v[j]);
                most_penalized = fmaxf(most_penalized, penalized(v[j], bits >> j & 1, penalty));
            }
        most = warp_max(most);
        most_penalized = warp_max(most_penalized);
        for (int j = 0; j < 4; j++)
            if (id + j < job.vocab)
                sum += __expf(v[j] - most);
        sum = warp_sum(sum);
        is_bad = __any_sync(0xffffffff, is_bad);
        if (lane == 0) {
            job.group_max[(size_t)place * groups + group] = most_penalized;
            job.group_sum[(size_t)place * groups + group] = make_float2(most, is_bad ? CUDART_NAN_F : sum);
        }
    }
}

/* --- second kernel: a block a row --- */

struct sample_smem {
    unsigned long long candidate[SAMPLE_FAST]; /* key, then the complement of the id: most likely first when falling */
    float weight[SAMPLE_FAST];
    double part[THREADS];
    int part_int[WARPS];
    int n, ties[THREADS], used;
    int token;
};

/* What a thread needs to know to judge an id. */
struct view {
    const float *logits;
    const unsigned *seen;
    float penalty, most, inv_temperature; /* most: largest penalized logit */
    int vocab;

    __device__ __forceinline__ uint32_t key(int id) const
    {
        return key_of(penalized(logits[id], seen[id / 32] >> (id % 32) & 1, penalty));
    }
    __device__ __forceinline__ float weight(uint32_t k) const
    {
        return expf((value_of(k) - most) * inv_temperature);
    }
};

__device__ int block_count(sample_smem &sm, int v)
{
    v = __reduce_add_sync(0xffffffff, v);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        sm.part_int[threadIdx.x / 32] = v;
    __syncthreads();
    v = 0;
    for (int i = 0; i < WARPS; i++)
        v += sm.part_int[i];
    return v;
}

/* In a fixed order. */
__device__ double block_total(sample_smem &sm, double v)
{
    __syncthreads();
    sm.part[threadIdx.x] = v;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            sm.part[threadIdx.x] += sm.part[threadIdx.x + half];
    }
    __syncthreads();
    return sm.part[0];
}

__device__ float block_most(sample_smem &sm, float v)
{
    v = warp_max(v);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        sm.part[threadIdx.x / 32] = v;
    __syncthreads();
    v = (float)sm.part[0];
    for (int i = 1; i < WARPS; i++)
        v = fmaxf(v, (float)sm.part[i]);
    return v;
}

/* Falling order; n is a power of two. */
__device__ void sort_candidates(unsigned long long *v, int n)
{
    for (int size = 2; size <= n; size *= 2)
        for (int step = size / 2; step > 0; step /= 2) {
            __syncthreads();
            for (int i = threadIdx.x; i < n / 2; i += THREADS) {
                const int a = i / step * step * 2 + i % step, b = a + step;
                const bool falling = (a & size) == 0;
                if ((v[a] < v[b]) == falling) {
                    const unsigned long long x = v[a];
                    v[a] = v[b];
                    v[b] = x;
                }
            }
        }
    __syncthreads();
}

/* The k-th largest group maximum (or less): at least k ids reach it.  0 where there are fewer than k groups. */
__device__ uint32_t threshold(sample_smem &sm, const float *group_max, int groups, int k)
{
    uint32_t t = 0;

    if (groups < k)
        return 0;
    for (int bit = 31; bit >= 0; bit--) {
        const uint32_t higher = t | 1u << bit;
        int n = 0;
        for (int i = threadIdx.x; i < groups; i += THREADS)
            n += key_of(group_max[i]) >= higher;
        n = block_count(sm, n);
        if (n >= k)
            t = higher;
        if (n == k)
            break;
    }
    return t;
}

/* Gathers the ids whose key is at least t.  false: there are more than SAMPLE_FAST. */
__device__ bool gather(sample_smem &sm, const view &w, const float *group_max, int groups, uint32_t t)
{
    const int lane = threadIdx.x % 32;

    if (threadIdx.x == 0)
        sm.n = 0;
    __syncthreads();
    for (int group = threadIdx.x / 32; group < groups; group += WARPS) {
        if (key_of(group_max[group]) < t)
            continue;
        for (int j = 0; j < SAMPLE_GROUP / 32; j++) {
            const int id = group * SAMPLE_GROUP + j * 32 + lane;
            const uint32_t k = id < w.vocab ? w.key(id) : 0;
            if (id < w.vocab && k >= t) {
                const int at = atomicAdd(&sm.n, 1);
                if (at < SAMPLE_FAST)
                    sm.candidate[at] = (unsigned long long)k << 32 | (0xffffffffu - (unsigned)id);
            }
        }
    }
    __syncthreads();
    return sm.n <= SAMPLE_FAST;
}

__device__ int padded(sample_smem &sm, int n)
{
    int p = 2;

    while (p < n)
        p *= 2;
    for (int i = n + threadIdx.x; i < p; i += THREADS)
        sm.candidate[i] = 0;
    return p;
}

/* The candidates are gathered: sorts them, keeps what top-k and top-p leave, draws.  Thread 0 leaves sm.token. */
__device__ void draw_among(sample_smem &sm, const view &w, int k, float top_p, double u, bool is_greedy,
                           float *distribution)
{
    sort_candidates(sm.candidate, padded(sm, sm.n));
    k = min(k, sm.n);
    if (is_greedy) {
        if (threadIdx.x == 0) {
            sm.token = (int)(0xffffffffu - (unsigned)sm.candidate[0]);
            if (distribution)
                distribution[sm.token] = 1;
        }
        return;
    }
    for (int i = threadIdx.x; i < k; i += THREADS)
        sm.weight[i] = w.weight((uint32_t)(sm.candidate[i] >> 32));
    __syncthreads();
    if (threadIdx.x == 0) {
        double all = 0, sum = 0;
        int used = k;
        if (top_p < 1.0f) {
            for (int i = 0; i < k; i++)
                all += sm.weight[i];
            for (int i = 0; i < k; i++)
                if ((sum += sm.weight[i]) >= top_p * all) {
                    used = i + 1;
                    break;
                }
        }
        sm.used = used;
    }
    __syncthreads();
    const int used = sm.used;
    unsigned long long by_id[SAMPLE_FAST / THREADS];
    for (int i = 0; i < SAMPLE_FAST / THREADS; i++)
        if (i * THREADS + threadIdx.x < used)
            by_id[i] = (sm.candidate[i * THREADS + threadIdx.x] << 32) | (i * THREADS + threadIdx.x);
    __syncthreads();
    for (int i = 0; i < SAMPLE_FAST / THREADS; i++)
        if (i * THREADS + threadIdx.x < used)
            sm.candidate[i * THREADS + threadIdx.x] = by_id[i];
    sort_candidates(sm.candidate, padded(sm, used)); /* the complement of the id falls: the id rises */
    if (threadIdx.x == 0) {
        double all = 0, sum = 0;
        for (int i = 0; i < used; i++)
            all += sm.weight[(unsigned)sm.candidate[i]];
        const double target = u * all;
        int last = 0;
        for (int i = 0; i < used; i++) {
            const float x = sm.weight[(unsigned)sm.candidate[i]];
            if (x > 0)
                last = i;
            if ((sum += x) > target)
                break;
        }
        sm.token = (int)(0xffffffffu - (unsigned)(sm.candidate[last] >> 32));
        if (distribution)
            for (int i = 0; i < used; i++)
                distribution[0xffffffffu - (unsigned)(sm.candidate[i] >> 32)] =
                    (float)(sm.weight[(unsigned)sm.candidate[i]] / all);
    }
}

/* --- any k, any top-p: searches over the whole vocabulary.  What is kept: every id whose key is above `edge`, and
 * the first `ties` ids (by id) whose key is it. --- */

__device__ int count_from(sample_smem &sm, const view &w, uint32_t least)
{
    int n = 0;

    for (int id = threadIdx.x; id < w.vocab; id += THREADS)
        n += w.key(id) >= least;
    return block_count(sm, n);
}

__device__ double mass_from(sample_smem &sm, const view &w, uint32_t least)
{
    double v = 0;

    for (int id = threadIdx.x; id < w.vocab; id += THREADS) {
        const uint32_t k = w.key(id);
        if (k >= least)
            v += w.weight(k);
    }
    return block_total(sm, v);
}

__device__ void draw_anywhere(sample_smem &sm, const view &w, int k, float top_p, double u, float *distribution)
{
    uint32_t edge = 0;
    int ties = 0;

    if (k < w.vocab) { /* the largest key that at least k ids reach */
        for (int bit = 31; bit >= 0; bit--)
            if (count_from(sm, w, edge | 1u << bit) >= k)
                edge |= 1u << bit;
        ties = k - count_from(sm, w, edge + 1);
    }
    if (top_p < 1.0f) {
        const double of_edge = edge ? w.weight(edge) : 0;
        const double target = top_p * (mass_from(sm, w, edge + 1) + ties * of_edge);
        uint32_t least = 0;
        for (int bit = 31; bit >= 0; bit--) {
            const uint32_t higher = least | 1u << bit;
            /* below the edge of top-k nothing is added: all of it is enough */
            if (higher <= edge || mass_from(sm, w, higher) >= target)
                least = higher;
        }
        const double above = mass_from(sm, w, least + 1), each = w.weight(least);
        const int there = least == edge ? ties : w.vocab;
        const double need = each > 0 ? ceil((target - above) / each) : 1;
        ties = need < 1 ? 1 : need < there ? (int)need : there;
        edge = least;
    }

    const int chunk = (w.vocab + THREADS - 1) / THREADS;
    const int begin = min(w.vocab, (int)threadIdx.x * chunk), end = min(w.vocab, begin + chunk);
    int equal = 0;
    for (int id = begin; id < end; id++)
        equal += w.key(id) == edge;
    __syncthreads();
    sm.ties[threadIdx.x] = equal;
    __syncthreads();
    int left = ties; /* ties that are kept from this thread's ids on */
    for (int i = 0; i < (int)threadIdx.x; i++)
        left -= sm.ties[i];
    double sum = 0;
    int some = -1; /* a kept id with weight */
    int may = left;
    for (int id = begin; id < end; id++) {
        const uint32_t x = w.key(id);
        if (x > edge || (x == edge && may-- > 0)) {
            const float p = w.weight(x);
            sum += p;
            some = p > 0 ? id : some;
        }
    }
    __syncthreads();
    sm.part[threadIdx.x] = sum;
    sm.ties[threadIdx.x] = some;
    __syncthreads();
    double all = 0, before = 0;
    for (int i = 0; i < THREADS; i++) {
        if (i == (int)threadIdx.x)
            before = all;
        all += sm.part[i];
    }
    const double target = u * all;
    if (threadIdx.x == 0) { /* where rounding leaves no thread with the target */
        sm.token = 0;
        for (int i = 0; i < THREADS; i++)
            if (sm.ties[i] >= 0)
                sm.token = sm.ties[i];
    }
    __syncthreads();
    if (before <= target && target < before + sum) {
        may = left;
        double at = before;
        for (int id = begin; id < end; id++) {
            const uint32_t x = w.key(id);
            if (x > edge || (x == edge && may-- > 0))
                if ((at += w.weight(x)) > target) {
                    sm.token = id;
                    break;
                }
        }
    }
    if (distribution) {
        may = left;
        for (int id = begin; id < end; id++) {
            const uint32_t x = w.key(id);
            if (x > edge || (x == edge && may-- > 0))
                distribution[id] = (float)(w.weight(x) / all);
        }
    }
    __syncthreads();
}

__global__ __launch_bounds__(THREADS) void sample_rows(const sample_job job, const row_table t, sampled *out)
{
    __shared__ sample_smem sm;
    const int place = blockIdx.x;
    const int groups = (job.vocab + SAMPLE_GROUP - 1) / SAMPLE_GROUP;

    grid_wait();
    grid_release();
    out += (size_t)*job.turn * job.stride;
    const int row = job.row[place];
    if (row < 0) {
        if (threadIdx.x == 0)
            out[place] = {-1, 0, END_NONE};
        return;
    }
    const row_state &state = t.state[row];
    const float *group_max = job.group_max + (size_t)place * groups;
    const float2 *group_sum = job.group_sum + (size_t)place * groups;
    const int pos = job.pos[place];

    float most = -CUDART_INF_F, most_penalized = -CUDART_INF_F;
    for (int i = threadIdx.x; i < groups; i += THREADS) {
        most = fmaxf(most, group_sum[i].x);
        most_penalized = fmaxf(most_penalized, group_max[i]);
    }
    most = block_most(sm, most);
    most_penalized = block_most(sm, most_penalized);
    double sum = 0;
    for (int i = threadIdx.x; i < groups; i += THREADS)
        sum += group_sum[i].y * expf(group_sum[i].x - most);
    sum = block_total(sm, sum);
    if (!isfinite(sum)) {
        if (threadIdx.x == 0) {
            t.state[row].ended = 1;
            out[place] = {0, 0, END_BAD};
        }
        return;
    }

    const bool is_greedy = state.temperature < GREEDY_UNDER;
    const int k = is_greedy ? 1 : state.top_k > 0 && state.top_k < job.vocab ? state.top_k : job.vocab;
    const view w = {job.logits + (size_t)place * job.ld,
                    t.seen + (size_t)row * t.words,
                    state.penalty,
                    most_penalized,
                    1.0f / state.temperature,
                    job.vocab};
    const double u = random_uniform(state.seed, (uint64_t)pos);
    float *distribution = place == 0 ? job.distribution : NULL;
    if ((k <= SAMPLE_FAST || job.vocab <= SAMPLE_FAST) &&
        gather(sm, w, group_max, groups, threshold(sm, group_max, groups, k)))
        draw_among(sm, w, k, state.top_p, u, is_greedy, distribution);
    else
        draw_anywhere(sm, w, k, state.top_p, u, distribution);

    if (threadIdx.x == 0) {
        const int token = sm.token;
        int end = pos + 1 >= state.max_length ? END_LENGTH : END_NONE;
        for (int i = 0; i < state.n_eos; i++)
            if (state.eos[i] == token)
                end = END_EOS;
        out[place] = {token, w.logits[token] - most - logf((float)sum), end};
        atomicOr(&t.seen[(size_t)row * t.words + token / 32], 1u << (token % 32));
        t.state[row].last = token;
        t.state[row].pos = pos;
        t.state[row].ended = end != END_NONE;
    }
}

enum err_code sample(const struct sample_job *job, const struct row_table *t, int places, struct sampled *out,
                     const struct gpu *g, struct err *e)
{
    const int groups = (job->vocab + SAMPLE_GROUP - 1) / SAMPLE_GROUP, per_block = WARPS * GROUPS_PER_WARP;
    enum err_code rc = launch(g, "sample_groups", sample_groups, dim3((groups + per_block - 1) / per_block, places),
                              THREADS, 0, true, e, *job, *t);

    return rc != ERR_OK ? rc : launch(g, "sample_rows", sample_rows, dim3(places), THREADS, 0, true, e, *job, *t, out);
}
