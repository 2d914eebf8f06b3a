/* layout.cuh -- how weights, activations and the KV cache lie in memory, so that every load is long and straight.
 *
 * Packed weights [m, k]: tiles of 128 rows x 64 columns, 16 KiB each, tile (mt, kb) at kb * m_tiles + mt:
 *   blocks that run together read memory side by side.  Within a
 *   tile a row is 128 bytes, and its eight 16-byte chunks are permuted by the row's last three bits: what the tensor
 *   cores' 128-byte swizzle expects, and free of bank conflicts for ldmatrix.  Padding is zero.
 * Packed activations [rows, k]: per block of 64 columns all rows, 128 bytes a row, the same permutation.  Eight rows are
 *   a unit: any run of rows that starts at a multiple of eight can be copied to shared memory as it is.
 * KV cache: per layer, block and kv head, sub-blocks of 16 positions: K [16, d], then V [16, d], 16-byte chunks permuted by
 *   the position's last three bits: 4 d bytes a position, copied to shared memory as they are. */
#ifndef CUDA_LAYOUT_CUH
#define CUDA_LAYOUT_CUH

#include <cuda_bf16.h>
#include <stdint.h>

#define TILE_M     128
#define TILE_K     64
#define TILE_ELEMS (TILE_M * TILE_K)
#define SUB_TOKENS 16
#define SUB_SHIFT  4

__host__ __device__ static inline size_t weight_at(int64_t row, int col, int m_tiles)
{
    size_t tile = (size_t)(col / TILE_K) * m_tiles + row / TILE_M;
    int r = (int)(row % TILE_M), chunk = (col % TILE_K) / 8;

    return tile * TILE_ELEMS + r * TILE_K + ((chunk ^ (r & 7)) * 8) + col % 8;
}

/* cap: rows the buffer has room for */
__host__ __device__ static inline size_t act_at(int row, int col, int cap)
{
    return ((size_t)(col / TILE_K) * cap + row) * TILE_K + (((col % TILE_K) / 8 ^ (row & 7)) * 8) + col % 8;
}

/* Element (t, i) of a sub-block's K, t < 16, i < d; its V follows at 16 * d, in the same order. */
__host__ __device__ static inline int kv_element(int t, int i, int d)
{
    return t * d + ((i / 8 ^ (t & 7)) * 8) + i % 8;
}

#endif
