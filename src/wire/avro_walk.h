/* avro_walk.h -- checks a payload against its writer's schema before avro-c reads it.
 * Every length, count, index, boolean and varint is followed to the end of the payload, which must be met exactly.
 * avro-c 1.11 bounds none of these, leaks what it had read when it fails, and cuts map keys at a NUL; after this walk
 * none of that can happen.  Allocates nothing; recursion is as deep as the schema, which is bounded. */
#ifndef WIRE_AVRO_WALK_H
#define WIRE_AVRO_WALK_H

#include "base/err.h"

#include <avro.h>
#include <stddef.h>

/* max_values bounds the values of any type, each of which avro-c gives an allocation.
 * ERR_UNDECODABLE, act ERR_SKIP, names the byte, the outermost field and what is wrong with it. */
MUST_CHECK enum err_code avro_walk(avro_schema_t writer, const void *data, size_t n, size_t max_values, struct err *e);

#endif
