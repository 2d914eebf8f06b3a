/* produce.h -- what the producers of ours have in common: their settings, and how an outgoing record goes in.
 * Only the modules of src/kafka include this. */
#ifndef KAFKA_PRODUCE_H
#define KAFKA_PRODUCE_H

#include "base/err.h"
#include "config/config.h"
#include "kafka/publisher.h"

#include <librdkafka/rdkafka.h>
#include <stdbool.h>
#include <stddef.h>

struct produce_limits {
    int queue_records, queue_kb, message_timeout_ms;
};
struct produce_limits produce_limits(const struct delivery_config *d);

/* Idempotent, acknowledged by all in-sync replicas, the user's properties in between. */
MUST_CHECK enum err_code produce_configure(rd_kafka_conf_t *conf, const struct kafka_config *k,
                                           const struct produce_limits *l, int linger_ms, struct err *e);
const char *produce_topic(const struct kafka_config *k, enum publisher_topic to);
/* Asks for the topics' leaders now, so that the first record does not wait for them (librdkafka before 2.10.1: up to a
 * second). */
void produce_warm(rd_kafka_t *rk, const struct kafka_config *k);
/* Copies everything. */
rd_kafka_resp_err_t produce_send(rd_kafka_t *rk, const struct kafka_config *k, const struct outgoing *o, void *opaque);
/* Does the broker refuse a record of the batch for what it is?  The batch fails as a whole. */
bool produce_is_refusal(rd_kafka_resp_err_t rc);
/* ERR_RESULT_TOO_LARGE or ERR_RESULT_REFUSED, for a refused record of so many bytes. */
enum err_code produce_refusal(struct err *e, rd_kafka_resp_err_t rc, enum err_act act, const char *topic, size_t bytes);
/* A topic that may not be written is no reason to stop: somebody may allow it, and until then nothing is lost. */
enum err_act produce_act(rd_kafka_resp_err_t rc);

#endif
