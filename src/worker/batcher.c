#include "worker/batcher.h"

#include "base/clock.h"

/* The longest wait for a record: how fresh the watchdog's figure is, and how soon an abort is seen. */
#define IDLE_NS (200 * NS_PER_MS)
#define SKEW_MS 1000 /* clocks that are kept in step differ by less */

static void let_go(struct batcher *b, struct task *t, counter *why)
{
    key_order_leave(b->order, t);
    consumer_release(b->consumer, t->record);
    t->record = NULL;
    task_pool_give(b->tasks, t);
    stats_add(why, 1);
}

/* The queues have a slot for every task, so a push fails only once they are closed: the worker is going down and the
 * task stays with the pool, its record unfinished. */
static void push(struct queue *q, struct task *t)
{
    if (queue_push(q, &t) != ERR_OK)
        return;
}

static void settle(struct batcher *b, struct task *t)
{
    if (key_order_ready(b->order, t))
        push(b->finished, t);
}

static void hand_over(struct batcher *b)
{
    stats_add(&b->stats->batches, 1);
    histogram_add(&b->stats->batch_jobs, b->open.tasks.n);
    histogram_add(&b->stats->batch_tokens, (double)b->open.tokens);
    push(b->batches, batch_close(&b->open));
}

static enum err_code decode(struct batcher *b, struct task *t, struct err *e)
{
    enum err_code rc = codec_decode_request(b->codec, t->record, &t->job, &t->encoding, &t->arena, e);

    if (rc == ERR_OK)
        rc = plan_header_deadline(&t->job, t->record, e);
    return rc == ERR_OK ? planner_plan(b->planner, t, b->now_ns, b->now_wall_ms, e) : rc;
}

/* Away for now: the record waits, its strings do not. */
static void hold(struct batcher *b, struct task *t, const struct err *e)
{
    char why[400];

    if (b->held.n == 0)
        log_event(LOG_WARN, "job_waits", "code=%s partition=%d offset=%lld reason=%s", err_name(e->code),
                  t->record->at.partition, (long long)t->record->at.offset, log_quote(why, sizeof why, e->msg));
    arena_reset(&t->arena);
    t->job = (struct job){.priority = 0};
    stats_add(&b->stats->registry_waits, 1);
    health_set_obstacle(b->health, OBSTACLE_REGISTRY, true);
    task_delay_add(&b->held, t, clock_mono_ns(), b->retry->backoff_ms, b->retry->backoff_max_ms);
}

/* Decodes and plans; the task is then in the open batch, settled, held, given back, or waits for its key. */
static void take_on(struct batcher *b, struct task *t)
{
    struct err e = {.code = ERR_OK};

    if (!consumer_owns(b->consumer, &t->record->at)) {
        consumer_drop_late(b->consumer, &t->record->at);
        let_go(b, t, &b->stats->jobs_late);
        return;
    }
    if (t->record->crashes > 0) { /* not even looked at: decoding may be what it is deadly for */
        t->attempts = t->record->crashes;
        task_kill(t, ERR_CRASHED, "alone in work it ended its worker %d times (retry.max_crashes is %d)", t->attempts,
                  b->retry->max_crashes);
        settle(b, t);
        return;
    }
    if (decode(b, t, &e) == ERR_OK) {
        if (!key_order_ready(b->order, t))
            return;
        if (batch_has_no_room(&b->open, b->batch, t->request.n_prompt))
            hand_over(b);
        batch_add(&b->open, t, t->started_ns);
        return;
    }
    if (e.code == ERR_DEADLINE_PASSED) {
        task_expire(t, "%s", e.msg);
        settle(b, t);
    } else if (e.act == ERR_RETRY) {
        hold(b, t, &e);
    } else if (e.act == ERR_SKIP) {
        task_kill(t, e.code, "%s", e.msg);
        settle(b, t);
    } else {
        let_go(b, t, &b->stats->jobs_given_back);
        halt_fail(b->halt, &e);
    }
}

static void retry_held(struct batcher *b, int64_t now)
{
    struct task *t;

    while ((t = task_delay_pop(&b->held, now)))
        take_on(b, t);
    if (b->held.n == 0)
        health_set_obstacle(b->health, OBSTACLE_REGISTRY, false);
}

static int64_t wait_until(const struct batcher *b, int64_t now)
{
    int64_t until = now + IDLE_NS, due = batch_due_ns(&b->open, b->batch);

    if (due < until)
        until = due;
    return b->held.next_due_ns < until ? b->held.next_due_ns : until;
}

/* How old a record is by its own clock.  That clock may be wrong: a time ahead of ours is no age, and expires nothing. */
static void note_age(const struct batcher *b, const struct record *r)
{
    int64_t ms = b->now_wall_ms - r->timestamp_ms;

    if (r->timestamp_ms < 0)
        return; /* the record has no time */
    if (ms < -SKEW_MS)
        stats_add(&b->stats->skewed_clocks, 1);
    histogram_add(&b->stats->record_age_s, ms > 0 ? (double)ms / 1000 : 0);
}

static void look_at_clocks(struct batcher *b)
{
    b->now_ns = clock_mono_ns();
    b->now_wall_ms = clock_wall_ms();
    health_turn_at(b->health, LOOP_BATCHER, b->now_ns);
}

/* The next record, or NULL when none came in time.  The memory of those behind it is asked for: another thread wrote
 * it. */
static struct record *next_record(struct batcher *b, int64_t until)
{
    if (b->next_popped == b->n_popped) {
        b->next_popped = 0;
        b->n_popped = queue_pop_all(b->records, b->popped, BATCHER_AT_ONCE, until);
        look_at_clocks(b); /* it may have waited */
    }
    if (b->n_popped == 0)
        return NULL;
    if (b->next_popped + 2 < b->n_popped)
        record_ask_for(b->popped[b->next_popped + 2]);
    if (b->next_popped + 1 < b->n_popped)
        record_ask_for_value(b->popped[b->next_popped + 1]);
    return b->popped[b->next_popped++];
}

/* One record, if one comes in time. */
static void turn(struct batcher *b)
{
    int64_t until = wait_until(b, b->now_ns);
    struct record *r;

    if (!b->spare && !(b->spare = task_pool_take(b->tasks, 0))) {
        b->spare = task_pool_take(b->tasks, until);
        look_at_clocks(b);
    }
    if (!b->spare || !(r = next_record(b, until)))
        return;
    struct task *t = b->spare;
    b->spare = NULL;
    t->record = r;
    t->started_ns = b->now_ns;
    note_age(b, r);
    if (halt_is_stopping(b->halt)) {
        let_go(b, t, &b->stats->jobs_given_back);
        return;
    }
    key_order_enter(b->order, t);
    take_on(b, t);
}

static void give_back_popped(struct batcher *b)
{
    for (; b->next_popped < b->n_popped; b->next_popped++) {
        consumer_release(b->consumer, b->popped[b->next_popped]);
        stats_add(&b->stats->jobs_given_back, 1);
    }
}

void batcher_run(struct batcher *b)
{
    struct task *t;

    task_delay_init(&b->held);
    while (!halt_is_aborted(b->halt) && (b->next_popped < b->n_popped || !queue_is_done(b->records))) {
        look_at_clocks(b);
        if (batch_is_due(&b->open, b->batch, b->now_ns))
            hand_over(b);
        retry_held(b, b->now_ns);
        turn(b);
    }
    give_back_popped(b);
    while ((t = task_delay_pop(&b->held, INT64_MAX)))
        let_go(b, t, &b->stats->jobs_given_back);
    if (b->open.tasks.n > 0)
        hand_over(b);
    if (b->spare)
        task_pool_give(b->tasks, b->spare);
    b->spare = NULL;
    queue_close(b->batches);
    health_end(b->health, LOOP_BATCHER);
}
