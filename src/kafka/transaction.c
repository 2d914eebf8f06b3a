#include "kafka/transaction.h"

#include "base/clock.h"
#include "base/log.h"
#include "kafka/client.h"
#include "kafka/handover.h"
#include "kafka/produce.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* States, and who makes each move:
 *
 *   DOWN --bring_up(): a producer, init_transactions()--> IDLE          (JUDGING when a commit's outcome is not known)
 *   IDLE --begin(): a record, or offsets that moved without one--> OPEN
 *   OPEN --prepare(): due; the consumer tells offsets--> SENDING --send_offsets()--> COMMITTING --commit()--> IDLE
 *   OPEN, SENDING, COMMITTING --abort_for(): a record refused, jobs no longer ours, an abortable error--> ABORTING
 *   ABORTING --abort_turn(): every record reported, to be sent again--> IDLE
 *   any --rebuild(): fatal, or an unclear outcome--> DOWN
 *   JUDGING --judge(): the group's offsets say which records were committed--> IDLE
 *   any --fail(): fenced, not permitted--> FAILED, for good
 *
 * Whoever asks init_transactions() ends the transaction of the producer before it, one way or the other; so after it
 * the group's offsets are final. */
enum state { DOWN, IDLE, OPEN, SENDING, COMMITTING, ABORTING, JUDGING, FAILED };

enum {
    LINGER_MS = 5,
    STEP_MS = 1000,         /* one wait for the coordinator */
    TIMEOUT_MIN_MS = 10000, /* transaction.timeout.ms: what a worker that died holds up its readers */
    AGAIN_MS = 100,         /* after an answer that says: later */
    DOWN_MAX_MS = 5000,     /* between two new producers */
    QUIET_MS = 1000,        /* offsets without results are committed this often at most */
    ABORT_MS = 10000,
    DESTROY_MS = 3000,
    SLOW_MS = 500
};

struct entry {
    struct transaction *owner;
    void *opaque;
    enum publisher_topic to;
    size_t bytes;
    bool alone;
    rd_kafka_resp_err_t err;
};

struct transaction {
    const struct kafka_config *k;
    struct produce_limits limits;
    char id[256];
    int interval_ms, timeout_ms;
    struct handover *handover;
    publisher_report *report;
    void *report_ctx;

    struct client *client; /* apart, because an abandoned producer may still use it */
    rd_kafka_t *rk;
    int wake_fd;
    enum state state;
    bool hurries;
    int downs;         /* producers in a row that did not come up */
    int64_t next_ns;   /* not before this, in DOWN and where the coordinator says: later */
    int64_t begun_ns;  /* of this transaction */
    int64_t ended_ns;  /* of the last */
    int64_t aborts_ns; /* the abort began */

    struct entry *entries;
    struct source *sources;
    bool *stuck; /* as the consumer said of the sources, where has_stuck */
    bool has_stuck;
    enum offsets_verdict *verdicts;
    int n, most, waiting; /* waiting: without a delivery report */
    bool alone_out;
    struct prepared prepared;
    bool is_prepared;       /* the consumer holds the sources */
    bool commit_begun;      /* so that a lost producer leaves its outcome open */
    bool unclear;           /* it did */
    int64_t troubles;       /* client's count as the commit or abort began */
    bool timed_out;         /* it took more than one wait */
    struct err why;         /* of the abort: what a record without an error of its own is reported with */
    struct err failure;     /* FAILED */
    rd_kafka_resp_err_t dr; /* first error of a delivery report, 0 = none */

    _Atomic int64_t n_sent, n_ok, n_failed, n_waiting, n_rebuilds, n_commits, n_aborts;
};

/* ---- errors ---- */

static const char *const names[] = {
    [DOWN] = "down",         [IDLE] = "idle",      [OPEN] = "open",       [SENDING] = "sending",
    [COMMITTING] = "commit", [ABORTING] = "abort", [JUDGING] = "judging", [FAILED] = "failed"};

static void log_state(enum log_level level, const char *event, const struct transaction *t, const char *text)
{
    char q[600];

    log_event(level, event, "state=%s records=%d text=%s", names[t->state], t->n, log_quote(q, sizeof q, text));
}

/* ---- reports ---- */

static void report(struct transaction *t, int i, const struct err *e)
{
    atomic_fetch_add(e->code == ERR_OK ? &t->n_ok : &t->n_failed, 1);
    atomic_fetch_sub(&t->n_waiting, 1);
    t->report(t->report_ctx, t->entries[i].opaque, e->code, e);
}

/* The consumer hears of the end after the reports, so that what is finished is known to it by then. */
static void end(struct transaction *t, bool committed)
{
    if (t->is_prepared)
        handover_end(t->handover, committed);
    t->is_prepared = t->has_stuck = t->commit_begun = t->unclear = t->alone_out = t->timed_out = false;
    prepared_free(&t->prepared);
    t->n = t->waiting = 0;
    t->dr = RD_KAFKA_RESP_ERR_NO_ERROR;
    t->why = (struct err){.code = ERR_OK};
    t->ended_ns = clock_mono_ns();
}

static void set_again(struct err *e)
{
    err_set(e, ERR_BUSY, ERR_RETRY, "its transaction ended for the sake of others");
}

static int count_refused(const struct transaction *t)
{
    int n = 0;

    for (int i = 0; i < t->n; i++)
        n += produce_is_refusal(t->entries[i].err);
    return n;
}

static void verdict_of_abort(struct err *e, const struct transaction *t, int i, int refused)
{
    const struct entry *en = &t->entries[i];

    if (t->has_stuck && t->stuck[i])
        err_set(e, ERR_KAFKA, ERR_RETRY, "its partition's offset cannot be committed now");
    else if (!en->err || en->err == RD_KAFKA_RESP_ERR__PURGE_QUEUE || en->err == RD_KAFKA_RESP_ERR__PURGE_INFLIGHT)
        *e = t->why;
    else if (produce_is_refusal(en->err)) /* one record in its batch, or one that was alone, is the guilty one */
        produce_refusal(e, en->err, refused == 1 || en->alone ? ERR_SKIP : ERR_RETRY, produce_topic(t->k, en->to),
                        en->bytes);
    else
        err_set(e, ERR_KAFKA, produce_act(en->err), "publish in a transaction: %s", rd_kafka_err2str(en->err));
}

static void report_aborted(struct transaction *t)
{
    int refused = count_refused(t);
    struct err e;

    if (t->why.code == ERR_OK)
        set_again(&t->why);
    for (int i = 0; i < t->n; i++) {
        verdict_of_abort(&e, t, i, refused);
        report(t, i, &e);
    }
    end(t, false);
}

/* ---- the producer ---- */

static void drop_producer(struct transaction *t)
{
    if (t->rk && client_destroy(t->client, t->rk, false, DESTROY_MS))
        free(t->client); /* else its threads may still use it */
    t->rk = NULL;
    t->client = NULL;
}

static void fail(struct transaction *t, const struct err *e)
{
    t->failure = *e;
    t->state = FAILED;
    log_state(LOG_ERROR, e->code == ERR_FENCED ? "fenced" : "transaction_failed", t, e->msg);
    for (int i = 0; i < t->n; i++)
        report(t, i, e);
    end(t, false);
}

/* A new producer before the next transaction.  What was not committed for sure is judged after that. */
static void rebuild(struct transaction *t, const char *why)
{
    log_state(LOG_WARN, "transaction_rebuild", t, why);
    drop_producer(t);
    atomic_fetch_add(&t->n_rebuilds, 1);
    t->state = DOWN;
    t->next_ns = 0;
    t->unclear = t->commit_begun;
    if (t->unclear)
        return;
    if (t->why.code == ERR_OK)
        err_set(&t->why, ERR_KAFKA, ERR_RETRY, "the producer had to be built anew");
    report_aborted(t);
}

static bool is_fenced(rd_kafka_resp_err_t rc)
{
    return rc == RD_KAFKA_RESP_ERR__FENCED || rc == RD_KAFKA_RESP_ERR_PRODUCER_FENCED ||
           rc == RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH;
}

/* Brokers end a transaction that is over its time in the same way as another instance does: by a new epoch.  Only a
 * transaction of ours that was old enough leaves a doubt, and then it is ours again. */
static void lose_producer(struct transaction *t, rd_kafka_resp_err_t rc, const char *why)
{
    bool is_open = t->state == OPEN || t->state == SENDING || t->state == COMMITTING || t->state == ABORTING;
    int64_t age_ms = is_open ? (clock_mono_ns() - t->begun_ns) / NS_PER_MS : 0;
    struct err e;

    if (!is_fenced(rc) || age_ms >= t->timeout_ms) {
        rebuild(t, why);
        return;
    }
    err_set(&e, ERR_FENCED, ERR_STOP,
            "another worker uses the transactional id \"%.100s\" (delivery.transactional_id must be one for each)",
            t->id);
    fail(t, &e);
}

static void on_fatal(struct transaction *t)
{
    char why[300] = "fatal";
    rd_kafka_resp_err_t rc = rd_kafka_fatal_error(t->rk, why, sizeof why);

    lose_producer(t, rc, why);
}

/* Anything that went wrong on the way of a commit or an abort could still be under way to the coordinator. */
static bool was_smooth(const struct transaction *t)
{
    return !t->timed_out && atomic_load(&t->client->troubles) == t->troubles;
}

/* Another record is the reason, or the abort itself: nothing to wait for before the next try. */
static enum err_code code_of(rd_kafka_resp_err_t rc)
{
    return produce_is_refusal(rc) || rc == RD_KAFKA_RESP_ERR__PURGE_QUEUE || rc == RD_KAFKA_RESP_ERR__PURGE_INFLIGHT
               ? ERR_BUSY
               : ERR_KAFKA;
}

static void abort_for(struct transaction *t, enum err_code code, const char *why)
{
    if (code == ERR_BUSY)
        set_again(&t->why);
    else
        err_set(&t->why, code, ERR_RETRY, "%s", why);
    log_state(LOG_WARN, "transaction_abort", t, why);
    t->state = ABORTING;
    t->aborts_ns = clock_mono_ns();
    t->troubles = atomic_load(&t->client->troubles);
    t->timed_out = t->commit_begun = false;
}

/* What the library says about a step; takes err.  true: the step is done. */
static bool take_answer(struct transaction *t, rd_kafka_error_t *err, const char *step)
{
    char why[300];
    rd_kafka_resp_err_t rc;

    if (!err)
        return true;
    bool fatal = rd_kafka_error_is_fatal(err), aborts = rd_kafka_error_txn_requires_abort(err),
         again = rd_kafka_error_is_retriable(err);
    rc = rd_kafka_error_code(err);
    snprintf(why, sizeof why, "%s: %s", step, rd_kafka_error_string(err));
    rd_kafka_error_destroy(err);
    if (fatal) {
        on_fatal(t);
    } else if (rc == RD_KAFKA_RESP_ERR__FENCED || rc == RD_KAFKA_RESP_ERR_PRODUCER_FENCED) {
        lose_producer(t, rc, why);
    } else if (rc == RD_KAFKA_RESP_ERR_OFFSET_METADATA_TOO_LARGE) {
        struct err e;

        err_set(&e, ERR_KAFKA, ERR_STOP,
                "the broker's offset.metadata.max.bytes is too small: exactly_once needs Kafka's default of 4096");
        fail(t, &e);
    } else if (aborts && t->commit_begun && !t->dr && !was_smooth(t)) {
        rebuild(t, why); /* an earlier try of this commit may have taken effect */
    } else if (aborts && t->state != ABORTING) {
        abort_for(t, code_of(t->dr), why);
    } else if (again) {
        t->timed_out = true;
        t->next_ns = clock_mono_ns() + AGAIN_MS * NS_PER_MS;
    } else {
        log_event(LOG_DEBUG, "transaction_error", "error=%s", rd_kafka_err2name(rc));
        rebuild(t, why);
    }
    return false;
}

static void on_delivery(rd_kafka_t *rk, const rd_kafka_message_t *m, void *opaque)
{
    struct entry *en = m->_private;
    struct transaction *t = en->owner;

    (void)rk, (void)opaque;
    en->err = m->err;
    t->waiting--;
    if (en->alone)
        t->alone_out = false;
    if (m->err && !t->dr)
        t->dr = m->err;
}

static enum err_code open_producer(struct transaction *t, struct err *e)
{
    rd_kafka_conf_t *conf = NULL;
    enum err_code rc;

    t->client = calloc(1, sizeof *t->client);
    if (!t->client)
        return err_set(e, ERR_NOMEM, ERR_STOP, "transaction: out of memory");
    client_init(t->client, t, "publisher");
    if ((rc = client_conf(&conf, t->client, t->k, NULL, e)) != ERR_OK ||
        (rc = produce_configure(conf, t->k, &t->limits, LINGER_MS, e)) != ERR_OK ||
        (rc = client_set(conf, "transactional.id", t->id, e)) != ERR_OK ||
        (rc = client_set_int(conf, "transaction.timeout.ms", t->timeout_ms, e)) != ERR_OK ||
        (rc = client_set(conf, "log.connection.close", "true", e)) != ERR_OK) /* see client->troubles */
        goto out;
    rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    if ((rc = client_new(&t->rk, RD_KAFKA_PRODUCER, &conf, e)) != ERR_OK)
        goto out;
    if (t->wake_fd >= 0)
        client_wake_from_producer(t->rk, t->wake_fd);
    produce_warm(t->rk, t->k);
    return ERR_OK;
out:
    if (conf)
        rd_kafka_conf_destroy(conf);
    free(t->client);
    t->client = NULL;
    return rc;
}

static void serve(struct transaction *t, int timeout_ms)
{
    int n = t->rk ? rd_kafka_poll(t->rk, timeout_ms) : 0;

    while (n > 0 && t->rk)
        n = rd_kafka_poll(t->rk, 0);
}

/* ---- the steps ---- */

static void up_later(struct transaction *t)
{
    int64_t ms = AGAIN_MS;

    for (int i = 0; i < t->downs && ms < DOWN_MAX_MS; i++)
        ms *= 2;
    t->downs++;
    t->next_ns = clock_mono_ns() + (ms < DOWN_MAX_MS ? ms : DOWN_MAX_MS) * NS_PER_MS;
}

static void bring_up(struct transaction *t)
{
    rd_kafka_error_t *err;
    struct err e;

    if (!t->rk && open_producer(t, &e) != ERR_OK) {
        fail(t, &e);
        return;
    }
    err = rd_kafka_init_transactions(t->rk, STEP_MS);
    if (!err) {
        log_event(LOG_INFO, "transactions", "id=%s timeout_ms=%d records=%d", t->id, t->timeout_ms, t->most);
        t->downs = 0;
        t->next_ns = 0;
        t->state = t->unclear ? JUDGING : IDLE;
        return;
    }
    rd_kafka_resp_err_t rc = rd_kafka_error_code(err);
    bool fatal = rd_kafka_error_is_fatal(err), again = rd_kafka_error_is_retriable(err);
    log_state(LOG_WARN, "transactions_wait", t, rd_kafka_error_string(err));
    if (!fatal && !again && client_act(rc) == ERR_STOP) {
        client_err(&e, rc, "transactions");
        fail(t, &e);
    } else if (fatal || !again) {
        drop_producer(t);
    }
    rd_kafka_error_destroy(err);
    up_later(t);
}

static bool begin(struct transaction *t)
{
    t->begun_ns = clock_mono_ns();
    if (!take_answer(t, rd_kafka_begin_transaction(t->rk), "begin"))
        return false;
    t->state = OPEN;
    return true;
}

static bool is_over_time(const struct transaction *t)
{
    return clock_mono_ns() - t->begun_ns > t->timeout_ms * NS_PER_MS;
}

static bool is_full(const struct transaction *t)
{
    return t->n == t->most || clock_mono_ns() - t->begun_ns >= t->interval_ms * NS_PER_MS;
}

static bool hurries(const struct transaction *t)
{
    return t->hurries || handover_hurries(t->handover);
}

/* Whoever hurries still lets all in that is there: a transaction costs the same for one record and for many. */
static bool is_due(const struct transaction *t)
{
    return is_full(t) || hurries(t);
}

static void send_offsets(struct transaction *t)
{
    if (is_over_time(t)) {
        abort_for(t, ERR_KAFKA, "the group's coordinator did not take the offsets in time");
        return;
    }
    if (!t->prepared.offsets ||
        take_answer(t, rd_kafka_send_offsets_to_transaction(t->rk, t->prepared.offsets, t->prepared.group, STEP_MS),
                    "offsets"))
        if (t->state == SENDING)
            t->state = COMMITTING;
}

static void prepare(struct transaction *t)
{
    struct err e;

    switch (handover_prepare(t->handover, t->sources, (size_t)t->n, t->stuck, &t->prepared, STEP_MS, &e)) {
    case ERR_OK:
        t->is_prepared = true;
        t->state = SENDING;
        return;
    case ERR_TIMEOUT:
        if (is_over_time(t))
            abort_for(t, ERR_KAFKA, e.msg);
        return;
    case ERR_CLOSED:
        t->has_stuck = e.act == ERR_SKIP;
        abort_for(t, e.act == ERR_SKIP ? ERR_BUSY : ERR_KAFKA, e.msg);
        return;
    default: abort_for(t, ERR_KAFKA, e.msg); return;
    }
}

static void report_committed(struct transaction *t)
{
    struct err ok = {.code = ERR_OK};

    atomic_fetch_add(&t->n_commits, 1);
    for (int i = 0; i < t->n; i++)
        report(t, i, &ok);
    end(t, true);
}

static void commit(struct transaction *t)
{
    if (t->waiting > 0 && !t->commit_begun && !is_over_time(t))
        return; /* for the delivery reports, which have an event of their own */
    if (!t->commit_begun) {
        t->commit_begun = true;
        t->timed_out = false;
        t->troubles = atomic_load(&t->client->troubles);
    } else if (is_over_time(t)) {
        rebuild(t, "commit: no answer within the transaction's time");
        return;
    }
    if (!take_answer(t, rd_kafka_commit_transaction(t->rk, STEP_MS), "commit"))
        return;
    bool smooth = was_smooth(t);
    t->state = IDLE;
    report_committed(t);
    if (!smooth)
        rebuild(t, "a commit that took effect with trouble on its way");
}

static void abort_turn(struct transaction *t)
{
    if (clock_mono_ns() - t->aborts_ns > ABORT_MS * NS_PER_MS) {
        rebuild(t, "abort: no answer in time");
        return;
    }
    if (!take_answer(t, rd_kafka_abort_transaction(t->rk, STEP_MS), "abort"))
        return;
    bool smooth = was_smooth(t);
    atomic_fetch_add(&t->n_aborts, 1);
    t->state = IDLE;
    report_aborted(t);
    if (!smooth)
        rebuild(t, "an abort that took effect with trouble on its way");
}

/* Offset and note travel in the transaction itself, so they tell exactly whether it was committed. */
static void judge(struct transaction *t)
{
    int covered = 0, open = 0;
    struct err e;
    enum err_code rc = handover_judge(t->handover, t->sources, (size_t)t->n, t->verdicts, STEP_MS, &e);

    if (rc != ERR_OK && e.act == ERR_RETRY) {
        t->next_ns = clock_mono_ns() + AGAIN_MS * NS_PER_MS;
        return;
    }
    for (int i = 0; i < t->n; i++) {
        bool done = rc == ERR_OK && t->verdicts[i] == OFFSETS_COVERED;

        covered += done;
        open += !done && t->verdicts[i] == OFFSETS_OPEN;
        if (done)
            e = (struct err){.code = ERR_OK};
        else
            set_again(&e);
        report(t, i, &e);
    }
    log_event(LOG_INFO, "transaction_judged", "records=%d committed=%d open=%d", t->n, covered, open);
    t->state = IDLE;
    end(t, covered > 0 && open == 0);
}

static void step(struct transaction *t)
{
    if (clock_mono_ns() < t->next_ns)
        return;
    if (t->rk && atomic_load(&t->client->fatal) && t->state != DOWN && t->state != FAILED) {
        on_fatal(t);
        return;
    }
    if (t->dr && (t->state == OPEN || t->state == SENDING || (t->state == COMMITTING && !t->commit_begun)))
        abort_for(t, code_of(t->dr), rd_kafka_err2str(t->dr));
    switch (t->state) {
    case DOWN: bring_up(t); break;
    case IDLE:
        if (handover_has_news(t->handover) && (hurries(t) || clock_mono_ns() - t->ended_ns > QUIET_MS * NS_PER_MS))
            begin(t);
        break;
    case OPEN:
        if (is_due(t))
            prepare(t);
        break;
    case SENDING: send_offsets(t); break;
    case COMMITTING: commit(t); break;
    case ABORTING: abort_turn(t); break;
    case JUDGING: judge(t); break;
    case FAILED: break;
    }
}

/* A step that waited long for a coordinator or for the consumer is worth a line. */
static void timed_step(struct transaction *t)
{
    enum state s = t->state;
    int64_t begun = clock_mono_ns(), ms;
    int n = t->n;

    step(t);
    ms = (clock_mono_ns() - begun) / NS_PER_MS;
    if (ms >= SLOW_MS)
        log_event(LOG_WARN, "transaction_slow", "step=%s records=%d ms=%lld age_ms=%lld", names[s], n, (long long)ms,
                  (long long)((clock_mono_ns() - t->begun_ns) / NS_PER_MS));
}

/* ---- the door ---- */

void transaction_turn(struct transaction *t, int timeout_ms)
{
    enum state before;

    serve(t, timeout_ms);
    do { /* on, as long as a step leads to the next */
        before = t->state;
        timed_step(t);
        serve(t, 0);
    } while (t->state != before && t->state != IDLE && t->state != FAILED);
}

enum err_code transaction_send(struct transaction *t, const struct outgoing *o, struct err *e)
{
    rd_kafka_resp_err_t rc;

    if (t->state == FAILED) {
        *e = t->failure;
        return e->code;
    }
    if ((t->state != IDLE && t->state != OPEN) || clock_mono_ns() < t->next_ns || (t->state == OPEN && is_full(t)) ||
        t->dr || t->alone_out || (o->alone && t->waiting > 0) || (t->state == IDLE && !begin(t)))
        return err_set(e, ERR_BUSY, ERR_RETRY, "publisher: no transaction is open");
    struct entry *en = &t->entries[t->n];
    *en = (struct entry){
        .owner = t, .opaque = o->opaque, .to = o->to, .bytes = o->key_size + o->value_size, .alone = o->alone};
    rc = produce_send(t->rk, t->k, o, en);
    if (rc == RD_KAFKA_RESP_ERR_NO_ERROR) {
        t->sources[t->n++] = *o->at;
        t->waiting++;
        t->alone_out = o->alone;
        atomic_fetch_add(&t->n_sent, 1);
        atomic_fetch_add(&t->n_waiting, 1);
        return ERR_OK;
    }
    if (rc == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE)
        return err_set(e, ERR_RESULT_TOO_LARGE, ERR_SKIP, "a record of %zu bytes is over the producer's limit",
                       en->bytes);
    if (rc == RD_KAFKA_RESP_ERR__FATAL || rc == RD_KAFKA_RESP_ERR__STATE) {
        t->dr = rc; /* the next step aborts, or builds a new producer */
        return err_set(e, ERR_BUSY, ERR_RETRY, "publisher: the transaction is over");
    }
    if (rc == RD_KAFKA_RESP_ERR__QUEUE_FULL)
        return err_set(e, ERR_BUSY, ERR_RETRY, "publisher: the local queue is full");
    return err_set(e, ERR_KAFKA, produce_act(rc), "publish to %s: %s", produce_topic(t->k, o->to),
                   rd_kafka_err2str(rc));
}

static void free_all(struct transaction *t)
{
    free(t->entries);
    free(t->sources);
    free(t->stuck);
    free(t->verdicts);
    free(t);
}

static enum err_code place(struct transaction *t, const struct delivery_config *d, struct err *e)
{
    int half = d->max_in_flight_jobs / 2; /* the other half goes on while this one is committed */
    size_t n;

    t->most = d->transaction_results > 0 ? d->transaction_results : half > 0 ? half : 1;
    n = (size_t)t->most;
    t->entries = calloc(n, sizeof *t->entries);
    t->sources = calloc(n, sizeof *t->sources);
    t->stuck = calloc(n, sizeof *t->stuck);
    t->verdicts = calloc(n, sizeof *t->verdicts);
    if (!t->entries || !t->sources || !t->stuck || !t->verdicts)
        return err_set(e, ERR_NOMEM, ERR_STOP, "transaction: no memory for %d records", t->most);
    return ERR_OK;
}

static void name(struct transaction *t, const struct delivery_config *d)
{
    if (*d->transactional_id)
        snprintf(t->id, sizeof t->id, "%s", d->transactional_id);
    else
        snprintf(t->id, sizeof t->id, "%.120s-%.120s", t->k->group_id, t->k->instance_id);
}

enum err_code transaction_open(struct transaction **out, const struct kafka_config *k, const struct delivery_config *d,
                               struct consumer *c, publisher_report *report_to, void *ctx, struct err *e)
{
    struct transaction *t = calloc(1, sizeof *t);
    enum err_code rc;

    *out = NULL;
    if (!t)
        return err_set(e, ERR_NOMEM, ERR_STOP, "transaction: out of memory");
    t->k = k;
    t->limits = produce_limits(d);
    t->interval_ms = d->commit_interval_ms;
    t->timeout_ms = 2 * t->interval_ms > TIMEOUT_MIN_MS ? 2 * t->interval_ms : TIMEOUT_MIN_MS;
    if (t->limits.message_timeout_ms > t->timeout_ms)
        t->limits.message_timeout_ms = t->timeout_ms;
    t->handover = consumer_handover(c);
    t->report = report_to;
    t->report_ctx = ctx;
    t->wake_fd = -1;
    name(t, d);
    if ((rc = place(t, d, e)) != ERR_OK || (rc = open_producer(t, e)) != ERR_OK) {
        free_all(t);
        return rc;
    }
    *out = t;
    return ERR_OK;
}

void transaction_set_wake_fd(struct transaction *t, int eventfd)
{
    t->wake_fd = eventfd;
    handover_set_asker_fd(t->handover, eventfd);
    if (t->rk)
        client_wake_from_producer(t->rk, t->wake_fd);
}

int64_t transaction_due_ns(const struct transaction *t, bool has_more)
{
    int64_t due = INT64_MAX;

    if (t->state == OPEN)
        due = t->n < t->most && has_more && !t->alone_out ? 0 : t->begun_ns + t->interval_ms * NS_PER_MS;
    else if (t->state == IDLE)
        due = has_more ? 0 : INT64_MAX;
    else if (t->state != COMMITTING && t->state != FAILED)
        due = 0;
    return due > t->next_ns ? due : t->next_ns;
}

bool transaction_is_settled(const struct transaction *t)
{
    return t->state == FAILED || (t->n == 0 && t->state == IDLE && !handover_has_news(t->handover));
}

void transaction_hurry(struct transaction *t)
{
    t->hurries = true;
}

enum err_code transaction_failure(const struct transaction *t, struct err *e)
{
    if (t->state != FAILED)
        return ERR_OK;
    *e = t->failure;
    return e->code;
}

void transaction_close(struct transaction *t, int timeout_ms)
{
    int64_t until = clock_mono_ns() + timeout_ms * NS_PER_MS;

    t->hurries = true;
    while (t->n > 0 && t->state != FAILED && clock_mono_ns() < until)
        transaction_turn(t, 10);
    if (t->rk && (t->state == OPEN || t->state == SENDING)) { /* a short word, so that nobody waits for its timeout */
        rd_kafka_error_t *err = rd_kafka_abort_transaction(t->rk, STEP_MS);
        if (err)
            rd_kafka_error_destroy(err);
    }
    err_set(&t->why, ERR_KAFKA, ERR_RETRY, "not committed before the publisher closed");
    report_aborted(t);
    drop_producer(t);
    free_all(t);
}

void transaction_get_stats(const struct transaction *t, struct publisher_stats *s)
{
    s->sent = atomic_load(&t->n_sent);
    s->acknowledged = atomic_load(&t->n_ok);
    s->failed = atomic_load(&t->n_failed);
    s->queue_depth = atomic_load(&t->n_waiting);
    s->rebuilds = atomic_load(&t->n_rebuilds);
    s->commits = atomic_load(&t->n_commits);
    s->aborts = atomic_load(&t->n_aborts);
}
