/* kafka.h -- the few calls of librdkafka that generator, checker and runner share.  They use the library alone, none of
 * the worker's own wrapping of it: what is under test cannot vouch for itself. */
#ifndef CHAOS_KAFKA_H
#define CHAOS_KAFKA_H

#include <librdkafka/rdkafka.h>
#include <stdbool.h>

/* "name", "value" pairs, NULL-terminated; a refused one ends the program (a mistake of ours). */
rd_kafka_conf_t *kafka_conf(const char *bootstrap, const char *const *settings);
/* Takes conf.  Ends the program where the library refuses. */
rd_kafka_t *kafka_new(rd_kafka_type_t type, rd_kafka_conf_t *conf);
/* How many partitions a topic has; 0 = still unknown after timeout_ms.  A new topic is known to one broker earlier than
 * to another, so the answer has to come several times in a row. */
int kafka_partitions(rd_kafka_t *rk, const char *topic, int timeout_ms);
/* Creates topics with 3 replicas (fewer where there are fewer brokers), 2 in sync. */
bool kafka_create_topic(rd_kafka_t *rk, const char *topic, int partitions, int replicas, int timeout_ms);

bool kafka_delete_topic(rd_kafka_t *rk, const char *topic, int timeout_ms);
/* Replaces the topic's settings by this one, or by none (name NULL). */
bool kafka_set_topic(rd_kafka_t *rk, const char *topic, const char *name, const char *value, int timeout_ms);
/* Cuts the log: the records below offset go. */
bool kafka_delete_records(rd_kafka_t *rk, const char *topic, int partition, int64_t offset, int timeout_ms);

#endif
