/* registry.h -- asks a schema registry for a schema by id, over HTTP.
 *
 * GET URL/schemas/ids/ID with a limit on connecting and on the whole exchange, on the answer's size and on redirects
 * (http and https alone, three at most).  User and password come from the URL; they never show in an error.  Proxies
 * of the environment are not used.
 * Thread: one owner.  A call waits up to the time limit, or about a second after registry_cancel(). */
#ifndef WIRE_REGISTRY_H
#define WIRE_REGISTRY_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

enum { REGISTRY_MAX_ANSWER = 1 << 20 /* bytes */ };

struct registry;

MUST_CHECK enum err_code registry_open(struct registry **out, const char *url, int timeout_ms, struct err *e);
void registry_close(struct registry *r);  /* NULL is fine */
void registry_cancel(struct registry *r); /* any thread: the running exchange and all later ones fail */

/* The schema's text, malloc()ed.  ERR_UNKNOWN_SCHEMA: act ERR_RETRY for a 404, since one replica may lag behind
 * another, act ERR_SKIP for a schema that is there and cannot be used (not Avro, has references).
 * ERR_REGISTRY, act ERR_RETRY: no answer, or any other one. */
MUST_CHECK enum err_code registry_fetch(struct registry *r, int32_t id, char **text, size_t *n, struct err *e);

#endif
