#include "kafka/reader.h"

#include "base/clock.h"
#include "base/log.h"
#include "kafka/client.h"
#include "kafka/record_pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPEN_MS = 10000, CLOSE_MS = 5000, ASK_AGAIN_MS = 200 };

struct reader {
    struct client client;
    rd_kafka_t *rk;
    char *topic;
    int partitions, at_end;
    bool *ended; /* by partition */
    struct record_pool *pool;
    struct record *last; /* what the caller holds */
};

static enum err_code configure(rd_kafka_conf_t *conf, const struct kafka_config *k, struct err *e)
{
    /* the library wants a group's name even where no group is joined */
    static const struct {
        const char *name, *value;
    } defaults[] = {{"queued.max.messages.kbytes", "16384"},
                    {"fetch.max.bytes", "16777216"},
                    {"fetch.wait.max.ms", "50"},
                    {"fetch.error.backoff.ms", "200"}},
      fixed[] = {{"enable.auto.commit", "false"},   {"enable.auto.offset.store", "false"},
                 {"enable.partition.eof", "true"},  {"isolation.level", "read_committed"},
                 {"auto.offset.reset", "earliest"}, {"allow.auto.create.topics", "false"}};
    char group[256];
    enum err_code rc = ERR_OK;

    snprintf(group, sizeof group, "%s-reader", k->group_id && *k->group_id ? k->group_id : "translate");
    for (size_t i = 0; rc == ERR_OK && i < sizeof defaults / sizeof defaults[0]; i++)
        rc = client_set(conf, defaults[i].name, defaults[i].value, e);
    if (rc == ERR_OK)
        rc = client_set_properties(conf, k, e);
    for (size_t i = 0; rc == ERR_OK && i < sizeof fixed / sizeof fixed[0]; i++)
        rc = client_set(conf, fixed[i].name, fixed[i].value, e);
    return rc == ERR_OK ? client_set(conf, "group.id", group, e) : rc;
}

/* How many partitions the topic has; waits for a topic that was only just made. */
static enum err_code find_partitions(struct reader *rd, int64_t until, struct err *e)
{
    rd_kafka_topic_t *t = rd_kafka_topic_new(rd->rk, rd->topic, NULL);
    rd_kafka_resp_err_t rc = RD_KAFKA_RESP_ERR_NO_ERROR;

    if (!t)
        return client_err(e, rd_kafka_last_error(), rd->topic);
    for (;;) {
        const struct rd_kafka_metadata *md = NULL;
        int64_t left = (until - clock_mono_ns()) / NS_PER_MS;

        rc = rd_kafka_metadata(rd->rk, 0, t, &md, left > 1 ? (int)left : 1);
        if (!rc && md->topic_cnt == 1) {
            rc = md->topics[0].err;
            rd->partitions = rc ? 0 : md->topics[0].partition_cnt;
        }
        if (md)
            rd_kafka_metadata_destroy(md);
        if (rd->partitions > 0 || client_act(rc) == ERR_STOP || clock_mono_ns() >= until)
            break;
        rd_kafka_poll(rd->rk, ASK_AGAIN_MS);
    }
    rd_kafka_topic_destroy(t);
    if (rd->partitions > 0)
        return ERR_OK;
    if (rc == RD_KAFKA_RESP_ERR__TRANSPORT || rc == RD_KAFKA_RESP_ERR__TIMED_OUT || !rc)
        return err_set(e, ERR_KAFKA, ERR_RETRY, "topic %s: no broker answered within %d ms", rd->topic, OPEN_MS);
    return err_set(e, ERR_KAFKA, ERR_STOP, "topic %s: %s", rd->topic, rd_kafka_err2str(rc));
}

/* The ends are asked for now: what is produced after reader_open() returned is read. */
static enum err_code find_ends(struct reader *rd, rd_kafka_topic_partition_list_t *list, int64_t until, struct err *e)
{
    rd_kafka_resp_err_t rc;
    int64_t left = (until - clock_mono_ns()) / NS_PER_MS;

    for (int i = 0; i < list->cnt; i++)
        list->elems[i].offset = RD_KAFKA_OFFSET_END; /* the timestamp -1 of the protocol: latest */
    rc = rd_kafka_offsets_for_times(rd->rk, list, left > 1 ? (int)left : 1);
    for (int i = 0; !rc && i < list->cnt; i++)
        rc = list->elems[i].err;
    return rc ? client_err(e, rc, rd->topic) : ERR_OK;
}

static enum err_code start(struct reader *rd, bool from_beginning, struct err *e)
{
    int64_t until = clock_mono_ns() + OPEN_MS * NS_PER_MS;
    rd_kafka_topic_partition_list_t *list = NULL;
    rd_kafka_resp_err_t krc;
    enum err_code rc;

    if ((rc = find_partitions(rd, until, e)) != ERR_OK)
        return rc;
    rd->ended = calloc((size_t)rd->partitions, sizeof *rd->ended);
    if (!rd->ended)
        return err_set(e, ERR_NOMEM, ERR_STOP, "reader: out of memory");
    list = rd_kafka_topic_partition_list_new(rd->partitions);
    for (int i = 0; i < rd->partitions; i++)
        rd_kafka_topic_partition_list_add(list, rd->topic, i)->offset = RD_KAFKA_OFFSET_BEGINNING;
    if (!from_beginning)
        rc = find_ends(rd, list, until, e);
    if (rc == ERR_OK && (krc = rd_kafka_assign(rd->rk, list)))
        rc = client_err(e, krc, rd->topic);
    rd_kafka_topic_partition_list_destroy(list);
    return rc;
}

enum err_code reader_open(struct reader **out, const struct kafka_config *k, const char *bootstrap, const char *topic,
                          bool from_beginning, struct err *e)
{
    enum err_code rc;
    rd_kafka_conf_t *conf = NULL;
    struct reader *rd = calloc(1, sizeof *rd);

    *out = NULL;
    if (!rd)
        return err_set(e, ERR_NOMEM, ERR_STOP, "reader: out of memory");
    client_init(&rd->client, rd, "reader");
    rd->topic = strdup(topic);
    if (!rd->topic) {
        rc = err_set(e, ERR_NOMEM, ERR_STOP, "reader: out of memory");
        goto out;
    }
    if ((rc = record_pool_open(&rd->pool, 1, e)) != ERR_OK ||
        (rc = client_conf(&conf, &rd->client, k, bootstrap, e)) != ERR_OK || (rc = configure(conf, k, e)) != ERR_OK ||
        (rc = client_new(&rd->rk, RD_KAFKA_CONSUMER, &conf, e)) != ERR_OK)
        goto out;
    rd_kafka_poll_set_consumer(rd->rk);
    if ((rc = start(rd, from_beginning, e)) != ERR_OK)
        goto out;
    *out = rd;
    rd = NULL;
out:
    if (conf)
        rd_kafka_conf_destroy(conf);
    reader_close(rd);
    return rc;
}

static void mark(struct reader *rd, int32_t partition, bool ended)
{
    if (partition < 0 || partition >= rd->partitions || rd->ended[partition] == ended)
        return;
    rd->ended[partition] = ended;
    rd->at_end += ended ? 1 : -1;
}

static enum err_code on_message(struct reader *rd, const rd_kafka_message_t *m, struct err *e)
{
    struct source at = {.partition = m->partition, .offset = m->offset};
    const char *text;

    if (m->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
        mark(rd, m->partition, true);
        return ERR_OK;
    }
    if (m->err) {
        text = rd_kafka_message_errstr(m);
        if (client_act(m->err) != ERR_STOP && m->err != RD_KAFKA_RESP_ERR__FATAL)
            return ERR_OK; /* it passes; the library goes on by itself */
        return err_set(e, ERR_KAFKA, ERR_STOP, "%s: %s", rd->topic, text ? text : rd_kafka_err2str(m->err));
    }
    mark(rd, m->partition, false);
    rd->last = record_pool_take(rd->pool, m, &at, rd->topic);
    return rd->last ? ERR_OK : err_set(e, ERR_NOMEM, ERR_STOP, "reader: no memory for %zu bytes", m->len);
}

enum err_code reader_next(struct reader *rd, const struct record **r, bool *at_end, int timeout_ms, struct err *e)
{
    int64_t until = clock_mono_ns() + timeout_ms * NS_PER_MS;
    enum err_code rc = ERR_OK;

    if (rd->last)
        record_pool_release(rd->pool, rd->last);
    rd->last = NULL;
    while (rc == ERR_OK && !rd->last) {
        int64_t left = (until - clock_mono_ns() + NS_PER_MS - 1) / NS_PER_MS;
        rd_kafka_message_t *m = rd_kafka_consumer_poll(rd->rk, left > 0 ? (int)left : 0);

        if (!m)
            break;
        rc = on_message(rd, m, e);
        rd_kafka_message_destroy(m);
        if (!rd->last && rd->at_end == rd->partitions)
            break; /* tell the caller at once */
    }
    *r = rd->last;
    if (at_end)
        *at_end = rd->at_end == rd->partitions;
    return rc;
}

void reader_close(struct reader *rd)
{
    if (!rd)
        return;
    if (rd->last)
        record_pool_release(rd->pool, rd->last);
    if (!client_destroy(&rd->client, rd->rk, true, CLOSE_MS))
        return; /* hangs: its callbacks may still come */
    record_pool_close(rd->pool);
    free(rd->ended);
    free(rd->topic);
    free(rd);
}
