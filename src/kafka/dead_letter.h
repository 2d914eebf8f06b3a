/* dead_letter.h -- the headers of a record that can never succeed: the original ones, then the names Kafka users know
 * (kafka_dlt-original-topic, -original-partition, -original-offset, -original-timestamp, -exception-fqcn for our error
 * code, -exception-message) and kafka_dlt-attempts; of a record that passes twice the kafka_dlt-original-* stay as they
 * were first, the others are replaced, none piles up.  Key and value stay byte for byte, null stays null.
 * Numbers are encoded as Spring's: partition int32, offset and timestamp int64, big-endian;
 * attempts int32 too, added up over the passes. */
#ifndef KAFKA_DEAD_LETTER_H
#define KAFKA_DEAD_LETTER_H

#include "base/arena.h"
#include "base/err.h"
#include "kafka/publisher.h"
#include "wire/record.h"

/* Fills *o (opaque untouched); headers live in a and in r. */
MUST_CHECK enum err_code dead_letter_build(struct outgoing *o, const struct record *r, const struct err *why,
                                           int attempts, struct arena *a, struct err *e);

#endif
