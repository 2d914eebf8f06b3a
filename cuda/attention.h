/* attention.h -- from the q/k/v product to the attention's output: RoPE (rotate-half), then q/k norm, append to the
 * paged cache, softmax(q k^T / sqrt(d)) v over all positions up to the token's own.
 * Query head i uses kv head i / (heads / kv_heads).  Softmax and sums in f32; k, v, q and the probabilities are bf16.
 * A token's output depends on its own row alone: the split over warps is by position. */
#ifndef CUDA_ATTENTION_H
#define CUDA_ATTENTION_H

#ifdef __cplusplus
extern "C" {
#endif

#include "cuda/gpu.h"

struct attention {
    int heads, kv_heads, d;      /* d: 64 or 128 */
    int block_shift;             /* a block has 1 << block_shift positions, at least 16 */
    int max_blocks;              /* of a row: pitch of tables */
    const int *tables;           /* [rows of the card, max_blocks] block numbers */
    const float *rope;           /* [positions, d / 2] cos, sin */
    const bf16 *q_norm, *k_norm; /* [d]; NULL: no norm */
    float eps;
    bf16 *kv; /* this layer's cache */
};

/* Parts of the q/k/v product: [splits, cap, ld] f32, columns q heads | k heads | v heads. */
struct qkv_parts {
    const float *part;
    int splits, cap, ld;
};

/* Once per card, before anything is captured: shared memory limits. */
MUST_CHECK enum err_code attention_prepare(struct err *e);

/* Table of cos and sin, f32 [positions, d / 2, 2], angles in f64. */
MUST_CHECK enum err_code rope_table(float *rope, int positions, int d, double base, const struct gpu *g, struct err *e);

/* One new token a slot: slot i is row[i] at position pos[i]; row[i] < 0: nothing is done.  out packed [slots, heads*d] */
MUST_CHECK enum err_code attention_decode(const struct attention *a, const struct qkv_parts *p, const int *row,
                                          const int *pos, int slots, bf16 *out, int out_cap, const struct gpu *g,
                                          struct err *e);

/* Prompt tokens, from their q/k/v sums [tokens, ld] (bf16, columns as in qkv_parts): k and v go to the cache.  Nothing
 * may come between this and attention_prompt() of the same tokens, which reads the sums before this is done. */
MUST_CHECK enum err_code attention_append(const struct attention *a, const bf16 *sums, int ld, const int *row,
                                          const int *pos, int tokens, const struct gpu *g, struct err *e);

/* A tile: count tokens of one row, side by side: slots slot.., positions pos..  Tiles come in blocks of ATTENTION_TILES,
 * all of one row, positions rising; a block is filled up with tiles of count 0, whose pos is the row's last one.  Blocks are started in
 * their order: late positions, which have more to do, should come first. */
enum { ATTENTION_TILES = 4 };
struct query_tile {
    int slot, count, row, pos;
};
int attention_tile_tokens(const struct attention *a); /* most tokens of a tile */
MUST_CHECK enum err_code attention_prompt(const struct attention *a, const bf16 *sums, int ld,
                                          const struct query_tile *tiles, int n_tiles, bf16 *out, int out_cap,
                                          const struct gpu *g, struct err *e);

#ifdef __cplusplus
}
#endif
#endif
