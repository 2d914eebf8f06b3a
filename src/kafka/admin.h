/* admin.h -- questions to the cluster before and beside the work: do the topics exist, may we use them. */
#ifndef KAFKA_ADMIN_H
#define KAFKA_ADMIN_H

#include "base/err.h"
#include "config/config.h"

#include <stdbool.h>
#include <stdint.h>

struct admin_topic {
    const char *name;
    int partitions;     /* 0 = does not exist, -1 = unknown */
    struct err problem; /* code ERR_OK = none */
};

struct admin_report {
    int brokers;
    char cluster_id[64];
    const char *bootstrap; /* where it asked */
    struct admin_topic request, result, dead_letter;
    struct err group_problem; /* code ERR_OK = the group's offsets may be read, or there is no topic to ask for */
};

/* Asks for metadata of the three topics within timeout_ms, and for the group's offsets.  Never creates a topic.  A topic
 * that we may not see is a problem of that topic (act ERR_STOP); rights to write show only when something is written.
 * ERR_TIMEOUT (act ERR_RETRY): no broker answered. */
MUST_CHECK enum err_code admin_ask(struct admin_report *r, const struct kafka_config *k, const char *bootstrap,
                                   int timeout_ms, struct err *e);
/* Creates those of the three that do not exist (k->partitions, k->replication_factor). */
MUST_CHECK enum err_code admin_create_topics(const struct kafka_config *k, const char *bootstrap, int timeout_ms,
                                             struct err *e);

/* librdkafka's version, as config_check_library() takes it. */
int admin_library_version(void);

#endif
