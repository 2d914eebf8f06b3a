/* record.h -- one Kafka record as plain bytes, without Kafka. */
#ifndef WIRE_RECORD_H
#define WIRE_RECORD_H

#include <stddef.h>
#include <stdint.h>

struct header {
    const char *name;
    const void *value; /* NULL = a null value, which is not an empty one */
    size_t size;
};

/* Where a record came from.  assignment counts the times its partition was assigned to us: a source of an
 * earlier assignment is stale. */
struct source {
    int32_t partition;
    uint32_t assignment;
    int64_t offset;
};

struct record {
    struct source at;
    const char *topic;
    int64_t timestamp_ms; /* -1 = none */
    int64_t received_ns;  /* monotonic */
    const void *key;      /* NULL = null */
    size_t key_size;
    const void *value; /* NULL = null */
    size_t value_size;
    const struct header *headers; /* in order, names may repeat */
    size_t n_headers;
    int crashes; /* > 0: alone in work it ended its worker so often, and is to be set aside */
    void *owner; /* of the memory behind the pointers; released by who made it */
};

/* To the processor's cache, while another record is worked on: the record itself, then, once that is there, the begin of
 * its value. */
static inline void record_ask_for(const struct record *r)
{
    __builtin_prefetch(r);
    __builtin_prefetch((const char *)r + 64);
}
static inline void record_ask_for_value(const struct record *r)
{
    for (size_t at = 0; r->value && at < r->value_size && at < 512; at += 64)
        __builtin_prefetch((const char *)r->value + at);
}

const struct header *record_find_header(const struct record *r, const char *name); /* last of that name, or NULL */

#endif
