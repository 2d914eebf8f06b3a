/* rows.h -- what the card knows of each row, and the kernels that edit it.
 *
 *   join --> [fed: pos grows by the tokens of each step] --> [decoding: pos grows by one] --> ended --> (next join)
 *
 * The host writes a step's orders into one buffer, which is copied to the card as a whole; rows_begin() is the step's
 * first kernel and turns them into lists of tokens.  Only the sampler changes a row after that.
 * Units: positions and lengths in tokens. */
#ifndef CUDA_ROWS_H
#define CUDA_ROWS_H

#ifdef __cplusplus
extern "C" {
#endif

#include "cuda/attention.h"
#include "cuda/gpu.h"

enum { ROW_MAX_EOS = 8 };

struct row_state {
    int pos;  /* positions that are in the cache */
    int last; /* token that comes next, once the prompt is fed */
    int ended;
    int max_length;
    float temperature, top_p, penalty;
    int top_k;
    unsigned long long seed;
    int eos[ROW_MAX_EOS];
    int n_eos;
};

/* All rows of the card. */
struct row_table {
    struct row_state *state;
    int *tables;    /* [rows, max_blocks] */
    int *tokens;    /* [rows, max_positions] the prompt */
    unsigned *seen; /* [rows, words] a bit for every id of prompt and output */
    int rows, max_blocks, max_positions, words;
};

/* A join; its tokens and blocks lie at these indices of the step's order buffer. */
struct row_order {
    int row, n_tokens, n_blocks;
    int tokens, blocks;
    struct row_state state;
};
MUST_CHECK enum err_code rows_join(const struct row_table *t, const struct row_order *orders, int n, const int *buffer,
                                   const struct gpu *g, struct err *e);

/* One step's orders.  Counts, then arrays inside the step's order buffer (indices into it, in ints). */
struct step_orders {
    int n_decode; /* rows that decode */
    int slots;    /* n_decode, or the bucket of a graph: the rest is filled with -1 */
    int n_feeds;  /* prompts: (row, first position, count, first slot) each */
    int n_tiles;
    int n_picks; /* prompts that end here: (slot of the last token, row, position of the new token) each */
    int n_grow;  /* (row, index, block) each */
    int turn;    /* which of the answer buffers the step's tokens go to */
    int decode, feeds, tiles, picks, grow;
};

/* What the step's kernels read; [..] are capacities. */
struct step_lists {
    int *token, *row, *pos;                /* decode slots [rows] */
    int *feed_token, *feed_row, *feed_pos; /* prompt slots [step tokens] */
    struct query_tile *tiles;              /* [..] */
    int *pick;                             /* [rows] slot of a prompt's last token */
    int *turn;                             /* [1] */
    int *sample_row, *sample_pos; /* [rows] by place among the logits: row (-1 none), position of the new token */
};
MUST_CHECK enum err_code rows_begin(const struct row_table *t, const struct step_lists *l, const struct step_orders *o,
                                    const int *buffer, const struct gpu *g, struct err *e);

/* Copies whole blocks, all layers; pairs (source, destination), in device memory or pinned. */
MUST_CHECK enum err_code rows_copy_blocks(bf16 *kv, size_t block_elems, size_t layer_elems, int layers,
                                          const int *pairs, int n, const struct gpu *g, struct err *e);

#ifdef __cplusplus
}
#endif
#endif
