/* What a worker needs before it may look at Kafka: the model, its tokenizer and prompt, a backend, the engine, and all
 * memory of the hot path. */
#include "base/hash.h"
#include "worker/pipeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB(bytes) ((double)(bytes) / (1024 * 1024))

static enum err_code open_model(struct worker *w, struct err *e)
{
    const struct model_config *c = &w->cfg->model;
    enum prompt_generation generation;
    char path[4096];
    enum err_code rc;

    if ((rc = model_open(&w->model, c->path, e)) != ERR_OK)
        return rc;
    if (*c->name)
        snprintf(w->model->name, sizeof w->model->name, "%s", c->name);
    if (snprintf(path, sizeof path, "%s/tokenizer.json", c->path) >= (int)sizeof path)
        return err_set(e, ERR_CONFIG, ERR_STOP, "model.path: longer than %zu bytes", sizeof path);
    if ((rc = tokenizer_open(&w->tokenizer, path, e)) != ERR_OK)
        return rc;
    if (tokenizer_size(w->tokenizer) > w->model->dims.vocab)
        return err_set(e, ERR_MODEL, ERR_STOP, "%s: %d ids, the embedding has %d rows", path,
                       tokenizer_size(w->tokenizer), w->model->dims.vocab);
    if (tokenizer_size(w->tokenizer) < w->model->dims.vocab_used)
        w->model->dims.vocab_used = tokenizer_size(w->tokenizer);
    if (!prompt_generation_parse(c->prompt, &generation))
        return err_set(e, ERR_CONFIG, ERR_STOP, "model.prompt: found \"%s\", allowed are auto, mt, mt1.5, mt2",
                       c->prompt);
    return prompt_open(&w->prompt, w->tokenizer, c->path, w->model->name, generation, c->force_template, e);
}

static enum err_code open_backend(struct worker *w, struct err *e)
{
    const struct engine_config *c = &w->cfg->engine;
    enum err_code rc;

    if ((rc = plan_limits(&w->limits, &w->cfg->limits, &w->model->dims, NULL, e)) != ERR_OK ||
        (rc = backend_find(&w->ops, c->backend, e)) != ERR_OK)
        return rc;
    struct backend_options o = {.rows = c->rows,
                                .block_tokens = c->block_tokens,
                                .step_tokens = c->step_tokens,
                                .max_positions = w->limits.max_sequence,
                                .kv_bytes = (size_t)c->kv_memory_mb << 20,
                                .memory_fraction = c->gpu_memory_fraction,
                                .device = c->device,
                                .threads = c->threads,
                                .deterministic = c->deterministic};
    if ((rc = w->ops->open(&w->backend, w->model, &o, e)) != ERR_OK)
        return rc;
    w->ops->info(w->backend, &w->info);
    log_event(LOG_INFO, "memory_plan",
              "backend=%s weights_mib=%.1f kv_mib=%.1f workspace_mib=%.1f total_mib=%.1f free_mib=%.1f rows=%d "
              "kv_tokens=%lld block_tokens=%d",
              w->ops->name, MIB(w->info.weight_bytes), MIB(w->info.kv_bytes), MIB(w->info.workspace_bytes),
              MIB(w->info.total_bytes), MIB(w->info.free_bytes), w->info.rows,
              (long long)w->info.blocks * w->info.block_tokens, w->info.block_tokens);
    return plan_limits(&w->limits, &w->cfg->limits, &w->model->dims, &w->info, e);
}

/* The model's end tokens and the template's; a checkpoint whose files list only some of them ends all the same. */
static int all_ends(const struct worker *w, int eos[MODEL_MAX_EOS])
{
    const struct generation *g = &w->model->generation;
    int n = 0, extra = prompt_eos(w->prompt);

    for (; n < g->n_eos && n < MODEL_MAX_EOS; n++) {
        eos[n] = g->eos[n];
        if (eos[n] == extra)
            extra = -1;
    }
    if (extra >= 0 && n < MODEL_MAX_EOS)
        eos[n++] = extra;
    return n;
}

static enum err_code open_engine(struct worker *w, struct err *e)
{
    int eos[MODEL_MAX_EOS];
    struct engine_options o = {.max_requests = w->cfg->delivery.max_in_flight_jobs,
                               .max_sequence = w->limits.max_sequence,
                               .prefix_cache = w->cfg->engine.prefix_cache,
                               .eos = eos,
                               .n_eos = all_ends(w, eos),
                               .weights_key = hash_bytes(w->model->digest, strlen(w->model->digest), 0)};

    return engine_open(&w->engine, w->ops, w->backend, &o, e);
}

static enum err_code open_wire(struct worker *w, struct err *e)
{
    const struct wire_config *c = &w->cfg->wire;
    struct codec_limits l = codec_default_limits();
    enum err_code rc;

    l.max_value_bytes = (size_t)w->cfg->limits.max_record_bytes;
    l.max_text_bytes = (size_t)w->cfg->limits.max_text_bytes;
    if ((rc = schema_store_open(&w->schemas, c->registry_url, c->registry_schemas, c->registry_timeout_ms, e)) !=
            ERR_OK ||
        (rc = codec_open(&w->decode_codec, w->schemas, &l, e)) != ERR_OK ||
        (rc = codec_open(&w->encode_codec, w->schemas, &l, e)) != ERR_OK)
        return rc;
    return result_writer_open(&w->writer, w->encode_codec, c, w->tokenizer, w->model, &w->stats, e);
}

/* What one job may take of memory beyond its record: its strings, its result, and headers twice. */
static size_t arena_limit(const struct config *c)
{
    return (size_t)c->limits.max_record_bytes * 4 + (size_t)c->limits.max_output_tokens * 512 + (1 << 20);
}

static enum err_code open_buffers(struct worker *w, struct err *e)
{
    size_t n = (size_t)w->cfg->delivery.max_in_flight_jobs;
    enum err_code rc;

    if ((rc = task_pool_open(&w->tasks, n, arena_limit(w->cfg), e)) != ERR_OK ||
        (rc = queue_open(&w->records, n, e)) != ERR_OK || (rc = queue_open(&w->batches, n, e)) != ERR_OK)
        return rc;
    return queue_open(&w->finished, n, e);
}

enum err_code worker_setup(struct worker *w, struct err *e)
{
    int64_t begin = clock_mono_ns();
    enum err_code rc;

    if ((rc = open_model(w, e)) != ERR_OK || (rc = open_backend(w, e)) != ERR_OK ||
        (rc = open_engine(w, e)) != ERR_OK || (rc = open_wire(w, e)) != ERR_OK || (rc = open_buffers(w, e)) != ERR_OK)
        return rc;
    rc = planner_open(&w->planner, w->prompt, w->tokenizer, &w->model->generation, &w->limits, e);
    w->load_ms = (double)(clock_mono_ns() - begin) / NS_PER_MS;
    return rc;
}

void worker_teardown(struct worker *w)
{
    queue_free(w->finished);
    queue_free(w->batches);
    queue_free(w->records);
    task_pool_close(w->tasks);
    result_writer_close(w->writer);
    planner_close(w->planner);
    codec_close(w->encode_codec);
    codec_close(w->decode_codec);
    schema_store_close(w->schemas);
    engine_close(w->engine);
    if (w->backend)
        w->ops->close(w->backend);
    prompt_close(w->prompt);
    tokenizer_close(w->tokenizer);
    model_close(w->model);
}
