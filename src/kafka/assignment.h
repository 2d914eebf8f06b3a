/* assignment.h -- the partitions that are ours now: a ledger each, and a number that is new for every assignment.
 *
 *   assignment_add() at assign --> partition, read and finished by the consumer --> assignment_drop() at revoke or loss
 *
 * Thread: the consumer's, except assignment_owns() (lock-free) and assignment_list() (takes the lock that add and drop
 * take, never held across I/O).
 * Limits: partition ids below ASSIGNMENT_PARTITIONS; the tables have their final size from the start. */
#ifndef KAFKA_ASSIGNMENT_H
#define KAFKA_ASSIGNMENT_H

#include "base/err.h"
#include "kafka/caution.h"
#include "kafka/consumer.h"
#include "kafka/ledger.h"
#include "wire/record.h"

#include <librdkafka/rdkafka.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ASSIGNMENT_PARTITIONS = 65536 };

/* The atomics are written by the consumer and read by assignment_list(). */
struct partition {
    int32_t id;
    uint32_t assignment;
    rd_kafka_queue_t *queue; /* its records; leads to the queue of all */
    struct ledger *ledger;
    struct caution caution;
    bool known;                  /* the group's offset and note were read: not read from before */
    bool heard;                  /* something came from its queue */
    bool revoked;                /* on its way out: not read any more */
    rd_kafka_message_t *put_off; /* read, and not taken before its ledger has room and it may be in work; or NULL */
    bool paused;                 /* in the library, behind put_off */
    int64_t lost_ns, lost_ask_ns, past_end_ns; /* lost_offset.h; monotonic, 0 = not */
    bool gone;                                 /* the group has lost its offset: the topic is another one, confirm.h */
    bool ask_group;                            /* it begins where the group is, with a new ledger */
    int64_t least_end, start;                  /* start: where it begins again, -1 = not decided */
    int64_t begun;                             /* where a rule began it, whatever the group has stored; -1 = none did */
    uint64_t sent, saved;      /* ledger_changes() in the newest commit, and in the last that was acknowledged */
    _Atomic int64_t committed; /* what the group has stored, -1 = nothing or unknown */
    _Atomic int64_t frontier;  /* ledger_frontier() */
    _Atomic int64_t position;  /* next offset to read, -1 = nothing read yet */
    _Atomic int64_t low, end;  /* watermarks, -1 = unknown */
    _Atomic int64_t in_flight;
};

struct assignment;

MUST_CHECK enum err_code assignment_open(struct assignment **out, size_t ledger_window, struct err *e);
void assignment_close(struct assignment *a); /* drops what is left */

/* A fresh ledger and number; takes queue.  On failure the queue is destroyed. */
MUST_CHECK enum err_code assignment_add(struct assignment *a, int32_t id, rd_kafka_queue_t *queue, struct err *e);
/* From here on its results are late. */
void assignment_drop(struct assignment *a, int32_t id);

struct partition *assignment_find(struct assignment *a, int32_t id); /* NULL = not ours */
int assignment_count(const struct assignment *a);
struct partition *assignment_at(struct assignment *a, int i);
uint32_t assignment_newest(const struct assignment *a); /* the highest number given so far */

bool assignment_owns(const struct assignment *a, const struct source *at);
int assignment_list(struct assignment *a, struct consumer_partition *out, int cap, int64_t *lag);

#endif
