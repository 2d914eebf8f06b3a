/* client.h -- what every librdkafka handle of ours has in common: configuration, logs, errors, a bounded end.
 * Only the modules of src/kafka include this.
 * Logs of the library become log_event() lines; its complaints about connections at most one every few seconds. */
#ifndef KAFKA_CLIENT_H
#define KAFKA_CLIENT_H

#include "base/err.h"
#include "config/config.h"

#include <librdkafka/rdkafka.h>
#include <stdbool.h>
#include <stdint.h>

/* Embedded in the owner of a handle, and reachable from every callback as its opaque. */
struct client {
    void *owner;
    const char *role;             /* "consumer", "publisher", ... for log lines */
    _Atomic int64_t answered_ns;  /* monotonic, of the last good response of a broker; 0 = none yet */
    _Atomic int64_t all_down_ns;  /* monotonic, when every broker was last reported down; 0 = never */
    _Atomic int64_t complaint_ns; /* of the last logged connection complaint */
    _Atomic int complaints_held;  /* since then */
    _Atomic int64_t troubles;     /* connections lost and requests timed out so far */
    _Atomic bool fatal;           /* the handle can do no more: ask rd_kafka_fatal_error() */
};

void client_init(struct client *cl, void *owner, const char *role);

/* A configuration with what all handles share and log and error callbacks, opaque = cl. */
MUST_CHECK enum err_code client_conf(rd_kafka_conf_t **out, struct client *cl, const struct kafka_config *k,
                                     const char *bootstrap, struct err *e);
MUST_CHECK enum err_code client_set(rd_kafka_conf_t *conf, const char *name, const char *value, struct err *e);
MUST_CHECK enum err_code client_set_int(rd_kafka_conf_t *conf, const char *name, int64_t value, struct err *e);
int64_t client_get_int(const rd_kafka_conf_t *conf, const char *name); /* 0 for what is no number */
/* The user's kafka.properties, over the defaults set so far; what the worker's promises rest on is refused. */
MUST_CHECK enum err_code client_set_properties(rd_kafka_conf_t *conf, const struct kafka_config *k, struct err *e);
/* Takes *conf and sets it to NULL, whatever happens. */
MUST_CHECK enum err_code client_new(rd_kafka_t **out, rd_kafka_type_t type, rd_kafka_conf_t **conf, struct err *e);

/* Destroys rk (for a consumer: closes it first, its callbacks run on another thread) within timeout_ms.
 * false: it hangs, was abandoned and logged; then whatever its callbacks use must stay for ever. */
bool client_destroy(struct client *cl, rd_kafka_t *rk, bool is_consumer, int timeout_ms);

/* The queue writes to the eventfd wake_fd each time it is no longer empty. */
void client_wake_from(rd_kafka_queue_t *q, int wake_fd);
/* The same of a producer's queue of delivery reports. */
void client_wake_from_producer(rd_kafka_t *rk, int wake_fd);
/* No write after this; *q becomes NULL (which it may be). */
void client_let_go(rd_kafka_queue_t **q);

/* true while brokers answer: none was reported down since the last response, and that is not long ago. */
bool client_broker_up(const struct client *cl);

/* What may be done about an error of the library. */
enum err_act client_act(rd_kafka_resp_err_t rc);
/* ERR_KAFKA with client_act(): "what: the library's words". */
enum err_code client_err(struct err *e, rd_kafka_resp_err_t rc, const char *what);

#endif
