/* halt.h -- why and how far the worker is stopping; the one thing that all its loops look at.
 *
 *   RUNNING --halt_request()--> DRAINING: intake ends, what is in flight is finished and published
 *      |                           |
 *      +------ halt_fail() --------+--> FAILED: nothing new is decoded or sent; what was sent is waited for, shortly
 *      +------ halt_abort() -------+--> ABORTED: every loop leaves at its next turn
 *
 * Thread: any; halt_request() is async-signal-safe.  The first error is the one that is kept. */
#ifndef WORKER_HALT_H
#define WORKER_HALT_H

#include "base/err.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct halt {
    int wake_fd; /* readable once the state has changed */
    _Atomic int state;
    pthread_mutex_t lock;
    struct err first; /* code ERR_OK = none */
};

MUST_CHECK enum err_code halt_open(struct halt *h, struct err *e);
void halt_close(struct halt *h);

void halt_request(struct halt *h);
void halt_fail(struct halt *h, const struct err *e);
void halt_abort(struct halt *h, const struct err *e); /* e NULL: no further error */

bool halt_is_stopping(const struct halt *h); /* DRAINING or beyond */
bool halt_is_failed(const struct halt *h);   /* FAILED or beyond */
bool halt_is_aborted(const struct halt *h);
/* ERR_OK, or the first error. */
enum err_code halt_error(struct halt *h, struct err *e);

#endif
