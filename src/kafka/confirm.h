/* confirm.h -- does the group still have what we stored?
 *
 * Kafka deletes a group's offsets together with their topic, and nothing else deletes them while the group has members.  A
 * client knows topics by name: it may not see that its topic was deleted and made anew, and reads the new log from the old
 * one's offset on.  So the group is asked before each commit, which would hide that for good, and now and then without.
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

enum { CONFIRM_MS = 500, CONFIRM_EVERY_MS = 10000 };

struct confirm;

/* rk: a member of the group.  All of it is the caller's and has to outlive this. */
MUST_CHECK enum err_code confirm_open(struct confirm **out, rd_kafka_t *rk, const char *topic, struct assignment *mine,
                                      struct err *e);
void confirm_close(struct confirm *cf);

void confirm_ask(struct confirm *cf);
/* The same if it was not asked for CONFIRM_EVERY_MS. */
void confirm_now_and_then(struct confirm *cf);

#endif
