/* ledger.h -- what was taken from one partition in one assignment, and how far it may be committed.
 *
 *   take(offset) -> in flight -> finish(offset) -> done;   frontier = first offset not finished
 *
 * Offsets are taken in increasing order with gaps (transaction markers, compaction); jobs finish in any order.
 * Thread: the consumer's alone.  Pure bookkeeping: knows nothing of librdkafka.
 * Limits: at most window offsets taken from the first unfinished one on; ledger_room() says how many more.
 * Cost: take and finish are O(1) without gaps, O(log window) to find an offset among gaps. */
#ifndef KAFKA_LEDGER_H
#define KAFKA_LEDGER_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct ledger;

MUST_CHECK enum err_code ledger_open(struct ledger **out, size_t window, struct err *e);
void ledger_close(struct ledger *l);

size_t ledger_room(const struct ledger *l);
/* ERR_BUSY: full.  ERR_KAFKA, act ERR_SKIP: the offset is not above what was taken or reached; nothing changed. */
MUST_CHECK enum err_code ledger_take(struct ledger *l, int64_t offset, struct err *e);
/* ERR_OK, or ERR_BUSY for an offset that was never taken or is finished already (act ERR_SKIP: count it). */
MUST_CHECK enum err_code ledger_finish(struct ledger *l, int64_t offset, struct err *e);

/* The partition was read up to offset (its end) and nothing more lies below: once all that was taken is finished, the
 * frontier moves there, over transaction markers and compacted records that never come as records. */
void ledger_reach(struct ledger *l, int64_t offset);

/* The offset to commit (last of the finished run + 1), or -1 when nothing was finished yet. Never goes back. */
int64_t ledger_frontier(const struct ledger *l);
size_t ledger_in_flight(const struct ledger *l); /* taken, not finished */
int64_t ledger_oldest(const struct ledger *l);   /* first offset not finished, or -1 */

#endif
