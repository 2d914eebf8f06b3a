#include "cuda/rows.h"

#include "cuda/launch.cuh"

__global__ void rows_join_kernel(const row_table t, const row_order *orders, const int *buffer)
{
    const row_order &o = orders[blockIdx.x];
    unsigned *seen = t.seen + (size_t)o.row * t.words;

    grid_wait();
    grid_release();
    if (threadIdx.x == 0)
        t.state[o.row] = o.state;
    for (int i = threadIdx.x; i < o.n_blocks; i += blockDim.x)
        t.tables[(size_t)o.row * t.max_blocks + i] = buffer[o.blocks + i];
    for (int i = threadIdx.x; i < t.words; i += blockDim.x)
        seen[i] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < o.n_tokens; i += blockDim.x) {
        const int token = buffer[o.tokens + i];
        t.tokens[(size_t)o.row * t.max_positions + i] = token;
        atomicOr(&seen[token / 32], 1u << (token % 32));
    }
}

enum err_code rows_join(const struct row_table *t, const struct row_order *orders, int n, const int *buffer,
                        const struct gpu *g, struct err *e)
{
    return launch(g, "rows_join", rows_join_kernel, dim3(n), 256, 0, true, e, *t, orders, buffer);
}

__global__ __launch_bounds__(1024) void rows_begin_kernel(const row_table t, const step_lists l, const step_orders o,
                                                          const int *buffer)
{
    grid_wait();
    grid_release();
    if (blockIdx.x > 0) { /* a block a prompt */
        const int *feed = buffer + o.feeds + (blockIdx.x - 1) * 4;
        const int row = feed[0], first = feed[1], count = feed[2], slot = feed[3];
        for (int i = threadIdx.x; i < count; i += blockDim.x) {
            l.feed_token[slot + i] = t.tokens[(size_t)row * t.max_positions + first + i];
            l.feed_row[slot + i] = row;
            l.feed_pos[slot + i] = first + i;
        }
        if (threadIdx.x == 0)
            t.state[row].pos = first + count;
        return;
    }
    if (threadIdx.x == 0)
        *l.turn = o.turn;
    for (int i = threadIdx.x; i < o.n_grow; i += blockDim.x) {
        const int *g = buffer + o.grow + i * 3;
        t.tables[(size_t)g[0] * t.max_blocks + g[1]] = g[2];
    }
    for (int i = threadIdx.x; i < o.slots; i += blockDim.x) {
        int row = i < o.n_decode ? buffer[o.decode + i] : -1;
        if (row >= 0 && t.state[row].ended)
            row = -1;
        l.row[i] = l.sample_row[i] = row;
        l.token[i] = row >= 0 ? t.state[row].last : -1;
        l.pos[i] = row >= 0 ? t.state[row].pos : 0;
        l.sample_pos[i] = l.pos[i] + 1;
    }
    for (int i = threadIdx.x; i < o.n_tiles * 4; i += blockDim.x)
        ((int *)l.tiles)[i] = buffer[o.tiles + i];
    for (int i = threadIdx.x; i < o.n_picks; i += blockDim.x) {
        const int *pick = buffer + o.picks + i * 3;
        l.pick[i] = pick[0];
        l.sample_row[o.slots + i] = pick[1];
        l.sample_pos[o.slots + i] = pick[2];
    }
}

enum err_code rows_begin(const struct row_table *t, const struct step_lists *l, const struct step_orders *o,
                         const int *buffer, const struct gpu *g, struct err *e)
{
    return launch(g, "rows_begin", rows_begin_kernel, dim3(1 + o->n_feeds), 1024, 0, true, e, *t, *l, *o, buffer);
}

__global__ void copy_blocks_kernel(bf16 *kv, size_t block_elems, size_t layer_elems, const int *pairs)
{
    bf16 *layer = kv + blockIdx.y * layer_elems;
    const uint4 *from = (const uint4 *)(layer + pairs[blockIdx.x * 2] * block_elems);
    uint4 *to = (uint4 *)(layer + pairs[blockIdx.x * 2 + 1] * block_elems);

    grid_wait();
    grid_release();
    for (size_t i = threadIdx.x; i < block_elems / 8; i += blockDim.x)
        to[i] = from[i];
}

enum err_code rows_copy_blocks(bf16 *kv, size_t block_elems, size_t layer_elems, int layers, const int *pairs, int n,
                               const struct gpu *g, struct err *e)
{
    return launch(g, "copy_blocks", copy_blocks_kernel, dim3(n, layers), 256, 0, true, e, kv, block_elems, layer_elems,
                  pairs);
}
