/* codec.h -- requests, results and dead letters to bytes and back, in three encodings.
 *
 *   0x00 + 4-byte big-endian schema id + Avro    registry framing
 *   0xC3 0x01 + 8-byte fingerprint + Avro        Avro single object
 *   '{'                                          JSON
 *
 * A payload is decoded by its writer's schema, then fields are copied by name into ours, enums by symbol, absent ones
 * by our defaults.  Every length, count, index and depth is walked against the writer's schema before avro-c sees a
 * byte.  Errors of the bytes are act ERR_SKIP; a registry that is away is act ERR_RETRY.
 * JSON: unknown keys are ignored, null is absent, doubles are written with 15 digits; a deadline is milliseconds.
 * Memory: jansson and avro-c allocate while a call runs and free before it returns; both are bounded beforehand (200,000
 * values a message).
 * Thread: one codec a thread (avro-c's error text is one static buffer; the codec takes a lock around it).  Encoding
 * does not touch the store, so two codecs may share one as long as a single thread decodes. */
#ifndef WIRE_CODEC_H
#define WIRE_CODEC_H

#include "base/arena.h"
#include "base/err.h"
#include "wire/job.h"
#include "wire/record.h"

#include <stddef.h>
#include <stdint.h>

struct codec;
struct schema_store; /* writer schemas by id and by fingerprint: schema_store.h */

enum encoding { ENCODING_JSON, ENCODING_SINGLE_OBJECT, ENCODING_REGISTRY };
const char *encoding_name(enum encoding enc); /* "json", "avro", "registry" */

struct codec_limits {
    size_t max_value_bytes, max_text_bytes, max_context_bytes;
    size_t max_glossary, max_metadata, max_field_bytes; /* entries, entries, bytes of any other string */
};
/* 16 MiB, 1 MiB, 1 MiB; 1,000, 100, 4,096.  A job id has 1 to 256 bytes whatever the limits. */
struct codec_limits codec_default_limits(void);

MUST_CHECK enum err_code codec_open(struct codec **out, struct schema_store *store, const struct codec_limits *l,
                                    struct err *e);
void codec_close(struct codec *c);

/* Decodes and checks record r into *j, which lives as long as both r and a: strings stay in the value of r where they
 * are whole there, the others are copied into a.  *enc tells how it came.  On a failure after the
 * job id was readable, j->job_id is filled all the same, for the dead letter. */
MUST_CHECK enum err_code codec_decode_request(struct codec *c, const struct record *r, struct job *j,
                                              enum encoding *enc, struct arena *a, struct err *e);
/* schema_id is used for ENCODING_REGISTRY alone; below 0 there it is an ERR_CONFIG, act ERR_STOP.  *out lies in a. */
MUST_CHECK enum err_code codec_encode_request(struct codec *c, const struct job *j, enum encoding enc,
                                              int32_t schema_id, struct arena *a, struct text *out, struct err *e);
MUST_CHECK enum err_code codec_decode_result(struct codec *c, const struct record *r, struct result *res,
                                             struct arena *a, struct err *e);
MUST_CHECK enum err_code codec_encode_result(struct codec *c, const struct result *res, enum encoding enc,
                                             int32_t schema_id, struct arena *a, struct text *out, struct err *e);

#endif
