#include "worker/decode_loop.h"

#include "base/clock.h"

#include <stdlib.h>

#define IDLE_NS       (200 * NS_PER_MS)
#define LATE_CHECK_NS (50 * NS_PER_MS) /* how often running jobs are held against the assignment */

enum err_code decode_loop_open(struct decode_loop *d, struct err *e)
{
    size_t n = (size_t)d->max_active;

    task_delay_init(&d->delayed);
    d->active = calloc(n, sizeof d->active[0]);
    d->requests = calloc(n, sizeof d->requests[0]);
    d->settled = calloc(n, sizeof d->settled[0]);
    if (!d->active || !d->requests || !d->settled)
        return err_set(e, ERR_NOMEM, ERR_STOP, "decoder: no memory for %d tasks", d->max_active);
    return ERR_OK;
}

void decode_loop_close(struct decode_loop *d)
{
    free(d->active);
    free(d->requests);
    free(d->settled);
    d->active = NULL;
    d->requests = NULL;
    d->settled = NULL;
}

static void activate(struct decode_loop *d, struct task *t)
{
    t->attempts++;
    t->request.n_output = 0;
    t->request.finish = FINISH_NONE;
    t->slot = d->n_active;
    d->active[d->n_active++] = t;
}

static void deactivate(struct decode_loop *d, struct task *t)
{
    struct task *last = d->active[--d->n_active];

    d->active[t->slot] = last;
    last->slot = t->slot;
}

static void leave(struct decode_loop *d, struct task *t)
{
    key_order_leave(d->order, t);
    consumer_release(d->consumer, t->record);
    t->record = NULL;
    task_pool_give(d->tasks, t);
}

static void drop_late(struct decode_loop *d, struct task *t)
{
    consumer_drop_late(d->consumer, &t->record->at);
    stats_add(&d->stats->jobs_late, 1);
    leave(d, t);
}

static void push_finished(struct decode_loop *d, struct task *t)
{
    d->settled[d->n_settled++] = t;
}

/* What a turn finished goes on together: one lock and one wake-up. */
static void hand_over(struct decode_loop *d)
{
    const size_t n = (size_t)d->n_settled;

    d->n_settled = 0;
    if (queue_push_all(d->finished, d->settled, n) != ERR_OK)
        return; /* closed: going down, the pool keeps the tasks and their records are read again */
}

/* Gives the engine as much of the list as it has room for; the rest stays pending. */
static void submit(struct decode_loop *d, struct task *list)
{
    int room = engine_room(d->engine), n = 0;
    struct task *rest = list;
    struct err e;

    for (; rest && n < room; rest = rest->next) {
        d->requests[n++] = &rest->request;
        engine_prefetch(&rest->request); /* while the next task's link is waited for */
    }
    d->pending = rest;
    if (n == 0)
        return;
    enum err_code rc = engine_submit(d->engine, d->requests, n, &e);
    if (rc == ERR_BUSY) {
        d->pending = list;
        return;
    }
    for (struct task *t = list, *next; t != rest; t = next) {
        next = t->next;
        t->next = NULL;
        activate(d, t); /* also after a failure: it is then the pool's to give back */
    }
    if (rc != ERR_OK)
        halt_fail(d->halt, &e);
}

/* Waits for a batch only when there is nothing else to do. */
static void take_batches(struct decode_loop *d, int64_t now)
{
    bool idle = !engine_is_busy(d->engine) && !d->pending;
    int64_t until = d->delayed.next_due_ns < now + IDLE_NS ? d->delayed.next_due_ns : now + IDLE_NS;
    struct task *list;

    if (d->pending)
        submit(d, d->pending);
    while (!d->pending && (list = queue_pop(d->batches, idle ? until : 0))) {
        submit(d, list);
        idle = false;
    }
}

static void retry_delayed(struct decode_loop *d, int64_t now)
{
    struct task *t;

    while (!d->pending && (t = task_delay_pop(&d->delayed, now)))
        submit(d, t);
}

static void give_back_delayed(struct decode_loop *d)
{
    struct task *t;

    while ((t = task_delay_pop(&d->delayed, INT64_MAX))) {
        stats_add(&d->stats->jobs_given_back, 1);
        leave(d, t);
    }
}

/* A drain's second half: what no row has begun is left to the group. */
static void hurry(struct decode_loop *d, int64_t now)
{
    if (d->hurry_ns == 0)
        d->hurry_ns = now + d->drain_timeout_ms * (NS_PER_MS / 2);
    if (now < d->hurry_ns)
        return;
    for (int i = 0; i < d->n_active; i++)
        if (d->active[i]->request.admitted_ns == 0)
            engine_cancel(d->engine, &d->active[i]->request);
}

static void cancel_late(struct decode_loop *d, int64_t now)
{
    if (now < d->late_check_ns)
        return;
    d->late_check_ns = now + LATE_CHECK_NS;
    for (int i = 0; i < d->n_active; i++)
        if (!consumer_owns(d->consumer, &d->active[i]->record->at))
            engine_cancel(d->engine, &d->active[i]->request);
}

/* The deadline passed in the queue or in the batch. */
static void expire(struct decode_loop *d, struct task *t)
{
    task_expire(t, "deadline: passed %s, after %d tokens",
                t->request.admitted_ns ? "while it was decoded" : "before it was decoded", t->request.n_output);
    push_finished(d, t);
}

/* A job with a deadline is back when that is over, so that its expired result is not late by a backoff. */
static int longest_wait_ms(const struct decode_loop *d, const struct task *t, int64_t now)
{
    int64_t left_ms = (t->request.deadline_ns - now) / NS_PER_MS + 1;

    if (t->request.deadline_ns == 0 || left_ms >= d->retry->backoff_max_ms)
        return d->retry->backoff_max_ms;
    return left_ms > 1 ? (int)left_ms : 1;
}

static void fail(struct decode_loop *d, struct task *t)
{
    const struct err *e = &t->request.error;
    int64_t now = clock_mono_ns();
    char why[400];

    if (e->act != ERR_RETRY) {
        task_kill(t, e->code, "%s", e->msg);
        push_finished(d, t);
        return;
    }
    if (t->attempts >= d->retry->max_attempts) {
        task_kill(t, ERR_RETRIES_EXHAUSTED, "%d attempts; the last: %s: %s", t->attempts, err_name(e->code), e->msg);
        push_finished(d, t);
        return;
    }
    stats_add(&d->stats->decode_retries, 1);
    log_event(LOG_WARN, "decode_retry", "partition=%d offset=%lld attempt=%d code=%s reason=%s",
              t->record->at.partition, (long long)t->record->at.offset, t->attempts, err_name(e->code),
              log_quote(why, sizeof why, e->msg));
    task_delay_add(&d->delayed, t, now, d->retry->backoff_ms, longest_wait_ms(d, t, now));
}

static void settle(struct decode_loop *d, struct task *t)
{
    deactivate(d, t);
    if (!consumer_owns(d->consumer, &t->record->at)) {
        drop_late(d, t);
        return;
    }
    switch (t->request.finish) {
    case FINISH_EOS:
    case FINISH_LENGTH:
    case FINISH_REPETITION:
        t->outcome = OUTCOME_RESULT;
        push_finished(d, t);
        break;
    case FINISH_DEADLINE: expire(d, t); break;
    case FINISH_CANCELLED: /* ours still: by hurry() */
        stats_add(&d->stats->jobs_given_back, 1);
        leave(d, t);
        break;
    default: fail(d, t); break;
    }
}

/* Publishes the engine's figures, and since when it makes no token although it could: the watchdog reads both. */
static void report(struct decode_loop *d, uint64_t *tokens)
{
    struct engine_stats s;

    engine_get_stats(d->engine, &s);
    stats_set_engine(d->stats, &s);
    uint64_t sum = s.prompt_tokens + s.cached_tokens + s.output_tokens;
    if (d->n_active == 0)
        atomic_store(&d->health->progress_ns, 0);
    else if (sum != *tokens || atomic_load(&d->health->progress_ns) == 0)
        atomic_store(&d->health->progress_ns, clock_mono_ns());
    *tokens = sum;
}

static bool turn(struct decode_loop *d)
{
    int64_t now = clock_mono_ns();
    struct err e;
    int n = 0;

    health_turn(d->health, LOOP_DECODER);
    if (halt_is_stopping(d->halt))
        give_back_delayed(d);
    else
        retry_delayed(d, now);
    take_batches(d, now);
    cancel_late(d, now);
    if (halt_is_stopping(d->halt))
        hurry(d, now);
    if (!engine_is_busy(d->engine))
        return true;
    if (engine_step(d->engine, d->requests, d->max_active, &n, &e) != ERR_OK) {
        halt_fail(d->halt, &e);
        return false;
    }
    for (int i = 0; i < n; i++)
        settle(d, d->requests[i]->owner);
    hand_over(d);
    return true;
}

void decode_loop_run(struct decode_loop *d)
{
    uint64_t tokens = 0;

    report(d, &tokens);
    while (!halt_is_failed(d->halt)) {
        if (!turn(d))
            break;
        report(d, &tokens);
        if (queue_is_done(d->batches) && !d->pending && !engine_is_busy(d->engine) && d->delayed.n == 0)
            break;
    }
    queue_close(d->finished);
    atomic_store(&d->health->progress_ns, 0);
    health_end(d->health, LOOP_DECODER);
}
