/* publisher.h -- produces results and dead letters, acknowledged by all in-sync replicas (idempotent producer).
 * Thread: one, the publisher's; reports are called from publisher_turn() and publisher_close() on it.
 * A fatal producer error is handled inside: the producer is built anew and what was unacknowledged is reported as
 * ERR_KAFKA, act ERR_RETRY, for the owner to send again.
 *
 * Mode exactly_once, publisher_open_transactional(): what is sent goes into one short transaction together with the
 * offsets of its sources (transaction.h), and is reported OK once that is committed.  Its limits:
 *   - brokers 2.5 or newer; readers of results and dead letters set isolation.level = read_committed;
 *   - one transactional id an instance, the same after a restart, never two at once: the older one is fenced, reports
 *     ERR_FENCED and is over;
 *   - librdkafka has no KIP-890: a commit or abort that timed out or lost its connection could reach the next
 *     transaction, so the producer is built anew before there is a next one. */
#ifndef KAFKA_PUBLISHER_H
#define KAFKA_PUBLISHER_H

#include "base/err.h"
#include "config/config.h"
#include "wire/record.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct publisher;
struct consumer;

enum publisher_topic { PUBLISH_RESULT, PUBLISH_DEAD_LETTER, PUBLISH_REQUEST /* `submit` and tests */ };

struct outgoing {
    enum publisher_topic to;
    int32_t partition; /* -1 = by key (murmur2_random, as Java's producers do) */
    const void *key;   /* NULL = null */
    size_t key_size;
    const void *value; /* NULL = null */
    size_t value_size;
    const struct header *headers;
    size_t n_headers;
    void *opaque;            /* handed to the report */
    const struct source *at; /* transactional: the job that is answered */
    bool alone;              /* transactional: not in one batch with others, see publisher_report */
};

/* rc ERR_OK: the broker has it.  ERR_RESULT_TOO_LARGE, ERR_RESULT_REFUSED (act ERR_SKIP): refused for good.  Else
 * ERR_KAFKA, act ERR_RETRY (send again later; also for a topic that may not be written) or ERR_STOP.
 * Transactional, too: ERR_BUSY, act ERR_RETRY: its transaction ended for another's sake, send it again now.
 * The two refusals, act ERR_RETRY: refused with its batch, send it again with `alone` set.
 * ERR_FENCED, act ERR_STOP. */
typedef void publisher_report(void *ctx, void *opaque, enum err_code rc, const struct err *e);

struct publisher_stats {
    int64_t sent, acknowledged, failed, queue_depth, rebuilds;
    int64_t commits, aborts; /* of transactions */
};

MUST_CHECK enum err_code publisher_open(struct publisher **out, const struct kafka_config *k, const char *bootstrap,
                                        const struct delivery_config *d, publisher_report *report, void *ctx,
                                        struct err *e);
/* k->bootstrap_servers; the embedded cluster cannot do this.  The consumer must outlive the publisher. */
MUST_CHECK enum err_code publisher_open_transactional(struct publisher **out, const struct kafka_config *k,
                                                      const struct delivery_config *d, struct consumer *c,
                                                      publisher_report *report, void *ctx, struct err *e);
/* Transactional: when a turn or, with has_more, another record is wanted at the latest; else INT64_MAX. */
int64_t publisher_due_ns(const struct publisher *p, bool has_more);
/* Transactional: commit what there is without waiting for more, from now on. */
void publisher_hurry(struct publisher *p);
/* Transactional: nothing is under way, and the group knows all that the consumer has to tell; or it never will.  Else
 * true. */
bool publisher_is_settled(const struct publisher *p);
/* Transactional: ERR_OK, or why nothing more can be published (fenced, no permission). */
MUST_CHECK enum err_code publisher_failure(const struct publisher *p, struct err *e);
/* Everything is copied.  ERR_BUSY: the local queue is full, turn and try again.  ERR_RESULT_TOO_LARGE at once for what
 * is over the producer's own limit.  No report follows a failed call. */
MUST_CHECK enum err_code publisher_send(struct publisher *p, const struct outgoing *o, struct err *e);
void publisher_turn(struct publisher *p, int timeout_ms); /* serves delivery reports */
/* Delivery reports wake this eventfd from now on. */
void publisher_set_wake_fd(struct publisher *p, int eventfd);
/* Waits up to timeout_ms for what was sent; the rest is reported as failed.  Bounded. */
void publisher_close(struct publisher *p, int timeout_ms);
void publisher_get_stats(const struct publisher *p, struct publisher_stats *s); /* any thread */

#endif
