/* The HTTP pages.  They run on the HTTP thread: atomics, const fields, and the Kafka half under view_lock alone. */
#include "version.h"
#include "worker/pipeline.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define PREFIX "translate_worker_"

enum { MAX_PARTITIONS = 1024 };

/* What is known of Kafka at this moment; all zero before the group is joined and after it is left. */
struct view {
    struct consumer_stats consumer;
    struct publisher_stats publisher;
    struct consumer_partition partitions[MAX_PARTITIONS];
    int n_partitions;
};

static struct view *look(struct worker *w)
{
    struct view *v = calloc(1, sizeof *v);

    if (!v)
        return NULL;
    pthread_mutex_lock(&w->view_lock);
    if (w->consumer) {
        consumer_get_stats(w->consumer, &v->consumer);
        v->n_partitions = consumer_get_partitions(w->consumer, v->partitions, MAX_PARTITIONS);
        if (v->n_partitions > MAX_PARTITIONS)
            v->n_partitions = MAX_PARTITIONS;
    }
    if (w->publisher)
        publisher_get_stats(w->publisher, &v->publisher);
    pthread_mutex_unlock(&w->view_lock);
    return v;
}

static int64_t lag_of(const struct consumer_partition *p)
{
    int64_t from = p->committed >= 0 ? p->committed : p->position;

    if (p->end < 0 || from < 0)
        return -1;
    return p->end > from ? p->end - from : 0;
}

static void say(struct page *p, bool good, const char *yes, const char *why)
{
    p->status = good ? 200 : 503;
    page_printf(p, "%s\n", good ? yes : why);
}

static void page_live(void *ctx, struct page *p)
{
    struct worker *w = ctx;
    char why[160];

    say(p, health_is_live(&w->health, clock_mono_ns(), why, sizeof why), "live", why);
}

static void page_ready(void *ctx, struct page *p)
{
    struct worker *w = ctx;
    char why[160];

    say(p, health_is_ready(&w->health, clock_mono_ns(), why, sizeof why), "ready", why);
}

/* --- /metrics --- */

static void metrics_jobs(struct page *p, const struct stats *s)
{
    const char *jobs = PREFIX "jobs_total", *dead = PREFIX "dead_letters_total";

    metrics_family(p, jobs, "counter", "Jobs by outcome; result, truncated and expired are published results.");
    metrics_sample(p, jobs, "outcome", "result", (double)stats_read(&s->jobs_ok));
    metrics_sample(p, jobs, "outcome", "truncated", (double)stats_read(&s->jobs_truncated));
    metrics_sample(p, jobs, "outcome", "expired", (double)stats_read(&s->jobs_expired));
    metrics_sample(p, jobs, "outcome", "dead_letter", (double)stats_read(&s->jobs_dead));
    metrics_sample(p, jobs, "outcome", "late", (double)stats_read(&s->jobs_late));
    metrics_sample(p, jobs, "outcome", "given_back", (double)stats_read(&s->jobs_given_back));
    metrics_family(p, dead, "counter", "Acknowledged dead letters by error code.");
    for (int i = 0; i < ERR_CODES; i++)
        if (stats_read(&s->dead_by_code[i]) > 0)
            metrics_sample(p, dead, "code", err_name((enum err_code)i), (double)stats_read(&s->dead_by_code[i]));
    metrics_counter(p, PREFIX "decode_retries_total", "Jobs decoded again after a failure of their row.",
                    (double)stats_read(&s->decode_retries));
    metrics_counter(p, PREFIX "publish_retries_total", "Records sent again after a broker refused them for now.",
                    (double)stats_read(&s->publish_retries));
    metrics_counter(p, PREFIX "registry_waits_total", "Jobs put off because the schema registry did not answer.",
                    (double)stats_read(&s->registry_waits));
    metrics_counter(p, PREFIX "bad_traces_total", "Malformed traceparent headers, replaced by a new trace.",
                    (double)stats_read(&s->bad_traces));
    metrics_counter(p, PREFIX "skewed_clocks_total",
                    "Records stamped over a second ahead of this clock; their age is 0.",
                    (double)stats_read(&s->skewed_clocks));
}

static void metrics_tokens(struct page *p, const struct stats *s)
{
    const char *tokens = PREFIX "tokens_total";

    metrics_family(p, tokens, "counter", "Tokens of written results; cached are prompt tokens whose KV was found.");
    metrics_sample(p, tokens, "kind", "prompt", (double)stats_read(&s->prompt_tokens));
    metrics_sample(p, tokens, "kind", "cached", (double)stats_read(&s->cached_tokens));
    metrics_sample(p, tokens, "kind", "output", (double)stats_read(&s->output_tokens));
    metrics_histogram(p, PREFIX "batch_jobs", "Jobs in a micro-batch.", &s->batch_jobs);
    metrics_histogram(p, PREFIX "batch_tokens", "Prompt tokens in a micro-batch.", &s->batch_tokens);
}

static void metrics_times(struct page *p, const struct stats *s)
{
    metrics_histogram(p, PREFIX "record_age_seconds", "From a record's own time to the batcher.", &s->record_age_s);
    metrics_histogram(p, PREFIX "queue_seconds", "From record received to batcher.", &s->queue_s);
    metrics_histogram(p, PREFIX "batch_wait_seconds", "From batcher to a row of the engine.", &s->batch_wait_s);
    metrics_histogram(p, PREFIX "decode_seconds", "From row to last token.", &s->decode_s);
    metrics_histogram(p, PREFIX "publish_seconds", "From send to acknowledgement.", &s->publish_s);
    metrics_histogram(p, PREFIX "job_seconds", "From record received to acknowledged result.", &s->total_s);
}

static void metrics_engine(struct page *p, struct worker *w)
{
    struct engine_stats e;

    stats_get_engine(&w->stats, &e);
    metrics_gauge(p, PREFIX "engine_rows", "Rows of the engine.", e.rows_total);
    metrics_gauge(p, PREFIX "engine_rows_running", "Rows in use.", e.rows_running);
    metrics_gauge(p, PREFIX "engine_waiting", "Requests that wait for a row or blocks.", e.waiting);
    metrics_gauge(p, PREFIX "kv_blocks", "KV blocks in the pool.", e.blocks_total);
    metrics_gauge(p, PREFIX "kv_blocks_free", "KV blocks that nothing holds.", e.blocks_free);
    metrics_gauge(p, PREFIX "kv_blocks_cached", "KV blocks held by the prefix cache alone.", e.blocks_cached);
    metrics_counter(p, PREFIX "engine_steps_total", "Steps of the engine.", (double)e.steps);
    metrics_counter(p, PREFIX "engine_rows_in_steps_total", "Rows summed over steps: over steps, the mean batch.",
                    (double)e.rows_in_steps);
    metrics_counter(p, PREFIX "engine_prompt_tokens_total", "Prompt tokens computed.", (double)e.prompt_tokens);
    metrics_counter(p, PREFIX "engine_cached_tokens_total", "Prompt tokens found in the cache.",
                    (double)e.cached_tokens);
    metrics_counter(p, PREFIX "engine_output_tokens_total", "Tokens decoded.", (double)e.output_tokens);
    metrics_counter(p, PREFIX "engine_wasted_tokens_total", "Tokens computed and thrown away.",
                    (double)e.wasted_tokens);
    metrics_counter(p, PREFIX "engine_put_back_total", "Rows put back because the KV pool was full.",
                    (double)e.put_back);
}

static void metrics_partitions(struct page *p, const struct view *v)
{
    char number[16];

    metrics_family(p, PREFIX "lag", "gauge", "Records behind the end by partition, from the committed offset.");
    for (int i = 0; i < v->n_partitions; i++) {
        snprintf(number, sizeof number, "%d", v->partitions[i].partition);
        if (lag_of(&v->partitions[i]) >= 0)
            metrics_sample(p, PREFIX "lag", "partition", number, (double)lag_of(&v->partitions[i]));
    }
    metrics_family(p, PREFIX "committed_offset", "gauge", "Committed offset by partition.");
    for (int i = 0; i < v->n_partitions; i++) {
        snprintf(number, sizeof number, "%d", v->partitions[i].partition);
        if (v->partitions[i].committed >= 0)
            metrics_sample(p, PREFIX "committed_offset", "partition", number, (double)v->partitions[i].committed);
    }
}

static void metrics_kafka(struct page *p, const struct view *v)
{
    const struct consumer_stats *c = &v->consumer;
    const struct publisher_stats *b = &v->publisher;

    metrics_gauge(p, PREFIX "partitions", "Partitions assigned.", c->partitions);
    metrics_gauge(p, PREFIX "in_flight_jobs", "Jobs read and not finished.", (double)c->in_flight_jobs);
    metrics_gauge(p, PREFIX "in_flight_bytes", "Bytes of their records.", (double)c->in_flight_bytes);
    metrics_counter(p, PREFIX "records_total", "Records read.", (double)c->records);
    metrics_counter(p, PREFIX "records_skipped_total",
                    "Records that the note of the committed offset says are finished.", (double)c->skipped);
    metrics_counter(p, PREFIX "cut_offsets_total",
                    "Offsets that left the request topic (retention, deletion) before they were read.", (double)c->cut);
    metrics_counter(p, PREFIX "notes_ignored_total", "Notes of committed offsets that were not understood.",
                    (double)c->notes_ignored);
    metrics_counter(p, PREFIX "owner_deaths_total",
                    "Partitions that were assigned with a note of an owner that died at work.",
                    (double)c->deaths_found);
    metrics_counter(p, PREFIX "commits_total", "Offset commits.", (double)c->commits);
    metrics_counter(p, PREFIX "commit_errors_total", "Offset commits that failed.", (double)c->commit_errors);
    metrics_counter(p, PREFIX "rebalances_total", "Assignments and revocations.", (double)c->rebalances);
    metrics_counter(p, PREFIX "lost_partitions_total", "Partitions lost without a revocation.",
                    (double)c->lost_partitions);
    metrics_counter(p, PREFIX "offset_resets_total", "Partitions begun elsewhere than at a committed offset.",
                    (double)c->offset_resets);
    metrics_counter(p, PREFIX "late_results_total", "Results of partitions that had gone, dropped.",
                    (double)c->late_results);
    metrics_counter(p, PREFIX "published_total", "Records sent.", (double)b->sent);
    metrics_counter(p, PREFIX "publish_acknowledged_total", "Records acknowledged.", (double)b->acknowledged);
    metrics_counter(p, PREFIX "publish_failed_total", "Records refused.", (double)b->failed);
    metrics_counter(p, PREFIX "transactions_total", "Transactions committed (delivery.mode exactly_once).",
                    (double)b->commits);
    metrics_counter(p, PREFIX "transactions_aborted_total", "Transactions aborted and done again.", (double)b->aborts);
    metrics_counter(p, PREFIX "producer_rebuilds_total", "Producers built anew after a fatal error.",
                    (double)b->rebuilds);
}

static void metrics_queues(struct page *p, struct worker *w, const struct view *v)
{
    const char *name = PREFIX "queue_depth";

    metrics_family(p, name, "gauge", "Items that wait between two threads.");
    if (atomic_load(&w->health.phase) != PHASE_LOADING) {
        metrics_sample(p, name, "queue", "records", (double)queue_depth(w->records));
        metrics_sample(p, name, "queue", "batches", (double)queue_depth(w->batches));
        metrics_sample(p, name, "queue", "finished", (double)queue_depth(w->finished));
        metrics_sample(p, name, "queue", "key_order", (double)key_order_waiting(w->order));
    }
    metrics_sample(p, name, "queue", "producer", (double)v->publisher.queue_depth);
}

static void page_metrics(void *ctx, struct page *p)
{
    struct worker *w = ctx;
    struct view *v = look(w);
    char why[160];

    if (!v) {
        p->status = 503;
        return;
    }
    p->content_type = "text/plain; version=0.0.4; charset=utf-8";
    metrics_family(p, PREFIX "build_info", "gauge", "Version of this worker.");
    metrics_sample(p, PREFIX "build_info", "version", TRANSLATE_WORKER_VERSION, 1);
    metrics_gauge(p, PREFIX "uptime_seconds", "Since start.", (double)(clock_mono_ns() - w->started_ns) / NS_PER_S);
    metrics_gauge(p, PREFIX "ready", "1 when /ready says 200.",
                  health_is_ready(&w->health, clock_mono_ns(), why, sizeof why));
    metrics_jobs(p, &w->stats);
    metrics_tokens(p, &w->stats);
    metrics_times(p, &w->stats);
    metrics_engine(p, w);
    metrics_kafka(p, v);
    metrics_partitions(p, v);
    metrics_queues(p, w, v);
    free(v);
}

/* --- /status --- */

static json_t *status_model(const struct worker *w)
{
    if (atomic_load(&w->health.phase) == PHASE_LOADING)
        return json_null();
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:i, s:I, s:i, s:i, s:f}", "name", w->translator.model->name, "digest",
                     w->translator.model->digest, "prompt", prompt_describe(w->translator.prompt), "backend",
                     w->translator.ops->name, "device", w->translator.info.device, "rows", w->translator.info.rows,
                     "kv_tokens", (json_int_t)w->translator.info.blocks * w->translator.info.block_tokens,
                     "max_sequence", w->translator.limits.max_sequence, "max_input", w->translator.limits.max_input,
                     "load_ms", w->translator.load_ms);
}

static json_t *status_jobs(const struct stats *s)
{
    json_t *dead = json_object();

    for (int i = 0; i < ERR_CODES; i++)
        if (stats_read(&s->dead_by_code[i]) > 0)
            json_object_set_new(dead, err_name((enum err_code)i),
                                json_integer((json_int_t)stats_read(&s->dead_by_code[i])));
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "results", (json_int_t)stats_read(&s->jobs_ok),
                     "truncated", (json_int_t)stats_read(&s->jobs_truncated), "expired",
                     (json_int_t)stats_read(&s->jobs_expired), "dead_letters", (json_int_t)stats_read(&s->jobs_dead),
                     "late", (json_int_t)stats_read(&s->jobs_late), "given_back",
                     (json_int_t)stats_read(&s->jobs_given_back), "decode_retries",
                     (json_int_t)stats_read(&s->decode_retries), "publish_retries",
                     (json_int_t)stats_read(&s->publish_retries), "dead_by_code", dead);
}

/* Means where a sum and a count say more than a bucket's bound. */
static double mean_of(const struct histogram *h)
{
    uint64_t n = 0;

    for (int i = 0; i <= h->n_bounds; i++)
        n += atomic_load_explicit(&h->counts[i], memory_order_relaxed);
    return n ? (double)atomic_load_explicit(&h->sum_micro, memory_order_relaxed) / 1e6 / (double)n : 0;
}

static double bounded(double x)
{
    return x < 1e9 ? x : 1e9; /* JSON has no infinity: above the last bucket */
}

static json_t *status_times(const struct stats *s)
{
    const struct histogram *h = &s->total_s;

    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "mean_queue", mean_of(&s->queue_s), "mean_batch_wait",
                     mean_of(&s->batch_wait_s), "mean_decode", mean_of(&s->decode_s), "mean_publish",
                     mean_of(&s->publish_s), "mean_total", mean_of(h), "p50_total", bounded(histogram_quantile(h, 0.5)),
                     "p95_total", bounded(histogram_quantile(h, 0.95)), "p99_total",
                     bounded(histogram_quantile(h, 0.99)));
}

static json_t *status_batches(const struct stats *s)
{
    json_t *sizes = json_array();

    for (int i = 0; i <= s->batch_jobs.n_bounds; i++) {
        uint64_t n = atomic_load_explicit(&s->batch_jobs.counts[i], memory_order_relaxed);
        if (n > 0)
            json_array_append_new(sizes, json_pack("{s:i, s:I}", "up_to",
                                                   i < s->batch_jobs.n_bounds ? (int)s->batch_jobs.bounds[i] : -1,
                                                   "batches", (json_int_t)n));
    }
    return json_pack("{s:I, s:f, s:f, s:o}", "count", (json_int_t)stats_read(&s->batches), "mean_jobs",
                     mean_of(&s->batch_jobs), "mean_tokens", mean_of(&s->batch_tokens), "sizes", sizes);
}

static json_t *status_engine(struct worker *w)
{
    struct engine_stats e;

    stats_get_engine(&w->stats, &e);
    return json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:I, s:f, s:I, s:I, s:I, s:I}", "rows", e.rows_total,
                     "rows_running", e.rows_running, "waiting", e.waiting, "blocks", e.blocks_total, "blocks_free",
                     e.blocks_free, "blocks_cached", e.blocks_cached, "steps", (json_int_t)e.steps, "mean_rows",
                     e.steps ? (double)e.rows_in_steps / (double)e.steps : 0.0, "prompt_tokens",
                     (json_int_t)e.prompt_tokens, "cached_tokens", (json_int_t)e.cached_tokens, "output_tokens",
                     (json_int_t)e.output_tokens, "put_back", (json_int_t)e.put_back);
}

static json_t *status_partitions(const struct view *v)
{
    json_t *all = json_array();

    for (int i = 0; i < v->n_partitions; i++) {
        const struct consumer_partition *p = &v->partitions[i];
        json_array_append_new(all, json_pack("{s:i, s:I, s:I, s:I, s:I, s:I}", "partition", (int)p->partition,
                                             "committed", (json_int_t)p->committed, "position", (json_int_t)p->position,
                                             "end", (json_int_t)p->end, "lag", (json_int_t)lag_of(p), "in_flight",
                                             (json_int_t)p->in_flight));
    }
    return all;
}

static json_t *status_kafka(const struct worker *w, const struct view *v)
{
    const struct kafka_config *k = &w->cfg->kafka;

    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:o}", "bootstrap",
                     w->bootstrap ? w->bootstrap : "", "group", k->group_id, "request_topic", k->request_topic,
                     "result_topic", k->result_topic, "dead_letter_topic", k->dead_letter_topic, "joined",
                     v->consumer.joined, "records", (json_int_t)v->consumer.records, "in_flight",
                     (json_int_t)v->consumer.in_flight_jobs, "commits", (json_int_t)v->consumer.commits, "rebalances",
                     (json_int_t)v->consumer.rebalances, "partitions", status_partitions(v));
}

static json_t *status_tree(struct worker *w, const struct view *v)
{
    int64_t now = clock_mono_ns();
    char live[160] = "", ready[160] = "";
    bool is_live = health_is_live(&w->health, now, live, sizeof live);
    bool is_ready = health_is_ready(&w->health, now, ready, sizeof ready);

    return json_pack("{s:s, s:f, s:b, s:b, s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "version", TRANSLATE_WORKER_VERSION,
                     "uptime_s", (double)(now - w->started_ns) / NS_PER_S, "live", is_live, "ready", is_ready, "reason",
                     is_live ? ready : live, "model", status_model(w), "jobs", status_jobs(&w->stats), "seconds",
                     status_times(&w->stats), "batches", status_batches(&w->stats), "engine", status_engine(w), "kafka",
                     status_kafka(w, v));
}

static void page_status(void *ctx, struct page *p)
{
    struct worker *w = ctx;
    struct view *v = look(w);
    json_t *tree = v ? status_tree(w, v) : NULL;
    char *text = tree ? json_dumps(tree, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : NULL;

    if (text) {
        p->content_type = "application/json";
        page_printf(p, "%s\n", text);
    } else {
        p->status = 503;
        page_printf(p, "no memory\n");
    }
    free(text);
    json_decref(tree);
    free(v);
}

/* --- / --- */

static void html_text(struct page *p, const char *s)
{
    for (; s && *s; s++)
        switch (*s) {
        case '<': page_printf(p, "&lt;"); break;
        case '>': page_printf(p, "&gt;"); break;
        case '&': page_printf(p, "&amp;"); break;
        case '"': page_printf(p, "&quot;"); break;
        default: page_printf(p, "%c", *s);
        }
}

static void html_row(struct page *p, const char *name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void html_row(struct page *p, const char *name, const char *fmt, ...)
{
    char value[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(value, sizeof value, fmt, ap);
    va_end(ap);
    page_printf(p, "<tr><th>");
    html_text(p, name);
    page_printf(p, "</th><td>");
    html_text(p, value);
    page_printf(p, "</td></tr>\n");
}

static void html_partitions(struct page *p, const struct view *v)
{
    page_printf(p, "</table>\n<h2>Partitions</h2>\n<table><tr><th>partition</th><th>committed</th><th>end</th>"
                   "<th>lag</th><th>in flight</th></tr>\n");
    for (int i = 0; i < v->n_partitions; i++)
        page_printf(p, "<tr><td>%d</td><td>%lld</td><td>%lld</td><td>%lld</td><td>%lld</td></tr>\n",
                    v->partitions[i].partition, (long long)v->partitions[i].committed, (long long)v->partitions[i].end,
                    (long long)lag_of(&v->partitions[i]), (long long)v->partitions[i].in_flight);
    page_printf(p, "</table>\n<p><a href=\"/status\">status</a> <a href=\"/metrics\">metrics</a> "
                   "<a href=\"/ready\">ready</a> <a href=\"/live\">live</a></p>\n");
}

static void html_body(struct page *p, struct worker *w, const struct view *v)
{
    const struct stats *s = &w->stats;
    struct engine_stats e;
    char why[160] = "";
    bool ready = health_is_ready(&w->health, clock_mono_ns(), why, sizeof why);

    stats_get_engine(&w->stats, &e);
    html_row(p, "State", "%s%s", ready ? "ready" : "not ready: ", ready ? "" : why);
    html_row(p, "Up for", "%.0f s", (double)(clock_mono_ns() - w->started_ns) / NS_PER_S);
    if (atomic_load(&w->health.phase) != PHASE_LOADING) {
        html_row(p, "Model", "%s (%s), %s", w->translator.model->name, w->translator.model->digest,
                 prompt_describe(w->translator.prompt));
        html_row(p, "Backend", "%s, %s", w->translator.ops->name, w->translator.info.device);
    }
    html_row(p, "Topics", "%s → %s, %s", w->cfg->kafka.request_topic, w->cfg->kafka.result_topic,
             w->cfg->kafka.dead_letter_topic);
    html_row(p, "Results", "%llu, and %llu cut short", (unsigned long long)stats_read(&s->jobs_ok),
             (unsigned long long)stats_read(&s->jobs_truncated));
    html_row(p, "Dead letters", "%llu", (unsigned long long)stats_read(&s->jobs_dead));
    html_row(p, "In flight", "%lld jobs, %lld bytes", (long long)v->consumer.in_flight_jobs,
             (long long)v->consumer.in_flight_bytes);
    html_row(p, "Micro-batches", "%llu, %.1f jobs each", (unsigned long long)stats_read(&s->batches),
             mean_of(&s->batch_jobs));
    html_row(p, "Rows", "%d of %d running, %d requests wait", e.rows_running, e.rows_total, e.waiting);
    html_row(p, "KV blocks", "%d of %d free, %d hold prefixes", e.blocks_free, e.blocks_total, e.blocks_cached);
    html_row(p, "Latency", "mean %.3f s, 99%% within %.3g s", mean_of(&s->total_s),
             histogram_quantile(&s->total_s, 0.99));
}

static void page_index(void *ctx, struct page *p)
{
    struct worker *w = ctx;
    struct view *v = look(w);

    p->content_type = "text/html; charset=utf-8";
    page_printf(p,
                "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>translate-worker</title>\n"
                "<meta http-equiv=\"refresh\" content=\"5\"><style>body{font:16px/1.5 sans-serif;max-width:50em;"
                "margin:2em auto;padding:0 1em}table{border-collapse:collapse}th,td{text-align:left;padding:.2em 1em "
                ".2em 0;border-bottom:1px solid #ddd;font-variant-numeric:tabular-nums}</style></head><body>\n"
                "<h1>translate-worker " TRANSLATE_WORKER_VERSION "</h1>\n<table>\n");
    if (v) {
        html_body(p, w, v);
        html_partitions(p, v);
    }
    page_printf(p, "</body></html>\n");
    free(v);
}

const struct http_route worker_routes[] = {
    {"/", page_index},          {"/live", page_live},     {"/ready", page_ready},
    {"/metrics", page_metrics}, {"/status", page_status}, {NULL, NULL},
};
