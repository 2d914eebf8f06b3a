/* What a worker needs before it may look at Kafka: the translator, the codecs, and all memory of the hot path. */
#include "worker/pipeline.h"

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
    return result_writer_open(&w->writer, w->encode_codec, c, w->translator.tokenizer, w->translator.model, &w->stats,
                              e);
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
    if ((rc = queue_open(&w->finished, n, e)) != ERR_OK || w->cfg->delivery.order == ORDER_NONE)
        return rc;
    return key_order_open(&w->order, n, w->batches, w->finished, e);
}

enum err_code worker_setup(struct worker *w, struct err *e)
{
    enum err_code rc = translator_open(&w->translator, w->cfg, w->cfg->delivery.max_in_flight_jobs, e);

    if (rc == ERR_OK)
        rc = open_wire(w, e);
    return rc == ERR_OK ? open_buffers(w, e) : rc;
}

void worker_teardown(struct worker *w)
{
    key_order_close(w->order);
    queue_free(w->finished);
    queue_free(w->batches);
    queue_free(w->records);
    task_pool_close(w->tasks);
    result_writer_close(w->writer);
    codec_close(w->encode_codec);
    codec_close(w->decode_codec);
    schema_store_close(w->schemas);
    translator_close(&w->translator);
}
