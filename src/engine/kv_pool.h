/* kv_pool.h -- the KV blocks of a device, counted.
 *
 *            take                drop (last, not kept)
 *   free -----------> held  ----------------------------> free
 *                     ^  |  drop (last, kept)
 *                hold |  v
 *                     idle  ----- forget ---------------> free
 *
 * Owns:   who-holds-what of the blocks 0..n-1: a count of rows that hold each, and whether the prefix index keeps
 *         it.  What lies in a block is the device's, what it means is the prefix index's.
 * Idle:   kept and held by no row.  Idle blocks form a list by the time of their last use.
 * Thread: one.  Every call is O(1) and allocates nothing after open. */
#ifndef ENGINE_KV_POOL_H
#define ENGINE_KV_POOL_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct kv_pool;

MUST_CHECK enum err_code kv_pool_open(struct kv_pool **out, int blocks, struct err *e);
void kv_pool_close(struct kv_pool *p); /* NULL is fine */

/* A free block, held once; -1 when none is free (an idle one may still be given up with kv_pool_forget()). */
int32_t kv_pool_take(struct kv_pool *p);
void kv_pool_hold(struct kv_pool *p, int32_t block); /* once more; the block is held or idle */
void kv_pool_drop(struct kv_pool *p, int32_t block); /* once less */

void kv_pool_keep(struct kv_pool *p, int32_t block);   /* a held block enters the prefix index */
void kv_pool_forget(struct kv_pool *p, int32_t block); /* it leaves the index */
bool kv_pool_is_kept(const struct kv_pool *p, int32_t block);
int32_t kv_pool_oldest_idle(const struct kv_pool *p); /* least recently used; -1 = none */

int kv_pool_holders(const struct kv_pool *p, int32_t block);
int kv_pool_size(const struct kv_pool *p);
int kv_pool_free_count(const struct kv_pool *p);
int kv_pool_idle_count(const struct kv_pool *p);

#endif
