/* schema_store.h -- writer schemas by registry id and by fingerprint (CRC-64-AVRO).
 *
 * Ours are always known by fingerprint.  A folder of ID.avsc files makes ids known without a registry.  Otherwise an
 * id is asked of the registry over HTTP (GET /schemas/ids/ID), with a time limit, on a thread of its own (fetcher.h):
 *
 *   unknown id (404)   ERR_UNKNOWN_SCHEMA, act ERR_RETRY for absent_ms, since a replica may lag (asked again each
 *                      fifth of it); if it stays unknown, act ERR_SKIP, and it is asked again once absent_ms old
 *   away, 5xx, ...     ERR_REGISTRY, act ERR_RETRY; for a jittered, doubling while nothing is asked and the same error
 *                      is given at once, so that a thousand jobs do not wait for a thousand timeouts
 *
 *   no answer yet      ERR_REGISTRY, act ERR_RETRY; who asks waits 100 ms at most, and one id is asked at a time
 *
 * What was once learned stays known, also that a schema is refused (recursive, too large, ...: schema.h).
 * Bounded: at most 1,024 schemas, least recently used first out (those of the folder and those added stay); 256 unknown
 * ids at a time, a further one is ERR_UNKNOWN_SCHEMA, act ERR_RETRY.
 * Thread: one owner (the batcher's). */
#ifndef WIRE_SCHEMA_STORE_H
#define WIRE_SCHEMA_STORE_H

#include "base/err.h"
#include "wire/schema.h"

#include <stddef.h>
#include <stdint.h>

enum { SCHEMA_STORE_MAX = 1024, SCHEMA_STORE_MAX_ABSENT = 256 };

struct schema_store;

/* url, folder: NULL or "" = none.  Reads the folder now; a file in it that is no schema is an ERR_CONFIG. */
MUST_CHECK enum err_code schema_store_open(struct schema_store **out, const char *url, const char *folder,
                                           int timeout_ms, struct err *e);
void schema_store_close(struct schema_store *s); /* NULL is fine */

/* Waits 100 ms at most, for an answer of the registry.  *out is the store's, valid until the next call. */
MUST_CHECK enum err_code schema_store_by_id(struct schema_store *s, int32_t id, const struct schema **out,
                                            struct err *e);
/* Never waits: ours, the folder's, and what came by id. */
MUST_CHECK enum err_code schema_store_by_fingerprint(struct schema_store *s, uint64_t fingerprint,
                                                     const struct schema **out, struct err *e);
/* Makes id known. */
MUST_CHECK enum err_code schema_store_add(struct schema_store *s, int32_t id, const char *text, size_t n,
                                          struct err *e);

struct schema_store_times {
    int absent_ms, backoff_ms, backoff_max_ms;
};
void schema_store_set_times(struct schema_store *s, struct schema_store_times t); /* default 5000, 500, 10000 */

#endif
