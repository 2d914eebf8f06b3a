#include "kafka/produce.h"

#include "kafka/client.h"

#include <stdint.h>

enum {
    LOCAL_LIMIT_BYTES = 64 << 20, /* the broker's own limit decides, this one only bounds memory */
    QUEUE_SPARE = 1024,           /* local queue beyond the jobs in flight */
    QUEUE_MIN_KB = 128 << 10
};

struct produce_limits produce_limits(const struct delivery_config *d)
{
    int64_t kb = (int64_t)d->max_in_flight_mb * 2048;

    return (struct produce_limits){.queue_records = 2 * d->max_in_flight_jobs + QUEUE_SPARE,
                                   .queue_kb = kb < QUEUE_MIN_KB ? QUEUE_MIN_KB
                                               : kb > INT32_MAX  ? INT32_MAX
                                                                 : (int)kb,
                                   .message_timeout_ms = d->publish_timeout_ms};
}

enum err_code produce_configure(rd_kafka_conf_t *conf, const struct kafka_config *k, const struct produce_limits *l,
                                int linger_ms, struct err *e)
{
    enum err_code rc;

    if ((rc = client_set_int(conf, "linger.ms", linger_ms, e)) != ERR_OK ||
        (rc = client_set(conf, "compression.codec", "lz4", e)) != ERR_OK ||
        (rc = client_set_int(conf, "message.max.bytes", LOCAL_LIMIT_BYTES, e)) != ERR_OK ||
        (rc = client_set_int(conf, "queue.buffering.max.messages", l->queue_records, e)) != ERR_OK ||
        (rc = client_set_int(conf, "queue.buffering.max.kbytes", l->queue_kb, e)) != ERR_OK ||
        (rc = client_set_properties(conf, k, e)) != ERR_OK ||
        (rc = client_set(conf, "enable.idempotence", "true", e)) != ERR_OK ||
        (rc = client_set(conf, "acks", "all", e)) != ERR_OK ||
        (rc = client_set(conf, "partitioner", "murmur2_random", e)) != ERR_OK)
        return rc;
    return client_set_int(conf, "message.timeout.ms", l->message_timeout_ms, e);
}

const char *produce_topic(const struct kafka_config *k, enum publisher_topic to)
{
    return to == PUBLISH_RESULT ? k->result_topic : to == PUBLISH_DEAD_LETTER ? k->dead_letter_topic : k->request_topic;
}

/* The handle is the library's to keep once it was asked for. */
void produce_warm(rd_kafka_t *rk, const struct kafka_config *k)
{
    const char *const topics[] = {k->result_topic, k->dead_letter_topic}; /* workers do not write requests */

    for (int i = 0; i < 2; i++) {
        rd_kafka_topic_t *t = rd_kafka_topic_new(rk, topics[i], NULL);
        if (t)
            rd_kafka_topic_destroy(t);
    }
}

static rd_kafka_headers_t *copy_headers(const struct outgoing *o)
{
    rd_kafka_headers_t *h = rd_kafka_headers_new(o->n_headers);

    for (size_t i = 0; h && i < o->n_headers; i++)
        rd_kafka_header_add(h, o->headers[i].name, -1, o->headers[i].value,
                            o->headers[i].value ? (ssize_t)o->headers[i].size : 0);
    return h;
}

rd_kafka_resp_err_t produce_send(rd_kafka_t *rk, const struct kafka_config *k, const struct outgoing *o, void *opaque)
{
    rd_kafka_headers_t *headers = copy_headers(o);
    rd_kafka_resp_err_t rc;

    rc = rd_kafka_producev(rk, RD_KAFKA_V_TOPIC(produce_topic(k, o->to)),
                           RD_KAFKA_V_PARTITION(o->partition < 0 ? RD_KAFKA_PARTITION_UA : o->partition),
                           RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_KEY(o->key, o->key_size),
                           RD_KAFKA_V_VALUE((void *)o->value, o->value_size), RD_KAFKA_V_HEADERS(headers),
                           RD_KAFKA_V_OPAQUE(opaque), RD_KAFKA_V_END);
    if (rc && headers)
        rd_kafka_headers_destroy(headers);
    return rc;
}

bool produce_is_refusal(rd_kafka_resp_err_t rc)
{
    return rc == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE || rc == RD_KAFKA_RESP_ERR_INVALID_RECORD;
}

enum err_code produce_refusal(struct err *e, rd_kafka_resp_err_t rc, enum err_act act, const char *topic, size_t bytes)
{
    if (rc == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE)
        return err_set(e, ERR_RESULT_TOO_LARGE, act, "the broker's limit refuses a record of %zu bytes for %s", bytes,
                       topic);
    return err_set(e, ERR_RESULT_REFUSED, act,
                   "the broker calls a record for %s invalid: its log has the reason; a compacted topic takes none "
                   "without a key",
                   topic);
}

enum err_act produce_act(rd_kafka_resp_err_t rc)
{
    return rc == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED ? ERR_RETRY : client_act(rc);
}
