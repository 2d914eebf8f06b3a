/* consumer.h -- reads jobs from the request topic and commits what is finished.
 *
 *   partition queues --intake, while there is room--> records queue (to the batcher)
 *   consumer_finish() from the publisher --> ledgers --> commit of the contiguous frontier
 *
 * Records come in a queue of their own (intake.h), which is simply left unread when the window is full: no pause, no
 * resume.  The consumer queue is polled all the while, so a slow GPU never costs the membership.
 * Revoke: reading stops, what is in flight may finish for revoke_timeout_ms, the frontier is committed, then it is
 * given back; late results are dropped and counted.  Loss: dropped at once, nothing committed.
 * A commit carries a note of what is finished ahead of the frontier (commit_note.h), so that the next owner, or we after
 * a kill, repeat only what was in flight.  A partition whose offset the group does not tell yet is not read before.
 * A log that is cut (retention, DeleteRecords) before it was read: reading goes on at its new start, the offsets that
 * were passed over are counted, and what was read before stays in flight.
 * The note says too that records are in work; it does so before the first one is handed on (caution.h).
 * Mode exactly_once: nothing is committed here; the publisher of transactions asks for the offsets (handover.h).
 * Thread: the consumer's, except where "any thread" is said. */
#ifndef KAFKA_CONSUMER_H
#define KAFKA_CONSUMER_H

#include "base/err.h"
#include "base/queue.h"
#include "config/config.h"
#include "wire/record.h"

#include <stdbool.h>
#include <stdint.h>

struct consumer;
struct handover;

struct consumer_stats {
    int partitions;        /* assigned now */
    int lost_offsets;      /* of those: they wait, their offset is not in the log */
    int64_t offset_resets; /* partitions that were begun elsewhere than at a committed offset */
    int64_t in_flight_jobs, in_flight_bytes,
        lag;                        /* lag: records behind the end, over the assigned partitions; -1 = unknown */
    int64_t skipped, notes_ignored; /* finished according to the committed note; notes that were not understood */
    int64_t deaths_found;           /* partitions with a note of an owner that died at work */
    int64_t cut;                    /* offsets that left the log before they were read */
    int64_t records, commits, commit_errors, rebalances, late_results, lost_partitions;
    int64_t last_turn_ns; /* monotonic, of the last consumer_turn(): the watchdog's */
    int64_t last_record_ns;
    bool joined; /* in the group with an assignment (maybe an empty one) */
    bool broker_up;
};

struct consumer_partition {
    int32_t partition;
    int64_t committed, position, end; /* -1 = unknown */
    int64_t in_flight;
};

/* Creates and subscribes; a broker that is not there is no error (it is logged once a few seconds and waited for).
 * records: capacity >= delivery.max_in_flight_jobs; the consumer pushes struct record *.
 * bootstrap: overrides k->bootstrap_servers when not NULL (the embedded cluster's). */
MUST_CHECK enum err_code consumer_open(struct consumer **out, const struct kafka_config *k, const char *bootstrap,
                                       const struct delivery_config *d, struct queue *records, struct err *e);

/* Before the first turn: a record that ended its worker max_crashes times, alone in work, is handed on with record.crashes
 * set, to be set aside (caution.h).  0, or never called: nothing is noted and nothing looked for.  at_once: how many jobs
 * the engine holds at once, so many may be the one that ended a worker. */
void consumer_watch_crashes(struct consumer *c, int max_crashes, int at_once);

/* One turn: serves the group, the finished jobs, commits that are due, and reads while there is room; waits at most
 * timeout_ms for something to do.  An error is act ERR_STOP (unknown topic, authorization, fenced, an
 * offset that is not in the log: lost_offset.h). */
MUST_CHECK enum err_code consumer_turn(struct consumer *c, int timeout_ms, struct err *e);

/* No record is read from now on; turns go on with acks and commits. */
void consumer_stop_intake(struct consumer *c);
/* Any thread: nothing more will be finished (the worker ends); a revocation that waits for it waits no longer. */
void consumer_abandon(struct consumer *c);
/* Any thread: an end in order.  Nothing is read or in work any more, and the next commit says so; without this call the
 * next owners take us for one that died at work. */
void consumer_rest(struct consumer *c);
bool consumer_is_at_rest(const struct consumer *c); /* any thread */
/* For the publisher of transactions; lives as long as the consumer. */
struct handover *consumer_handover(struct consumer *c);
int64_t consumer_in_flight(const struct consumer *c); /* any thread */

/* Commits the frontier, leaves the group.  Bounded by timeout_ms; a close that hangs is abandoned and logged. */
void consumer_close(struct consumer *c, int timeout_ms); /* NULL is fine */

/* Any thread: the result or dead letter of this record is acknowledged by the broker. */
void consumer_finish(struct consumer *c, const struct source *at);
/* Any thread: does the record still belong to us?  false = its assignment is over; drop the result, then release. */
bool consumer_owns(const struct consumer *c, const struct source *at);
/* Any thread: gives the memory of a record back.  Every record is released once, finished or not. */
void consumer_release(struct consumer *c, struct record *r);
/* Any thread: drops a record whose assignment is over, and counts it as late. */
void consumer_drop_late(struct consumer *c, const struct source *at);

void consumer_get_stats(const struct consumer *c, struct consumer_stats *s); /* any thread */
/* Any thread; writes at most cap, returns how many there are. */
int consumer_get_partitions(const struct consumer *c, struct consumer_partition *out, int cap);

#endif
