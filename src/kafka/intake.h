/* intake.h -- the way of records from the library: every partition's queue leads to one, which is read while there is
 * room.
 *
 *   partition queues --> record queue --intake_next()--> the consumer
 *                             |                            ^
 *                             +--does not fit its ledger: put off, the partition paused--+
 *                             +--may not be in work yet: it waits, and all behind it-----+
 *
 * One queue, so that what the library fetches ahead is bounded whatever the number of partitions; it is not the
 * consumer's own, which has to be served all the while.  A partition whose ledger is full (a job far behind the others)
 * or whose committed offset is not known must not hold up the rest: one record of it is put off, and the library keeps
 * the others on the brokers until half of the ledger is free.
 * Thread: the consumer's alone. */
#ifndef KAFKA_INTAKE_H
#define KAFKA_INTAKE_H

#include "base/err.h"
#include "kafka/assignment.h"

#include <librdkafka/rdkafka.h>
#include <stddef.h>
#include <stdint.h>

struct intake;

/* What the owner says of a record that fits: it is taken; it waits at the head of the queue until it is asked about
 * again, as long as the owner wants to read; or it is put off like one that does not fit. */
enum intake_verdict { INTAKE_TAKE, INTAKE_WAIT, INTAKE_LATER };
typedef enum intake_verdict intake_admit(void *ctx, struct partition *p, int64_t offset);

/* ledger_window: of each partition in mine.  admit is not asked about what an earlier owner has finished. */
MUST_CHECK enum err_code intake_open(struct intake **out, rd_kafka_t *rk, const char *topic, struct assignment *mine,
                                     size_t ledger_window, intake_admit *admit, void *ctx, struct err *e);
/* Before the handle is destroyed. */
void intake_close(struct intake *in);
rd_kafka_queue_t *intake_queue(const struct intake *in); /* for its events */

/* To assignment_add() and assignment_drop(), and the queue with it; no pause outlives its assignment. */
MUST_CHECK enum err_code intake_take(struct intake *in, int32_t id, struct err *e);
void intake_drop(struct intake *in, int32_t id);
/* The library is about to begin at the partition's position once more. */
void intake_again(struct intake *in, struct partition *p);

/* The next message of *p, which is the caller's to destroy, or NULL: nothing is there.  A record can be taken. */
rd_kafka_message_t *intake_next(struct intake *in, struct partition **p);

/* In each turn.  Before 2.3 the library fetches nothing for a second once its queue was full, however fast it empties,
 * unless a broker's thread has something else to do: so where the queue runs dry with more in the log, the brokers are
 * asked a question.  Blocks for a round trip then, ten times a second at most. */
void intake_keep_fetching(struct intake *in);

#endif
