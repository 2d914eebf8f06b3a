#include "kafka/consumer.h"

#include "base/clock.h"
#include "base/log.h"
#include "kafka/assignment.h"
#include "kafka/client.h"
#include "kafka/commits.h"
#include "kafka/confirm.h"
#include "kafka/consumer_conf.h"
#include "kafka/handover.h"
#include "kafka/intake.h"
#include "kafka/lost_offset.h"
#include "kafka/offsets.h"
#include "kafka/record_pool.h"
#include "kafka/wake.h"
#include "kafka/watch.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* States of a partition, and who makes each move (all on the consumer's thread):
 *
 *   not ours --on_assign()--> read and committed --on_revoke()--> revoked: not read, results still counted
 *      ^                            |                                  |
 *      |                            +--lost: on_loss()--+   all finished, or revoke_timeout_ms: commit, then drop
 *      +------------------------------------------------+--------------+
 * A partition whose offset is not in its log is begun again by begin_again(), see lost_offset.h.
 *
 * One eventfd wakes the thread: the consumer queue, the commit queue and the record queue write to it when they
 * are no longer empty, consumer_finish() and consumer_release() when there is work or room.  It is emptied before the
 * queues are looked at, so that no event falls between. */

enum {
    LEDGER_WINDOWS = 4,        /* offsets of one partition ahead of its oldest unfinished job: this many job windows */
    READ_TURN = 512,           /* records of one turn, so that acks and commits are never far */
    READ_AT_ONCE = 64,         /* of them handed on together */
    GROUP_TURN = 64,           /* group events of one turn */
    WATERMARKS_MS = 250,       /* how old `end` may be, */
    FRESH_MS = 10,             /* and where it decides what is noted */
    LEDGER_MOST = 32768,       /* and never more than this: a commit's note has room for some 24,000 offsets */
    COMMITTED_MS = 5000,       /* question for the committed offsets, at assignment */
    COMMITTED_TURN_MS = 500,   /* the same once more in a later turn, */
    COMMITTED_EVERY_MS = 1000, /* this often */
    REST_MS = 1000,            /* for the publisher to tell the group that nothing is in work any more */
};

struct finished { /* from the publisher, under lock; swapped out whole */
    struct source *list;
    size_t n;
};

struct consumer {
    const struct kafka_config *k;
    struct delivery_config d;
    struct client client;
    rd_kafka_t *rk;
    rd_kafka_queue_t *group_queue;
    int wake_fd;
    struct queue *records;
    struct record *read[READ_AT_ONCE]; /* n_read of them: read in this turn, and not handed on yet */
    size_t n_read;
    struct record_pool *pool;
    struct assignment *mine;
    struct intake *intake;
    struct offsets *offsets;
    struct confirm *confirm;
    struct commits *commits;
    struct handover *handover; /* to the publisher of transactions */

    pthread_mutex_t lock; /* of `finished` */
    struct finished finished, taken_out;
    size_t finished_cap;

    struct err stop; /* code ERR_OK = none */
    bool closing;    /* callbacks of the close only let go */
    bool intake_stopped;
    int64_t unknown_topic_ms; /* until a topic that is not there is believed to be missing */
    int64_t unknown_topic_ns; /* first time it was reported missing, 0 = it is there */
    int64_t watermarks_ns;
    int64_t ask_again_ns; /* for committed offsets that are not known, 0 = all are */

    struct watch watch;
    bool hurry; /* a record waits for what a commit says of it */

    _Atomic bool resting;   /* it ends in order: nothing is in work any more, */
    _Atomic bool rested;    /* and the next commit says so */
    _Atomic bool abandoned; /* nothing more will be finished */
    _Atomic bool joined;
    _Atomic int lost_offsets;
    _Atomic int64_t jobs; /* taken, and neither finished nor dropped as late */
    _Atomic int64_t n_records, n_skipped, n_rebalances, n_late, n_lost, n_resets, n_cut, last_turn_ns, last_record_ns;

    _Alignas(64) _Atomic bool starved; /* reading waits for room; asked with every record that is released: a cache line
                                        * of its own */
};

/* ---- errors ---- */

static void stop_with(struct consumer *c, const struct err *e)
{
    if (c->stop.code == ERR_OK)
        c->stop = *e;
}

static void log_text(enum log_level level, const char *event, const char *text)
{
    char q[600];

    log_event(level, event, "text=%s", log_quote(q, sizeof q, text));
}

/* An error of the group, the topic or a partition (id -1 = none), as a message of the library.  What passes by itself
 * is logged; what cannot is kept for the end of the turn. */
static void on_message_error(struct consumer *c, const rd_kafka_message_t *m, int32_t id)
{
    const char *text = rd_kafka_message_errstr(m);
    struct partition *p = assignment_find(c->mine, id);
    struct err e;

    if (!text)
        text = rd_kafka_err2str(m->err);
    switch (m->err) {
    case RD_KAFKA_RESP_ERR__PARTITION_EOF: return;
    case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART:
    case RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC:
    case RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION:
        if (!c->unknown_topic_ns)
            c->unknown_topic_ns = clock_mono_ns();
        log_text(LOG_WARN, "topic_unknown", text);
        return;
    case RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET:
    case RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE:
    case RD_KAFKA_RESP_ERR__NO_OFFSET:
        if (p)
            lost_offset_note(p);
        log_text(LOG_WARN, "offset_unusable", text);
        return;
    case RD_KAFKA_RESP_ERR__FATAL: {
        char why[256];

        rd_kafka_fatal_error(c->rk, why, sizeof why);
        err_set(&e, ERR_KAFKA, ERR_STOP, "consumer: %s", why);
        stop_with(c, &e);
        return;
    }
    case RD_KAFKA_RESP_ERR__MAX_POLL_EXCEEDED: log_text(LOG_ERROR, "poll_exceeded", text); return;
    default: break;
    }
    if (client_act(m->err) == ERR_STOP) {
        err_set(&e, ERR_KAFKA, ERR_STOP, "%s", text);
        stop_with(c, &e);
        return;
    }
    log_text(LOG_WARN, "consumer_error", text);
}

static void check_unknown_topic(struct consumer *c)
{
    struct err e;

    if (!c->unknown_topic_ns || clock_mono_ns() - c->unknown_topic_ns < c->unknown_topic_ms * NS_PER_MS)
        return;
    err_set(&e, ERR_KAFKA, ERR_STOP, "topic %s does not exist (kafka.create_topics = true would create it)",
            c->k->request_topic);
    stop_with(c, &e);
}

static void check_commits(struct consumer *c)
{
    struct err e;

    if (commits_failure(c->commits, &e) != ERR_OK)
        stop_with(c, &e);
}

/* ---- finished jobs ---- */

static bool is_transactional(const struct consumer *c)
{
    return c->d.mode == DELIVERY_EXACTLY_ONCE; /* offsets go with the results then: see handover.h */
}

/* A figure for the pages, which this thread alone writes. */
static void show(_Atomic int64_t *figure, int64_t value)
{
    atomic_store_explicit(figure, value, memory_order_release);
}

static void serve_finished(struct consumer *c)
{
    struct finished f;
    int64_t done = 0;

    pthread_mutex_lock(&c->lock);
    f = c->finished;
    c->finished = c->taken_out;
    c->finished.n = 0;
    pthread_mutex_unlock(&c->lock);
    for (size_t i = 0; i < f.n; i++) {
        const struct source *at = &f.list[i];
        struct partition *p = assignment_find(c->mine, at->partition);

        if (!p || p->assignment != at->assignment) {
            atomic_fetch_add(&c->n_late, !is_transactional(c)); /* in a transaction it was in time */
        } else if (ledger_finish(p->ledger, at->offset, NULL) == ERR_OK) {
            show(&p->in_flight, (int64_t)ledger_in_flight(p->ledger));
            show(&p->frontier, ledger_frontier(p->ledger));
            commits_want(c->commits); /* a note that changed is worth a commit too */
        } else {
            log_event(LOG_ERROR, "finished_twice", "partition=%d offset=%lld", at->partition, (long long)at->offset);
            continue; /* it was counted down the first time */
        }
        done++;
    }
    if (done > 0)
        atomic_fetch_sub(&c->jobs, done);
    c->taken_out = f;
}

void consumer_finish(struct consumer *c, const struct source *at)
{
    bool first;

    pthread_mutex_lock(&c->lock);
    first = c->finished.n == 0;
    if (c->finished.n < c->finished_cap)
        c->finished.list[c->finished.n++] = *at;
    else /* cannot be: every job in flight finishes once */
        log_event(LOG_ERROR, "finished_overflow", "partition=%d offset=%lld", at->partition, (long long)at->offset);
    pthread_mutex_unlock(&c->lock);
    if (first)
        wake_up(c->wake_fd);
}

/* A shadow commits nothing at all. */
static bool commits_here(const struct consumer *c)
{
    return c->d.mode == DELIVERY_AT_LEAST_ONCE;
}

static void commit_all(struct consumer *c, int64_t until_ns)
{
    if (commits_here(c) && c->stop.code == ERR_OK)
        commits_all(c->commits, until_ns);
}

/* ---- rebalance: called back from within rd_kafka_consumer_poll() or the close ---- */

/* The offsets and notes that are not known yet; partitions without are not read. */
static void ask_offsets(struct consumer *c, int timeout_ms)
{
    struct err e;

    c->ask_again_ns = 0;
    if (!offsets_read(c->offsets, c->rk, c->mine, timeout_ms, &e))
        c->ask_again_ns = clock_mono_ns() + COMMITTED_EVERY_MS * NS_PER_MS;
    if (e.code != ERR_OK)
        stop_with(c, &e);
    if (offsets_have_news(c->mine)) /* deaths that were found */
        commits_want(c->commits);
}

static void take_partition(struct consumer *c, int32_t id)
{
    struct err e;

    if (intake_take(c->intake, id, &e) != ERR_OK)
        stop_with(c, &e);
}

/* Where the library begins: where the group is, or as kafka.offset_reset says.  What the group does not tell yet the
 * library has to ask for itself. */
static int64_t first_offset(struct consumer *c, const struct partition *p)
{
    struct err e;
    int64_t at = lost_offset_wanted(p);

    if (at >= 0 || !p->known)
        return at >= 0 ? at : RD_KAFKA_OFFSET_INVALID;
    at = lost_offset_first(c->k);
    if (at == RD_KAFKA_OFFSET_INVALID) {
        lost_offset_none(c->k, p, &e);
        stop_with(c, &e);
    }
    atomic_fetch_add(&c->n_resets, 1);
    log_event(LOG_INFO, "no_offset", "partition=%d start=%s", p->id, c->k->offset_reset);
    return at;
}

static void on_assign(struct consumer *c, rd_kafka_topic_partition_list_t *given)
{
    for (int i = 0; i < given->cnt; i++)
        take_partition(c, given->elems[i].partition);
    ask_offsets(c, COMMITTED_MS);
    for (int i = 0; i < given->cnt; i++) {
        const struct partition *p = assignment_find(c->mine, given->elems[i].partition);
        if (p)
            given->elems[i].offset = first_offset(c, p);
    }
    commits_joined(c->commits);
    c->unknown_topic_ns = given->cnt > 0 ? 0 : c->unknown_topic_ns;
    atomic_store(&c->joined, true);
}

static int64_t in_flight_of(struct consumer *c, const rd_kafka_topic_partition_list_t *going)
{
    int64_t n = 0;

    for (int i = 0; i < going->cnt; i++) {
        const struct partition *p = assignment_find(c->mine, going->elems[i].partition);

        n += p ? (int64_t)ledger_in_flight(p->ledger) : 0;
    }
    return n;
}

static bool is_idle(struct consumer *c, const rd_kafka_topic_partition_list_t *going)
{
    return in_flight_of(c, going) == 0;
}

static bool is_told(struct consumer *c, const rd_kafka_topic_partition_list_t *going)
{
    bool news = false;

    for (int i = 0; i < going->cnt; i++) {
        const struct partition *p = assignment_find(c->mine, going->elems[i].partition);

        news |= p && offsets_has_news(p);
    }
    return !news;
}

/* Serves what may finish jobs until is_over(), at most until until_ns.  true: the partitions are lost. */
static bool wait_revoke(struct consumer *c, const rd_kafka_topic_partition_list_t *going, int64_t until_ns,
                        bool (*is_over)(struct consumer *, const rd_kafka_topic_partition_list_t *))
{
    for (;;) {
        wake_empty(c->wake_fd);
        serve_finished(c);
        handover_say(c->handover, offsets_have_news(c->mine), true);
        handover_serve(c->handover, c->rk, c->mine, c->offsets, c->confirm);
        bool lost = rd_kafka_assignment_lost(c->rk);
        atomic_store(&c->last_turn_ns, clock_mono_ns());
        if (lost || is_over(c, going) || atomic_load(&c->abandoned) || clock_mono_ns() >= until_ns)
            return lost;
        commits_serve(c->commits, 0);
        int64_t step = clock_mono_ns() + 100 * NS_PER_MS; /* a loss has no event of its own */
        wake_wait(c->wake_fd, step < until_ns ? step : until_ns);
    }
}

/* The group waits for us here, and the library counts this towards max.poll.interval: so there is a limit. */
static void on_revoke(struct consumer *c, const rd_kafka_topic_partition_list_t *going)
{
    int64_t ms = c->d.revoke_timeout_ms < c->k->max_poll_interval_ms / 2 ? c->d.revoke_timeout_ms
                                                                         : c->k->max_poll_interval_ms / 2;
    int64_t start = clock_mono_ns(), commit_ms = ms < 1000 ? 1000 : ms;
    bool lost;

    for (int i = 0; i < going->cnt; i++) {
        struct partition *p = assignment_find(c->mine, going->elems[i].partition);
        if (p)
            p->revoked = true;
    }
    lost = wait_revoke(c, going, start + ms * NS_PER_MS, is_idle);
    for (int i = 0; i < going->cnt; i++) {
        struct partition *p = assignment_find(c->mine, going->elems[i].partition);
        if (p)
            caution_rest(&p->caution); /* given up in order: no death */
    }
    if (!lost && is_transactional(c))
        lost = wait_revoke(c, going, clock_mono_ns() + REST_MS * NS_PER_MS, is_told);
    if (!lost)
        commit_all(c, clock_mono_ns() + commit_ms * NS_PER_MS);
    handover_say(c->handover, false, false);
    log_event(LOG_INFO, "revoked", "partitions=%d unfinished=%lld waited_ms=%lld lost=%d", going->cnt,
              (long long)in_flight_of(c, going), (long long)((clock_mono_ns() - start) / NS_PER_MS), lost);
}

static void let_go(struct consumer *c, const rd_kafka_topic_partition_list_t *going)
{
    for (int i = 0; i < going->cnt; i++)
        if (c->intake)
            intake_drop(c->intake, going->elems[i].partition);
        else
            assignment_drop(c->mine, going->elems[i].partition);
}

static void tell_library(rd_kafka_t *rk, bool assign, const rd_kafka_topic_partition_list_t *list)
{
    bool cooperative = strcmp(rd_kafka_rebalance_protocol(rk), "COOPERATIVE") == 0;
    rd_kafka_error_t *err = NULL;

    if (cooperative)
        err = assign ? rd_kafka_incremental_assign(rk, list) : rd_kafka_incremental_unassign(rk, list);
    else
        rd_kafka_assign(rk, assign ? list : NULL);
    if (err) {
        log_text(LOG_ERROR, "assign_failed", rd_kafka_error_string(err));
        rd_kafka_error_destroy(err);
    }
}

static void on_rebalance(rd_kafka_t *rk, rd_kafka_resp_err_t rc, rd_kafka_topic_partition_list_t *list, void *opaque)
{
    struct consumer *c = ((struct client *)opaque)->owner;
    bool assign = rc == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;

    if (assign && !c->closing) {
        on_assign(c, list);
        atomic_fetch_add(&c->n_rebalances, 1);
        log_event(LOG_INFO, "assigned", "partitions=%d protocol=%s", list->cnt, rd_kafka_rebalance_protocol(rk));
    } else if (!assign) {
        atomic_store(&c->joined, false);
        if (rd_kafka_assignment_lost(rk)) {
            atomic_fetch_add(&c->n_lost, list->cnt);
            log_event(LOG_WARN, "lost", "partitions=%d", list->cnt);
        } else if (!c->closing) {
            on_revoke(c, list);
        }
        let_go(c, list);
    }
    tell_library(rk, assign, list);
}

/* ---- partitions whose offset was lost: begun again at p->start ---- */

/* Further on in the same log the ledger stays: what is in flight may finish, and what the note says is finished. */
static void begin_partition(struct consumer *c, rd_kafka_topic_partition_list_t *list, int32_t id)
{
    struct partition *p = assignment_find(c->mine, id);
    int64_t at = p->start >= 0 ? p->start : first_offset(c, p), cut = p->start >= 0 ? lost_offset_cut(p) : 0;

    atomic_fetch_add(&c->n_resets, p->start >= 0 && at != lost_offset_wanted(p));
    atomic_fetch_add(&c->n_cut, cut);
    if (p->start >= 0 && at != lost_offset_wanted(p) && cut == 0) { /* what was read before is another log's */
        take_partition(c, id);
        p = assignment_find(c->mine, id);
        if (!p)
            return;
        p->known = true;
        p->begun = at;
    } else if (p->start >= 0) {
        p->lost_ns = p->past_end_ns = 0;
        p->start = -1;
    }
    p->ask_group = false;
    intake_again(c->intake, p);
    rd_kafka_topic_partition_list_add(list, c->k->request_topic, id)->offset = at;
}

/* With new ledgers: what is in flight of them is late from here on. */
static void ask_group(struct consumer *c, const int32_t *ids, int n)
{
    bool any = false;

    for (int i = 0; i < n; i++) {
        if (!assignment_find(c->mine, ids[i])->ask_group)
            continue;
        take_partition(c, ids[i]);
        if (!assignment_find(c->mine, ids[i]))
            return; /* the worker stops */
        assignment_find(c->mine, ids[i])->ask_group = any = true;
    }
    if (any)
        ask_offsets(c, COMMITTED_TURN_MS);
}

/* The library gives a partition without a usable offset up, and takes it again only with a new assignment: of this one
 * where the group's protocol is cooperative, of all otherwise. */
static void begin_again(struct consumer *c)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(4);
    bool cooperative = strcmp(rd_kafka_rebalance_protocol(c->rk), "COOPERATIVE") == 0;
    int n = assignment_count(c->mine);
    int32_t *ids = malloc((size_t)n * sizeof *ids); /* their order changes on the way */

    for (int i = 0; ids && i < n; i++)
        ids[i] = assignment_at(c->mine, i)->id;
    if (ids)
        ask_group(c, ids, n);
    for (int i = 0; ids && c->stop.code == ERR_OK && i < n; i++)
        if (!cooperative || assignment_find(c->mine, ids[i])->start >= 0 || assignment_find(c->mine, ids[i])->ask_group)
            begin_partition(c, list, ids[i]);
    if (list->cnt > 0 && cooperative)
        tell_library(c->rk, false, list);
    if (list->cnt > 0)
        tell_library(c->rk, true, list);
    rd_kafka_topic_partition_list_destroy(list);
    free(ids);
}

static void serve_lost_offsets(struct consumer *c)
{
    struct err e;

    atomic_store(&c->lost_offsets, lost_offset_count(c->mine));
    if (atomic_load(&c->lost_offsets) == 0 || c->stop.code != ERR_OK)
        return;
    if (lost_offset_is_due(c->mine))
        confirm_ask(c->confirm);
    if (lost_offset_serve(c->rk, c->k, c->mine, &e))
        begin_again(c);
    if (e.code != ERR_OK)
        stop_with(c, &e);
}

/* ---- reading ---- */

static bool has_room(const struct consumer *c)
{
    return atomic_load(&c->jobs) < c->d.max_in_flight_jobs &&
           record_pool_has_room(c->pool, c->d.max_in_flight_jobs, (int64_t)c->d.max_in_flight_mb << 20);
}

static void note_frontier(struct consumer *c, struct partition *p)
{
    atomic_store(&p->frontier, ledger_frontier(p->ledger));
    if (offsets_has_news(p))
        commits_want(c->commits);
}

static void end_careful(struct consumer *c, struct partition *p, bool at_end)
{
    if (!p->caution.careful)
        return;
    if (at_end) /* what was in work at a death lies behind */
        caution_over(&p->caution);
    else
        caution_pass(&p->caution, ledger_frontier(p->ledger));
    commits_want(c->commits);
    log_event(LOG_INFO, "careful_over", "partition=%d offset=%lld", p->id, (long long)ledger_frontier(p->ledger));
}

static void refresh_watermarks(struct consumer *c, int most_ms)
{
    int64_t now = clock_mono_ns(), low, high;

    if (now - c->watermarks_ns < most_ms * NS_PER_MS)
        return;
    c->watermarks_ns = now;
    for (int i = 0; i < assignment_count(c->mine); i++) {
        struct partition *p = assignment_at(c->mine, i);

        if (rd_kafka_get_watermark_offsets(c->rk, c->k->request_topic, p->id, &low, &high))
            continue;
        atomic_store(&p->low, low >= 0 ? low : -1);
        atomic_store(&p->end, high >= 0 ? high : -1);
    }
}

/* The careful partition whose records run alone, if there is one. */
static void look_alone(struct consumer *c)
{
    struct partition *p = assignment_find(c->mine, c->watch.alone);

    if (p && p->caution.left <= 0 && ledger_in_flight(p->ledger) == 0)
        end_careful(c, p, false);
    watch_turn(&c->watch, c->mine, clock_mono_ns());
}

static enum intake_verdict admit(void *ctx, struct partition *p, int64_t offset)
{
    struct consumer *c = ctx;
    if (!p->caution.in_work)
        refresh_watermarks(c, FRESH_MS);
    enum intake_verdict v = watch_admit(&c->watch, c->mine, p, offsets_caution(c->offsets), offset,
                                        atomic_load(&c->jobs), commits_refused(c->commits));

    if (v == INTAKE_WAIT && !caution_is_saved(&p->caution)) {
        c->hurry = true;
        commits_want(c->commits);
    }
    return v;
}

/* An earlier owner finished it: only the ledger hears of it. */
static void skip_record(struct consumer *c, struct partition *p, int64_t offset)
{
    if (ledger_finish(p->ledger, offset, NULL) != ERR_OK)
        return; /* cannot be: it was taken just now */
    atomic_store(&p->position, offset + 1);
    atomic_fetch_add(&c->n_skipped, 1);
    note_frontier(c, p);
}

/* Under one lock and with one wake-up. */
static void hand_on(struct consumer *c)
{
    if (c->n_read == 0)
        return;
    if (queue_push_all(c->records, c->read, c->n_read) != ERR_OK) { /* closed: they stay uncommitted */
        c->intake_stopped = true;
        atomic_fetch_sub(&c->jobs, (int64_t)c->n_read);
        for (size_t i = 0; i < c->n_read; i++)
            record_pool_release(c->pool, c->read[i]);
    }
    c->n_read = 0;
}

static void take_record(struct consumer *c, struct partition *p, const rd_kafka_message_t *m)
{
    struct source at = {.partition = p->id, .assignment = p->assignment, .offset = m->offset};
    bool is_seeded = ledger_is_seeded(p->ledger, m->offset);
    struct record *r;
    struct err e;

    if (ledger_take(p->ledger, m->offset, &e) != ERR_OK) {
        /* To pass over it could lose a record, to take it could repeat the whole log: a person decides. */
        err_set(&e, ERR_KAFKA, ERR_STOP,
                "%s, partition %d: offset %lld came after %lld was read: the log was cut or the topic made anew",
                c->k->request_topic, p->id, (long long)m->offset, (long long)atomic_load(&p->position) - 1);
        stop_with(c, &e);
        return;
    }
    if (is_seeded) {
        skip_record(c, p, m->offset);
        return;
    }
    r = record_pool_take(c->pool, m, &at, c->k->request_topic);
    if (!r) {
        err_set(&e, ERR_NOMEM, ERR_STOP, "no memory for a record of %zu bytes", m->len);
        stop_with(c, &e);
        return;
    }
    r->crashes = watch_condemned(c->mine, p, offsets_caution(c->offsets), m->offset);
    if (r->crashes > 0)
        commits_want(c->commits);
    show(&p->position, m->offset + 1);
    show(&p->in_flight, (int64_t)ledger_in_flight(p->ledger));
    atomic_fetch_add(&c->jobs, 1);
    show(&c->n_records, atomic_load_explicit(&c->n_records, memory_order_relaxed) + 1);
    show(&c->last_record_ns, r->received_ns);
    c->read[c->n_read++] = r;
    if (c->n_read == READ_AT_ONCE)
        hand_on(c);
}

static void take_message(struct consumer *c, struct partition *p, const rd_kafka_message_t *m)
{
    if (m->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
        take_record(c, p, m);
    } else if (m->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
        ledger_reach(p->ledger, m->offset); /* over the markers at the end of the log */
        if (m->offset > atomic_load(&p->position))
            atomic_store(&p->position, m->offset);
        end_careful(c, p, true);
        note_frontier(c, p);
    } else {
        on_message_error(c, m, p->id);
    }
}

static bool may_read(const struct consumer *c)
{
    return !c->intake_stopped && has_room(c) && !watch_is_busy(&c->watch, c->mine);
}

/* Until nothing is there or there is no room. */
static bool read_records(struct consumer *c)
{
    rd_kafka_message_t *m;
    struct partition *p;
    int total = 0;

    look_alone(c);
    c->hurry = false;
    atomic_store(&c->starved, false);
    while (total < READ_TURN && may_read(c) && (m = intake_next(c->intake, &p))) {
        take_message(c, p, m);
        rd_kafka_message_destroy(m);
        total++;
    }
    hand_on(c);
    intake_keep_fetching(c->intake);
    if (!has_room(c)) {
        atomic_store(&c->starved, true);
        if (has_room(c)) /* room came in between, and nobody would wake us */
            return true;
    }
    return total > 0;
}

/* ---- the door ---- */

/* In the other order, so that who sees that we rest sees the news too. */
static void rest_if_asked(struct consumer *c)
{
    if (!atomic_load(&c->resting) || atomic_load(&c->rested))
        return;
    c->intake_stopped = true;
    watch_rest(c->mine, NULL);
    commits_want(c->commits);
    handover_say(c->handover, offsets_have_news(c->mine), true);
    atomic_store(&c->rested, true);
}

static bool serve_group(struct consumer *c)
{
    rd_kafka_message_t *m;
    int n = 0;

    while (n < GROUP_TURN && (m = rd_kafka_consumer_poll(c->rk, 0))) {
        if (m->err)
            on_message_error(c, m, m->partition);
        else /* cannot be: the partitions' queues lead elsewhere */
            log_event(LOG_ERROR, "record_astray", "partition=%d offset=%lld", m->partition, (long long)m->offset);
        rd_kafka_message_destroy(m);
        n++;
    }
    return n > 0;
}

enum err_code consumer_turn(struct consumer *c, int timeout_ms, struct err *e)
{
    int64_t now = clock_mono_ns(), until = now + timeout_ms * NS_PER_MS;
    bool busy;

    atomic_store(&c->last_turn_ns, now);
    wake_empty(c->wake_fd);
    serve_finished(c);
    rest_if_asked(c);
    handover_serve(c->handover, c->rk, c->mine, c->offsets, c->confirm);
    busy = serve_group(c);
    if (c->ask_again_ns && now >= c->ask_again_ns)
        ask_offsets(c, COMMITTED_TURN_MS);
    commits_serve(c->commits, 0);
    confirm_ahead(c->confirm, is_transactional(c) && atomic_load(&c->jobs) > 0);
    serve_lost_offsets(c);
    busy |= read_records(c);
    if (commits_here(c))
        commits_if_due(c->commits, c->hurry);
    handover_say(c->handover, commits_wanted(c->commits) && offsets_have_news(c->mine),
                 c->hurry || c->watch.alone >= 0);
    refresh_watermarks(c, WATERMARKS_MS);
    check_unknown_topic(c);
    check_commits(c);
    if (c->stop.code != ERR_OK) {
        handover_deafen(c->handover);
        if (e)
            *e = c->stop;
        return c->stop.code;
    }
    if (busy || timeout_ms <= 0)
        return ERR_OK;
    if (commits_here(c) && commits_due_ns(c->commits) < until)
        until = commits_due_ns(c->commits);
    wake_wait(c->wake_fd, until);
    return ERR_OK;
}

static enum err_code subscribe(struct consumer *c, struct err *e)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_resp_err_t rc;

    rd_kafka_topic_partition_list_add(list, c->k->request_topic, RD_KAFKA_PARTITION_UA);
    rc = rd_kafka_subscribe(c->rk, list);
    rd_kafka_topic_partition_list_destroy(list);
    return rc ? client_err(e, rc, "subscribe") : ERR_OK;
}

static size_t ledger_window(const struct consumer *c)
{
    size_t window = LEDGER_WINDOWS * (size_t)c->d.max_in_flight_jobs;

    return window < LEDGER_MOST ? window : LEDGER_MOST;
}

static enum err_code start_library(struct consumer *c, const char *bootstrap, struct err *e)
{
    rd_kafka_conf_t *conf = NULL;
    enum err_code rc;

    if ((rc = client_conf(&conf, &c->client, c->k, bootstrap, e)) != ERR_OK)
        return rc;
    rd_kafka_conf_set_rebalance_cb(conf, on_rebalance);
    if ((rc = consumer_conf_fill(conf, c->k, e)) != ERR_OK) {
        rd_kafka_conf_destroy(conf);
        return rc;
    }
    c->unknown_topic_ms = client_get_int(conf, "topic.metadata.propagation.max.ms");
    if ((rc = client_new(&c->rk, RD_KAFKA_CONSUMER, &conf, e)) != ERR_OK)
        return rc;
    rd_kafka_poll_set_consumer(c->rk);
    c->group_queue = rd_kafka_queue_get_consumer(c->rk);
    rc = confirm_open(&c->confirm, c->rk, c->k->request_topic, c->mine, CONFIRM_FRESH_MS, e);
    if (rc != ERR_OK)
        return rc;
    rc = commits_open(&c->commits, c->rk, c->offsets, c->confirm, c->mine, c->d.commit_interval_ms, c->wake_fd, e);
    if (rc != ERR_OK)
        return rc;
    if ((rc = intake_open(&c->intake, c->rk, c->k->request_topic, c->mine, ledger_window(c), admit, c, e)) != ERR_OK)
        return rc;
    client_wake_from(c->group_queue, c->wake_fd);
    client_wake_from(intake_queue(c->intake), c->wake_fd);
    return subscribe(c, e);
}

static enum err_code allocate(struct consumer *c, struct err *e)
{
    size_t jobs = (size_t)c->d.max_in_flight_jobs;
    enum err_code rc;

    c->finished_cap = jobs;
    c->finished.list = calloc(jobs, sizeof *c->finished.list);
    c->taken_out.list = calloc(jobs, sizeof *c->taken_out.list);
    if (!c->finished.list || !c->taken_out.list)
        return err_set(e, ERR_NOMEM, ERR_STOP, "consumer: no memory for %zu jobs", jobs);
    if ((rc = record_pool_open(&c->pool, jobs, e)) != ERR_OK)
        return rc;
    if ((rc = assignment_open(&c->mine, ledger_window(c), e)) != ERR_OK ||
        (rc = offsets_open(&c->offsets, c->k->request_topic, e)) != ERR_OK)
        return rc;
    c->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (c->wake_fd < 0)
        return err_set(e, ERR_IO, ERR_STOP, "consumer: eventfd: %s", strerror(errno));
    return handover_open(&c->handover, c->wake_fd, e);
}

enum err_code consumer_open(struct consumer **out, const struct kafka_config *k, const char *bootstrap,
                            const struct delivery_config *d, struct queue *records, struct err *e)
{
    enum err_code rc;
    struct consumer *c;

    *out = NULL;
    if ((rc = consumer_conf_check(k, e)) != ERR_OK)
        return rc;
    c = aligned_alloc(_Alignof(struct consumer), sizeof *c);
    if (!c)
        return err_set(e, ERR_NOMEM, ERR_STOP, "consumer: out of memory");
    memset(c, 0, sizeof *c);
    c->k = k;
    c->d = *d;
    c->records = records;
    c->wake_fd = c->watch.alone = -1;
    c->last_turn_ns = clock_mono_ns();
    pthread_mutex_init(&c->lock, NULL);
    client_init(&c->client, c, "consumer");
    if ((rc = allocate(c, e)) == ERR_OK && (rc = start_library(c, bootstrap, e)) == ERR_OK) {
        *out = c;
        return ERR_OK;
    }
    consumer_close(c, 1000);
    return rc;
}

void consumer_watch_crashes(struct consumer *c, int max_crashes, int at_once)
{
    const struct caution_rule r = {.max_crashes = c->d.mode == DELIVERY_SHADOW ? 0 : max_crashes,
                                   .most = c->d.max_in_flight_jobs,
                                   .window = at_once < c->d.max_in_flight_jobs ? at_once : c->d.max_in_flight_jobs};

    offsets_set_caution(c->offsets, &r);
}

void consumer_rest(struct consumer *c)
{
    atomic_store(&c->resting, true);
    wake_up(c->wake_fd);
}

bool consumer_is_at_rest(const struct consumer *c)
{
    return atomic_load(&c->rested);
}

void consumer_stop_intake(struct consumer *c)
{
    c->intake_stopped = true;
}

void consumer_abandon(struct consumer *c)
{
    handover_deafen(c->handover);
    atomic_store(&c->abandoned, true);
    wake_up(c->wake_fd);
}

struct handover *consumer_handover(struct consumer *c)
{
    return c->handover;
}

int64_t consumer_in_flight(const struct consumer *c)
{
    return atomic_load(&c->jobs);
}

static void consumer_free(struct consumer *c)
{
    commits_close(c->commits);
    confirm_close(c->confirm);
    assignment_close(c->mine);
    offsets_close(c->offsets);
    handover_close(c->handover);
    if (!record_pool_close(c->pool))
        log_event(LOG_WARN, "records_left", "records=%lld", (long long)record_pool_records(c->pool));
    if (c->wake_fd >= 0)
        close(c->wake_fd);
    pthread_mutex_destroy(&c->lock);
    free(c->finished.list);
    free(c->taken_out.list);
    free(c);
}

void consumer_close(struct consumer *c, int timeout_ms)
{
    int64_t until = clock_mono_ns() + timeout_ms * NS_PER_MS;

    if (!c)
        return;
    c->intake_stopped = true;
    if (!c->rk) {
        consumer_free(c);
        return;
    }
    serve_finished(c);
    rest_if_asked(c);
    if (c->commits) {
        commits_hurry(c->commits);
        commit_all(c, clock_mono_ns() + (int64_t)timeout_ms * NS_PER_MS / 2); /* the other half is for leaving */
    }
    c->closing = true;
    client_let_go(&c->group_queue);
    commits_let_go(c->commits);
    intake_close(c->intake); /* a record that still lay there would hold the library's end up */
    c->intake = NULL;
    int64_t left = (until - clock_mono_ns()) / NS_PER_MS;
    if (client_destroy(&c->client, c->rk, true, left > 100 ? (int)left : 100))
        consumer_free(c);
    /* else: its callbacks may still come, so all of it stays */
}

bool consumer_owns(const struct consumer *c, const struct source *at)
{
    return assignment_owns(c->mine, at);
}

static void room_came(struct consumer *c)
{
    if (atomic_load(&c->starved) && atomic_exchange(&c->starved, false))
        wake_up(c->wake_fd);
}

void consumer_release(struct consumer *c, struct record *r)
{
    record_pool_release(c->pool, r);
    room_came(c);
}

void consumer_drop_late(struct consumer *c, const struct source *at)
{
    (void)at; /* its ledger is gone: only the count is left of it */
    atomic_fetch_add(&c->n_late, 1);
    atomic_fetch_sub(&c->jobs, 1);
    room_came(c);
}

void consumer_get_stats(const struct consumer *c, struct consumer_stats *s)
{
    memset(s, 0, sizeof *s);
    s->partitions = assignment_list(c->mine, NULL, 0, &s->lag);
    s->in_flight_jobs = atomic_load(&c->jobs);
    s->in_flight_bytes = record_pool_bytes(c->pool);
    s->records = atomic_load(&c->n_records);
    s->skipped = atomic_load(&c->n_skipped);
    s->cut = atomic_load(&c->n_cut);
    s->notes_ignored = offsets_notes_ignored(c->offsets);
    s->deaths_found = offsets_deaths_found(c->offsets);
    s->commits = commits_done(c->commits);
    s->commit_errors = commits_failed(c->commits);
    s->rebalances = atomic_load(&c->n_rebalances);
    s->lost_offsets = atomic_load(&c->lost_offsets);
    s->offset_resets = atomic_load(&c->n_resets);
    s->late_results = atomic_load(&c->n_late);
    s->lost_partitions = atomic_load(&c->n_lost);
    s->last_turn_ns = atomic_load(&c->last_turn_ns);
    s->last_record_ns = atomic_load(&c->last_record_ns);
    s->joined = atomic_load(&c->joined);
    s->broker_up = client_broker_up(&c->client);
}

int consumer_get_partitions(const struct consumer *c, struct consumer_partition *out, int cap)
{
    return assignment_list(c->mine, out, cap, NULL);
}
