/* handover.h -- what the publisher of transactions asks the consumer's thread, and what it tells it.
 *
 *   publisher's thread                               consumer's thread, in each turn and while a revocation waits
 *   handover_prepare(sources) --sources-->           holds them in the ledgers
 *        <--offsets and notes as if they were finished, fresh group metadata, or: some cannot be committed now--
 *   send offsets, commit
 *   handover_end(committed or not) -->               the offsets are stored; or the held ones are in flight again
 *
 *   handover_judge(sources), after a commit that nobody answered: <--covered, open or gone, from the group itself--
 *
 * One question at a time; the asker waits, the consumer serves it at its next turn.  A consumer that has ended is deaf:
 * every question fails at once then. */
#ifndef KAFKA_HANDOVER_H
#define KAFKA_HANDOVER_H

#include "base/err.h"
#include "kafka/assignment.h"
#include "kafka/confirm.h"
#include "kafka/offsets.h"
#include "wire/record.h"

#include <librdkafka/rdkafka.h>
#include <stdbool.h>
#include <stddef.h>

struct handover;

/* What a transaction sends along; release with prepared_free(). */
struct prepared {
    rd_kafka_topic_partition_list_t *offsets;  /* NULL: nothing new */
    rd_kafka_consumer_group_metadata_t *group; /* NULL like offsets */
};
void prepared_free(struct prepared *p);

MUST_CHECK enum err_code handover_open(struct handover **out, int consumer_wake_fd, struct err *e);
void handover_close(struct handover *h);

/* ---- the publisher's side ---- */

/* ERR_OK: *out is filled.  ERR_CLOSED, act ERR_SKIP: some sources are late, or their partition is lost (stuck[i]: its
 * offset cannot be committed now); nothing is held.  ERR_TIMEOUT, act ERR_RETRY: the consumer did not answer.
 * ERR_CLOSED, act ERR_STOP: it has ended. */
MUST_CHECK enum err_code handover_prepare(struct handover *h, const struct source *sources, size_t n, bool *stuck,
                                          struct prepared *out, int timeout_ms, struct err *e);
/* Once for each prepare that went well. */
void handover_end(struct handover *h, bool committed);
MUST_CHECK enum err_code handover_judge(struct handover *h, const struct source *sources, size_t n,
                                        enum offsets_verdict *verdicts, int timeout_ms, struct err *e);
bool handover_has_news(const struct handover *h); /* offsets to commit, results or not */
bool handover_hurries(
    const struct handover *h); /* somebody waits: a revocation, a record for what a commit says of it */
void handover_set_asker_fd(struct handover *h, int eventfd); /* woken when the hurry begins; -1 = none */

/* ---- the consumer's side ---- */

void handover_serve(struct handover *h, rd_kafka_t *rk, struct assignment *mine, struct offsets *o, struct confirm *cf);
void handover_say(struct handover *h, bool has_news, bool hurries);
void handover_deafen(struct handover *h); /* the consumer serves no more */

#endif
