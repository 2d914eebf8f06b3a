/* decode_loop.h -- the third box: micro-batches through the engine, finished tasks out.
 *
 *   batches --> engine --eos, length, repetition--> finished queue, as a result
 *                 |  ^
 *                 |  +--delayed--+
 *                 +--fails for now, attempts left
 *                 +--deadline--> finished queue, as an expired result
 *                 +--fails for good, attempts used up--> finished queue, as a dead letter
 *                 +--partition gone--> dropped and counted
 *
 * A device that fails stops the worker (halt_fail()); nothing that was in the engine is finished then.  At a stop what
 * is in the engine is decoded to its end; delayed tasks are given back unfinished, and after half of drain_timeout_ms
 * so is what no row has begun, so that the other half is enough for those that have one.  Its last act is to close the
 * finished queue.
 * Thread: its own, the engine's. */
#ifndef WORKER_DECODE_LOOP_H
#define WORKER_DECODE_LOOP_H

#include "base/queue.h"
#include "config/config.h"
#include "engine/engine.h"
#include "kafka/consumer.h"
#include "worker/halt.h"
#include "worker/health.h"
#include "worker/key_order.h"
#include "worker/stats.h"
#include "worker/task.h"

struct decode_loop {
    /* filled by the owner, before it runs */
    const struct retry_config *retry;
    struct queue *batches, *finished;
    struct task_pool *tasks;
    struct consumer *consumer;
    struct engine *engine;
    struct key_order *order; /* NULL = none */
    struct halt *halt;
    struct health *health;
    struct stats *stats;
    int max_active; /* tasks in the pool */
    int drain_timeout_ms;

    /* its own */
    struct task **active;      /* [max_active]: in the engine */
    struct request **requests; /* [max_active]: scratch of submit and step */
    struct task **settled;     /* [max_active]: of this turn, on their way to the finished queue */
    int n_active, n_settled;
    struct task *pending; /* a batch that the engine had no room for, linked by next */
    struct task_delay delayed;
    int64_t late_check_ns;
    int64_t hurry_ns; /* when a drain begins to give back; 0 = no drain */
};

MUST_CHECK enum err_code decode_loop_open(struct decode_loop *d, struct err *e);
void decode_loop_close(struct decode_loop *d);
void decode_loop_run(struct decode_loop *d);

#endif
