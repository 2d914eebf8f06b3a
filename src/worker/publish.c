#include "worker/publish.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define REST_NS (1000 * NS_PER_MS) /* for the last offsets and notes */
#define IDLE_NS (100 * NS_PER_MS)  /* the producer's own timers are served at least this often */

enum {
    JOBS_A_READ = 16, /* some 50 us of work */
    FETCH_AHEAD = 4   /* tasks: what another thread wrote last comes from its processor's caches */
};

enum err_code publish_open(struct publish *p, struct err *e)
{
    task_delay_init(&p->delayed);
    atomic_init(&p->is_done, false);
    p->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (p->wake_fd < 0)
        return err_set(e, ERR_IO, ERR_STOP, "eventfd: %s", strerror(errno));
    queue_set_wake_fd(p->finished, p->wake_fd);
    return ERR_OK;
}

void publish_close(struct publish *p)
{
    if (p->wake_fd >= 0)
        close(p->wake_fd);
    p->wake_fd = -1;
}

/* Out of all books, but not yet in the pool. */
static void take_leave(struct publish *p, struct task *t)
{
    if (t->tries > 0 && --p->refused == 0)
        health_set_obstacle(p->health, OBSTACLE_PUBLISHING, false);
    key_order_leave(p->order, t);
    consumer_release(p->consumer, t->record);
    t->record = NULL;
}

static void leave(struct publish *p, struct task *t)
{
    take_leave(p, t);
    task_pool_give(p->tasks, t);
}

static void log_dead(const struct task *t)
{
    char id[128], why[400], z[100];
    size_t n = t->job.job_id.n < sizeof z - 1 ? t->job.job_id.n : sizeof z - 1;

    if (t->job.job_id.s)
        memcpy(z, t->job.job_id.s, n);
    z[t->job.job_id.s ? n : 0] = '\0';
    log_event(LOG_WARN, "dead_letter", "job_id=%s partition=%d offset=%lld code=%s attempts=%d reason=%s",
              log_quote(id, sizeof id, z), t->record->at.partition, (long long)t->record->at.offset,
              err_name(t->error.code), t->attempts, log_quote(why, sizeof why, t->error.msg));
}

/* Each job is counted once, as what it is at first. */
static enum err_code count_once(struct publish *p, struct task *t, struct err *e)
{
    if (t->is_counted)
        return ERR_OK;
    t->is_counted = true;
    return dead_window_count(&p->window, p->dead_letter, t->outcome == OUTCOME_DEAD_LETTER, e);
}

/* Writes t->out and queues it; a result that cannot be written becomes a dead letter. */
static void write_out(struct publish *p, struct task *t)
{
    enum err_code rc = ERR_OK;
    struct err e;

    if (t->outcome == OUTCOME_RESULT && result_write(p->writer, t, &e) != ERR_OK)
        task_kill(t, e.code, "the result could not be written: %s", e.msg);
    if (t->outcome == OUTCOME_DEAD_LETTER) {
        if (t->squeezed == 0)
            log_dead(t);
        rc = result_write_dead(t, &e);
    }
    if (rc == ERR_OK)
        rc = count_once(p, t, &e);
    if (rc != ERR_OK) {
        e.act = ERR_STOP;
        halt_fail(p->halt, &e); /* the task stays with the pool, its record unfinished */
        return;
    }
    task_list_add(&p->queued, t);
}

static bool is_refusal(enum err_code rc)
{
    return rc == ERR_RESULT_TOO_LARGE || rc == ERR_RESULT_REFUSED;
}

/* Refused for what it is.  A result becomes a dead letter, one that is too large is squeezed; where nothing helps, the
 * worker stops. */
static void rewrite(struct publish *p, struct task *t, const struct err *why)
{
    struct err e;

    if (t->outcome == OUTCOME_RESULT) {
        task_kill(t, why->code, "the result has %zu bytes: %s", t->out.value_size, why->msg);
    } else if (why->code == ERR_RESULT_REFUSED || ++t->squeezed > 2) {
        err_set(&e, ERR_KAFKA, ERR_STOP, "a dead letter is refused, whatever it holds: %s", why->msg);
        halt_fail(p->halt, &e);
        return;
    }
    write_out(p, t);
}

static void put_off(struct publish *p, struct task *t, const struct err *why)
{
    char text[400];

    if (p->delayed.n == 0)
        log_event(LOG_WARN, "publish_retry", "partition=%d offset=%lld reason=%s", t->record->at.partition,
                  (long long)t->record->at.offset, log_quote(text, sizeof text, why->msg));
    stats_add(&p->stats->publish_retries, 1);
    if (t->tries == 0)
        p->refused++;
    health_set_obstacle(p->health, OBSTACLE_PUBLISHING, true);
    task_delay_add(&p->delayed, t, clock_mono_ns(), p->retry->backoff_ms, p->retry->backoff_max_ms);
}

static void refused(struct publish *p, struct task *t, enum err_code rc, const struct err *e)
{
    if (is_refusal(rc) && e->act == ERR_RETRY) {
        t->out.alone = true; /* its batch was refused: alone it shows whether it is the one */
        task_list_add(&p->queued, t);
    } else if (rc == ERR_BUSY) {
        task_list_add(&p->queued, t); /* its transaction ended for another's sake */
    } else if (is_refusal(rc))
        rewrite(p, t, e);
    else if (e->act == ERR_RETRY)
        put_off(p, t, e);
    else
        halt_fail(p->halt, e);
}

/* The clock, read for every so many jobs of a turn: what is measured by it is told in milliseconds. */
static int64_t coarse_now(struct publish *p)
{
    if (p->now_reads++ % JOBS_A_READ == 0)
        p->now_ns = clock_mono_ns();
    return p->now_ns;
}

static void count_outcome(struct publish *p, const struct task *t)
{
    struct stats *s = p->stats;
    int64_t now = coarse_now(p);

    if (task_is_expired(t)) {
        stats_count(&s->jobs_expired, 1);
    } else if (t->outcome == OUTCOME_DEAD_LETTER) {
        stats_count(&s->jobs_dead, 1);
        stats_count(&s->dead_by_code[t->error.code], 1);
    } else {
        stats_count(t->request.finish == FINISH_EOS ? &s->jobs_ok : &s->jobs_truncated, 1);
        histogram_add(&s->total_s, (double)(now - t->record->received_ns) / NS_PER_S);
    }
    histogram_add(&s->publish_s, (double)(now - t->sent_ns) / NS_PER_S);
}

/* The acknowledged ones that were gathered.  What their memory waits for was asked for as each came. */
static void finish_acknowledged(struct publish *p)
{
    for (int i = 0; i < p->n_acknowledged; i++) {
        struct task *t = p->acknowledged[i];
        count_outcome(p, t);
        consumer_finish(p->consumer, &t->record->at);
        take_leave(p, t);
    }
    task_pool_give_all(p->tasks, p->acknowledged, p->n_acknowledged);
    p->n_acknowledged = 0;
}

void publish_report(void *ctx, void *opaque, enum err_code rc, const struct err *e)
{
    struct publish *p = ctx;
    struct task *t = opaque;

    p->unacknowledged--;
    if (rc != ERR_OK) {
        refused(p, t, rc, e);
        return;
    }
    task_fetch(t);
    if (p->n_acknowledged >= FETCH_AHEAD)
        task_fetch_record(p->acknowledged[p->n_acknowledged - FETCH_AHEAD]);
    p->acknowledged[p->n_acknowledged++] = t;
    if (!p->gathers || p->n_acknowledged == PUBLISH_MANY)
        finish_acknowledged(p);
}

/* false: the local queue is full, reports must come first. */
static bool send_one(struct publish *p, struct task *t)
{
    struct err e = {.code = ERR_OK};

    if (!consumer_owns(p->consumer, &t->record->at)) {
        consumer_drop_late(p->consumer, &t->record->at);
        stats_add(&p->stats->jobs_late, 1);
        leave(p, t);
        return true;
    }
    t->sent_ns = coarse_now(p);
    if (p->shadow) {
        p->unacknowledged++;
        if (!shadow_job(p->shadow, t))
            halt_request(p->halt);
        publish_report(p, t, ERR_OK, &e);
        return true;
    }
    t->out.at = &t->record->at;
    enum err_code rc = publisher_send(p->publisher, &t->out, &e);
    if (rc == ERR_BUSY)
        return false;
    if (rc == ERR_OK)
        p->unacknowledged++;
    else
        refused(p, t, rc, &e);
    return true;
}

static void send_queued(struct publish *p)
{
    while (p->queued.first && !halt_is_failed(p->halt)) {
        struct task *t = task_list_pop(&p->queued);
        if (!send_one(p, t)) {
            t->next = p->queued.first; /* back to the front */
            p->queued.first = t;
            if (!p->queued.last)
                p->queued.last = t;
            p->queued.n++;
            return;
        }
    }
}

/* One at a time, so that what came before the job that stops the worker is on its way; those after it stay with the
 * pool, their records unfinished. */
static void write_many(struct publish *p, struct task *const *many, size_t n)
{
    for (size_t i = 0; i < n && i < FETCH_AHEAD; i++)
        task_fetch(many[i]);
    for (size_t i = 0; i < n && !halt_is_failed(p->halt); i++) {
        if (i + FETCH_AHEAD < n)
            task_fetch(many[i + FETCH_AHEAD]);
        if (i + 1 < n)
            task_fetch_result(many[i + 1]);
        many[i]->tries = 0;
        write_out(p, many[i]);
        send_queued(p);
    }
}

static void take_finished(struct publish *p, int64_t now)
{
    struct task *many[PUBLISH_MANY], *t;
    size_t n;

    while ((t = task_delay_pop(&p->delayed, now)))
        task_list_add(&p->queued, t);
    send_queued(p);
    while (!halt_is_failed(p->halt) && (n = queue_pop_all(p->finished, many, PUBLISH_MANY, 0)) > 0)
        write_many(p, many, n);
}

static void wait(struct publish *p)
{
    struct pollfd fd = {.fd = p->wake_fd, .events = POLLIN};
    int64_t now = clock_mono_ns(), until = now + IDLE_NS;
    uint64_t n;

    if (p->delayed.next_due_ns < until)
        until = p->delayed.next_due_ns;
    int64_t due = p->publisher ? publisher_due_ns(p->publisher, p->queued.n > 0) : INT64_MAX;
    if (due < until)
        until = due;
    p->now_reads = 0;
    int ms = until <= now ? 0 : (int)((until - now + NS_PER_MS - 1) / NS_PER_MS);
    if (poll(&fd, 1, ms) > 0 && read(p->wake_fd, &n, sizeof n) < 0)
        return; /* another reader was faster: there is none, and the next poll waits again */
}

static bool is_finished(struct publish *p)
{
    if (p->unacknowledged > 0)
        return false;
    return halt_is_failed(p->halt) || (queue_is_done(p->finished) && p->queued.n == 0 && p->delayed.n == 0);
}

static void turn_publisher(struct publish *p)
{
    struct err e;

    if (halt_is_stopping(p->halt))
        publisher_hurry(p->publisher);
    p->now_reads = 0; /* a commit may take its time before it is reported */
    p->gathers = !p->is_transactional;
    publisher_turn(p->publisher, 0);
    p->gathers = false;
    finish_acknowledged(p);
    if (publisher_failure(p->publisher, &e) != ERR_OK)
        halt_fail(p->halt, &e);
}

/* An end in order: the group hears that nothing is in work any more.  A device that failed is no such end: the job that
 * did it may be among those in work. */
static void rest(struct publish *p)
{
    int64_t until = clock_mono_ns() + REST_NS;
    struct err e;

    if (halt_error(p->halt, &e) == ERR_DEVICE)
        return;
    consumer_rest(p->consumer);
    while (p->publisher && !halt_is_aborted(p->halt) && clock_mono_ns() < until &&
           !(consumer_is_at_rest(p->consumer) && publisher_is_settled(p->publisher))) {
        turn_publisher(p);
        wait(p);
    }
}

void publish_run(struct publish *p)
{
    while (!halt_is_aborted(p->halt)) {
        health_turn(p->health, LOOP_PUBLISHER);
        take_finished(p, clock_mono_ns());
        if (p->publisher)
            turn_publisher(p);
        if (is_finished(p))
            break;
        wait(p);
    }
    rest(p);
    atomic_store(&p->is_done, true);
    health_end(p->health, LOOP_PUBLISHER);
}
