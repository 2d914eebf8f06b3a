#include "worker/translator.h"

#include "base/clock.h"
#include "base/hash.h"

#include <stdio.h>
#include <string.h>

#define MIB(bytes) ((double)(bytes) / (1024 * 1024))

/* A tokenizer or a template that is away is a checkpoint that cannot be used. */
static enum err_code as_checkpoint(enum err_code rc, struct err *e)
{
    if (rc != ERR_IO)
        return rc;
    e->code = ERR_MODEL;
    return ERR_MODEL;
}

static enum err_code open_model(struct translator *t, const struct model_config *c, struct err *e)
{
    enum prompt_generation generation;
    char path[4096];
    enum err_code rc;

    if ((rc = model_open(&t->model, c->path, e)) != ERR_OK)
        return rc;
    if (*c->name)
        snprintf(t->model->name, sizeof t->model->name, "%s", c->name);
    if (snprintf(path, sizeof path, "%s/tokenizer.json", c->path) >= (int)sizeof path)
        return err_set(e, ERR_CONFIG, ERR_STOP, "model.path: longer than %zu bytes", sizeof path);
    if ((rc = tokenizer_open(&t->tokenizer, path, e)) != ERR_OK)
        return as_checkpoint(rc, e);
    if (tokenizer_size(t->tokenizer) > t->model->dims.vocab)
        return err_set(e, ERR_MODEL, ERR_STOP, "%s: %d ids, the embedding has %d rows", path,
                       tokenizer_size(t->tokenizer), t->model->dims.vocab);
    if (tokenizer_size(t->tokenizer) < t->model->dims.vocab_used)
        t->model->dims.vocab_used = tokenizer_size(t->tokenizer);
    if (!prompt_generation_parse(c->prompt, &generation))
        return err_set(e, ERR_CONFIG, ERR_STOP, "model.prompt: found \"%s\", allowed are auto, mt, mt1.5, mt2",
                       c->prompt);
    rc = prompt_open(&t->prompt, t->tokenizer, c->path, t->model->name, generation, c->force_template, e);
    return as_checkpoint(rc, e);
}

static enum err_code open_backend(struct translator *t, const struct config *cfg, struct err *e)
{
    const struct engine_config *c = &cfg->engine;
    enum err_code rc;

    if ((rc = plan_limits(&t->limits, &cfg->limits, &t->model->dims, NULL, e)) != ERR_OK ||
        (rc = backend_find(&t->ops, c->backend, e)) != ERR_OK)
        return rc;
    const struct backend_options o = plan_backend(c, &t->limits);
    if ((rc = t->ops->open(&t->backend, t->model, &o, e)) != ERR_OK)
        return rc;
    t->ops->info(t->backend, &t->info);
    log_event(LOG_INFO, "memory_plan",
              "backend=%s weights_mib=%.1f kv_mib=%.1f workspace_mib=%.1f total_mib=%.1f free_mib=%.1f rows=%d "
              "kv_tokens=%lld block_tokens=%d",
              t->ops->name, MIB(t->info.weight_bytes), MIB(t->info.kv_bytes), MIB(t->info.workspace_bytes),
              MIB(t->info.total_bytes), MIB(t->info.free_bytes), t->info.rows,
              (long long)t->info.blocks * t->info.block_tokens, t->info.block_tokens);
    return plan_limits(&t->limits, &cfg->limits, &t->model->dims, &t->info, e);
}

/* The model's end tokens and the template's; a checkpoint whose files list only some of them ends all the same. */
static int all_ends(const struct translator *t, int eos[MODEL_MAX_EOS])
{
    const struct generation *g = &t->model->generation;
    int n = 0, extra = prompt_eos(t->prompt);

    for (; n < g->n_eos && n < MODEL_MAX_EOS; n++) {
        eos[n] = g->eos[n];
        if (eos[n] == extra)
            extra = -1;
    }
    if (extra >= 0 && n < MODEL_MAX_EOS)
        eos[n++] = extra;
    return n;
}

static enum err_code open_engine(struct translator *t, const struct config *cfg, int max_requests, struct err *e)
{
    int eos[MODEL_MAX_EOS];
    struct engine_options o = {.max_requests = max_requests,
                               .max_sequence = t->limits.max_sequence,
                               .prefix_cache = cfg->engine.prefix_cache,
                               .step_seconds = cfg->engine.step_latency_ms * 1e-3,
                               .eos = eos,
                               .n_eos = all_ends(t, eos),
                               .weights_key = hash_bytes(t->model->digest, strlen(t->model->digest), 0)};

    return engine_open(&t->engine, t->ops, t->backend, &o, e);
}

enum err_code translator_open(struct translator *t, const struct config *cfg, int max_requests, struct err *e)
{
    int64_t begin = clock_mono_ns();
    enum err_code rc;

    if ((rc = open_model(t, &cfg->model, e)) != ERR_OK || (rc = open_backend(t, cfg, e)) != ERR_OK ||
        (rc = open_engine(t, cfg, max_requests, e)) != ERR_OK)
        return rc;
    rc = planner_open(&t->planner, t->prompt, t->tokenizer, &t->model->generation, &t->limits, e);
    t->load_ms = (double)(clock_mono_ns() - begin) / NS_PER_MS;
    return rc;
}

void translator_close(struct translator *t)
{
    planner_close(t->planner);
    engine_close(t->engine);
    if (t->backend)
        t->ops->close(t->backend);
    prompt_close(t->prompt);
    tokenizer_close(t->tokenizer);
    model_close(t->model);
}
