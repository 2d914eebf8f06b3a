/* json_codec.h -- messages as JSON objects.
 * Strict: UTF-8, no duplicate keys, no value of a wrong type.  Unknown keys are ignored, null is absent.
 * The number of values and the depth are bounded before jansson allocates anything; a usual message goes without it. */
#ifndef WIRE_JSON_CODEC_H
#define WIRE_JSON_CODEC_H

#include "wire/message.h"

MUST_CHECK enum err_code json_codec_decode(const struct message *m, const struct intake *in, const char *s, size_t n);
/* Absent fields are left out; key order is the table's.  *out lies in a. */
MUST_CHECK enum err_code json_codec_encode(const struct message *m, const void *base, struct arena *a, struct text *out,
                                           struct err *e);

#endif
