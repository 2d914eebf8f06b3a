/* pipeline.h -- struct worker, for the files that build it, run it and show it; everybody else sees worker.h.
 *
 *   worker_open():  setup.c opens in the order of the fields, worker_close() closes in reverse
 *   worker_run():   worker.c, the Kafka half and the threads
 *   pages.c:        reads what is atomic, and the Kafka half under view_lock */
#ifndef WORKER_PIPELINE_H
#define WORKER_PIPELINE_H

#include "config/config.h"
#include "kafka/consumer.h"
#include "kafka/embedded.h"
#include "kafka/publisher.h"
#include "ops/http.h"
#include "wire/codec.h"
#include "wire/schema_store.h"
#include "worker/batcher.h"
#include "worker/decode_loop.h"
#include "worker/halt.h"
#include "worker/health.h"
#include "worker/key_order.h"
#include "worker/plan.h"
#include "worker/publish.h"
#include "worker/result.h"
#include "worker/stats.h"
#include "worker/task.h"
#include "worker/translator.h"

#include <pthread.h>
#include <stdbool.h>

struct worker {
    const struct config *cfg;
    int64_t started_ns; /* monotonic */
    struct halt halt;
    struct health health;
    struct stats stats;
    struct http *http;
    struct embedded *embedded;
    const char *bootstrap; /* the embedded cluster's, else as configured */

    struct translator translator; /* its engine is the decoder's, its planner the batcher's, the rest const */
    struct schema_store *schemas;
    struct codec *decode_codec, *encode_codec; /* the batcher's; the publisher's, which never asks the store */
    struct result_writer *writer;
    struct task_pool *tasks;
    struct queue *records, *batches, *finished;
    struct key_order *order; /* NULL: delivery.order is none */

    /* the Kafka half, in worker_run() alone */
    pthread_mutex_t view_lock; /* guards the two pointers against the pages */
    struct consumer *consumer;
    struct publisher *publisher;
    struct batcher batcher;
    struct decode_loop decoder;
    struct publish publish;
    struct shadow shadow;
    pthread_t threads[LOOPS];
    int n_threads;
    bool is_wedged; /* a thread did not end: nothing it may touch is freed */
};

/* setup.c: model, backend, engine, buffers.  Logs the memory plan and event=loaded. */
MUST_CHECK enum err_code worker_setup(struct worker *w, struct err *e);
void worker_teardown(struct worker *w);

/* pages.c: the routes; ctx is the worker. */
extern const struct http_route worker_routes[];

#endif
