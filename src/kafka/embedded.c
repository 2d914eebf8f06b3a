#include "kafka/embedded.h"

#include "kafka/client.h"

#include <librdkafka/rdkafka_mock.h>
#include <stdlib.h>

enum { CLOSE_MS = 5000 };

struct embedded {
    struct client client;
    rd_kafka_t *rk; /* only carries the cluster */
    rd_kafka_mock_cluster_t *cluster;
};

static enum err_code make_topic(struct embedded *m, const char *name, int partitions, struct err *e)
{
    rd_kafka_resp_err_t rc = rd_kafka_mock_topic_create(m->cluster, name, partitions, 1);

    if (rc && rc != RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS)
        return err_set(e, ERR_KAFKA, ERR_STOP, "embedded broker: topic %s with %d partitions: %s", name, partitions,
                       rd_kafka_err2str(rc));
    return ERR_OK;
}

enum err_code embedded_open(struct embedded **out, const struct kafka_config *k, struct err *e)
{
    enum err_code rc;
    rd_kafka_conf_t *conf = NULL;
    struct embedded *m = calloc(1, sizeof *m);

    *out = NULL;
    if (!m)
        return err_set(e, ERR_NOMEM, ERR_STOP, "embedded broker: out of memory");
    client_init(&m->client, m, "embedded");
    if ((rc = client_conf(&conf, &m->client, k, "127.0.0.1:1", e)) != ERR_OK)
        goto out;
    /* it needs no brokers of its own, and must not look for any */
    if ((rc = client_set(conf, "bootstrap.servers", "", e)) != ERR_OK)
        goto out;
    if ((rc = client_new(&m->rk, RD_KAFKA_PRODUCER, &conf, e)) != ERR_OK)
        goto out;
    m->cluster = rd_kafka_mock_cluster_new(m->rk, 1);
    if (!m->cluster) {
        rc = err_set(e, ERR_KAFKA, ERR_STOP, "embedded broker: cannot listen on a loopback port");
        goto out;
    }
    if ((rc = make_topic(m, k->request_topic, k->partitions, e)) != ERR_OK ||
        (rc = make_topic(m, k->result_topic, k->partitions, e)) != ERR_OK ||
        (rc = make_topic(m, k->dead_letter_topic, k->partitions, e)) != ERR_OK)
        goto out;
    *out = m;
    m = NULL;
out:
    if (conf)
        rd_kafka_conf_destroy(conf);
    embedded_close(m);
    return rc;
}

void embedded_close(struct embedded *m)
{
    if (!m)
        return;
    if (m->cluster)
        rd_kafka_mock_cluster_destroy(m->cluster);
    if (client_destroy(&m->client, m->rk, false, CLOSE_MS))
        free(m);
}

const char *embedded_bootstrap(const struct embedded *m)
{
    return rd_kafka_mock_cluster_bootstraps(m->cluster);
}

struct rd_kafka_mock_cluster_s *embedded_cluster(const struct embedded *m)
{
    return m->cluster;
}
