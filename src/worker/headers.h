/* headers.h -- the headers of a result: those of its request, byte for byte and in order, and where it came from.
 *
 *   translate-source-topic       as text          a reader drops repeats by these three: a result may be
 *   translate-source-partition   decimal          published twice in at-least-once mode
 *   translate-source-offset      decimal
 *   traceparent                  W3C trace context: same trace, our own span id, in the place of the request's last
 *                                one; a malformed one begins a new trace; without one there is none
 *
 * Names of ours that the request had already (a result fed back) are replaced, never piled up. */
#ifndef WORKER_HEADERS_H
#define WORKER_HEADERS_H

#include "base/arena.h"
#include "base/err.h"
#include "wire/record.h"

#include <stdbool.h>
#include <stddef.h>

/* The array and what it points to live in a and in r.  *bad_trace: a traceparent was there and malformed. */
MUST_CHECK enum err_code headers_build(const struct record *r, struct arena *a, const struct header **out, size_t *n,
                                       bool *bad_trace, struct err *e);

#endif
