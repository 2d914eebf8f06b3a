/* The decoder's loop against a scripted engine and consumer: this file has the functions that the loop calls, in the
 * place of the real ones. */
#include "base/clock.h"
#include "worker/decode_loop.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TASKS = 16 };

static struct request *inside[TASKS]; /* in the engine */
static int n_inside, room = TASKS, submits, released, late;
static bool device_fails, owned = true;
/* How the n-th attempt of a request ends; attempts are counted in its times_put_back. */
static enum finish (*script)(struct request *r, int attempt);

enum err_code engine_submit(struct engine *en, struct request *const *reqs, int n, struct err *e)
{
    (void)en;
    if (n > engine_room(en))
        return err_set(e, ERR_BUSY, ERR_RETRY, "full");
    for (int i = 0; i < n; i++)
        inside[n_inside++] = reqs[i];
    submits++;
    return ERR_OK;
}

void engine_cancel(struct engine *en, struct request *r)
{
    (void)en;
    r->finish = FINISH_CANCELLED;
}

enum err_code engine_step(struct engine *en, struct request **done, int cap, int *n, struct err *e)
{
    (void)en;
    int left = 0;

    *n = 0;
    if (device_fails)
        return err_set(e, ERR_DEVICE, ERR_STOP, "gone");
    for (int i = 0; i < n_inside; i++) {
        struct request *r = inside[i];
        if (r->finish == FINISH_NONE)
            r->finish = script(r, ++r->times_put_back);
        if (r->finish == FINISH_NONE || *n == cap)
            inside[left++] = r;
        else
            done[(*n)++] = r;
    }
    n_inside = left;
    return ERR_OK;
}

bool engine_is_busy(const struct engine *en)
{
    (void)en;
    return n_inside > 0;
}

int engine_room(const struct engine *en)
{
    (void)en;
    return room - n_inside;
}

void engine_get_stats(const struct engine *en, struct engine_stats *s)
{
    (void)en;
    memset(s, 0, sizeof *s);
}

void consumer_release(struct consumer *c, struct record *r)
{
    (void)c, (void)r;
    released++;
}

void consumer_drop_late(struct consumer *c, const struct source *at)
{
    (void)c, (void)at;
    late++;
}

bool consumer_owns(const struct consumer *c, const struct source *at)
{
    (void)c, (void)at;
    return owned;
}

/* --- the tests --- */

static const struct retry_config retry = {.max_attempts = 3, .backoff_ms = 1, .backoff_max_ms = 4};
static struct record record;
static struct halt halt;
static struct health health;
static struct stats stats;
static struct decode_loop loop;

static void open_loop(void)
{
    cr_assert_eq(halt_open(&halt, NULL), ERR_OK);
    health_init(&health);
    stats_init(&stats);
    loop =
        (struct decode_loop){.retry = &retry, .halt = &halt, .health = &health, .stats = &stats, .max_active = TASKS};
    cr_assert_eq(queue_open(&loop.batches, TASKS, NULL), ERR_OK);
    cr_assert_eq(queue_open(&loop.finished, TASKS, NULL), ERR_OK);
    cr_assert_eq(task_pool_open(&loop.tasks, TASKS, 1 << 20, NULL), ERR_OK);
    cr_assert_eq(decode_loop_open(&loop, NULL), ERR_OK);
}

static void close_loop(void)
{
    decode_loop_close(&loop);
    task_pool_close(loop.tasks);
    queue_free(loop.finished);
    queue_free(loop.batches);
    stats_close(&stats);
    halt_close(&halt);
}

TestSuite(decode_loop, .init = open_loop, .fini = close_loop);

static void push_batch(int n)
{
    struct task_list l = {.n = 0};

    for (int i = 0; i < n; i++) {
        struct task *t = task_pool_take(loop.tasks, 0);
        t->record = &record;
        t->request.owner = t;
        task_list_add(&l, t);
    }
    cr_assert_eq(queue_push(loop.batches, &l.first), ERR_OK);
}

/* Runs the loop over what was pushed, to its end; counts outcomes. */
static void run(int *results, int *dead, struct task **last)
{
    struct task *t;

    queue_close(loop.batches);
    decode_loop_run(&loop);
    cr_assert(halt_is_failed(&halt) || queue_is_done(loop.batches));
    *results = *dead = 0;
    while ((t = queue_pop(loop.finished, 0))) {
        *results += t->outcome == OUTCOME_RESULT;
        *dead += t->outcome == OUTCOME_DEAD_LETTER;
        *last = t;
    }
}

static enum finish ends_well(struct request *r, int attempt)
{
    (void)r, (void)attempt;
    return FINISH_EOS;
}

static enum finish fails_twice(struct request *r, int attempt)
{
    err_set(&r->error, ERR_NUMERICAL, ERR_RETRY, "attempt %d", attempt);
    return attempt <= 2 ? FINISH_ERROR : FINISH_LENGTH;
}

static enum finish fails_always(struct request *r, int attempt)
{
    err_set(&r->error, ERR_NUMERICAL, ERR_RETRY, "attempt %d", attempt);
    return FINISH_ERROR;
}

static enum finish fails_for_good(struct request *r, int attempt)
{
    (void)attempt;
    err_set(&r->error, ERR_NUMERICAL, ERR_SKIP, "not finite");
    return FINISH_ERROR;
}

static enum finish expires(struct request *r, int attempt)
{
    (void)attempt;
    r->n_output = 3;
    return FINISH_DEADLINE;
}

Test(decode_loop, hands_on_every_task_of_every_batch)
{
    struct task *last;
    int results, dead;

    script = ends_well;
    push_batch(5);
    push_batch(1);
    run(&results, &dead, &last);
    cr_assert(results == 6 && dead == 0);
    cr_assert_eq(released, 0, "the records go on with their tasks");
}

Test(decode_loop, feeds_a_batch_larger_than_the_engines_room_in_parts)
{
    struct task *last;
    int results, dead;

    script = ends_well;
    room = 3;
    push_batch(8);
    push_batch(2);
    run(&results, &dead, &last);
    cr_assert_eq(results, 10);
    cr_assert_geq(submits, 4);
}

Test(decode_loop, tries_a_failing_row_again_and_the_rest_but_once)
{
    struct task *last;
    int results, dead;

    script = fails_twice;
    push_batch(1);
    run(&results, &dead, &last);
    cr_assert(results == 1 && dead == 0);
    cr_assert_eq(last->attempts, 3);
    cr_assert_eq(last->request.finish, FINISH_LENGTH);
    cr_assert_eq(stats_read(&stats.decode_retries), 2);
}

Test(decode_loop, dead_letters_a_job_whose_attempts_are_used_up)
{
    struct task *last;
    int results, dead;

    script = fails_always;
    push_batch(1);
    run(&results, &dead, &last);
    cr_assert(results == 0 && dead == 1);
    cr_assert_eq(last->error.code, ERR_RETRIES_EXHAUSTED);
    cr_assert(strstr(last->error.msg, "3 attempts") && strstr(last->error.msg, "attempt 3"), "%s", last->error.msg);
}

Test(decode_loop, dead_letters_at_once_what_can_never_succeed)
{
    struct task *last;
    int results, dead;

    script = fails_for_good;
    push_batch(2);
    run(&results, &dead, &last);
    cr_assert(results == 0 && dead == 2);
    cr_assert_eq(last->attempts, 1);
    cr_assert_eq(last->error.code, ERR_NUMERICAL);
}

Test(decode_loop, expired_jobs_say_so)
{
    struct task *last;
    int results, dead;

    script = expires;
    push_batch(1);
    run(&results, &dead, &last);
    cr_assert(results == 1 && dead == 0);
    cr_assert(task_is_expired(last));
    cr_assert_eq(last->error.code, ERR_DEADLINE_PASSED);
}

static enum finish fails_until_its_deadline(struct request *r, int attempt)
{
    return clock_mono_ns() >= r->deadline_ns ? FINISH_DEADLINE : fails_always(r, attempt);
}

Test(decode_loop, deadline_cuts_the_wait_for_a_retry_short)
{
    static const struct retry_config patient = {.max_attempts = 9, .backoff_ms = 20000, .backoff_max_ms = 20000};
    int64_t begin = clock_mono_ns();
    struct task *last;
    int results, dead;

    script = fails_until_its_deadline;
    loop.retry = &patient;
    push_batch(1);
    task_pool_next_held(loop.tasks)->request.deadline_ns = begin + 100 * NS_PER_MS;
    run(&results, &dead, &last);
    cr_assert(results == 1 && dead == 0);
    cr_assert(task_is_expired(last));
    cr_assert_lt(clock_mono_ns() - begin, 1000 * NS_PER_MS);
}

Test(decode_loop, gives_back_what_waits_for_its_retry_when_the_worker_stops)
{
    struct task *last;
    int results, dead;

    script = fails_always;
    push_batch(3);
    halt_request(&halt);
    run(&results, &dead, &last);
    cr_assert(results == 0 && dead == 0, "neither finished nor dead: the group reads it again");
    cr_assert_eq(released, 3);
    cr_assert_eq(stats_read(&stats.jobs_given_back), 3);
    cr_assert_eq(task_pool_in_use(loop.tasks), 0);
}

/* The first of a batch gets a row and needs fifty steps, the others wait. */
static enum finish only_the_first_runs(struct request *r, int attempt)
{
    if (r != inside[0] || (attempt > 1 && !r->admitted_ns))
        return FINISH_NONE;
    r->admitted_ns = 1;
    nanosleep(&(struct timespec){0, NS_PER_MS}, NULL);
    return attempt < 50 ? FINISH_NONE : FINISH_EOS;
}

Test(decode_loop, gives_back_what_has_no_row_after_half_of_the_drain)
{
    struct task *last;
    int results, dead;

    script = only_the_first_runs;
    loop.drain_timeout_ms = 20;
    push_batch(4);
    halt_request(&halt);
    run(&results, &dead, &last);
    cr_assert(results == 1 && dead == 0, "what has a row is finished");
    cr_assert_eq(stats_read(&stats.jobs_given_back), 3);
    cr_assert(released == 3 && late == 0);
}

Test(decode_loop, drops_and_counts_results_of_partitions_that_have_gone)
{
    struct task *last;
    int results, dead;

    script = ends_well;
    owned = false;
    push_batch(4);
    run(&results, &dead, &last);
    cr_assert(results == 0 && dead == 0);
    cr_assert(late == 4 && released == 4);
    cr_assert_eq(stats_read(&stats.jobs_late), 4);
}

Test(decode_loop, device_failure_stops_the_worker_and_finishes_nothing)
{
    struct task *last;
    int results, dead;
    struct err e;

    script = ends_well;
    device_fails = true;
    push_batch(4);
    run(&results, &dead, &last);
    cr_assert(results == 0 && dead == 0 && released == 0);
    cr_assert_eq(halt_error(&halt, &e), ERR_DEVICE);
    cr_assert_not_null(task_pool_next_held(loop.tasks), "their records are given back by who ends the worker");
}
