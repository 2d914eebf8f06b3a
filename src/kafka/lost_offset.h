/* lost_offset.h -- partitions that the library cannot read on: they have no offset, or one that is not in the log.
 *
 *   read --lost_offset_note(): the library says so--> lost --lost_offset_serve()--> p->start: where it begins again
 *                                                       |                             (the consumer assigns it there)
 *                                                       +--> an error, act ERR_STOP
 *
 *   the group lost it (confirm.h) where the group is, so as kafka.offset_reset says: the topic is another one
 *   no offset                     as kafka.offset_reset says
 *   before the start of the log   deleted by retention: from the first record left; stops under offset_reset "error"
 *   after its end                 the end may come back once an election is over: waits offset_wait_ms for it, then as
 *                                 kafka.offset_past_end says; as long as it is lost nothing is committed
 *   after an end that came back   where the group is, as after a restart: a topic that was made anew has no offsets of a
 *                                 group, and may have grown past ours while we waited
 *
 * The library itself never decides (auto.offset.reset is always "error").
 * Thread: the consumer's alone.  Blocks for at most twice ASK_MS, once a second while something is lost. */
#ifndef KAFKA_LOST_OFFSET_H
#define KAFKA_LOST_OFFSET_H

#include "base/err.h"
#include "config/config.h"
#include "kafka/assignment.h"

#include <librdkafka/rdkafka.h>
#include <stdbool.h>
#include <stdint.h>

/* From now on p is lost, until the consumer begins it again at p->start. */
void lost_offset_note(struct partition *p);
int lost_offset_count(struct assignment *mine);

bool lost_offset_is_due(struct assignment *mine); /* there is something to decide now */
/* Decides for those that are due and whose log can be asked about; true: some p->start is set.  An error is act
 * ERR_STOP. */
bool lost_offset_serve(rd_kafka_t *rk, const struct kafka_config *k, struct assignment *mine, struct err *e);

/* What the next record's offset has to be for p, -1 = it has none. */
int64_t lost_offset_wanted(const struct partition *p);
/* How many offsets left the log before they were read, once p->start is set. */
int64_t lost_offset_cut(const struct partition *p);
/* Where a partition without an offset begins, as kafka.offset_reset says: one of the library's names, or
 * RD_KAFKA_OFFSET_INVALID under "error". */
int64_t lost_offset_first(const struct kafka_config *k);
/* The error of that "error". */
enum err_code lost_offset_none(const struct kafka_config *k, const struct partition *p, struct err *e);

#endif
