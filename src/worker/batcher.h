/* batcher.h -- the second box: records in, micro-batches out.
 *
 *   records --> decode --> check, plan, tokenize --> open batch --due--> batches queue
 *                 |            |
 *                 |            +--deadline over--> finished queue, as an expired result
 *                 |            +--can never succeed--> finished queue, as a dead letter
 *                 +--ended its worker too often--> finished queue, as a dead letter, undecoded
 *                 +--registry away--> held, tried again with backoff
 *
 * With delivery.order = key a job that is through here waits in key_order while an earlier one of its key is unfinished.
 *
 * At a stop: records not yet taken on, and held ones, are given back unfinished (the group reads them again); the open
 * batch is handed over.  Its last act is to close the batches queue.
 * Thread: its own. */
#ifndef WORKER_BATCHER_H
#define WORKER_BATCHER_H

#include "base/queue.h"
#include "config/config.h"
#include "kafka/consumer.h"
#include "worker/batch.h"
#include "worker/halt.h"
#include "worker/health.h"
#include "worker/key_order.h"
#include "worker/plan.h"
#include "worker/stats.h"
#include "worker/task.h"

enum { BATCHER_AT_ONCE = 64 }; /* records taken out of their queue together */

struct batcher {
    /* filled by the owner, before it runs */
    const struct batch_config *batch;
    const struct retry_config *retry;
    struct queue *records, *batches, *finished;
    struct task_pool *tasks;
    struct consumer *consumer;
    struct codec *codec;
    struct planner *planner;
    struct key_order *order; /* NULL = none */
    struct halt *halt;
    struct health *health;
    struct stats *stats;

    /* its own */
    struct batch open;
    struct task_delay held;
    struct task *spare;                     /* taken before a record is, so that a record always has a task */
    struct record *popped[BATCHER_AT_ONCE]; /* n_popped of them, the next one to be taken on at next_popped */
    size_t n_popped, next_popped;
    int64_t now_ns, now_wall_ms; /* of this turn */
};

void batcher_run(struct batcher *b);

#endif
