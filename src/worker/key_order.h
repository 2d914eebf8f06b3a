/* key_order.h -- delivery.order = key: results of one key appear in the order of its jobs.
 *
 *   enter: batcher, in the order of the records --> lane of its topic, partition and key
 *   ready: batcher, once it is known what comes next --first of its lane--> goes on
 *                                                    --else--> waits here, in no other list
 *   leave: whoever gives the task back --> the next of the lane, if it is ready, goes on: to the decoder, or to the
 *          publisher where it is settled already (a dead letter, an expired job)
 *
 * A lane is one key's unfinished jobs, first come first served; a job that fails or is retried holds up its own lane
 * alone.  Jobs without a key are in none.  What waits when the worker stops is given back with the pool.
 * Owns:   the table; tasks stay with the pool.
 * Thread: any; one lock, held for a few instructions.  NULL is the order "none": everything goes on at once.
 * Limits: as many lanes as tasks; nothing allocates after open. */
#ifndef WORKER_KEY_ORDER_H
#define WORKER_KEY_ORDER_H

#include "base/err.h"
#include "base/queue.h"
#include "worker/task.h"

#include <stdbool.h>
#include <stddef.h>

struct key_order;

/* batches and finished: where tasks that waited go on. */
MUST_CHECK enum err_code key_order_open(struct key_order **out, size_t tasks, struct queue *batches,
                                        struct queue *finished, struct err *e);
void key_order_close(struct key_order *o);

void key_order_enter(struct key_order *o, struct task *t); /* once a task */
/* May it go on?  false: it waits; it is handed on by the key_order_leave() of the one before it. */
bool key_order_ready(struct key_order *o, struct task *t);
/* Before its record is released.  Also for one that waits or never got ready. */
void key_order_leave(struct key_order *o, struct task *t);

size_t key_order_waiting(struct key_order *o); /* ready, and not first of their lanes */

#endif
