/* reader.h -- reads a topic from all its partitions with no group and no commits: `results`, demonstrations, tests.
 * isolation.level read_committed.  Thread: one. */
#ifndef KAFKA_READER_H
#define KAFKA_READER_H

#include "base/err.h"
#include "config/config.h"
#include "wire/record.h"

#include <stdbool.h>

struct reader;

MUST_CHECK enum err_code reader_open(struct reader **out, const struct kafka_config *k, const char *bootstrap,
                                     const char *topic, bool from_beginning, struct err *e);
/* Next record, or *r NULL after timeout_ms.  Valid until the next call.  *at_end: every partition is at its end. */
MUST_CHECK enum err_code reader_next(struct reader *rd, const struct record **r, bool *at_end, int timeout_ms,
                                     struct err *e);
void reader_close(struct reader *rd);

#endif
