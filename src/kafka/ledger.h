/* ledger.h -- what was taken from one partition in one assignment, and how far it may be committed.
 *
 *   take(offset) -> in flight -> finish(offset) -> finished;   frontier = first offset not finished
 *                      ^  |                            ^
 *                      |  +-hold(offset)-> held -------+       held: in a transaction that is about to commit
 *                      +---unhold_all()------+
 *
 * What an earlier owner of the partition finished ahead of the frontier comes as a seed (the note of the committed
 * offset): ledger_is_seeded() tells of each offset as it is read, and what was not read yet stays in our own notes.
 * Offsets are taken in increasing order with gaps (transaction markers, compaction); jobs finish in any order.
 * Thread: the consumer's alone.  Pure bookkeeping: knows nothing of librdkafka.
 * Limits: at most window offsets taken from the first unfinished one on; ledger_room() says how many more, and
 *         ledger_fits() whether an offset can be taken so that every note of it still fits its 4,096 bytes.
 * Cost: take and finish are O(1) without gaps, O(log window) to find an offset among gaps. */
#ifndef KAFKA_LEDGER_H
#define KAFKA_LEDGER_H

#include "base/err.h"
#include "kafka/commit_note.h"

#include <stdbool.h>
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

/* committed: where the group is; n: its note, or NULL.  Before anything is taken. */
MUST_CHECK enum err_code ledger_seed(struct ledger *l, int64_t committed, const struct commit_note *n, struct err *e);
/* Nothing is committed, and the log is read from offset on: that is the frontier.  Else, or later, it changes nothing. */
void ledger_begin(struct ledger *l, int64_t offset);
/* Finished by an earlier owner?  Ask in the order of reading. */
bool ledger_is_seeded(struct ledger *l, int64_t offset);
/* May this offset be taken now?  Always, once nothing is in flight. */
bool ledger_fits(const struct ledger *l, int64_t offset);

/* ERR_BUSY (act ERR_SKIP): not in flight. */
MUST_CHECK enum err_code ledger_hold(struct ledger *l, int64_t offset, struct err *e);
void ledger_unhold_all(struct ledger *l);

/* The offset to commit (last of the finished run + 1), or -1 when nothing was finished yet. Never goes back. */
int64_t ledger_frontier(const struct ledger *l);
/* What a commit says: its offset, and in *n the runs finished ahead of it; what is held counts as finished.  -1: there
 * is nothing to commit.  The note's crash fields are left alone. */
int64_t ledger_note(const struct ledger *l, struct commit_note *n);
/* Grows with everything that changes the answer of ledger_note(), held offsets counted as finished. */
uint64_t ledger_changes(const struct ledger *l);
size_t ledger_in_flight(const struct ledger *l); /* taken, not finished */
int64_t ledger_oldest(const struct ledger *l);   /* first offset not finished, or -1 */

#endif
