/* prefix.h -- which KV block holds which tokens after which: the prefix index.
 *
 * A forest of full blocks.  A node is a block; its key is (weights key, parent block, its block_tokens ids), found by
 * a hash chained over the parent's, and compared in full on a hit: a collision costs time, never a wrong answer.
 * Owns:   the nodes, at most one a block, so the index is bounded by the pool.
 * Needs:  a node's parent stays in the index as long as the node does.  The engine sees to it: rows hold whole chains
 *         and drop them deepest first, so the least recently used idle block is always a leaf.
 * Thread: one.  Nothing allocates after open. */
#ifndef ENGINE_PREFIX_H
#define ENGINE_PREFIX_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct prefix;

struct prefix_hit {
    int n_blocks;  /* full blocks found */
    int32_t block; /* a child of the last one (a root if none), whose first n_tokens are the next ones; -1 = none */
    int n_tokens;  /* 0 to block_tokens - 1 unless the caller's limit ends inside an equal block */
};

MUST_CHECK enum err_code prefix_open(struct prefix **out, int blocks, int block_tokens, struct err *e);
void prefix_close(struct prefix *x); /* NULL is fine */

/* The longest chain that holds the beginning of tokens[0..n), its blocks in blocks[0..hit.n_blocks), and the child that
 * shares most of what follows among the PREFIX_SIBLINGS youngest children. */
enum { PREFIX_SIBLINGS = 128 };
struct prefix_hit prefix_find(const struct prefix *x, uint64_t key, const int32_t *tokens, int n, int32_t *blocks);

/* Adds block under parent (-1: a root).  false: those tokens are there already, in another block. */
bool prefix_add(struct prefix *x, uint64_t key, int32_t parent, const int32_t *tokens, int32_t block);
void prefix_remove(struct prefix *x, int32_t block); /* a leaf */
void prefix_clear(struct prefix *x);

#endif
