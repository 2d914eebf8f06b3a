/* record_pool.h -- the memory of records on their way through the worker: a fixed number of slots, one a record.
 * Owns:   a copy of key, value and headers of each record.  A copy, because a message of the library keeps the whole
 *         fetched and unpacked batch alive that it came in, however few bytes it has.
 * Thread: take and has_room by one (the reader of the partition), release by any.
 * Limits: the number of slots is fixed; a small record lies in its slot, a buffer beside it grows to the largest record
 *         and only small ones are kept, so bytes() plus slots * KEEP bounds the memory.  The caller stops at its own
 *         byte limit before it takes. */
#ifndef KAFKA_RECORD_POOL_H
#define KAFKA_RECORD_POOL_H

#include "base/err.h"
#include "wire/record.h"

#include <librdkafka/rdkafka.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct record_pool;

MUST_CHECK enum err_code record_pool_open(struct record_pool **out, size_t slots, struct err *e);
/* With records still out the memory stays, and false is returned. */
bool record_pool_close(struct record_pool *rp);

/* Copies *m; at and topic are kept as given.  NULL without a free slot or memory. */
struct record *record_pool_take(struct record_pool *rp, const rd_kafka_message_t *m, const struct source *at,
                                const char *topic);
void record_pool_release(struct record_pool *rp, struct record *r);

/* Fewer than so many are out, of fewer bytes.  Looks at what was released only where it has to. */
bool record_pool_has_room(struct record_pool *rp, int64_t records, int64_t bytes);
int64_t record_pool_records(const struct record_pool *rp); /* out now; any thread */
int64_t record_pool_bytes(const struct record_pool *rp);

#endif
