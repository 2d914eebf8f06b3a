#include "tests/chaos/kafka.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "chaos: %s: %s\n", what, why);
    exit(1);
}

/* Connections come and go all the while: what matters shows in the results of calls. */
static void be_silent(const rd_kafka_t *rk, int level, const char *facility, const char *text)
{
    (void)rk, (void)level, (void)facility, (void)text;
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value)
{
    char why[256];

    if (rd_kafka_conf_set(conf, name, value, why, sizeof why) != RD_KAFKA_CONF_OK)
        fail(name, why);
}

rd_kafka_conf_t *kafka_conf(const char *bootstrap, const char *const *settings)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();

    rd_kafka_conf_set_log_cb(conf, be_silent);
    set(conf, "bootstrap.servers", bootstrap);
    set(conf, "reconnect.backoff.max.ms", "500");
    set(conf, "topic.metadata.refresh.interval.ms", "5000");
    for (; settings && *settings; settings += 2)
        set(conf, settings[0], settings[1]);
    return conf;
}

rd_kafka_t *kafka_new(rd_kafka_type_t type, rd_kafka_conf_t *conf)
{
    char why[256];
    rd_kafka_t *rk = rd_kafka_new(type, conf, why, sizeof why);

    if (!rk)
        fail("rd_kafka_new", why);
    return rk;
}

static int ask_partitions(rd_kafka_t *rk, rd_kafka_topic_t *t, int timeout_ms)
{
    const struct rd_kafka_metadata *m;
    int n = 0;

    if (rd_kafka_metadata(rk, 0, t, &m, timeout_ms) != RD_KAFKA_RESP_ERR_NO_ERROR)
        return 0;
    if (m->topic_cnt == 1 && m->topics[0].err == RD_KAFKA_RESP_ERR_NO_ERROR)
        n = m->topics[0].partition_cnt;
    rd_kafka_metadata_destroy(m);
    return n;
}

int kafka_partitions(rd_kafka_t *rk, const char *topic, int timeout_ms)
{
    enum { IN_A_ROW = 12, PAUSE_MS = 50 };
    rd_kafka_topic_t *t = rd_kafka_topic_new(rk, topic, NULL);
    int64_t until = clock_mono_ns() + timeout_ms * NS_PER_MS;
    int n = 0;

    for (int good = 0; t && good < IN_A_ROW && clock_mono_ns() < until;) {
        n = ask_partitions(rk, t, timeout_ms);
        good = n > 0 ? good + 1 : 0;
        rd_kafka_poll(rk, PAUSE_MS);
    }
    if (t)
        rd_kafka_topic_destroy(t);
    return n;
}

bool kafka_create_topic(rd_kafka_t *rk, const char *topic, int partitions, int replicas, int timeout_ms)
{
    char why[256];
    rd_kafka_NewTopic_t *t = rd_kafka_NewTopic_new(topic, partitions, replicas, why, sizeof why);
    rd_kafka_AdminOptions_t *o = rd_kafka_AdminOptions_new(rk, RD_KAFKA_ADMIN_OP_CREATETOPICS);
    rd_kafka_queue_t *q = rd_kafka_queue_new(rk);
    rd_kafka_event_t *ev;
    bool made = false;

    if (!t)
        fail(topic, why);
    (void)rd_kafka_AdminOptions_set_operation_timeout(o, timeout_ms, why, sizeof why); /* in range */
    (void)rd_kafka_AdminOptions_set_request_timeout(o, timeout_ms, why, sizeof why);
    rd_kafka_CreateTopics(rk, &t, 1, o, q);
    ev = rd_kafka_queue_poll(q, timeout_ms);
    if (ev && !rd_kafka_event_error(ev)) {
        size_t n;
        const rd_kafka_topic_result_t **r =
            rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(ev), &n);
        made = n == 1 && rd_kafka_topic_result_error(r[0]) == RD_KAFKA_RESP_ERR_NO_ERROR;
        if (n == 1 && !made)
            fprintf(stderr, "chaos: topic %s: %s\n", topic, rd_kafka_topic_result_error_string(r[0]));
    } else {
        fprintf(stderr, "chaos: topic %s: %s\n", topic, ev ? rd_kafka_event_error_string(ev) : "no answer");
    }
    if (ev)
        rd_kafka_event_destroy(ev);
    rd_kafka_queue_destroy(q);
    rd_kafka_AdminOptions_destroy(o);
    rd_kafka_NewTopic_destroy(t);
    return made;
}
