/* avro_codec.h -- messages as Avro binary, without framing.
 * Decoding is by the writer's schema; fields are then taken by name, whatever their order, namespaces ignored, with the
 * promotions that mean the same (int to long and double, bytes to string, string to enum and back) and through unions
 * of null and one type in either order.  Absent fields keep what base held, further ones are skipped.
 * Memory: avro-c allocates the value it reads and frees it before the call returns, at most some 100 bytes a value of
 * AVRO_MAX_VALUES beside the payload's own bytes. */
#ifndef WIRE_AVRO_CODEC_H
#define WIRE_AVRO_CODEC_H

#include "wire/message.h"
#include "wire/schema.h"

enum { AVRO_MAX_VALUES = 200000 };

MUST_CHECK enum err_code avro_codec_decode(const struct message *m, const struct intake *in,
                                           const struct schema *writer, const void *data, size_t n);
/* schema is our own of that message.  *out lies in a, with n_prefix bytes left free in front for the framing. */
MUST_CHECK enum err_code avro_codec_encode(const struct message *m, const struct schema *schema, const void *base,
                                           size_t n_prefix, struct arena *a, struct text *out, struct err *e);

#endif
