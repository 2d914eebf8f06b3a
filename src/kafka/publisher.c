#include "kafka/publisher.h"

#include "base/clock.h"
#include "base/log.h"
#include "kafka/client.h"

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

enum {
    LINGER_MS = 2,
    LOCAL_LIMIT_BYTES = 64 << 20, /* the broker's own limit decides, this one only bounds memory */
    QUEUE_SPARE = 1024,           /* local queue beyond the jobs in flight */
    QUEUE_MIN_KB = 128 << 10,
    PURGE_MS = 2000,
    DESTROY_MS = 5000,
    TOPICS = 3
};

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
    const struct kafka_config *k;
    char *bootstrap;
    int publish_timeout_ms, queue_records, queue_kb;
    publisher_report *report;
    void *report_ctx;
    struct producer *shared, *alone; /* alone: NULL until needed */
    int wake_fd;
    struct sending *pool, *free;
    struct sending sent; /* head of the ring of those on their way */
    _Atomic int64_t n_sent, n_acknowledged, n_failed, n_waiting, n_rebuilds;
};

static const char *topic_of(const struct publisher *p, enum publisher_topic to)
{
    return to == PUBLISH_RESULT        ? p->k->result_topic
           : to == PUBLISH_DEAD_LETTER ? p->k->dead_letter_topic
                                       : p->k->request_topic;
}

/* ---- records on their way ---- */

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
    atomic_fetch_add(&p->n_waiting, 1);
    return s;
}

static void sending_release(struct publisher *p, struct sending *s)
{
    s->prev->next = s->next;
    s->next->prev = s->prev;
    s->next = p->free;
    p->free = s;
    atomic_fetch_sub(&p->n_waiting, 1);
}

static void finish(struct publisher *p, struct sending *s, enum err_code rc, const struct err *e)
{
    void *opaque = s->opaque;

    sending_release(p, s);
    atomic_fetch_add(rc == ERR_OK ? &p->n_acknowledged : &p->n_failed, 1);
    p->report(p->report_ctx, opaque, rc, e);
}

/* ---- producers ---- */

static void on_delivery(rd_kafka_t *rk, const rd_kafka_message_t *m, void *opaque);

static enum err_code producer_configure(rd_kafka_conf_t *conf, const struct publisher *p, bool alone, struct err *e)
{
    enum err_code rc;

    rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    if ((rc = client_set_int(conf, "linger.ms", alone ? 0 : LINGER_MS, e)) != ERR_OK ||
        (rc = client_set(conf, "compression.codec", "lz4", e)) != ERR_OK ||
        (rc = client_set_int(conf, "message.max.bytes", LOCAL_LIMIT_BYTES, e)) != ERR_OK ||
        (rc = client_set_int(conf, "queue.buffering.max.messages", p->queue_records, e)) != ERR_OK ||
        (rc = client_set_int(conf, "queue.buffering.max.kbytes", p->queue_kb, e)) != ERR_OK ||
        (rc = client_set_properties(conf, p->k, e)) != ERR_OK ||
        (rc = client_set(conf, "enable.idempotence", "true", e)) != ERR_OK ||
        (rc = client_set(conf, "acks", "all", e)) != ERR_OK ||
        (rc = client_set(conf, "partitioner", "murmur2_random", e)) != ERR_OK ||
        (rc = client_set_int(conf, "message.timeout.ms", p->publish_timeout_ms, e)) != ERR_OK)
        return rc;
    return alone ? client_set(conf, "batch.num.messages", "1", e) : ERR_OK;
}

static void producer_wake(const struct publisher *p, const struct producer *pr)
{
    static const uint64_t one = 1;
    rd_kafka_queue_t *q = rd_kafka_queue_get_main(pr->rk);

    rd_kafka_queue_io_event_enable(q, p->wake_fd, &one, sizeof one);
    rd_kafka_queue_destroy(q);
}

static void producer_close(struct producer *pr)
{
    if (pr && client_destroy(&pr->client, pr->rk, false, DESTROY_MS))
        free(pr);
}

/* Asks for the topics' leaders now, so that the first record does not wait for them (librdkafka before 2.10.1: up to
 * a second).  The handle is the library's to keep once it was asked for. */
static void producer_warm(const struct publisher *p, struct producer *pr)
{
    for (int to = 0; to < TOPICS; to++) {
        if (to == PUBLISH_REQUEST)
            continue; /* workers do not write there */
        rd_kafka_topic_t *t = rd_kafka_topic_new(pr->rk, topic_of(p, (enum publisher_topic)to), NULL);
        if (t)
            rd_kafka_topic_destroy(t);
    }
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
        (rc = producer_configure(conf, p, alone, e)) != ERR_OK ||
        (rc = client_new(&pr->rk, RD_KAFKA_PRODUCER, &conf, e)) != ERR_OK)
        goto out;
    if (p->wake_fd >= 0)
        producer_wake(p, pr);
    producer_warm(p, pr);
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

/* A topic that may not be written is no reason to stop: somebody may allow it, and until then nothing is lost. */
static enum err_act publish_act(rd_kafka_resp_err_t rc)
{
    return rc == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED ? ERR_RETRY : client_act(rc);
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
    if (m->err == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE) {
        if (!alone && send_alone(p, s, m))
            return;
        if (alone)
            err_set(&e, ERR_RESULT_TOO_LARGE, ERR_SKIP, "the broker's limit refuses a record of %zu bytes for %s",
                    m->key_len + m->len, rd_kafka_topic_name(m->rkt));
        else
            err_set(&e, ERR_KAFKA, ERR_RETRY, "publish to %s: refused with its batch", rd_kafka_topic_name(m->rkt));
    } else {
        if (m->err == RD_KAFKA_RESP_ERR__FATAL)
            atomic_store(&cl->fatal, true);
        err_set(&e, ERR_KAFKA, publish_act(m->err), "publish to %s: %s", rd_kafka_topic_name(m->rkt),
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
    atomic_fetch_add(&p->n_rebuilds, 1);
    if (producer_open(&p->shared, p, false, &e) != ERR_OK)
        log_event(LOG_ERROR, "publisher_rebuild", "text=%s", log_quote(q, sizeof q, e.msg));
}

static bool is_fatal(struct producer *pr)
{
    return pr && atomic_load(&pr->client.fatal);
}

static enum err_code place(struct publisher *p, const struct delivery_config *d, struct err *e)
{
    int64_t kb = (int64_t)d->max_in_flight_mb * 2048;

    p->queue_records = 2 * d->max_in_flight_jobs + QUEUE_SPARE;
    p->queue_kb = kb < QUEUE_MIN_KB ? QUEUE_MIN_KB : kb > INT32_MAX ? INT32_MAX : (int)kb;
    p->publish_timeout_ms = d->publish_timeout_ms;
    p->pool = calloc((size_t)p->queue_records, sizeof *p->pool);
    if (!p->pool)
        return err_set(e, ERR_NOMEM, ERR_STOP, "publisher: no memory for %d records", p->queue_records);
    for (int i = 0; i < p->queue_records; i++) {
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

static rd_kafka_headers_t *copy_headers(const struct outgoing *o)
{
    rd_kafka_headers_t *h = rd_kafka_headers_new(o->n_headers);

    for (size_t i = 0; h && i < o->n_headers; i++)
        rd_kafka_header_add(h, o->headers[i].name, -1, o->headers[i].value,
                            o->headers[i].value ? (ssize_t)o->headers[i].size : 0);
    return h;
}

enum err_code publisher_send(struct publisher *p, const struct outgoing *o, struct err *e)
{
    const char *topic = topic_of(p, o->to);
    rd_kafka_headers_t *headers;
    rd_kafka_resp_err_t rc;
    struct sending *s;

    if (!p->shared || is_fatal(p->shared))
        return err_set(e, ERR_BUSY, ERR_RETRY, "publisher: being built anew");
    s = sending_take(p, o->opaque);
    if (!s)
        return err_set(e, ERR_BUSY, ERR_RETRY, "publisher: %d records on their way", p->queue_records);
    headers = copy_headers(o);
    rc = rd_kafka_producev(p->shared->rk, RD_KAFKA_V_TOPIC(topic),
                           RD_KAFKA_V_PARTITION(o->partition < 0 ? RD_KAFKA_PARTITION_UA : o->partition),
                           RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_KEY(o->key, o->key_size),
                           RD_KAFKA_V_VALUE((void *)o->value, o->value_size), RD_KAFKA_V_HEADERS(headers),
                           RD_KAFKA_V_OPAQUE(s), RD_KAFKA_V_END);
    if (rc == RD_KAFKA_RESP_ERR_NO_ERROR) {
        atomic_fetch_add(&p->n_sent, 1);
        return ERR_OK;
    }
    sending_release(p, s);
    if (headers)
        rd_kafka_headers_destroy(headers);
    if (rc == RD_KAFKA_RESP_ERR__QUEUE_FULL)
        return err_set(e, ERR_BUSY, ERR_RETRY, "publisher: the local queue is full");
    if (rc == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE)
        return err_set(e, ERR_RESULT_TOO_LARGE, ERR_SKIP, "a record of %zu bytes for %s is over the producer's limit",
                       o->key_size + o->value_size, topic);
    if (rc == RD_KAFKA_RESP_ERR__FATAL) {
        atomic_store(&p->shared->client.fatal, true);
        return err_set(e, ERR_BUSY, ERR_RETRY, "publisher: being built anew");
    }
    return err_set(e, ERR_KAFKA, publish_act(rc), "publish to %s: %s", topic, rd_kafka_err2str(rc));
}

void publisher_turn(struct publisher *p, int timeout_ms)
{
    struct err e;

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
    p->wake_fd = eventfd;
    if (p->shared)
        producer_wake(p, p->shared);
    if (p->alone)
        producer_wake(p, p->alone);
}

void publisher_close(struct publisher *p, int timeout_ms)
{
    int64_t until = clock_mono_ns() + timeout_ms * NS_PER_MS;

    if (!p)
        return;
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
    s->sent = atomic_load(&p->n_sent);
    s->acknowledged = atomic_load(&p->n_acknowledged);
    s->failed = atomic_load(&p->n_failed);
    s->queue_depth = atomic_load(&p->n_waiting);
    s->rebuilds = atomic_load(&p->n_rebuilds);
}
