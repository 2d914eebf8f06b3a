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

/* ---- administration: one request, one answer ---- */

struct request {
    rd_kafka_AdminOptions_t *options;
    rd_kafka_queue_t *answers;
    rd_kafka_event_t *answer;
};

static struct request request_of(rd_kafka_t *rk, rd_kafka_admin_op_t op, int timeout_ms)
{
    struct request r = {.options = rd_kafka_AdminOptions_new(rk, op), .answers = rd_kafka_queue_new(rk)};
    char why[256];

    (void)rd_kafka_AdminOptions_set_request_timeout(r.options, timeout_ms, why, sizeof why); /* in range */
    if (op != RD_KAFKA_ADMIN_OP_ALTERCONFIGS)
        (void)rd_kafka_AdminOptions_set_operation_timeout(r.options, timeout_ms, why, sizeof why);
    return r;
}

/* true: the request as a whole went well. */
static bool wait_for(struct request *r, const char *what, int timeout_ms)
{
    r->answer = rd_kafka_queue_poll(r->answers, timeout_ms);
    if (r->answer && !rd_kafka_event_error(r->answer))
        return true;
    fprintf(stderr, "chaos: %s: %s\n", what, r->answer ? rd_kafka_event_error_string(r->answer) : "no answer");
    return false;
}

static void request_end(struct request *r)
{
    if (r->answer)
        rd_kafka_event_destroy(r->answer);
    rd_kafka_queue_destroy(r->answers);
    rd_kafka_AdminOptions_destroy(r->options);
}

static bool is_done(const char *what, rd_kafka_resp_err_t rc, const char *why)
{
    if (rc)
        fprintf(stderr, "chaos: %s: %s\n", what, why ? why : rd_kafka_err2str(rc));
    return !rc;
}

bool kafka_create_topic(rd_kafka_t *rk, const char *topic, int partitions, int replicas, int timeout_ms)
{
    struct request r = request_of(rk, RD_KAFKA_ADMIN_OP_CREATETOPICS, timeout_ms);
    char why[256];
    rd_kafka_NewTopic_t *t = rd_kafka_NewTopic_new(topic, partitions, replicas, why, sizeof why);
    bool done = false;
    size_t n;

    if (!t)
        fail(topic, why);
    rd_kafka_CreateTopics(rk, &t, 1, r.options, r.answers);
    if (wait_for(&r, topic, timeout_ms)) {
        const rd_kafka_topic_result_t **results =
            rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(r.answer), &n);
        done = n == 1 &&
               is_done(topic, rd_kafka_topic_result_error(results[0]), rd_kafka_topic_result_error_string(results[0]));
    }
    request_end(&r);
    rd_kafka_NewTopic_destroy(t);
    return done;
}

bool kafka_delete_topic(rd_kafka_t *rk, const char *topic, int timeout_ms)
{
    struct request r = request_of(rk, RD_KAFKA_ADMIN_OP_DELETETOPICS, timeout_ms);
    rd_kafka_DeleteTopic_t *t = rd_kafka_DeleteTopic_new(topic);
    bool done = false;
    size_t n;

    rd_kafka_DeleteTopics(rk, &t, 1, r.options, r.answers);
    if (wait_for(&r, topic, timeout_ms)) {
        const rd_kafka_topic_result_t **results =
            rd_kafka_DeleteTopics_result_topics(rd_kafka_event_DeleteTopics_result(r.answer), &n);
        done = n == 1 &&
               is_done(topic, rd_kafka_topic_result_error(results[0]), rd_kafka_topic_result_error_string(results[0]));
    }
    request_end(&r);
    rd_kafka_DeleteTopic_destroy(t);
    return done;
}

bool kafka_set_topic(rd_kafka_t *rk, const char *topic, const char *name, const char *value, int timeout_ms)
{
    struct request r = request_of(rk, RD_KAFKA_ADMIN_OP_ALTERCONFIGS, timeout_ms);
    rd_kafka_ConfigResource_t *config = rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, topic);
    bool done = false;
    size_t n;

    if (name)
        rd_kafka_ConfigResource_set_config(config, name, value);
    rd_kafka_AlterConfigs(rk, &config, 1, r.options, r.answers);
    if (wait_for(&r, topic, timeout_ms)) {
        const rd_kafka_ConfigResource_t **results =
            rd_kafka_AlterConfigs_result_resources(rd_kafka_event_AlterConfigs_result(r.answer), &n);
        done = n == 1 && is_done(topic, rd_kafka_ConfigResource_error(results[0]),
                                 rd_kafka_ConfigResource_error_string(results[0]));
    }
    request_end(&r);
    rd_kafka_ConfigResource_destroy(config);
    return done;
}

bool kafka_delete_records(rd_kafka_t *rk, const char *topic, int partition, int64_t offset, int timeout_ms)
{
    struct request r = request_of(rk, RD_KAFKA_ADMIN_OP_DELETERECORDS, timeout_ms);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_DeleteRecords_t *what;
    bool done = false;

    rd_kafka_topic_partition_list_add(list, topic, partition)->offset = offset;
    what = rd_kafka_DeleteRecords_new(list);
    rd_kafka_DeleteRecords(rk, &what, 1, r.options, r.answers);
    if (wait_for(&r, topic, timeout_ms)) {
        const rd_kafka_topic_partition_list_t *results =
            rd_kafka_DeleteRecords_result_offsets(rd_kafka_event_DeleteRecords_result(r.answer));
        done = results->cnt == 1 && is_done(topic, results->elems[0].err, NULL);
    }
    request_end(&r);
    rd_kafka_DeleteRecords_destroy(what);
    rd_kafka_topic_partition_list_destroy(list);
    return done;
}
