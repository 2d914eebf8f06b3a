#include "kafka/admin.h"

#include "base/clock.h"
#include "base/log.h"
#include "kafka/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CLOSE_MS = 5000, TOPICS = 3 };

/* A consumer that joins nothing: unlike a producer it can ask for a topic without making the broker create it. */
static enum err_code open_client(rd_kafka_t **rk, struct client *cl, const struct kafka_config *k,
                                 const char *bootstrap, struct err *e)
{
    rd_kafka_conf_t *conf = NULL;
    enum err_code rc;

    client_init(cl, cl, "admin");
    if ((rc = client_conf(&conf, cl, k, bootstrap, e)) != ERR_OK)
        return rc;
    if ((rc = client_set_properties(conf, k, e)) != ERR_OK ||
        (rc = client_set(conf, "group.id", k->group_id, e)) != ERR_OK ||
        (rc = client_set(conf, "enable.auto.commit", "false", e)) != ERR_OK ||
        (rc = client_set(conf, "allow.auto.create.topics", "false", e)) != ERR_OK) {
        rd_kafka_conf_destroy(conf);
        return rc;
    }
    return client_new(rk, RD_KAFKA_CONSUMER, &conf, e);
}

static int left_ms(int64_t until)
{
    int64_t left = (until - clock_mono_ns()) / NS_PER_MS;

    return left > 1 ? (int)left : 1;
}

static void note_topic(struct admin_topic *t, const struct rd_kafka_metadata_topic *md)
{
    switch (md->err) {
    case RD_KAFKA_RESP_ERR_NO_ERROR:
        t->partitions = md->partition_cnt;
        for (int i = 0; i < md->partition_cnt; i++)
            if (md->partitions[i].err && md->partitions[i].err != RD_KAFKA_RESP_ERR_REPLICA_NOT_AVAILABLE)
                err_set(&t->problem, ERR_KAFKA, ERR_RETRY, "topic %s, partition %d: %s", t->name, md->partitions[i].id,
                        rd_kafka_err2str(md->partitions[i].err));
        return;
    case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART: t->partitions = 0; return;
    default:
        t->partitions = -1;
        err_set(&t->problem, ERR_KAFKA, client_act(md->err), "topic %s: %s", t->name, rd_kafka_err2str(md->err));
    }
}

static enum err_code ask_topic(struct admin_report *r, struct admin_topic *t, rd_kafka_t *rk, int64_t until,
                               struct err *e)
{
    const struct rd_kafka_metadata *md = NULL;
    rd_kafka_topic_t *handle = rd_kafka_topic_new(rk, t->name, NULL);
    rd_kafka_resp_err_t rc;

    t->partitions = -1;
    if (!handle)
        return err_set(e, ERR_CONFIG, ERR_STOP, "topic \"%.80s\": %s", t->name,
                       rd_kafka_err2str(rd_kafka_last_error()));
    rc = rd_kafka_metadata(rk, 0, handle, &md, left_ms(until));
    rd_kafka_topic_destroy(handle);
    if (rc == RD_KAFKA_RESP_ERR__TRANSPORT || rc == RD_KAFKA_RESP_ERR__TIMED_OUT ||
        rc == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN)
        return err_set(e, ERR_TIMEOUT, ERR_RETRY, "kafka: no broker answered at %s", r->bootstrap);
    if (rc)
        return client_err(e, rc, t->name);
    r->brokers = md->broker_cnt;
    if (md->topic_cnt == 1)
        note_topic(t, &md->topics[0]);
    rd_kafka_metadata_destroy(md);
    return ERR_OK;
}

/* May we read the group's offsets?  A broker that knows no rights says yes. */
static void ask_group(struct admin_report *r, rd_kafka_t *rk, const struct kafka_config *k, int64_t until)
{
    rd_kafka_topic_partition_list_t *list;
    rd_kafka_resp_err_t rc;

    if (r->request.partitions < 1)
        return;
    list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, k->request_topic, 0);
    rc = rd_kafka_committed(rk, list, left_ms(until));
    if (rc)
        err_set(&r->group_problem, ERR_KAFKA, client_act(rc), "group %s: %s", k->group_id, rd_kafka_err2str(rc));
    rd_kafka_topic_partition_list_destroy(list);
}

enum err_code admin_ask(struct admin_report *r, const struct kafka_config *k, const char *bootstrap, int timeout_ms,
                        struct err *e)
{
    int64_t until = clock_mono_ns() + timeout_ms * NS_PER_MS;
    struct client *cl = malloc(sizeof *cl); /* outlives us if the handle hangs */
    rd_kafka_t *rk = NULL;
    enum err_code rc;
    char *id;

    memset(r, 0, sizeof *r);
    r->bootstrap = bootstrap ? bootstrap : k->bootstrap_servers;
    r->request.name = k->request_topic;
    r->result.name = k->result_topic;
    r->dead_letter.name = k->dead_letter_topic;
    r->request.partitions = r->result.partitions = r->dead_letter.partitions = -1;
    if (!cl)
        return err_set(e, ERR_NOMEM, ERR_STOP, "admin: out of memory");
    if ((rc = open_client(&rk, cl, k, bootstrap, e)) != ERR_OK)
        goto out;
    if ((rc = ask_topic(r, &r->request, rk, until, e)) != ERR_OK ||
        (rc = ask_topic(r, &r->result, rk, until, e)) != ERR_OK ||
        (rc = ask_topic(r, &r->dead_letter, rk, until, e)) != ERR_OK)
        goto out;
    id = rd_kafka_clusterid(rk, left_ms(until));
    snprintf(r->cluster_id, sizeof r->cluster_id, "%s", id ? id : "");
    if (id)
        rd_kafka_mem_free(rk, id);
    ask_group(r, rk, k, until);
out:
    if (client_destroy(cl, rk, true, CLOSE_MS))
        free(cl);
    return rc;
}

/* Sends one request for the topics that are missing and looks at each answer. */
static enum err_code create(rd_kafka_t *rk, const struct kafka_config *k, const struct admin_topic *const *missing,
                            int n, int64_t until, struct err *e)
{
    rd_kafka_NewTopic_t *topics[TOPICS];
    const rd_kafka_topic_result_t *const *results;
    rd_kafka_queue_t *q = rd_kafka_queue_new(rk);
    rd_kafka_AdminOptions_t *options = rd_kafka_AdminOptions_new(rk, RD_KAFKA_ADMIN_OP_CREATETOPICS);
    rd_kafka_event_t *ev = NULL;
    enum err_code rc = ERR_OK;
    size_t n_results = 0;
    char why[256] = "";
    int made = 0;

    for (; made < n; made++) {
        topics[made] =
            rd_kafka_NewTopic_new(missing[made]->name, k->partitions, k->replication_factor, why, sizeof why);
        if (!topics[made]) {
            rc = err_set(e, ERR_CONFIG, ERR_STOP, "create topic \"%.80s\": %s", missing[made]->name, why);
            goto out;
        }
    }
    rd_kafka_AdminOptions_set_request_timeout(options, left_ms(until), why, sizeof why);
    rd_kafka_AdminOptions_set_operation_timeout(options, left_ms(until), why, sizeof why);
    rd_kafka_CreateTopics(rk, topics, (size_t)made, options, q);
    ev = rd_kafka_queue_poll(q, left_ms(until) + 1000);
    if (!ev || rd_kafka_event_error(ev)) {
        rc =
            err_set(e, ERR_TIMEOUT, ERR_RETRY, "create topics: %s", ev ? rd_kafka_event_error_string(ev) : "no answer");
        goto out;
    }
    results = rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(ev), &n_results);
    for (size_t i = 0; i < n_results && rc == ERR_OK; i++) {
        rd_kafka_resp_err_t code = rd_kafka_topic_result_error(results[i]);
        const char *text = rd_kafka_topic_result_error_string(results[i]);

        if (code && code != RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS)
            rc = err_set(e, ERR_KAFKA, ERR_STOP, "create topic %s (%d partitions, replication factor %d): %s",
                         rd_kafka_topic_result_name(results[i]), k->partitions, k->replication_factor,
                         text ? text : rd_kafka_err2str(code));
        else
            log_event(LOG_INFO, "topic_created", "topic=%s partitions=%d", rd_kafka_topic_result_name(results[i]),
                      k->partitions);
    }
out:
    if (ev)
        rd_kafka_event_destroy(ev);
    while (made > 0)
        rd_kafka_NewTopic_destroy(topics[--made]);
    rd_kafka_AdminOptions_destroy(options);
    rd_kafka_queue_destroy(q);
    return rc;
}

static int list_missing(struct admin_report *r, const struct admin_topic *missing[TOPICS])
{
    const struct admin_topic *all[TOPICS] = {&r->request, &r->result, &r->dead_letter};
    int n = 0;

    for (int i = 0; i < TOPICS; i++) {
        bool twice = false;

        for (int j = 0; j < n; j++)
            twice |= strcmp(missing[j]->name, all[i]->name) == 0;
        if (all[i]->partitions == 0 && !twice)
            missing[n++] = all[i];
    }
    return n;
}

enum err_code admin_create_topics(const struct kafka_config *k, const char *bootstrap, int timeout_ms, struct err *e)
{
    int64_t until = clock_mono_ns() + timeout_ms * NS_PER_MS;
    const struct admin_topic *missing[TOPICS];
    struct admin_report r;
    struct client *cl;
    rd_kafka_t *rk = NULL;
    enum err_code rc;
    int n;

    if ((rc = admin_ask(&r, k, bootstrap, timeout_ms, e)) != ERR_OK)
        return rc;
    n = list_missing(&r, missing);
    if (n == 0)
        return ERR_OK;
    cl = malloc(sizeof *cl);
    if (!cl)
        return err_set(e, ERR_NOMEM, ERR_STOP, "admin: out of memory");
    if ((rc = open_client(&rk, cl, k, bootstrap, e)) == ERR_OK)
        rc = create(rk, k, missing, n, until, e);
    if (client_destroy(cl, rk, true, CLOSE_MS))
        free(cl);
    return rc;
}

int admin_library_version(void)
{
    return rd_kafka_version();
}
