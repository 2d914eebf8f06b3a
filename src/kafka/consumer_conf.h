/* consumer_conf.h -- what the consumer asks of librdkafka: its properties and their reasons. */
#ifndef KAFKA_CONSUMER_CONF_H
#define KAFKA_CONSUMER_CONF_H

#include "base/err.h"
#include "config/config.h"

#include <librdkafka/rdkafka.h>

/* ERR_CONFIG: a setting that this librdkafka, or the consumer, cannot do. */
MUST_CHECK enum err_code consumer_conf_check(const struct kafka_config *k, struct err *e);
/* Ours, then the user's (kafka.properties), then those that delivery rests on. */
MUST_CHECK enum err_code consumer_conf_fill(rd_kafka_conf_t *conf, const struct kafka_config *k, struct err *e);

#endif
