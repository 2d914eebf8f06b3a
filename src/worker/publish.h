/* publish.h -- the fourth box: finished tasks to results and dead letters, each acknowledged before its offset is done.
 *
 *   finished --> written --> queued --send--> sent --acknowledged--> consumer_finish(), task back to the pool
 *                              ^  ^            |
 *                              |  +-delayed<---+ refused for now: a broker that is away, a topic that may not be written;
 *                              |  |              waited for however long, not ready meanwhile
 *                              +--rewritten<---+ too large: a result becomes a dead letter; a dead letter goes without
 *                                                its value, then without the carried headers (header
 *                                                translate-omitted says which; the bytes are in the source topic)
 *
 * Here the dead-letter window is kept: over its limits the worker stops before one more is sent.
 * At the end in order the notes of the committed offsets are told that nothing is in work.  Its last act is to set
 * is_done.
 * Thread: its own; the publisher's reports come on it. */
#ifndef WORKER_PUBLISH_H
#define WORKER_PUBLISH_H

#include "base/queue.h"
#include "config/config.h"
#include "kafka/consumer.h"
#include "kafka/publisher.h"
#include "worker/dead_window.h"
#include "worker/halt.h"
#include "worker/health.h"
#include "worker/key_order.h"
#include "worker/result.h"
#include "worker/shadow.h"
#include "worker/stats.h"
#include "worker/task.h"

#include <stdatomic.h>
#include <stdbool.h>

enum { PUBLISH_MANY = 32 }; /* tasks that are taken, or finished, together */

struct publish {
    /* filled by the owner, before it runs */
    const struct dead_letter_config *dead_letter;
    const struct retry_config *retry;
    struct queue *finished;
    struct task_pool *tasks;
    struct consumer *consumer;
    struct publisher *publisher; /* its report is publish_report(), ctx this */
    struct result_writer *writer;
    struct key_order *order; /* NULL = none */
    struct shadow *shadow;   /* NULL = none; else results become its lines, and publisher is NULL */
    struct halt *halt;
    struct health *health;
    struct stats *stats;
    bool is_transactional; /* the publisher is: what it reports is dealt with at once, its transaction ends after it */

    /* its own */
    int wake_fd;
    struct task_list queued;
    struct task_delay delayed;
    struct dead_window window;
    int unacknowledged;
    struct task *acknowledged[PUBLISH_MANY]; /* of this turn, to be finished together */
    int n_acknowledged;
    bool gathers;   /* in a turn */
    int64_t now_ns; /* monotonic, as the clock was last read */
    unsigned now_reads;
    int refused; /* tasks that were put off at least once and are not out yet */
    _Atomic bool is_done;
};

MUST_CHECK enum err_code publish_open(struct publish *p, struct err *e); /* before publisher_open() */
void publish_close(struct publish *p);
void publish_report(void *ctx, void *opaque, enum err_code rc, const struct err *e);
void publish_run(struct publish *p);

#endif
