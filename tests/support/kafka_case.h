/* kafka_case.h -- what the Kafka tests share: a small configuration, the embedded broker, numbered jobs, and the
 * committed offsets as an observer sees them. */
#ifndef SUPPORT_KAFKA_CASE_H
#define SUPPORT_KAFKA_CASE_H

#include "config/config.h"
#include "kafka/consumer.h"
#include "kafka/embedded.h"
#include "kafka/publisher.h"

#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>

struct kafka_case {
    struct kafka_config k;
    struct delivery_config d;
    struct embedded *broker; /* NULL: the bootstrap is another one */
    const char *bootstrap;
    rd_kafka_mock_cluster_t *mock;
};

/* Short timeouts, 2,000 jobs in flight, topics requests, results and dead; with the embedded broker. */
void kafka_case_open(struct kafka_case *kc, int partitions);
void kafka_case_close(struct kafka_case *kc);

/* n records "job <first + i>" with the number as key, over the partitions in turn (partition -1) or into one, all
 * acknowledged. */
void kafka_case_submit(struct kafka_case *kc, int first, int n, int partition);

/* A publisher_report() that expects success and counts in *(int *)ctx. */
void kafka_case_count(void *ctx, void *opaque, enum err_code rc, const struct err *e);

/* What the group has committed for a partition, -1 = nothing. */
int64_t kafka_case_committed(const struct kafka_case *kc, int partition);
/* Commits for the group, as another program might. */
void kafka_case_commit(const struct kafka_case *kc, int partition, int64_t offset, const char *metadata);

/* Number of a job, -1 = it is none. */
int kafka_case_number(const struct record *r);

#endif
