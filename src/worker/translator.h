/* translator.h -- everything between a source text and its translation, with no Kafka: checkpoint, tokenizer, prompt,
 * backend, engine and planner, opened together.  The worker has one, and so has the command `translate`.
 * Thread: opened and closed by one; the engine and the planner then belong to one thread each, the rest is const. */
#ifndef WORKER_TRANSLATOR_H
#define WORKER_TRANSLATOR_H

#include "base/err.h"
#include "config/config.h"
#include "engine/engine.h"
#include "model/model.h"
#include "text/prompt.h"
#include "text/tokenizer.h"
#include "worker/plan.h"

struct translator {
    struct model *model;
    struct tokenizer *tokenizer;
    struct prompt *prompt;
    const struct backend_ops *ops;
    struct backend *backend;
    struct backend_info info;
    struct plan_limits limits;
    struct engine *engine;
    struct planner *planner;
    double load_ms;
};

/* *t is all zero before.  max_requests: as in struct engine_options.  Logs the memory plan.  After a failure too, *t wants
 * translator_close(). */
MUST_CHECK enum err_code translator_open(struct translator *t, const struct config *cfg, int max_requests,
                                         struct err *e);
void translator_close(struct translator *t);

#endif
