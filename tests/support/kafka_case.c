#include "tests/support/kafka_case.h"

#include "base/log.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void kafka_case_open(struct kafka_case *kc, int partitions)
{
    struct err e;

    memset(kc, 0, sizeof *kc);
    kc->k = (struct kafka_config){
        .bootstrap_servers = "127.0.0.1:1",
        .embedded = true,
        .group_id = "workers",
        .instance_id = "",
        .client_id = "test",
        .request_topic = "requests",
        .result_topic = "results",
        .dead_letter_topic = "dead",
        .partitions = partitions,
        .replication_factor = 1,
        .assignment_strategy = "roundrobin",
        .offset_reset = "earliest",
        .offset_past_end = "error",
        .offset_wait_ms = 1500,
        .session_timeout_ms = 3200, /* the embedded broker waits 3 s for more members at first */
        .max_poll_interval_ms = 6000,
        .properties = NULL,
    };
    kc->d = (struct delivery_config){
        .max_in_flight_jobs = 2000,
        .max_in_flight_mb = 64,
        .commit_interval_ms = 50,
        .drain_timeout_ms = 5000,
        .revoke_timeout_ms = 1000,
        .publish_timeout_ms = 5000,
    };
    if (getenv("VERBOSE"))
        log_set_level(LOG_DEBUG);
    cr_assert_eq(embedded_open(&kc->broker, &kc->k, &e), ERR_OK, "%s", e.msg);
    kc->bootstrap = embedded_bootstrap(kc->broker);
    kc->mock = embedded_cluster(kc->broker);
}

void kafka_case_close(struct kafka_case *kc)
{
    embedded_close(kc->broker);
}

void kafka_case_count(void *ctx, void *opaque, enum err_code rc, const struct err *e)
{
    (void)opaque;
    cr_assert_eq(rc, ERR_OK, "%s", e->msg);
    ++*(int *)ctx;
}

void kafka_case_submit(struct kafka_case *kc, int first, int n, int partition)
{
    struct publisher *p;
    struct err e;
    int done = 0;
    char key[32], value[32];

    cr_assert_eq(publisher_open(&p, &kc->k, kc->bootstrap, &kc->d, kafka_case_count, &done, &e), ERR_OK, "%s", e.msg);
    for (int i = 0; i < n; i++) {
        struct outgoing o = {.to = PUBLISH_REQUEST, .partition = partition < 0 ? i % kc->k.partitions : partition};

        o.key = key;
        o.key_size = (size_t)snprintf(key, sizeof key, "%d", first + i);
        o.value = value;
        o.value_size = (size_t)snprintf(value, sizeof value, "job %d", first + i);
        enum err_code rc;
        while ((rc = publisher_send(p, &o, &e)) == ERR_BUSY)
            publisher_turn(p, 10);
        cr_assert_eq(rc, ERR_OK, "%s", e.msg);
    }
    for (int i = 0; i < 1000 && done < n; i++)
        publisher_turn(p, 10);
    cr_assert_eq(done, n);
    publisher_close(p, 1000);
}

int64_t kafka_case_committed(const struct kafka_case *kc, int partition)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_t *rk;
    int64_t offset;
    char why[200];

    rd_kafka_conf_set(conf, "bootstrap.servers", kc->bootstrap, why, sizeof why);
    rd_kafka_conf_set(conf, "group.id", kc->k.group_id, why, sizeof why);
    rk = rd_kafka_new(RD_KAFKA_CONSUMER, conf, why, sizeof why);
    cr_assert_not_null(rk);
    rd_kafka_topic_partition_list_add(list, kc->k.request_topic, partition);
    cr_assert_eq(rd_kafka_committed(rk, list, 5000), RD_KAFKA_RESP_ERR_NO_ERROR);
    offset = list->elems[0].offset;
    rd_kafka_topic_partition_list_destroy(list);
    rd_kafka_destroy(rk);
    return offset >= 0 ? offset : -1;
}

void kafka_case_commit(const struct kafka_case *kc, int partition, int64_t offset, const char *metadata)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    char why[200];

    rd_kafka_conf_set(conf, "bootstrap.servers", kc->bootstrap, why, sizeof why);
    rd_kafka_conf_set(conf, "group.id", kc->k.group_id, why, sizeof why);
    rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_CONSUMER, conf, why, sizeof why);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_t *tp = rd_kafka_topic_partition_list_add(list, kc->k.request_topic, partition);

    tp->offset = offset;
    tp->metadata = strdup(metadata);
    tp->metadata_size = strlen(metadata);
    cr_assert_eq(rd_kafka_commit(rk, list, 0), RD_KAFKA_RESP_ERR_NO_ERROR);
    rd_kafka_topic_partition_list_destroy(list);
    rd_kafka_consumer_close(rk);
    rd_kafka_destroy(rk);
}

int kafka_case_number(const struct record *r)
{
    char text[32] = "";
    int n;

    if (!r->value || r->value_size >= sizeof text)
        return -1;
    memcpy(text, r->value, r->value_size);
    return sscanf(text, "job %d", &n) == 1 ? n : -1;
}
