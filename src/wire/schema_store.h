/* schema_store.h -- writer schemas by registry id and by fingerprint (CRC-64-AVRO).
 *
 * Ours are always known by fingerprint.  A folder of ID.avsc files makes ids known without a registry.  Otherwise an
 * id is asked of the registry over HTTP (GET /schemas/ids/ID), with a time limit, never for ever: an unknown id (404)
 * is remembered for a few seconds, a registry that is away or answers 5xx is act ERR_RETRY, and what was once learned
 * stays known.  Bounded: at most 1,024 schemas, least recently used first out.
 * A schema that is recursive or has zero-size array or map items is refused (ERR_UNKNOWN_SCHEMA names why).
 * Thread: one owner (the batcher's). */
#ifndef WIRE_SCHEMA_STORE_H
#define WIRE_SCHEMA_STORE_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct schema_store;

/* url, folder: NULL or "" = none.  Reads the folder now. */
MUST_CHECK enum err_code schema_store_open(struct schema_store **out, const char *url, const char *folder,
                                           int timeout_ms, struct err *e);
void schema_store_close(struct schema_store *s);

#endif
