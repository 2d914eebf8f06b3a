/* queue.h -- a bounded queue of pointers between threads; the hand-over is visible in the call.
 * Owns:   its slots, never what the pointers point to.
 * Thread: any number on either side.
 * Limits: the capacity is fixed at open; a full queue is the back-pressure.  Nothing allocates after open. */
#ifndef BASE_QUEUE_H
#define BASE_QUEUE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct queue;

MUST_CHECK enum err_code queue_open(struct queue **out, size_t capacity, struct err *e);
void queue_free(struct queue *q); /* NULL is fine; what is still inside is the caller's business: pop it first */

/* Moves *item into the queue and leaves *item NULL.  Never waits: ERR_BUSY when full, ERR_CLOSED after
 * queue_close(); then *item is still the caller's. */
MUST_CHECK enum err_code queue_push(struct queue *q, void *item_ptr);
/* Many under one lock and with one wake-up: items is an array of n pointers.  All move, in their order, or none. */
MUST_CHECK enum err_code queue_push_all(struct queue *q, void *items, size_t n);

/* Oldest item, or NULL.  Waits until deadline_ns (monotonic; 0 = do not wait, INT64_MAX = no limit).
 * NULL also when the queue is closed and empty: ask queue_is_done(). */
void *queue_pop(struct queue *q, int64_t deadline_ns);
/* As many as there are, at most cap, oldest first, into the array items of pointers; waits only for the first one.
 * Fewer than cap: nothing was left. */
size_t queue_pop_all(struct queue *q, void *items, size_t cap, int64_t deadline_ns);
/* As queue_pop(), but the youngest item: for pools, whose youngest one's memory is still in the processor's caches. */
void *queue_pop_newest(struct queue *q, int64_t deadline_ns);

void queue_close(struct queue *q);   /* no more pushes; waiters wake; what is inside can still be popped */
bool queue_is_done(struct queue *q); /* closed and empty */
size_t queue_depth(struct queue *q);

/* From now on a push into the empty queue and the close write 1 to the eventfd, for an owner who waits in poll(2) and
 * then pops until nothing is left. */
void queue_set_wake_fd(struct queue *q, int eventfd);

#endif
