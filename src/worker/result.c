#include "worker/result.h"

#include "base/clock.h"
#include "kafka/dead_letter.h"
#include "worker/headers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct result_writer {
    struct codec *codec;
    const struct wire_config *wire;
    const struct tokenizer *tokenizer;
    const struct model *model;
    struct stats *stats;
    char *text;
    size_t cap;
    bool has_told; /* that registry framing has no id to write */
};

enum { TEXT_BYTES = 64 * 1024 };

enum err_code result_writer_open(struct result_writer **out, struct codec *codec, const struct wire_config *wire,
                                 const struct tokenizer *t, const struct model *m, struct stats *s, struct err *e)
{
    struct result_writer *w = calloc(1, sizeof *w);
    size_t one = tokenizer_max_token_bytes(t) * 3 + 3;

    *out = NULL;
    if (!w || !(w->text = malloc(TEXT_BYTES + one))) {
        free(w);
        return err_set(e, ERR_NOMEM, ERR_STOP, "result writer: no memory");
    }
    w->codec = codec;
    w->wire = wire;
    w->tokenizer = t;
    w->model = m;
    w->stats = s;
    w->cap = TEXT_BYTES + one;
    *out = w;
    return ERR_OK;
}

void result_writer_close(struct result_writer *w)
{
    if (!w)
        return;
    free(w->text);
    free(w);
}

static bool grow(struct result_writer *w)
{
    char *s = realloc(w->text, w->cap * 2);

    if (!s)
        return false;
    w->text = s;
    w->cap *= 2;
    return true;
}

/* The ids' text, in the writer's buffer until the next call. */
static enum err_code decode_text(struct result_writer *w, const struct request *r, struct text *out, struct err *e)
{
    struct decoder d;
    size_t n = 0;

    decoder_init(&d, w->tokenizer);
    for (int i = 0; i <= r->n_output;) {
        int k = i < r->n_output ? decoder_push(&d, r->output[i], w->text + n, w->cap - n)
                                : decoder_finish(&d, w->text + n, w->cap - n);
        if (k >= 0) {
            n += (size_t)k;
            i++;
        } else if (!grow(w)) {
            return err_set(e, ERR_NOMEM, ERR_RETRY, "no memory for a translation of over %zu bytes", w->cap);
        }
    }
    *out = (struct text){w->text, n};
    return ERR_OK;
}

static struct text text_of(const char *s)
{
    return (struct text){s, strlen(s)};
}

static double ms_between(int64_t from_ns, int64_t to_ns)
{
    return from_ns > 0 && to_ns > from_ns ? (double)(to_ns - from_ns) / NS_PER_MS : 0;
}

/* A float as it was written: 0.7 is told as 0.7, not as 0.699999988079071, its nearest double. */
static double plain(float v)
{
    double rounded = round((double)v * 1e6) / 1e6;

    return (float)rounded == v ? rounded : (double)v;
}

static void fill(struct result *out, const struct task *t, const struct model *m)
{
    const struct request *r = &t->request;

    *out = (struct result){
        .job_id = t->job.job_id,
        .status = r->finish == FINISH_EOS ? RESULT_OK : RESULT_TRUNCATED,
        .target_lang = text_of(t->to->code),
        .source_lang = t->from ? text_of(t->from->code) : (struct text){NULL, 0},
        .model = text_of(m->name),
        .model_digest = text_of(m->digest),
        .prompt_tokens = r->n_prompt,
        .cached_tokens = r->n_cached,
        .output_tokens = r->n_output,
        .finish_reason = text_of(finish_name(r->finish)),
        .mean_logprob = r->n_scored > 0 ? (double)r->sum_logprob / r->n_scored : 0,
        .min_logprob = r->n_scored > 0 ? (double)r->min_logprob : 0,
        .temperature = plain(r->sampling.temperature),
        .top_p = plain(r->sampling.top_p),
        .repetition_penalty = plain(r->sampling.repetition_penalty),
        .top_k = r->sampling.top_k,
        .max_output_tokens = r->max_output,
        .seed = (int64_t)r->sampling.seed,
        .queue_ms = ms_between(t->record->received_ns, t->started_ns),
        .batch_wait_ms = ms_between(t->started_ns, r->admitted_ns),
        .decode_ms = ms_between(r->admitted_ns, r->finished_ns),
        .attempts = t->attempts,
        .metadata = t->job.metadata,
        .n_metadata = t->job.n_metadata,
    };
}

/* No text and no score, whatever was decoded until then: nobody is to take half an answer for one. */
static void fill_expired(struct result *out, const struct task *t)
{
    out->status = RESULT_EXPIRED;
    out->error_code = text_of(err_name(t->error.code));
    out->error_message = text_of(t->error.msg);
    out->output_tokens = 0;
    out->mean_logprob = out->min_logprob = NAN;
}

static void count(struct stats *s, const struct result *r)
{
    if (r->status == RESULT_EXPIRED)
        return;
    stats_count(&s->prompt_tokens, (uint64_t)r->prompt_tokens);
    stats_count(&s->cached_tokens, (uint64_t)r->cached_tokens);
    stats_count(&s->output_tokens, (uint64_t)r->output_tokens);
    histogram_add(&s->queue_s, r->queue_ms / 1000);
    histogram_add(&s->batch_wait_s, r->batch_wait_ms / 1000);
    histogram_add(&s->decode_s, r->decode_ms / 1000);
}

/* As configured, else as the request came; registry framing needs an id of ours to write, without one the result
 * carries its schema's fingerprint. */
static enum encoding choose_encoding(struct result_writer *w, const struct task *t)
{
    enum encoding enc = w->wire->result_encoding == WIRE_JSON       ? ENCODING_JSON
                        : w->wire->result_encoding == WIRE_AVRO     ? ENCODING_SINGLE_OBJECT
                        : w->wire->result_encoding == WIRE_REGISTRY ? ENCODING_REGISTRY
                                                                    : t->encoding;

    if (enc != ENCODING_REGISTRY || w->wire->result_schema_id >= 0)
        return enc;
    if (!w->has_told)
        log_event(LOG_WARN, "result_encoding",
                  "encoding=avro reason=\"wire.result_schema_id is not set: results of "
                  "registry-framed requests go out as Avro single objects\"");
    w->has_told = true;
    return ENCODING_SINGLE_OBJECT;
}

enum err_code result_write(struct result_writer *w, struct task *t, struct err *e)
{
    struct result res;
    struct text bytes;
    enum err_code rc;
    bool bad_trace;

    fill(&res, t, w->model);
    if (task_is_expired(t))
        fill_expired(&res, t);
    else if ((rc = decode_text(w, &t->request, &res.translation, e)) != ERR_OK)
        return rc;
    rc = codec_encode_result(w->codec, &res, choose_encoding(w, t), (int32_t)w->wire->result_schema_id, &t->arena,
                             &bytes, e);
    if (rc != ERR_OK)
        return rc;
    t->out = (struct outgoing){.to = PUBLISH_RESULT,
                               .partition = -1,
                               .key = t->record->key,
                               .key_size = t->record->key_size,
                               .value = bytes.s,
                               .value_size = bytes.n,
                               .opaque = t};
    if ((rc = headers_build(t->record, &t->arena, &t->out.headers, &t->out.n_headers, &bad_trace, e)) != ERR_OK)
        return rc;
    if (bad_trace)
        stats_add(&w->stats->bad_traces, 1);
    count(w->stats, &res);
    return ERR_OK;
}

/* One more header that says what is missing and where it can still be read. */
static enum err_code mark_omitted(struct task *t, const char *what, struct err *e)
{
    size_t n = t->out.n_headers, cap = strlen(t->record->topic) + 128;
    struct header *h = arena_take(&t->arena, (n + 1) * sizeof *h);
    char *s = arena_take(&t->arena, cap);

    if (!h || !s)
        return err_set(e, ERR_NOMEM, ERR_STOP, "dead letter: over the memory of one job");
    memcpy(h, t->out.headers, n * sizeof *h);
    int k = snprintf(s, cap, "%s, too large for the dead-letter topic: read it at %s, partition %d, offset %lld", what,
                     t->record->topic, t->record->at.partition, (long long)t->record->at.offset);
    h[n] = (struct header){"translate-omitted", s, (size_t)k};
    t->out.headers = h;
    t->out.n_headers = n + 1;
    return ERR_OK;
}

enum err_code result_write_dead(struct task *t, struct err *e)
{
    struct record bare = *t->record;
    enum err_code rc;

    if (t->squeezed >= 2) {
        bare.headers = NULL;
        bare.n_headers = 0;
        bare.key = NULL;
        bare.key_size = 0;
    }
    t->out = (struct outgoing){.partition = -1};
    if ((rc = dead_letter_build(&t->out, &bare, &t->error, t->attempts, &t->arena, e)) != ERR_OK)
        return rc;
    t->out.to = PUBLISH_DEAD_LETTER;
    t->out.opaque = t;
    if (t->squeezed == 0)
        return ERR_OK;
    t->out.value = NULL;
    t->out.value_size = 0;
    return mark_omitted(t, t->squeezed == 1 ? "value" : "key, value and headers", e);
}
