/* embedded.h -- librdkafka's own in-process cluster, so that a demonstration and most tests need no broker.
 * Its listeners are ordinary loopback sockets: other processes may use it while this one lives.  Its limits (nothing on
 * disk, 5 MB a partition, no real transactions) are in README. */
#ifndef KAFKA_EMBEDDED_H
#define KAFKA_EMBEDDED_H

#include "base/err.h"
#include "config/config.h"

struct embedded;

/* Starts one broker and makes the three topics of k with k->partitions partitions. */
MUST_CHECK enum err_code embedded_open(struct embedded **out, const struct kafka_config *k, struct err *e);
void embedded_close(struct embedded *m);
const char *embedded_bootstrap(const struct embedded *m); /* "127.0.0.1:34567" */
/* librdkafka's handle of it (rdkafka_mock.h), for tests that inject errors or take the broker down. */
struct rd_kafka_mock_cluster_s *embedded_cluster(const struct embedded *m);

#endif
