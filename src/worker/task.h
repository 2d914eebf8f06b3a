/* task.h -- one job on its way through the worker: from record to acknowledged result or dead letter.
 *
 *   pool --> batcher: decoded, planned --> decoder: in the engine --> publisher: sent, acknowledged --> pool
 *               |  held: registry away       |  delayed: retry            |  delayed: broker away
 *               +---- dead letter -----------+--------------------------->+
 *
 * Owns:   its record (until consumer_release()), the arena of its strings, its token ids.
 * Thread: one owner at a time; the queues pass it on.  The pool is for any thread.
 * Memory: made at open.  Two things are taken beyond that and given back with the task: ids of a job whose prompt and
 *         output are over TASK_OWN_IDS tokens (at most limits.max_sequence_tokens), and arena chunks of a record over
 *         TASK_OWN_BYTES (at most task_pool's arena_limit). */
#ifndef WORKER_TASK_H
#define WORKER_TASK_H

#include "base/arena.h"
#include "base/err.h"
#include "base/queue.h"
#include "engine/engine.h"
#include "kafka/publisher.h"
#include "text/language.h"
#include "wire/codec.h"
#include "wire/job.h"
#include "wire/record.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TASK_OWN_IDS = 1024, TASK_OWN_BYTES = 8 * 1024 };

enum outcome { OUTCOME_NONE, OUTCOME_RESULT, OUTCOME_DEAD_LETTER };

struct task {
    struct record *record;
    struct arena arena; /* strings of job, the encoded result, headers */

    /* the batcher's findings */
    struct job job;
    enum encoding encoding; /* as the request came */
    const struct language *from, *to;
    struct request request; /* request.owner is this task */
    int32_t *own_ids, *large_ids;
    int64_t started_ns; /* monotonic: the batcher took it */

    /* the way on */
    enum outcome outcome;
    struct err error;  /* of a dead letter, and of an expired result */
    int attempts;      /* times it was given to the engine */
    int tries;         /* times that the present owner has put it off */
    int64_t due_ns;    /* when it is to be tried again */
    struct task *next; /* in the owner's list */
    int slot;          /* in the decoder's table of active tasks */

    /* key_order.c's */
    struct lane *lane; /* NULL = in none */
    struct task *lane_next;
    bool lane_ready;

    /* the publisher's */
    struct outgoing out;
    bool is_counted; /* in the dead-letter window */
    int squeezed;    /* 0 whole, 1 without the value, 2 without the carried headers too: see publish.c */
    int64_t sent_ns;
};

struct task_list {
    struct task *first, *last;
    int n;
};
void task_list_add(struct task_list *l, struct task *t);
struct task *task_list_pop(struct task_list *l); /* oldest first, or NULL */

/* Tasks that wait for their time.  Bounded by the pool, since it holds nothing but tasks. */
struct task_delay {
    struct task *first;
    int n;
    int64_t next_due_ns; /* INT64_MAX when empty */
};
void task_delay_init(struct task_delay *d);
/* Puts t off by backoff_ms * 2^tries, at most max_ms, give or take a quarter so that many do not come back at once. */
void task_delay_add(struct task_delay *d, struct task *t, int64_t now_ns, int backoff_ms, int max_ms);
struct task *task_delay_pop(struct task_delay *d, int64_t now_ns); /* one that is due, or NULL; INT64_MAX: any */

struct task_pool;
MUST_CHECK enum err_code task_pool_open(struct task_pool **out, size_t tasks, size_t arena_limit, struct err *e);
void task_pool_close(struct task_pool *p); /* whatever state the tasks are in; their records are the caller's */
/* A clean task, or NULL when none came back until deadline_ns (as queue_pop()). */
struct task *task_pool_take(struct task_pool *p, int64_t deadline_ns);
/* The record must have been released: t->record NULL. */
void task_pool_give(struct task_pool *p, struct task *t);
void task_pool_give_all(struct task_pool *p, struct task **tasks, int n); /* each entry becomes NULL */
/* Room for n ids that lives until the task is given back. */
MUST_CHECK enum err_code task_take_ids(struct task *t, size_t n, int32_t **ids, struct err *e);
int task_pool_in_use(struct task_pool *p);
/* Once every loop has ended: each task that still holds a record, in turn, or NULL. */
struct task *task_pool_next_held(struct task_pool *p);

/* Ask for memory that another thread wrote, or nobody used for long, before it is needed: the task's own lines that the
 * publisher reads; then, once those are there, its record; or all that its result is written from and to. */
void task_fetch(const struct task *t);
void task_fetch_record(const struct task *t);
void task_fetch_result(const struct task *t);

/* The dead letter that t becomes. */
void task_kill(struct task *t, enum err_code code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The EXPIRED result that t becomes: nobody wants its translation any more. */
void task_expire(struct task *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static inline bool task_is_expired(const struct task *t)
{
    return t->outcome == OUTCOME_RESULT && t->request.finish == FINISH_DEADLINE;
}

#endif
