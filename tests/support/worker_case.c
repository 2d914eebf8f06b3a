#include "tests/support/worker_case.h"

#include "base/clock.h"
#include "cpu/cpu_backend.h"
#include "kafka/reader.h"
#include "tests/support/cpu_model.h"
#include "wire/schema_store.h"

#include <criterion/criterion.h>
#include <curl/curl.h>
#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *const base[] = {
    "model.path=" DEMO_MODEL,
    "kafka.embedded=true",
    "kafka.partitions=2",
    "kafka.session_timeout_ms=3500",
    "kafka.max_poll_interval_ms=10000",
    "delivery.commit_interval_ms=50",
    "delivery.revoke_timeout_ms=2000",
    "delivery.publish_timeout_ms=5000",
    "delivery.max_in_flight_jobs=256",
    "retry.backoff_ms=50",
    "retry.backoff_max_ms=500",
    "dead_letter.max_share=1",
    "batch.max_jobs=32",
    "http.port=0",
};

void worker_case_open(struct worker_case *wc, const char *const *overrides)
{
    const char *all[64];
    int n = 0;

    memset(wc, 0, sizeof *wc);
    log_set_level(getenv("VERBOSE") ? LOG_DEBUG : LOG_ERROR);
    for (size_t i = 0; i < sizeof base / sizeof base[0]; i++)
        all[n++] = base[i];
    for (; overrides && *overrides; overrides++)
        all[n++] = *overrides;
    cr_assert_eq(config_load(&wc->cfg, NULL, all, n, &wc->e), ERR_OK, "%s", wc->e.msg);
    cr_assert_eq(embedded_open(&wc->broker, &wc->cfg.kafka, &wc->e), ERR_OK, "%s", wc->e.msg);
    snprintf(wc->bootstrap, sizeof wc->bootstrap, "%s", embedded_bootstrap(wc->broker));
    wc->cfg.kafka.embedded = false; /* the cluster outlives the worker */
    wc->cfg.kafka.bootstrap_servers = wc->bootstrap;
    wc->cfg.engine.backend = "fake";
    wc->fake = fake_defaults();
    wc->fake.eos_one_in = 10;
    backend_register(&fake_backend_ops);
    backend_register(&backend_cpu_ops);
}

static void *run(void *arg)
{
    struct worker_case *wc = arg;

    wc->rc = worker_run(wc->w, &wc->e);
    return NULL;
}

void worker_case_start(struct worker_case *wc)
{
    fake_set_options(&wc->fake);
    cr_assert_eq(worker_open(&wc->w, &wc->cfg, &wc->e), ERR_OK, "%s", wc->e.msg);
    cr_assert_eq(pthread_create(&wc->thread, NULL, run, wc), 0);
}

void worker_case_wait(struct worker_case *wc)
{
    pthread_join(wc->thread, NULL);
    worker_close(wc->w);
    wc->w = NULL;
}

void worker_case_stop(struct worker_case *wc)
{
    worker_stop(wc->w);
    worker_case_wait(wc);
}

void worker_case_close(struct worker_case *wc)
{
    embedded_close(wc->broker);
    config_free(&wc->cfg);
}

/* --- requests --- */

struct outgoing worker_case_value(const void *value, size_t n)
{
    return (struct outgoing){.to = PUBLISH_REQUEST, .partition = -1, .value = value, .value_size = n};
}

static void count(void *ctx, void *opaque, enum err_code rc, const struct err *e)
{
    (void)opaque;
    cr_assert_eq(rc, ERR_OK, "%s", e->msg);
    ++*(int *)ctx;
}

void worker_case_send(struct worker_case *wc, const struct outgoing *o, int n)
{
    struct publisher *p;
    int done = 0;

    cr_assert_eq(publisher_open(&p, &wc->cfg.kafka, wc->bootstrap, &wc->cfg.delivery, count, &done, &wc->e), ERR_OK);
    for (int i = 0; i < n; i++)
        while (publisher_send(p, &o[i], &wc->e) != ERR_OK)
            publisher_turn(p, 10);
    for (int i = 0; i < 2000 && done < n; i++)
        publisher_turn(p, 10);
    cr_assert_eq(done, n);
    publisher_close(p, 1000);
}

void worker_case_send_at(struct worker_case *wc, const char *json, int64_t timestamp_ms)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    char text[256];

    rd_kafka_conf_set(conf, "bootstrap.servers", wc->bootstrap, text, sizeof text);
    rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, text, sizeof text);
    cr_assert_eq(rd_kafka_producev(rk, RD_KAFKA_V_TOPIC(wc->cfg.kafka.request_topic),
                                   RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                                   RD_KAFKA_V_VALUE((void *)json, strlen(json)), RD_KAFKA_V_TIMESTAMP(timestamp_ms),
                                   RD_KAFKA_V_END),
                 RD_KAFKA_RESP_ERR_NO_ERROR);
    cr_assert_eq(rd_kafka_flush(rk, 10000), RD_KAFKA_RESP_ERR_NO_ERROR);
    rd_kafka_destroy(rk);
}

void worker_case_jobs(struct worker_case *wc, const char *prefix, int n)
{
    struct outgoing *o = calloc((size_t)n, sizeof *o);
    char(*text)[160] = calloc((size_t)n, sizeof *text);

    for (int i = 0; i < n; i++) {
        int k = snprintf(text[i], sizeof text[i],
                         "{\"job_id\": \"%s-%d\", \"text\": \"Sentence %d of many.\", \"target_lang\": \"de\"}", prefix,
                         i, i);
        o[i] = worker_case_value(text[i], (size_t)k);
        o[i].partition = i % wc->cfg.kafka.partitions;
    }
    worker_case_send(wc, o, n);
    free(text);
    free(o);
}

/* --- answers --- */

static void copy_text(char *out, size_t cap, const void *s, size_t n)
{
    n = n < cap - 1 ? n : cap - 1;
    if (n)
        memcpy(out, s, n);
    out[n] = '\0';
}

static void copy_header(char *out, size_t cap, const struct record *r, const char *name)
{
    const struct header *h = record_find_header(r, name);

    copy_text(out, cap, h ? h->value : NULL, h ? h->size : 0);
}

static int64_t big_endian(const struct record *r, const char *name)
{
    const struct header *h = record_find_header(r, name);
    uint64_t v = 0;

    for (size_t i = 0; h && i < h->size; i++)
        v = v << 8 | ((const unsigned char *)h->value)[i];
    return h ? (int64_t)v : -1;
}

static void see(struct seen *s, const struct record *r, bool dead, struct codec *c, struct arena *a)
{
    struct result res;
    struct err e;
    char number[32];

    memset(s, 0, sizeof *s);
    s->timestamp_ms = r->timestamp_ms;
    s->value_size = r->value ? r->value_size : SIZE_MAX;
    copy_text(s->value, sizeof s->value, r->value, r->value ? r->value_size : 0);
    copy_header(s->trace, sizeof s->trace, r, "traceparent");
    s->omitted = record_find_header(r, "translate-omitted") != NULL;
    if (dead) {
        copy_header(s->code, sizeof s->code, r, "kafka_dlt-exception-fqcn");
        copy_header(s->topic, sizeof s->topic, r, "kafka_dlt-original-topic");
        s->partition = (int)big_endian(r, "kafka_dlt-original-partition");
        s->offset = big_endian(r, "kafka_dlt-original-offset");
        return;
    }
    copy_header(s->topic, sizeof s->topic, r, "translate-source-topic");
    copy_header(number, sizeof number, r, "translate-source-partition");
    s->partition = atoi(number);
    copy_header(number, sizeof number, r, "translate-source-offset");
    s->offset = atoll(number);
    arena_reset(a);
    cr_assert_eq(codec_decode_result(c, r, &res, a, &e), ERR_OK, "%s", e.msg);
    copy_text(s->id, sizeof s->id, res.job_id.s, res.job_id.n);
    snprintf(s->status, sizeof s->status, "%s", result_status_name(res.status));
    copy_text(s->code, sizeof s->code, res.error_code.s, res.error_code.n);
    s->has_translation = res.translation.s != NULL;
    copy_text(s->finish, sizeof s->finish, res.finish_reason.s, res.finish_reason.n);
    s->prompt_tokens = res.prompt_tokens;
    s->output_tokens = res.output_tokens;
}

int worker_case_read(struct worker_case *wc, bool dead, int n, int wait_ms, struct seen **list)
{
    const struct kafka_config *k = &wc->cfg.kafka;
    int64_t until = clock_mono_ns() + wait_ms * NS_PER_MS;
    struct codec_limits limits = codec_default_limits();
    struct schema_store *store;
    const struct record *r;
    struct reader *rd;
    struct codec *c;
    struct arena a;
    bool at_end;
    int got = 0;

    arena_init(&a, 65536, 64 << 20);
    cr_assert_eq(schema_store_open(&store, NULL, NULL, 1000, &wc->e), ERR_OK);
    cr_assert_eq(codec_open(&c, store, &limits, &wc->e), ERR_OK);
    cr_assert_eq(reader_open(&rd, k, wc->bootstrap, dead ? k->dead_letter_topic : k->result_topic, true, &wc->e),
                 ERR_OK, "%s", wc->e.msg);
    *list = NULL;
    for (at_end = false; !(at_end && (got >= n || clock_mono_ns() > until));) {
        cr_assert_eq(reader_next(rd, &r, &at_end, 100, &wc->e), ERR_OK, "%s", wc->e.msg);
        if (!r)
            continue;
        *list = realloc(*list, (size_t)(got + 1) * sizeof **list);
        see(&(*list)[got++], r, dead, c, &a);
    }
    reader_close(rd);
    codec_close(c);
    schema_store_close(store);
    arena_free(&a);
    return got;
}

int64_t worker_case_committed(struct worker_case *wc, int partition)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    char text[256];

    rd_kafka_conf_set(conf, "bootstrap.servers", wc->bootstrap, text, sizeof text);
    rd_kafka_conf_set(conf, "group.id", wc->cfg.kafka.group_id, text, sizeof text);
    rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_CONSUMER, conf, text, sizeof text);
    rd_kafka_topic_partition_list_add(list, wc->cfg.kafka.request_topic, partition);
    cr_assert_eq(rd_kafka_committed(rk, list, 10000), 0);
    int64_t offset = list->elems[0].offset;
    rd_kafka_topic_partition_list_destroy(list);
    rd_kafka_destroy(rk);
    return offset < 0 ? -1 : offset;
}

struct body {
    char *s;
    size_t n, cap;
};

static size_t keep(char *data, size_t size, size_t n, void *ctx)
{
    struct body *b = ctx;

    for (size_t i = 0; i < size * n && b->n + 1 < b->cap; i++)
        b->s[b->n++] = data[i];
    return size * n;
}

long worker_case_get(struct worker_case *wc, const char *path, char *body, size_t cap)
{
    struct body b = {body, 0, cap};
    CURL *c = curl_easy_init();
    char url[128];
    long status = 0;

    snprintf(url, sizeof url, "http://127.0.0.1:%d%s", http_port(wc->w->http), path);
    curl_easy_setopt(c, CURLOPT_URL, url);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, keep);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, &b);
    curl_easy_setopt(c, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(c, CURLOPT_TIMEOUT, 10L);
    cr_assert_eq(curl_easy_perform(c), CURLE_OK, "GET %s", url);
    curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_cleanup(c);
    if (cap > 0)
        body[b.n] = '\0';
    return status;
}

/* There is no event to wait for: what is asked is a figure of another thread. */
void worker_case_until(struct worker_case *wc, bool (*holds)(struct worker_case *wc, int n), int n, const char *what)
{
    int64_t until = clock_mono_ns() + WORKER_CASE_WAIT_MS * NS_PER_MS;

    while (!holds(wc, n)) {
        cr_assert_lt(clock_mono_ns(), until, "waited in vain for: %s", what);
        nanosleep(&(struct timespec){0, 2 * NS_PER_MS}, NULL);
    }
}

bool worker_case_is_ready(struct worker_case *wc, int n)
{
    char why[160];

    (void)n;
    return health_is_ready(&wc->w->health, clock_mono_ns(), why, sizeof why);
}

bool worker_case_has_results(struct worker_case *wc, int n)
{
    const struct stats *s = &wc->w->stats;

    return stats_read(&s->jobs_ok) + stats_read(&s->jobs_truncated) >= (uint64_t)n;
}

bool worker_case_has_finished(struct worker_case *wc, int n)
{
    const struct stats *s = &wc->w->stats;

    return stats_read(&s->jobs_ok) + stats_read(&s->jobs_truncated) + stats_read(&s->jobs_expired) +
               stats_read(&s->jobs_dead) >=
           (uint64_t)n;
}
