/* worker.h -- the pipeline: wires consumer, batcher, engine and publisher, one thread each, and the HTTP port.
 *
 *   consumer --records--> batcher --micro-batches--> decoder(engine) --finished tasks--> publisher --acks--> consumer
 *
 * worker_run() returns after worker_stop() (async-signal-safe) has drained, or when a part stopped the worker:
 *   drained within drain_timeout_ms: ERR_OK.   else the error that stopped it, act ERR_STOP. */
#ifndef WORKER_WORKER_H
#define WORKER_WORKER_H

#include "base/err.h"
#include "config/config.h"

struct worker;

MUST_CHECK enum err_code worker_open(struct worker **out, const struct config *cfg, struct err *e);
MUST_CHECK enum err_code worker_run(struct worker *w, struct err *e);
void worker_stop(struct worker *w); /* async-signal-safe */
void worker_close(struct worker *w);

#endif
