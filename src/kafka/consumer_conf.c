#include "kafka/consumer_conf.h"

#include "kafka/client.h"

#include <string.h>

enum err_code consumer_conf_check(const struct kafka_config *k, struct err *e)
{
    if (strstr(k->assignment_strategy, "cooperative-sticky") && rd_kafka_version() < 0x02030000)
        return err_set(e, ERR_CONFIG, ERR_STOP,
                       "kafka.assignment_strategy: cooperative-sticky needs librdkafka 2.3 or newer (this is %s, which "
                       "aborts the process when stopped early); use roundrobin or range",
                       rd_kafka_version_str());
    if (k->request_topic[0] == '^')
        return err_set(e, ERR_CONFIG, ERR_STOP, "kafka.request_topic: \"%.60s\" is a pattern; one topic is allowed",
                       k->request_topic);
    return ERR_OK;
}

enum err_code consumer_conf_fill(rd_kafka_conf_t *conf, const struct kafka_config *k, struct err *e)
{
    int heartbeat = k->session_timeout_ms / 3 < 3000 ? k->session_timeout_ms / 3 : 3000;
    const struct {
        const char *name, *value;
    } defaults[] =
        {
            /* All partitions lead to one queue, so what is fetched ahead is bounded whatever their number: the queue,
             * and one answer of each broker, unpacked.  Small answers also mix the partitions well.
             * Past either limit of the queue the library fetches nothing for a whole second, however fast the queue
             * empties: so it holds what a second may need, and its bytes are what bounds it (a record's own some 0.5 KB
             * of the library's are not counted there). */
            {"queued.min.messages", "50000"}, {"queued.max.messages.kbytes", "8192"},
            {"fetch.max.bytes", "1048576"},   {"fetch.message.max.bytes", "524288"},
            {"fetch.wait.max.ms", "50"},      {"fetch.error.backoff.ms", "200"},
        },
      fixed[] = {
          {"group.id", k->group_id},
          {"enable.auto.commit", "false"},
          {"enable.auto.offset.store", "false"},
          {"enable.partition.eof", "true"},
          {"isolation.level", "read_committed"},
          {"auto.offset.reset", "error"}, /* lost_offset.h decides */
          {"partition.assignment.strategy", k->assignment_strategy},
          {"allow.auto.create.topics", "false"},
      };
    enum err_code rc = ERR_OK;

    for (size_t i = 0; rc == ERR_OK && i < sizeof defaults / sizeof defaults[0]; i++)
        rc = client_set(conf, defaults[i].name, defaults[i].value, e);
    /* That second, where the library lets it be set; older ones do not know the name. */
    rd_kafka_conf_set(conf, "fetch.queue.backoff.ms", "20", NULL, 0);
    if (rc == ERR_OK)
        rc = client_set_properties(conf, k, e);
    for (size_t i = 0; rc == ERR_OK && i < sizeof fixed / sizeof fixed[0]; i++)
        rc = client_set(conf, fixed[i].name, fixed[i].value, e);
    if (rc == ERR_OK && k->instance_id && *k->instance_id)
        rc = client_set(conf, "group.instance.id", k->instance_id, e);
    if (rc == ERR_OK)
        rc = client_set_int(conf, "session.timeout.ms", k->session_timeout_ms, e);
    if (rc == ERR_OK)
        rc = client_set_int(conf, "max.poll.interval.ms", k->max_poll_interval_ms, e);
    return rc == ERR_OK ? client_set_int(conf, "heartbeat.interval.ms", heartbeat, e) : rc;
}
