/* confirm.h -- does the group still have what we stored?
 *
 * Kafka deletes a group's offsets together with their topic, and nothing else deletes them while the group has members.  A
 * client knows topics by name: it may not see that its topic was deleted and made anew, and reads the new log from the old
 * one's offset on.  So the group is asked before each commit, which would hide that for good, and now and then without.
 * Transactions come one after the other and would wait for it: there an answer may be CONFIRM_FRESH_MS old.
 *
 *   partition->committed >= 0, and the group has none --confirm_ask()--> partition->gone, and it is lost (lost_offset.h)
 *
 * Thread: the consumer's; blocks for CONFIRM_MS at most, a round trip to the group's coordinator usually.  Without an
 * answer nothing is noted.
 * Limits: a topic that is made anew between the answer and the commit is not noticed. */
#ifndef KAFKA_CONFIRM_H
#define KAFKA_CONFIRM_H

#include "base/err.h"
#include "kafka/assignment.h"

#include <librdkafka/rdkafka.h>
#include <stdbool.h>

enum { CONFIRM_MS = 500, CONFIRM_FRESH_MS = 200, CONFIRM_EVERY_MS = 10000 };

struct confirm;

/* rk: a member of the group.  All of it is the caller's and has to outlive this.  fresh_ms: for so long is an answer good
 * for confirm_fresh(). */
MUST_CHECK enum err_code confirm_open(struct confirm **out, rd_kafka_t *rk, const char *topic, struct assignment *mine,
                                      int fresh_ms, struct err *e);
void confirm_close(struct confirm *cf);

void confirm_ask(struct confirm *cf);
/* Asks unless there is a fresh answer. */
void confirm_fresh(struct confirm *cf);
/* In each turn: asks now and then, and where a transaction will want a fresh answer so often that it finds one. */
void confirm_ahead(struct confirm *cf, bool will_want);

#endif
