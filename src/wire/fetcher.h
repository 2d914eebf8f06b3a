/* fetcher.h -- the registry's own thread ("registry"), so that nobody waits for a registry that is slow or silent.
 * One question at a time: start it, then take the answer, once, when it is there.
 * Thread: start and take by one owner; the HTTP exchange runs on the fetcher's own. */
#ifndef WIRE_FETCHER_H
#define WIRE_FETCHER_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fetcher;

struct fetched {
    int32_t id;
    enum err_code rc; /* of registry_fetch(), and why */
    struct err why;
    char *text; /* of ERR_OK: malloc()ed, now the taker's */
    size_t n;
};

MUST_CHECK enum err_code fetcher_open(struct fetcher **out, const char *url, int timeout_ms, struct err *e);
void fetcher_close(struct fetcher *f); /* NULL is fine.  Ends a running exchange, at the latest at its time limit. */

bool fetcher_start(struct fetcher *f, int32_t id);                      /* false: the last answer is not taken yet */
bool fetcher_take(struct fetcher *f, int wait_ms, struct fetched *out); /* false: nothing asked, or no answer in time */

#endif
