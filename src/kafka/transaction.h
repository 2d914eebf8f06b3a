/* transaction.h -- one transactional producer and the transaction that is open on it: results, dead letters and the
 * offsets of their jobs become visible together, or not at all.
 *
 * A transaction is begun by the first record (or by offsets that moved without one) and is short: it ends after
 * delivery.commit_interval_ms, or with delivery.transaction_results records, or at once when somebody hurries.
 * Thread: the publisher's; reports are called from transaction_turn() and transaction_close() on it.
 * Blocking: a turn may wait for the coordinator, at most some STEP_MS at a time, then goes on in the next turn.
 * Errors: see publisher.h. */
#ifndef KAFKA_TRANSACTION_H
#define KAFKA_TRANSACTION_H

#include "base/err.h"
#include "config/config.h"
#include "kafka/consumer.h"
#include "kafka/publisher.h"

struct transaction;

MUST_CHECK enum err_code transaction_open(struct transaction **out, const struct kafka_config *k,
                                          const struct delivery_config *d, struct consumer *c, publisher_report *report,
                                          void *ctx, struct err *e);
MUST_CHECK enum err_code transaction_send(struct transaction *t, const struct outgoing *o, struct err *e);
void transaction_turn(struct transaction *t, int timeout_ms);
void transaction_set_wake_fd(struct transaction *t, int eventfd);
int64_t transaction_due_ns(const struct transaction *t, bool has_more);
void transaction_hurry(struct transaction *t);
bool transaction_is_settled(const struct transaction *t); /* see publisher_is_settled() */
MUST_CHECK enum err_code transaction_failure(const struct transaction *t, struct err *e);
/* Commits what is sent if that can be done within timeout_ms, else aborts it; every record is reported. */
void transaction_close(struct transaction *t, int timeout_ms);
void transaction_get_stats(const struct transaction *t, struct publisher_stats *s); /* any thread */

#endif
