/* offsets.h -- what the group has stored for our partitions, each offset with its note: read when they are assigned,
 * made for commits and transactions.
 * Thread: the consumer's alone.
 * Memory: a list and its notes are allocated for each commit, and freed with it; at most 4 KiB a partition.
 * Errors: a note of another program, of a newer version or a damaged one is left aside with a warning: at worst jobs
 *         are repeated, never skipped. */
#ifndef KAFKA_OFFSETS_H
#define KAFKA_OFFSETS_H

#include "base/err.h"
#include "kafka/assignment.h"

#include <librdkafka/rdkafka.h>
#include <stdbool.h>
#include <stdint.h>

struct offsets;

MUST_CHECK enum err_code offsets_open(struct offsets **out, const char *topic, struct err *e);
void offsets_close(struct offsets *o);
/* From now on notes are read and written with what they say of deaths, by this rule. */
void offsets_set_caution(struct offsets *o, const struct caution_rule *r);
/* The rule; its max_crashes is 0 where notes are left out. */
const struct caution_rule *offsets_caution(const struct offsets *o);

/* Asks the group about the partitions that are not known yet and seeds their ledgers; tries again until timeout_ms.
 * false: some are still not known (the coordinator is away, or a transaction of their last owner is open).  An error
 * is act ERR_STOP. */
bool offsets_read(struct offsets *o, rd_kafka_t *rk, struct assignment *mine, int timeout_ms, struct err *e);

/* Would a commit say anything new?  Not while the log does not hold our offset: it may be another one. */
bool offsets_has_news(const struct partition *p);
bool offsets_have_news(struct assignment *mine);
/* Offsets and notes of the partitions with news; what is held counts as finished.  NULL: no news. */
rd_kafka_topic_partition_list_t *offsets_make(struct offsets *o, struct assignment *mine);
/* This group's broker takes shorter metadata than Kafka's default: from now on offsets go without notes.  At least once
 * still holds, and a restart repeats more. */
void offsets_leave_notes_out(struct offsets *o);
/* That list is with the group now, the partitions of assignments after newest excepted. */
void offsets_stored(struct assignment *mine, const rd_kafka_topic_partition_list_t *list, uint32_t newest);

/* For transactions whose outcome nobody knows: is the record below the group's offset, or in its note?  One question
 * for all; verdicts[i] is set for each source.  ERR_KAFKA, act ERR_RETRY: the group does not say. */
enum offsets_verdict { OFFSETS_OPEN, OFFSETS_COVERED, OFFSETS_GONE /* its assignment is over */ };
MUST_CHECK enum err_code offsets_judge(struct offsets *o, rd_kafka_t *rk, struct assignment *mine,
                                       const struct source *sources, size_t n, enum offsets_verdict *verdicts,
                                       int timeout_ms, struct err *e);

int64_t offsets_notes_ignored(const struct offsets *o); /* any thread */
int64_t offsets_deaths_found(const struct offsets *o);  /* any thread: partitions whose owner had died */

#endif
