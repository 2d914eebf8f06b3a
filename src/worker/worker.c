/* The pipeline's life:
 *
 *   worker_open()   embedded cluster -> HTTP port (/live answers from here on) -> model, backend, engine
 *   worker_run()    brokers and topics -> consumer and publisher -> four threads -> event=ready
 *                   -> supervise() until halt -> drain() -> close
 *   drain           consumer: intake ends, records queue closes -> batcher: open batch, batches queue closes
 *                   -> decoder: engine runs dry, finished queue closes -> publisher: last acknowledgement, is_done
 *                   -> consumer: last turn; then the frontier is committed and the group left */
#define _GNU_SOURCE /* pthread_clockjoin_np() */
#include "worker/worker.h"

#include "kafka/admin.h"
#include "worker/pipeline.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    CONSUMER_TURN_MS = 50,  /* the longest a stop request waits for the intake to end */
    SUPERVISE_MS = 500,     /* how often the watchdog looks */
    BROKER_ASK_MS = 2000,   /* one question to a broker that may not be there */
    TOPIC_WAIT_MS = 5000,   /* until a topic that nobody knows is a missing one */
    FAILED_DRAIN_MS = 5000, /* after a failure: for what was sent to be acknowledged */
    JOIN_MS = 5000,         /* after an abort: for the threads to notice */
    CLOSE_MS = 5000         /* committing and leaving the group */
};

enum err_code worker_open(struct worker **out, const struct config *cfg, struct err *e)
{
    struct worker *w = calloc(1, sizeof *w);
    enum err_code rc;

    *out = NULL;
    if (!w)
        return err_set(e, ERR_NOMEM, ERR_STOP, "worker: no memory");
    w->cfg = cfg;
    w->started_ns = clock_mono_ns();
    w->bootstrap = cfg->kafka.bootstrap_servers;
    w->publish.wake_fd = -1;
    w->halt.wake_fd = -1;
    health_init(&w->health);
    stats_init(&w->stats);
    pthread_mutex_init(&w->view_lock, NULL);
    if ((rc = halt_open(&w->halt, e)) != ERR_OK)
        goto out;
    if (cfg->kafka.embedded) {
        if ((rc = embedded_open(&w->embedded, &cfg->kafka, e)) != ERR_OK)
            goto out;
        w->bootstrap = embedded_bootstrap(w->embedded);
        log_event(LOG_INFO, "embedded", "bootstrap=%s partitions=%d", w->bootstrap, cfg->kafka.partitions);
    }
    if (cfg->http.enabled) {
        if ((rc = http_open(&w->http, cfg->http.address, cfg->http.port, worker_routes, w, e)) != ERR_OK)
            goto out;
        log_event(LOG_INFO, "http", "address=%s port=%d", cfg->http.address, http_port(w->http));
    }
    if ((rc = worker_setup(w, e)) != ERR_OK)
        goto out;
    *out = w;
    w = NULL;
out:
    worker_close(w);
    return rc;
}

void worker_stop(struct worker *w)
{
    halt_request(&w->halt);
}

void worker_close(struct worker *w)
{
    if (!w)
        return;
    http_close(w->http);
    if (w->is_wedged)
        return; /* a thread that cannot be ended still reads all this; the process is about to exit */
    embedded_close(w->embedded);
    worker_teardown(w);
    pthread_mutex_destroy(&w->view_lock);
    stats_close(&w->stats);
    halt_close(&w->halt);
    free(w);
}

/* --- start: brokers and topics --- */

static bool wait_halt(struct worker *w, int ms)
{
    struct pollfd fd = {.fd = w->halt.wake_fd, .events = POLLIN};

    return poll(&fd, 1, ms) > 0 || halt_is_stopping(&w->halt);
}

/* *absent: the error is a topic that does not exist. */
static enum err_code missing_topic(const struct admin_report *r, bool *absent, struct err *e)
{
    const struct admin_topic *all[] = {&r->request, &r->result, &r->dead_letter};

    for (int i = 0; i < 3; i++) {
        if (all[i]->problem.code != ERR_OK && all[i]->partitions != 0) {
            *e = all[i]->problem;
            return e->code;
        }
        *absent = all[i]->partitions == 0;
        if (*absent)
            return err_set(e, ERR_KAFKA, ERR_STOP,
                           "topic %s does not exist (create it, or set kafka.create_topics = true)", all[i]->name);
    }
    return ERR_OK;
}

static enum err_code ask_brokers(struct worker *w, bool *absent, struct err *e)
{
    const struct kafka_config *k = &w->cfg->kafka;
    struct admin_report report;
    enum err_code rc;

    *absent = false;
    memset(&report, 0, sizeof report);
    if (k->create_topics && !w->embedded)
        if ((rc = admin_create_topics(k, w->bootstrap, BROKER_ASK_MS * 5, e)) != ERR_OK)
            return rc;
    if ((rc = admin_ask(&report, k, w->bootstrap, BROKER_ASK_MS, e)) != ERR_OK)
        return rc;
    return missing_topic(&report, absent, e);
}

/* A broker that is not there is waited for; the log says so once in five seconds.  A topic that was made a moment ago is
 * not known to every broker at once: it is missing when it is missing for TOPIC_WAIT_MS. */
static enum err_code wait_for_brokers(struct worker *w, struct err *e)
{
    int64_t told = 0, absent_since = 0;
    enum err_code rc;
    char why[400];
    bool absent;

    while ((rc = ask_brokers(w, &absent, e)) != ERR_OK) {
        int64_t now = clock_mono_ns();
        if (!absent)
            absent_since = 0;
        else if (absent_since == 0)
            absent_since = now;
        if (e->act != ERR_RETRY && (!absent || now - absent_since >= TOPIC_WAIT_MS * NS_PER_MS))
            return rc;
        if (told == 0 || now - told >= 5 * NS_PER_S) {
            log_event(LOG_WARN, "broker_wait", "bootstrap=%s reason=%s", w->bootstrap,
                      log_quote(why, sizeof why, e->msg));
            told = now;
        }
        health_set_obstacle(&w->health, OBSTACLE_BROKER, true);
        if (wait_halt(w, 500))
            return ERR_OK;
    }
    health_set_obstacle(&w->health, OBSTACLE_BROKER, false);
    return ERR_OK;
}

/* --- the threads --- */

static void *consumer_main(void *arg)
{
    struct worker *w = arg;
    bool intake = true;
    struct err e;

    log_thread_name("consumer");
    health_turn(&w->health, LOOP_CONSUMER); /* from here on the supervisor copies the consumer's own figure */
    while (!halt_is_aborted(&w->halt) && !atomic_load(&w->publish.is_done)) {
        if (intake && halt_is_stopping(&w->halt)) {
            consumer_stop_intake(w->consumer);
            queue_close(w->records);
            intake = false;
        }
        if (consumer_turn(w->consumer, CONSUMER_TURN_MS, &e) != ERR_OK) {
            halt_fail(&w->halt, &e);
            break;
        }
    }
    queue_close(w->records);
    health_end(&w->health, LOOP_CONSUMER);
    return NULL;
}

static void *batcher_main(void *arg)
{
    log_thread_name("batcher");
    batcher_run(&((struct worker *)arg)->batcher);
    return NULL;
}

static void *decoder_main(void *arg)
{
    log_thread_name("decoder");
    decode_loop_run(&((struct worker *)arg)->decoder);
    return NULL;
}

static void *publisher_main(void *arg)
{
    log_thread_name("publisher");
    publish_run(&((struct worker *)arg)->publish);
    return NULL;
}

static enum err_code start_threads(struct worker *w, struct err *e)
{
    static void *(*const mains[LOOPS])(void *) = {
        [LOOP_CONSUMER] = consumer_main,
        [LOOP_BATCHER] = batcher_main,
        [LOOP_DECODER] = decoder_main,
        [LOOP_PUBLISHER] = publisher_main,
    };

    for (; w->n_threads < LOOPS; w->n_threads++) {
        int bad = pthread_create(&w->threads[w->n_threads], NULL, mains[w->n_threads], w);
        if (bad)
            return err_set(e, ERR_NOMEM, ERR_STOP, "thread %s: %s", loop_name((enum loop)w->n_threads), strerror(bad));
    }
    return ERR_OK;
}

static void wire_loops(struct worker *w)
{
    w->batcher = (struct batcher){.batch = &w->cfg->batch,
                                  .retry = &w->cfg->retry,
                                  .records = w->records,
                                  .batches = w->batches,
                                  .finished = w->finished,
                                  .tasks = w->tasks,
                                  .consumer = w->consumer,
                                  .codec = w->decode_codec,
                                  .planner = w->translator.planner,
                                  .order = w->order,
                                  .halt = &w->halt,
                                  .health = &w->health,
                                  .stats = &w->stats};
    w->decoder = (struct decode_loop){.retry = &w->cfg->retry,
                                      .batches = w->batches,
                                      .finished = w->finished,
                                      .tasks = w->tasks,
                                      .consumer = w->consumer,
                                      .engine = w->translator.engine,
                                      .order = w->order,
                                      .halt = &w->halt,
                                      .health = &w->health,
                                      .stats = &w->stats,
                                      .max_active = w->cfg->delivery.max_in_flight_jobs,
                                      .drain_timeout_ms = w->cfg->delivery.drain_timeout_ms};
    w->publish.dead_letter = &w->cfg->dead_letter;
    w->publish.retry = &w->cfg->retry;
    w->publish.finished = w->finished;
    w->publish.tasks = w->tasks;
    w->publish.consumer = w->consumer;
    w->publish.writer = w->writer;
    w->publish.order = w->order;
    shadow_init(&w->shadow, stdout, w->cfg->shadow_count);
    w->publish.shadow = w->cfg->delivery.mode == DELIVERY_SHADOW ? &w->shadow : NULL;
    w->publish.is_transactional = w->cfg->delivery.mode == DELIVERY_EXACTLY_ONCE;
    w->publish.halt = &w->halt;
    w->publish.health = &w->health;
    w->publish.stats = &w->stats;
}

static enum err_code open_publisher(struct worker *w, struct publisher **out, struct err *e)
{
    const struct config *c = w->cfg;

    if (c->delivery.mode == DELIVERY_EXACTLY_ONCE)
        return publisher_open_transactional(out, &c->kafka, &c->delivery, w->consumer, publish_report, &w->publish, e);
    return publisher_open(out, &c->kafka, w->bootstrap, &c->delivery, publish_report, &w->publish, e);
}

static enum err_code open_kafka(struct worker *w, struct err *e)
{
    const struct config *c = w->cfg;
    struct publisher *publisher;
    struct consumer *consumer;
    enum err_code rc;

    if ((rc = consumer_open(&consumer, &c->kafka, w->bootstrap, &c->delivery, w->records, e)) != ERR_OK)
        return rc;
    consumer_watch_crashes(consumer, c->retry.max_crashes, w->translator.info.rows + c->batch.max_jobs);
    pthread_mutex_lock(&w->view_lock);
    w->consumer = consumer;
    pthread_mutex_unlock(&w->view_lock);
    wire_loops(w);
    if ((rc = decode_loop_open(&w->decoder, e)) != ERR_OK || (rc = publish_open(&w->publish, e)) != ERR_OK ||
        c->delivery.mode == DELIVERY_SHADOW)
        return rc;
    if ((rc = open_publisher(w, &publisher, e)) != ERR_OK)
        return rc;
    publisher_set_wake_fd(publisher, w->publish.wake_fd);
    w->publish.publisher = publisher;
    pthread_mutex_lock(&w->view_lock);
    w->publisher = publisher;
    pthread_mutex_unlock(&w->view_lock);
    return ERR_OK;
}

static void log_ready(const struct worker *w)
{
    char model[160], device[160];

    log_event(
        LOG_INFO, "ready",
        "model=%s digest=%s prompt=\"%s\" backend=%s device=%s rows=%d kv_tokens=%lld max_sequence=%d load_ms=%.0f "
        "bootstrap=%s group=%s request_topic=%s result_topic=%s dead_letter_topic=%s",
        log_quote(model, sizeof model, w->translator.model->name), w->translator.model->digest,
        prompt_describe(w->translator.prompt), w->translator.ops->name,
        log_quote(device, sizeof device, w->translator.info.device), w->translator.info.rows,
        (long long)w->translator.info.blocks * w->translator.info.block_tokens, w->translator.limits.max_sequence,
        w->translator.load_ms, w->bootstrap, w->cfg->kafka.group_id, w->cfg->kafka.request_topic,
        w->cfg->kafka.result_topic, w->cfg->kafka.dead_letter_topic);
}

/* --- supervision and the end --- */

static void log_stall(struct worker *w)
{
    struct engine_stats s;

    stats_get_engine(&w->stats, &s);
    log_event(LOG_ERROR, "stalled",
              "rows_running=%d rows=%d waiting=%d blocks=%d blocks_free=%d blocks_cached=%d steps=%llu put_back=%llu "
              "batches_queued=%zu finished_queued=%zu",
              s.rows_running, s.rows_total, s.waiting, s.blocks_total, s.blocks_free, s.blocks_cached,
              (unsigned long long)s.steps, (unsigned long long)s.put_back, queue_depth(w->batches),
              queue_depth(w->finished));
}

/* One look of the watchdog; each complaint is logged when it begins, not as long as it lasts. */
static void look(struct worker *w, bool *was_stalled, bool *was_live, bool *was_joined)
{
    int64_t now = clock_mono_ns();
    struct consumer_stats s;
    char why[160];

    consumer_get_stats(w->consumer, &s);
    if (atomic_load(&w->health.turned_ns[LOOP_CONSUMER]) != 0)
        atomic_store(&w->health.turned_ns[LOOP_CONSUMER], s.last_turn_ns); /* it turns while it waits in a revocation */
    atomic_store(&w->health.joined, s.joined);
    health_set_obstacle(&w->health, OBSTACLE_BROKER, !s.broker_up);
    health_set_obstacle(&w->health, OBSTACLE_OFFSET, s.lost_offsets > 0);
    if (s.joined && !*was_joined)
        log_event(LOG_INFO, "joined", "partitions=%d", s.partitions);
    *was_joined = s.joined;
    bool stalled = health_is_stalled(&w->health, now), live = health_is_live(&w->health, now, why, sizeof why);
    if (stalled && !*was_stalled)
        log_stall(w);
    if (!live && *was_live)
        log_event(LOG_ERROR, "wedged", "reason=\"%s\"", why);
    *was_stalled = stalled;
    *was_live = live;
}

static void supervise(struct worker *w)
{
    bool was_stalled = false, was_live = true, was_joined = false;

    while (!halt_is_stopping(&w->halt)) {
        look(w, &was_stalled, &was_live, &was_joined);
        wait_halt(w, was_joined ? SUPERVISE_MS : 20);
    }
}

static struct timespec spec_of(int64_t ns)
{
    return (struct timespec){ns / NS_PER_S, ns % NS_PER_S};
}

static bool join_until(struct worker *w, int i, int64_t deadline_ns)
{
    struct timespec t = spec_of(deadline_ns);

    return pthread_clockjoin_np(w->threads[i], NULL, CLOCK_MONOTONIC, &t) == 0;
}

/* Waits for the publisher, which ends last but for the consumer; a failure on the way shortens the time. */
static bool wait_drained(struct worker *w, int64_t begin_ns)
{
    for (;;) {
        int64_t now = clock_mono_ns();
        int limit_ms = w->cfg->delivery.drain_timeout_ms;
        if (halt_is_failed(&w->halt) && limit_ms > FAILED_DRAIN_MS)
            limit_ms = FAILED_DRAIN_MS;
        int64_t end = begin_ns + limit_ms * NS_PER_MS, slice = now + 50 * NS_PER_MS;
        if (join_until(w, LOOP_PUBLISHER, slice < end ? slice : end))
            return true;
        if (now >= end)
            return false;
    }
}

/* The loops end by themselves now; one that hangs in a library or a device is left behind. */
static void join_rest(struct worker *w, enum loop already)
{
    int64_t deadline = clock_mono_ns() + JOIN_MS * NS_PER_MS;

    if (w->consumer)
        consumer_abandon(w->consumer);
    for (int i = 0; i < w->n_threads; i++)
        if (i != (int)already && !join_until(w, i, deadline)) {
            log_event(LOG_ERROR, "wedged", "reason=\"the %s does not end\"", loop_name((enum loop)i));
            w->is_wedged = true;
        }
}

static void drain(struct worker *w)
{
    int64_t begin = clock_mono_ns();
    struct err e;

    atomic_store(&w->health.phase, PHASE_DRAINING);
    log_event(LOG_INFO, "draining", "in_flight=%lld timeout_ms=%d", (long long)consumer_in_flight(w->consumer),
              w->cfg->delivery.drain_timeout_ms);
    bool drained = wait_drained(w, begin);
    if (!drained) {
        long long left = (long long)consumer_in_flight(w->consumer); /* none: only the loops had not ended yet */
        err_set(&e, ERR_TIMEOUT, ERR_STOP,
                "not drained within %d ms (delivery.drain_timeout_ms): %lld jobs are left for the group to read again",
                w->cfg->delivery.drain_timeout_ms, left);
        halt_abort(&w->halt, left > 0 ? &e : NULL);
    }
    if (halt_is_failed(&w->halt))
        halt_abort(&w->halt, NULL);
    join_rest(w, drained ? LOOP_PUBLISHER : LOOPS);
}

/* After the threads: records that no loop will finish go back unfinished, so that nobody waits for them. */
static void release_rest(struct worker *w, struct consumer *c)
{
    struct record *r;
    struct task *t;

    while ((r = queue_pop(w->records, 0))) {
        consumer_release(c, r);
        stats_add(&w->stats.jobs_given_back, 1);
    }
    while ((t = task_pool_next_held(w->tasks))) {
        consumer_release(c, t->record);
        t->record = NULL;
        stats_add(&w->stats.jobs_given_back, 1);
    }
}

static void close_kafka(struct worker *w)
{
    struct publisher *publisher = w->publisher;
    struct consumer *consumer = w->consumer;
    struct err e;

    if (w->is_wedged)
        return;
    pthread_mutex_lock(&w->view_lock);
    w->consumer = NULL;
    w->publisher = NULL;
    pthread_mutex_unlock(&w->view_lock);
    if (publisher)
        publisher_close(publisher, 0); /* what is still out is reported here, and stays unfinished */
    if (consumer) {
        if (halt_error(&w->halt, &e) != ERR_DEVICE)
            consumer_rest(consumer); /* also where the publisher could not */
        release_rest(w, consumer);
        consumer_close(consumer, CLOSE_MS);
    }
    publish_close(&w->publish);
    decode_loop_close(&w->decoder);
}

static void log_stopped(struct worker *w, int64_t begin_ns)
{
    struct stats *s = &w->stats;

    log_event(LOG_INFO, "stopped",
              "results=%llu truncated=%llu expired=%llu dead_letters=%llu given_back=%llu late=%llu drain_ms=%lld",
              (unsigned long long)stats_read(&s->jobs_ok), (unsigned long long)stats_read(&s->jobs_truncated),
              (unsigned long long)stats_read(&s->jobs_expired), (unsigned long long)stats_read(&s->jobs_dead),
              (unsigned long long)stats_read(&s->jobs_given_back), (unsigned long long)stats_read(&s->jobs_late),
              (long long)((clock_mono_ns() - begin_ns) / NS_PER_MS));
}

enum err_code worker_run(struct worker *w, struct err *e)
{
    int64_t stop_ns;
    enum err_code rc;

    atomic_store(&w->health.phase, PHASE_JOINING);
    if ((rc = wait_for_brokers(w, e)) != ERR_OK || halt_is_stopping(&w->halt))
        return rc;
    if ((rc = open_kafka(w, e)) == ERR_OK && (rc = start_threads(w, e)) == ERR_OK) {
        atomic_store(&w->health.phase, PHASE_RUNNING);
        log_ready(w);
        supervise(w);
    } else {
        halt_abort(&w->halt, e);
    }
    stop_ns = clock_mono_ns();
    if (w->n_threads == LOOPS)
        drain(w);
    else
        join_rest(w, LOOPS);
    close_kafka(w);
    log_stopped(w, stop_ns);
    if (w->publish.shadow && !w->is_wedged)
        shadow_summary(&w->shadow);
    return halt_error(&w->halt, e);
}
