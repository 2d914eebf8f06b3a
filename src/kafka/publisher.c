#include "kafka/publisher.h"

#include "base/clock.h"
#include "base/log.h"
#include "kafka/client.h"
#include "kafka/produce.h"
#include "kafka/transaction.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The way of a record:
 *
 *   send --> shared producer --acknowledged-----------------------------> report OK
 *                 |
 *                 +--refused for size--> alone producer (one record a request) --acknowledged--> report OK
 *                 |                              +--refused for size--> report RESULT_TOO_LARGE
 *                 +--anything else--> report RETRY or STOP
 *
 * A broker refuses a whole batch for its size, the small records in it too; only alone does a record show which
 * it is.  The second producer is made when it is first needed. */

enum { LINGER_MS = 2, PURGE_MS = 2000, DESTROY_MS = 5000 };

/* One record on its way.  Kept outside the library, so that each is reported once even if a producer has to be
 * thrown away with records in it. */
struct sending {
    struct publisher *owner;
    void *opaque;
    struct sending *prev, *next; /* on the list of those on their way, or of the free ones */
};

struct producer {
    struct client client;
    rd_kafka_t *rk;
};

struct publisher {
    struct transaction *transaction; /* mode exactly_once: all the rest is unused then */
    const struct kafka_config *k;
    char *bootstrap;
    struct produce_limits limits;
    publisher_report *report;
    void *report_ctx;
    struct producer *shared, *alone; /* alone: NULL until needed */
    int wake_fd;
    struct sending *pool, *free;
    struct sending sent; /* head of the ring of those on their way */
    _Atomic int64_t n_sent, n_acknowledged, n_failed, n_waiting, n_rebuilds;
};

/* ---- records on their way ---- */

/* By the publisher's thread, the only one that adds: no locked instruction. */
static void add(_Atomic int64_t *c, int64_t n)
{
    atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + n, memory_order_relaxed);
}

static struct sending *sending_take(struct publisher *p, void *opaque)
{
    struct sending *s = p->free;

    if (!s)
        return NULL;
    p->free = s->next;
    s->owner = p;
    s->opaque = opaque;
    s->next = &p->sent;
    s->prev = p->sent.prev;
    s->prev->next = s->next->prev = s;
    add(&p->n_waiting, 1);
    return s;
}

static void sending_release(struct publisher *p, struct sending *s)
{
    s->prev->next = s->next;
    s->next->prev = s->prev;
    s->next = p->free;
    p->free = s;
    add(&p->n_waiting, -1);
}

static void finish(struct publisher *p, struct sending *s, enum err_code rc, const struct err *e)
{
    void *opaque = s->opaque;

    sending_release(p, s);
    add(rc == ERR_OK ? &p->n_acknowledged : &p->n_failed, 1);
    p->report(p->report_ctx, opaque, rc, e);
}

/* ---- producers ---- */

static void on_delivery(rd_kafka_t *rk, const rd_kafka_message_t *m, void *opaque);

static void producer_close(struct producer *pr)
{
    if (pr && client_destroy(&pr->client, pr->rk, false, DESTROY_MS))
        free(pr);
}

static enum err_code producer_open(struct producer **out, const struct publisher *p, bool alone, struct err *e)
{
    enum err_code rc;
    rd_kafka_conf_t *conf = NULL;
    struct producer *pr = calloc(1, sizeof *pr);

    *out = NULL;
    if (!pr)
        return err_set(e, ERR_NOMEM, ERR_STOP, "publisher: out of memory");
    client_init(&pr->client, pr, alone ? "publisher-alone" : "publisher");
    if ((rc = client_conf(&conf, &pr->client, p->k, p->bootstrap, e)) != ERR_OK ||
        (rc = produce_configure(conf, p->k, &p->limits, alone ? 0 : LINGER_MS, e)) != ERR_OK ||
        (alone && (rc = client_set(conf, "batch.num.messages", "1", e)) != ERR_OK))
        goto out;
    rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    if ((rc = client_new(&pr->rk, RD_KAFKA_PRODUCER, &conf, e)) != ERR_OK)
        goto out;
    if (p->wake_fd >= 0)
        client_wake_from_producer(pr->rk, p->wake_fd);
    produce_warm(pr->rk, p->k);
    *out = pr;
    pr = NULL;
out:
    if (conf)
        rd_kafka_conf_destroy(conf);
    producer_close(pr);
    return rc;
}

/* ---- delivery reports ---- */

/* Sends a refused record again through the other producer, with the copy that the report carries. */
static bool send_alone(struct publisher *p, struct sending *s, const rd_kafka_message_t *m)
{
    rd_kafka_headers_t *headers = NULL, *copy = NULL;
    rd_kafka_resp_err_t rc;
    struct err e;

    if (!p->alone && producer_open(&p->alone, p, true, &e) != ERR_OK) {
        char q[sizeof e.msg * 2];

        log_event(LOG_ERROR, "publisher_alone", "text=%s", log_quote(q, sizeof q, e.msg));
        return false;
    }
    if (rd_kafka_message_headers(m, &headers) == RD_KAFKA_RESP_ERR_NO_ERROR)
        copy = rd_kafka_headers_copy(headers);
    rc = rd_kafka_producev(p->alone->rk, RD_KAFKA_V_TOPIC(rd_kafka_topic_name(m->rkt)),
                           RD_KAFKA_V_PARTITION(m->partition), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                           RD_KAFKA_V_KEY(m->key, m->key_len), RD_KAFKA_V_VALUE(m->payload, m->len),
                           RD_KAFKA_V_HEADERS(copy), RD_KAFKA_V_OPAQUE(s), RD_KAFKA_V_END);
    if (rc && copy)
        rd_kafka_headers_destroy(copy);
    return rc == RD_KAFKA_RESP_ERR_NO_ERROR;
}

static void on_delivery(rd_kafka_t *rk, const rd_kafka_message_t *m, void *opaque)
{
    struct client *cl = opaque;
    struct sending *s = m->_private;
    struct publisher *p = s->owner;
    bool alone = p->alone && p->alone->rk == rk;
    struct err e = {.code = ERR_OK};

    if (m->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
        finish(p, s, ERR_OK, &e);
        return;
    }
    if (produce_is_refusal(m->err)) {
        if (!alone && send_alone(p, s, m))
            return;
        if (alone)
            produce_refusal(&e, m->err, ERR_SKIP, rd_kafka_topic_name(m->rkt), m->key_len + m->len);
        else
            err_set(&e, ERR_KAFKA, ERR_RETRY, "publish to %s: refused with its batch", rd_kafka_topic_name(m->rkt));
    } else {
        if (m->err == RD_KAFKA_RESP_ERR__FATAL)
            atomic_store(&cl->fatal, true);
        err_set(&e, ERR_KAFKA, produce_act(m->err), "publish to %s: %s", rd_kafka_topic_name(m->rkt),
                rd_kafka_err2str(m->err));
    }
    finish(p, s, e.code, &e);
}

/* Serves what is due.  In 2.0.2 one call may leave some behind, and the wake-up comes only for an empty queue. */
static int serve(struct producer *pr, int timeout_ms)
{
    int n = pr ? rd_kafka_poll(pr->rk, timeout_ms) : 0, total = n;

    while (pr && n > 0)
        total += n = rd_kafka_poll(pr->rk, 0);
    return total;
}

/* What the producers still hold is reported by the library after a purge, or here for good. */
static void give_up_all(struct publisher *p, const char *why)
{
    struct producer *both[] = {p->shared, p->alone};
    int64_t until = clock_mono_ns() + PURGE_MS * NS_PER_MS;
    struct err e;

    for (int i = 0; i < 2; i++)
        if (both[i])
            rd_kafka_purge(both[i]->rk, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
    while (p->sent.next != &p->sent && clock_mono_ns() < until) {
        serve(both[0], 10);
        serve(both[1], both[0] ? 0 : 10);
    }
    while (p->sent.next != &p->sent) {
        err_set(&e, ERR_KAFKA, ERR_RETRY, "publish: %s", why);
        finish(p, p->sent.next, e.code, &e);
    }
}

/* ---- the door ---- */

static void rebuild(struct publisher *p)
{
    struct err e;
    char q[sizeof e.msg * 2];

    log_event(LOG_WARN, "publisher_rebuild", "in_flight=%lld", (long long)atomic_load(&p->n_waiting));
    give_up_all(p, "the producer had to be built anew");
    producer_close(p->shared);
    producer_close(p->alone);
    p->shared = p->alone = NULL;
    add(&p->n_rebuilds, 1);
    if (producer_open(&p->shared, p, false, &e) != ERR_OK)
        log_event(LOG_ERROR, "publisher_rebuild", "text=%s", log_quote(q, sizeof q, e.msg));
}

int64_t publisher_due_ns(const struct publisher *p, bool has_more)
{
    return p->transaction ? transaction_due_ns(p->transaction, has_more) : INT64_MAX;
}

void publisher_hurry(struct publisher *p)
{
    if (p->transaction)
        transaction_hurry(p->transaction);
}

bool publisher_is_settled(const struct publisher *p)
{
    return !p->transaction || transaction_is_settled(p->transaction);
}

enum err_code publisher_failure(const struct publisher *p, struct err *e)
{
    return p->transaction ? transaction_failure(p->transaction, e) : ERR_OK;
}

static bool is_fatal(struct producer *pr)
{
    return pr && atomic_load(&pr->client.fatal);
}

static enum err_code place(struct publisher *p, const struct delivery_config *d, struct err *e)
{
    p->limits = produce_limits(d);
    p->pool = calloc((size_t)p->limits.queue_records, sizeof *p->pool);
    if (!p->pool)
        return err_set(e, ERR_NOMEM, ERR_STOP, "publisher: no memory for %d records", p->limits.queue_records);
    for (int i = 0; i < p->limits.queue_records; i++) {
        p->pool[i].next = p->free;
        p->free = &p->pool[i];
    }
    return ERR_OK;
}

enum err_code publisher_open(struct publisher **out, const struct kafka_config *k, const char *bootstrap,
                             const struct delivery_config *d, publisher_report *report, void *ctx, struct err *e)
{
    enum err_code rc;
    struct publisher *p = calloc(1, sizeof *p);

    *out = NULL;
    if (!p)
        return err_set(e, ERR_NOMEM, ERR_STOP, "publisher: out of memory");
    p->k = k;
    p->report = report;
    p->report_ctx = ctx;
    p->wake_fd = -1;
    p->sent.prev = p->sent.next = &p->sent;
    p->bootstrap = strdup(bootstrap ? bootstrap : k->bootstrap_servers);
    if (!p->bootstrap)
        rc = err_set(e, ERR_NOMEM, ERR_STOP, "publisher: out of memory");
    else if ((rc = place(p, d, e)) == ERR_OK)
        rc = producer_open(&p->shared, p, false, e);
    if (rc == ERR_OK) {
        *out = p;
        p = NULL;
    }
    publisher_close(p, 0);
    return rc;
}

enum err_code publisher_open_transactional(struct publisher **out, const struct kafka_config *k,
                                           const struct delivery_config *d, struct consumer *c,
                                           publisher_report *report, void *ctx, struct err *e)
{
    struct publisher *p = calloc(1, sizeof *p);
    enum err_code rc;

    *out = NULL;
    if (!p)
        return err_set(e, ERR_NOMEM, ERR_STOP, "publisher: out of memory");
    if ((rc = transaction_open(&p->transaction, k, d, c, report, ctx, e)) != ERR_OK) {
        free(p);
        return rc;
    }
    *out = p;
    return ERR_OK;
}

enum err_code publisher_send(struct publisher *p, const struct outgoing *o, struct err *e)
{
    const char *topic;
    rd_kafka_resp_err_t rc;
    struct sending *s;

    if (p->transaction)
        return transaction_send(p->transaction, o, e);
    topic = produce_topic(p->k, o->to);
    if (!p->shared || is_fatal(p->shared))
        return err_set(e, ERR_BUSY, ERR_RETRY, "publisher: being built anew");
    s = sending_take(p, o->opaque);
    if (!s)
        return err_set(e, ERR_BUSY, ERR_RETRY, "publisher: %d records on their way", p->limits.queue_records);
    rc = produce_send(p->shared->rk, p->k, o, s);
    if (rc == RD_KAFKA_RESP_ERR_NO_ERROR) {
        add(&p->n_sent, 1);
        return ERR_OK;
    }
    sending_release(p, s);
    if (rc == RD_KAFKA_RESP_ERR__QUEUE_FULL)
        return err_set(e, ERR_BUSY, ERR_RETRY, "publisher: the local queue is full");
    if (rc == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE)
        return err_set(e, ERR_RESULT_TOO_LARGE, ERR_SKIP, "a record of %zu bytes for %s is over the producer's limit",
                       o->key_size + o->value_size, topic);
    if (rc == RD_KAFKA_RESP_ERR__FATAL) {
        atomic_store(&p->shared->client.fatal, true);
        return err_set(e, ERR_BUSY, ERR_RETRY, "publisher: being built anew");
    }
    return err_set(e, ERR_KAFKA, produce_act(rc), "publish to %s: %s", topic, rd_kafka_err2str(rc));
}

void publisher_turn(struct publisher *p, int timeout_ms)
{
    struct err e;

    if (p->transaction) {
        transaction_turn(p->transaction, timeout_ms);
        return;
    }
    serve(p->alone, 0);
    serve(p->shared, timeout_ms);
    if (!p->shared && producer_open(&p->shared, p, false, &e) != ERR_OK) {
        char q[sizeof e.msg * 2];

        log_event(LOG_ERROR, "publisher_rebuild", "text=%s", log_quote(q, sizeof q, e.msg));
    }
    if (is_fatal(p->shared) || is_fatal(p->alone))
        rebuild(p);
}

void publisher_set_wake_fd(struct publisher *p, int eventfd)
{
    if (p->transaction) {
        transaction_set_wake_fd(p->transaction, eventfd);
        return;
    }
    p->wake_fd = eventfd;
    if (p->shared)
        client_wake_from_producer(p->shared->rk, p->wake_fd);
    if (p->alone)
        client_wake_from_producer(p->alone->rk, p->wake_fd);
}

void publisher_close(struct publisher *p, int timeout_ms)
{
    int64_t until = clock_mono_ns() + timeout_ms * NS_PER_MS;

    if (!p)
        return;
    if (p->transaction) {
        transaction_close(p->transaction, timeout_ms);
        free(p);
        return;
    }
    while (p->sent.next != &p->sent && clock_mono_ns() < until) {
        serve(p->alone, 0);
        serve(p->shared, p->alone ? 5 : 50);
    }
    give_up_all(p, "not acknowledged before the publisher closed");
    producer_close(p->shared);
    producer_close(p->alone);
    free(p->pool);
    free(p->bootstrap);
    free(p);
}

void publisher_get_stats(const struct publisher *p, struct publisher_stats *s)
{
    memset(s, 0, sizeof *s);
    if (p->transaction) {
        transaction_get_stats(p->transaction, s);
        return;
    }
    s->sent = atomic_load(&p->n_sent);
    s->acknowledged = atomic_load(&p->n_acknowledged);
    s->failed = atomic_load(&p->n_failed);
    s->queue_depth = atomic_load(&p->n_waiting);
    s->rebuilds = atomic_load(&p->n_rebuilds);
}
