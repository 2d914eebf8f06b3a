#include "base/clock.h"
#include "engine/engine.h"
#include "tests/support/fake_backend.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TOKENS = 512, EOS = 2 };

struct job {
    struct request r;
    int32_t prompt[MAX_TOKENS], output[MAX_TOKENS];
    int came_back;
};

/* A backend, an engine on it, and what came back. */
struct rig {
    struct fake_options o;
    struct engine_options eo;
    struct backend *b;
    struct engine *en;
    int turns, n_back;
    struct job *back[4096]; /* the first ones, in their order */
};

static const int eos[] = {EOS};
static const struct sampling greedy = {.top_p = 1, .repetition_penalty = 1};

static struct rig *rig_open(const struct fake_options *o, bool prefix_cache, int max_requests)
{
    struct rig *g = calloc(1, sizeof *g);
    struct err e = {0};

    g->o = *o;
    g->eo = (struct engine_options){.max_requests = max_requests,
                                    .max_sequence = o->max_positions,
                                    .prefix_cache = prefix_cache,
                                    .eos = eos,
                                    .n_eos = 1,
                                    .weights_key = 99};
    g->b = fake_open(o);
    cr_assert_eq(engine_open(&g->en, &fake_backend_ops, g->b, &g->eo, &e), ERR_OK, "%s", e.msg);
    return g;
}

static struct engine_stats stats_of(const struct rig *g)
{
    struct engine_stats s;

    engine_get_stats(g->en, &s);
    return s;
}

/* Nothing may be held once nobody is inside. */
static void rig_close(struct rig *g)
{
    if (!engine_is_busy(g->en)) {
        struct engine_stats s = stats_of(g);
        cr_assert_eq(s.blocks_free + s.blocks_cached, g->o.blocks, "%d free, %d cached of %d", s.blocks_free,
                     s.blocks_cached, g->o.blocks);
        engine_forget_prefixes(g->en);
        cr_assert_eq(stats_of(g).blocks_free, g->o.blocks);
        cr_assert_eq(fake_counts(g->b).joined, 0);
    }
    engine_close(g->en);
    fake_backend_ops.close(g->b);
    free(g);
}

static void turn(struct rig *g)
{
    struct request *done[64];
    struct err e = {0};
    int n;

    cr_assert_eq(engine_step(g->en, done, 64, &n, &e), ERR_OK, "%s", e.msg);
    g->turns++;
    for (int i = 0; i < n; i++) {
        struct job *j = done[i]->owner;
        j->came_back++;
        if (g->n_back < 4096)
            g->back[g->n_back] = j;
        g->n_back++;
    }
}

static void run(struct rig *g)
{
    while (engine_is_busy(g->en)) {
        turn(g);
        cr_assert_lt(g->turns, 3000000, "no end");
    }
}

static struct job *job_init(struct job *j, const int32_t *prompt, int n, int max_output)
{
    memset(&j->r, 0, sizeof j->r);
    j->came_back = 0;
    if (prompt)
        memcpy(j->prompt, prompt, (size_t)n * sizeof prompt[0]);
    j->r.prompt = j->prompt;
    j->r.n_prompt = n;
    j->r.max_output = max_output;
    j->r.output = j->output;
    j->r.sampling = greedy;
    j->r.owner = j;
    return j;
}

/* A prompt of its own: n tokens that depend on what. */
static struct job *job_own(struct job *j, int what, int n, int max_output)
{
    for (int i = 0; i < n; i++)
        j->prompt[i] = 100000 + what * 1000 + i;
    return job_init(j, NULL, n, max_output);
}

static void submit(struct rig *g, struct job *j)
{
    struct request *r = &j->r;

    cr_assert_eq(engine_submit(g->en, &r, 1, NULL), ERR_OK);
}

static void submit_all(struct rig *g, struct job *jobs, int n)
{
    struct request **rs = calloc((size_t)n, sizeof *rs);

    for (int i = 0; i < n; i++)
        rs[i] = &jobs[i].r;
    cr_assert_eq(engine_submit(g->en, rs, n, NULL), ERR_OK);
    free(rs);
}

static void check_output(const struct rig *g, const struct job *j)
{
    int32_t expected[MAX_TOKENS];
    enum backend_end end;
    int n = fake_expect(&g->o, j->r.prompt, j->r.n_prompt, j->r.max_output, &j->r.sampling, eos, 1, expected, &end);

    cr_assert_eq(j->came_back, 1);
    cr_assert_eq(j->r.finish, end == BACKEND_END_EOS ? FINISH_EOS : FINISH_LENGTH, "%s", finish_name(j->r.finish));
    cr_assert_eq(j->r.n_output, n);
    cr_assert_arr_eq(j->output, expected, (size_t)n * sizeof expected[0]);
    cr_assert_eq(j->r.n_scored, n + (end == BACKEND_END_EOS));
}

static uint64_t seed = 88172645463325252u;

static int pick(int n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (int)(seed % (uint64_t)n);
}

/* --- one request --- */

Test(engine, gives_what_the_model_says_at_every_run_ahead)
{
    for (int ahead = 1; ahead <= 3; ahead++)
        for (int n = 1; n <= 40; n += 3) {
            struct fake_options o = fake_defaults();
            o.run_ahead = ahead;
            o.eos_one_in = 12;
            o.step_tokens = 7;
            struct rig *g = rig_open(&o, true, 4);
            struct job j;
            submit(g, job_own(&j, n, n, 50));
            run(g);
            check_output(g, &j);
            cr_assert(j.r.submitted_ns <= j.r.admitted_ns && j.r.admitted_ns <= j.r.first_token_ns &&
                      j.r.first_token_ns <= j.r.finished_ns && j.r.submitted_ns > 0);
            cr_assert_leq(j.r.min_logprob * (float)j.r.n_scored, j.r.sum_logprob);
            rig_close(g);
        }
}

Test(engine, queues_no_step_past_the_longest_output)
{
    struct fake_options o = fake_defaults();
    o.run_ahead = 3;
    struct rig *g = rig_open(&o, true, 4);
    struct job j;

    submit(g, job_own(&j, 1, 20, 30));
    run(g);
    check_output(g, &j);
    cr_assert_eq(fake_counts(g->b).steps, 30); /* one with the prompt, 29 decode */
    cr_assert_eq(stats_of(g).wasted_tokens, 0);
    rig_close(g);
}

Test(engine, seeded_rows_do_not_feel_their_neighbours)
{
    struct fake_options o = fake_defaults();
    o.run_ahead = 2;
    o.eos_one_in = 30;
    struct rig *g = rig_open(&o, true, 64);
    struct job jobs[40];

    for (int i = 0; i < 40; i++) {
        job_own(&jobs[i], i % 3, 10 + i % 5, 20 + i);
        jobs[i].r.sampling.temperature = i % 4 ? 0.7f : 0;
        jobs[i].r.sampling.seed = (uint64_t)(i % 7);
    }
    submit_all(g, jobs, 40);
    run(g);
    for (int i = 0; i < 40; i++)
        check_output(g, &jobs[i]);
    rig_close(g);
}

/* --- requests that cannot be --- */

Test(engine, refuses_what_never_fits_and_the_queue_goes_on)
{
    struct fake_options o = fake_defaults();
    o.blocks = 4; /* 64 positions */
    o.max_positions = 128;
    struct rig *g = rig_open(&o, true, 16);
    struct job jobs[6];
    const int order[] = {0, 1, 2, 3, 4};

    job_own(&jobs[0], 0, 100, 29); /* past max_sequence */
    job_own(&jobs[1], 1, 36, 30);  /* 65 positions */
    job_own(&jobs[2], 2, 0, 10);
    job_own(&jobs[3], 3, 10, 0);
    job_own(&jobs[4], 4, 10, 5);
    jobs[4].r.sampling.temperature = NAN;
    job_own(&jobs[5], 5, 35, 30); /* 64 positions: the whole pool */
    submit_all(g, jobs, 6);
    turn(g);
    cr_assert_eq(g->n_back, 5);
    const enum err_code codes[] = {ERR_TEXT_TOO_LONG, ERR_TEXT_TOO_LONG, ERR_EMPTY_TEXT, ERR_INVALID_FIELD,
                                   ERR_INVALID_FIELD};
    for (int i = 0; i < 5; i++) {
        cr_assert_eq(g->back[i], &jobs[order[i]]);
        cr_assert_eq(jobs[i].r.finish, FINISH_ERROR);
        cr_assert_eq(jobs[i].r.error.code, codes[i]);
        cr_assert_eq(jobs[i].r.error.act, ERR_SKIP);
        cr_assert_eq(jobs[i].r.n_output, 0);
    }
    cr_assert(strstr(jobs[0].r.error.msg, "128"), "%s", jobs[0].r.error.msg);
    cr_assert(strstr(jobs[1].r.error.msg, "64"), "%s", jobs[1].r.error.msg);
    run(g);
    check_output(g, &jobs[5]);
    rig_close(g);
}

Test(engine, takes_none_when_there_is_no_room_for_all)
{
    struct fake_options o = fake_defaults();
    struct rig *g = rig_open(&o, true, 3);
    struct job jobs[4];
    struct request *rs[4];
    struct err e;

    for (int i = 0; i < 4; i++)
        rs[i] = &job_own(&jobs[i], i, 5, 5)->r;
    cr_assert_eq(engine_submit(g->en, rs, 4, &e), ERR_BUSY);
    cr_assert_eq(e.act, ERR_RETRY);
    cr_assert_eq(engine_room(g->en), 3);
    cr_assert_not(engine_is_busy(g->en));
    cr_assert_eq(engine_submit(g->en, rs, 3, &e), ERR_OK);
    cr_assert_eq(engine_room(g->en), 0);
    run(g);
    cr_assert_eq(engine_room(g->en), 3);
    rig_close(g);
}

Test(engine, refuses_options_that_the_backend_cannot_serve)
{
    struct fake_options o = fake_defaults();
    struct backend *b = fake_open(&o);
    struct engine *en;
    struct err e;
    struct engine_options eo = {.max_requests = 1, .max_sequence = o.max_positions + 1, .eos = eos, .n_eos = 1};

    cr_assert_eq(engine_open(&en, &fake_backend_ops, b, &eo, &e), ERR_CONFIG);
    cr_assert_null(en);
    cr_assert(strstr(e.msg, "1024"), "%s", e.msg);
    eo = (struct engine_options){.max_requests = 0, .max_sequence = 10, .eos = eos, .n_eos = 1};
    cr_assert_eq(engine_open(&en, &fake_backend_ops, b, &eo, &e), ERR_CONFIG);
    fake_backend_ops.close(b);
}

/* --- rows come and go --- */

static int32_t ends_after_its_number(void *arg, const int32_t *tokens, int n, const struct sampling *s)
{
    (void)arg;
    (void)s;
    return n - 4 >= tokens[0] - 1 ? EOS : 500 + tokens[0]; /* prompts of 4 tokens that begin with k: k - 1 tokens */
}

Test(engine, rows_that_finish_each_at_their_own_step)
{
    for (int ahead = 1; ahead <= 3; ahead++) {
        struct fake_options o = fake_defaults();
        o.rows = 32;
        o.run_ahead = ahead;
        o.step_tokens = 128;
        o.next = ends_after_its_number;
        struct rig *g = rig_open(&o, true, 64);
        struct job jobs[33];
        for (int k = 1; k <= 32; k++)
            job_init(&jobs[k], (const int32_t[]){k, 7, 8, 9}, 4, 60);
        submit_all(g, jobs + 1, 32);
        for (int k = 1; k <= 32; k++) {
            turn(g);
            int ended = g->turns - (ahead - 1); /* a token comes back ahead - 1 turns after its step */
            cr_assert_eq(g->n_back, ended > 0 ? ended : 0);
        }
        run(g);
        for (int k = 1; k <= 32; k++) {
            cr_assert_eq(g->back[k - 1], &jobs[k]);
            cr_assert_eq(jobs[k].r.finish, FINISH_EOS);
            cr_assert_eq(jobs[k].r.n_output, k - 1);
            for (int i = 0; i < k - 1; i++)
                cr_assert_eq(jobs[k].output[i], 500 + k); /* its own number, nobody else's */
        }
        rig_close(g);
    }
}

Test(engine, a_waiting_request_joins_at_the_next_step)
{
    struct fake_options o = fake_defaults();
    o.rows = 1;
    o.next = ends_after_its_number;
    struct rig *g = rig_open(&o, true, 8);
    struct job jobs[2];

    job_init(&jobs[0], (const int32_t[]){3, 7, 8, 9}, 4, 60);
    job_init(&jobs[1], (const int32_t[]){2, 7, 8, 9}, 4, 60);
    submit_all(g, jobs, 2);
    run(g);
    cr_assert_eq(fake_counts(g->b).steps, 5); /* 3 + 2: no step without a row */
    cr_assert_eq(stats_of(g).rows_in_steps, 5);
    rig_close(g);
}

Test(engine, decoding_rows_run_in_every_step_beside_a_long_prompt)
{
    struct fake_options o = fake_defaults();
    o.step_tokens = 16;
    struct rig *g = rig_open(&o, true, 8);
    struct job first, second;

    submit(g, job_own(&first, 1, 4, 40));
    turn(g);
    submit(g, job_own(&second, 2, 200, 5));
    for (int i = 0; i < 13; i++) {
        cr_assert_eq(second.r.first_token_ns, 0);
        cr_assert_eq(first.r.n_output, i + 1);
        turn(g);
    }
    cr_assert_neq(second.r.first_token_ns, 0); /* 200 tokens in 13 steps of 16 */
    run(g);
    check_output(g, &first);
    check_output(g, &second);
    rig_close(g);
}

Test(engine, admits_by_priority_then_batch_then_length)
{
    struct fake_options o = fake_defaults();
    o.rows = 1;
    struct rig *g = rig_open(&o, true, 16);
    struct job jobs[9];
    static const struct {
        int length, priority, place;
    } table[] = {
        {5, 0, 4},  {9, 0, 2},  {7, 0, 3}, {5, 0, 5},   {6, 5, 0}, /* one batch */
        {20, 0, 7}, {30, 0, 6}, {3, 5, 1}, {40, -1, 8},            /* the next */
    };

    for (int i = 0; i < 9; i++) {
        job_own(&jobs[i], i, table[i].length, 3);
        jobs[i].r.priority = table[i].priority;
    }
    submit_all(g, jobs, 5);
    submit_all(g, jobs + 5, 4);
    run(g);
    for (int i = 0; i < 9; i++)
        cr_assert_eq(g->back[table[i].place], &jobs[i], "job %d", i);
    rig_close(g);
}

Test(engine, nobody_waits_for_ever_behind_higher_priorities)
{
    struct fake_options o = fake_defaults();
    o.rows = 1;
    struct rig *g = rig_open(&o, true, 4);
    struct job low, high[3];
    int others = 0;

    job_own(&low, 0, 5, 2)->r.priority = -1;
    for (int i = 0; i < 3; i++) {
        job_own(&high[i], 1 + i, 5, 2)->r.priority = 1;
        submit(g, &high[i]);
    }
    submit(g, &low);
    while (!low.came_back) {
        turn(g);
        for (int i = 0; i < 3; i++)
            if (high[i].came_back) { /* there is always another one */
                job_own(&high[i], 1 + i, 5, 2)->r.priority = 1;
                submit(g, &high[i]);
                others++;
            }
    }
    cr_assert(others >= 16 && others <= 20, "%d", others);
    run(g);
    rig_close(g);
}

/* --- ends --- */

static int32_t loops(void *arg, const int32_t *tokens, int n, const struct sampling *s)
{
    (void)arg;
    (void)s;
    return n < 20 ? 300 + n : 400 + n % tokens[0];
}

Test(engine, stops_an_endless_loop_but_not_where_the_source_has_one)
{
    for (int ahead = 1; ahead <= 2; ahead++) {
        struct fake_options o = fake_defaults();
        o.run_ahead = ahead;
        o.next = loops;
        struct rig *g = rig_open(&o, true, 8);
        struct job jobs[2];
        job_init(&jobs[0], (const int32_t[]){3}, 1, 400);
        job_init(&jobs[1], (const int32_t[]){3}, 1, 400);
        for (int i = 1; i < 121; i++)
            jobs[1].prompt[i] = 5 + i % 2;
        jobs[1].r.n_prompt = 121;
        submit_all(g, jobs, 2);
        run(g);
        cr_assert_eq(jobs[0].r.finish, FINISH_REPETITION);
        cr_assert_eq(jobs[0].r.n_output, 19 + 96);
        cr_assert_eq(jobs[1].r.finish, FINISH_LENGTH);
        cr_assert_eq(jobs[1].r.n_output, 400);
        rig_close(g);
    }
}

Test(engine, a_row_that_is_not_finite_fails_alone_and_leaves_nothing_to_find)
{
    struct fake_options o = fake_defaults();
    o.bad_token = 666;
    o.run_ahead = 2;
    struct rig *g = rig_open(&o, true, 8);
    struct job jobs[3];

    for (int i = 0; i < 3; i++)
        job_own(&jobs[i], i, 40, 20);
    jobs[1].prompt[39] = 666;
    submit_all(g, jobs, 3);
    run(g);
    check_output(g, &jobs[0]);
    check_output(g, &jobs[2]);
    cr_assert_eq(jobs[1].r.finish, FINISH_ERROR);
    cr_assert_eq(jobs[1].r.error.code, ERR_NUMERICAL);
    cr_assert_eq(jobs[1].r.error.act, ERR_SKIP);
    struct job again;
    submit(g, job_own(&again, 1, 40, 20));
    run(g);
    cr_assert_eq(again.r.n_cached, 0);
    check_output(g, &again);
    rig_close(g);
}

Test(engine, a_request_that_the_backend_refuses_fails_alone)
{
    struct fake_options o = fake_defaults();
    o.refused_token = 666;
    struct rig *g = rig_open(&o, true, 8);
    struct job jobs[3];

    for (int i = 0; i < 3; i++)
        job_own(&jobs[i], i, 40, 20);
    jobs[1].prompt[20] = 666;
    submit_all(g, jobs, 3);
    run(g);
    check_output(g, &jobs[0]);
    check_output(g, &jobs[2]);
    cr_assert_eq(jobs[1].r.finish, FINISH_ERROR);
    cr_assert_eq(jobs[1].r.error.code, ERR_INVALID_FIELD);
    cr_assert_eq(jobs[1].r.admitted_ns, 0);
    rig_close(g);
}

Test(engine, a_lost_device_is_an_error_to_stop_for_and_stays_one)
{
    struct fake_options o = fake_defaults();
    o.fail_after_steps = 5;
    struct rig *g = rig_open(&o, true, 8);
    struct job jobs[2];
    struct request *done[8];
    struct err e;
    int n = 0;

    job_own(&jobs[0], 0, 4, 3);
    job_own(&jobs[1], 1, 4, 30);
    submit_all(g, jobs, 2);
    enum err_code rc = ERR_OK;
    for (int i = 0; i < 5 && rc == ERR_OK; i++)
        rc = engine_step(g->en, done, 8, &n, &e);
    cr_assert_eq(rc, ERR_OK);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(engine_step(g->en, done, 8, &n, &e), ERR_DEVICE);
        cr_assert_eq(e.act, ERR_STOP);
        cr_assert_eq(n, 0);
    }
    cr_assert(engine_is_busy(g->en));
    rig_close(g);
}

/* --- deadlines and cancelling --- */

Test(engine, a_deadline_that_passed_in_the_queue_costs_no_prefill_and_gives_no_text)
{
    struct fake_options o = fake_defaults();
    struct rig *g = rig_open(&o, true, 8);
    struct job jobs[5];
    const int64_t now = clock_mono_ns();
    const int64_t deadlines[] = {-1, 1, now, 0, now + 3600 * NS_PER_S};

    for (int i = 0; i < 5; i++) {
        job_own(&jobs[i], i, 10, 4);
        jobs[i].r.deadline_ns = deadlines[i];
    }
    submit_all(g, jobs, 5);
    turn(g);
    cr_assert_eq(g->n_back, 3); /* and those are not the most urgent ones, but over */
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(jobs[i].r.finish, FINISH_DEADLINE);
        cr_assert_eq(jobs[i].r.n_output, 0);
        cr_assert_eq(jobs[i].r.admitted_ns, 0);
    }
    run(g);
    cr_assert_eq(fake_counts(g->b).joins, 2);
    check_output(g, &jobs[3]);
    check_output(g, &jobs[4]);
    rig_close(g);
}

Test(engine, a_deadline_of_a_running_row_stops_it_at_the_next_step)
{
    struct fake_options o = fake_defaults();
    o.step_ns = NS_PER_MS;
    o.run_ahead = 2;
    struct rig *g = rig_open(&o, true, 8);
    struct job late, other;

    job_own(&late, 0, 10, 400)->r.deadline_ns = clock_mono_ns() + 20 * NS_PER_MS;
    submit(g, &late);
    submit(g, job_own(&other, 1, 10, 60));
    run(g);
    cr_assert_eq(late.r.finish, FINISH_DEADLINE);
    cr_assert(late.r.n_output > 0 && late.r.n_output <= 20, "%d", late.r.n_output);
    cr_assert_geq(late.r.finished_ns, late.r.deadline_ns);
    check_output(g, &other);
    rig_close(g);
}

Test(engine, a_short_deadline_in_the_queue_is_seen_while_others_run)
{
    struct fake_options o = fake_defaults();
    o.rows = 1;
    o.step_ns = NS_PER_MS;
    struct rig *g = rig_open(&o, true, 8);
    struct job running, waiting;

    submit(g, job_own(&running, 0, 10, 300));
    job_own(&waiting, 1, 10, 10)->r.deadline_ns = clock_mono_ns() + 10 * NS_PER_MS;
    submit(g, &waiting);
    while (!waiting.came_back)
        turn(g);
    cr_assert_eq(waiting.r.finish, FINISH_DEADLINE);
    cr_assert_eq(running.came_back, 0);
    engine_cancel(g->en, &running.r);
    run(g);
    rig_close(g);
}

Test(engine, cancels_in_every_state_once)
{
    struct fake_options o = fake_defaults();
    o.rows = 1;
    o.run_ahead = 2;
    o.step_tokens = 16;
    struct rig *g = rig_open(&o, true, 8);
    struct job feeding, decoding, waiting, done;

    submit(g, job_own(&feeding, 0, 100, 10));
    submit(g, job_own(&waiting, 1, 10, 10));
    turn(g);
    engine_cancel(g->en, &feeding.r);
    engine_cancel(g->en, &feeding.r);
    engine_cancel(g->en, &waiting.r);
    engine_cancel(g->en, &waiting.r);
    turn(g);
    cr_assert_eq(g->n_back, 2);
    cr_assert_eq(feeding.r.finish, FINISH_CANCELLED);
    cr_assert_eq(waiting.r.finish, FINISH_CANCELLED);
    run(g);

    submit(g, job_own(&decoding, 2, 10, 100));
    for (int i = 0; i < 5; i++)
        turn(g);
    engine_cancel(g->en, &decoding.r);
    submit(g, job_own(&done, 3, 10, 10));
    done.r.sampling.top_p = 7;
    run(g);
    cr_assert_eq(decoding.r.finish, FINISH_CANCELLED);
    check_output(g, (done.r.sampling = greedy, &done));
    engine_cancel(g->en, &done.r); /* it is outside */
    cr_assert_not(engine_is_busy(g->en));
    cr_assert_eq(g->n_back, 4);
    rig_close(g);
}

Test(engine, a_cancelled_request_may_come_again_and_is_not_cancelled_any_more)
{
    struct fake_options o = fake_defaults();
    struct rig *g = rig_open(&o, true, 8);
    struct job again, other;

    submit(g, job_own(&again, 2, 10, 20));
    turn(g);
    engine_cancel(g->en, &again.r);
    run(g);
    cr_assert_eq(again.r.finish, FINISH_CANCELLED);
    again.came_back = 0;
    submit(g, &again);
    submit(g, job_own(&other, 0, 100, 10));
    turn(g);
    engine_cancel(g->en, &other.r);
    run(g);
    cr_assert_eq(other.r.finish, FINISH_CANCELLED);
    check_output(g, &again);
    rig_close(g);
}

/* --- shared prefixes --- */

Test(engine, finds_a_prefix_to_the_token_at_every_block_edge)
{
    for (int ahead = 1; ahead <= 3; ahead++)
        for (int shared = 0; shared <= 50; shared++)
            for (int more = 1; more <= 18; more += 1 + (shared % 16 > 1 && shared % 16 < 15) * 7) {
                struct fake_options o = fake_defaults();
                o.run_ahead = ahead;
                struct rig *g = rig_open(&o, true, 4);
                struct job a, b;
                submit(g, job_own(&a, 1, 48, 20)); /* 67 positions written: 4 blocks kept */
                run(g);
                job_own(&b, 2, shared + more, 20);
                for (int i = 0; i < shared; i++)
                    b.prompt[i] = i < 48 ? a.prompt[i] : a.output[i - 48];
                submit(g, &b);
                run(g);
                check_output(g, &a);
                check_output(g, &b);
                cr_assert_eq(b.r.n_cached, shared, "%d shared, %d more: %d", shared, more, b.r.n_cached);
                rig_close(g);
            }
}

Test(engine, decoded_blocks_are_not_shared_where_they_differ_by_rounding)
{
    for (int n = 30; n <= 50; n++) {
        struct fake_options o = fake_defaults();
        o.decode_rounds = true; /* the fake device stops the test when a row is given a decoded position */
        struct rig *g = rig_open(&o, true, 4);
        struct job a, b;
        submit(g, job_own(&a, 1, n, 40));
        run(g);
        cr_assert_eq(stats_of(g).blocks_cached, n / 16);
        job_own(&b, 2, n + 30, 20); /* continues with a's output */
        memcpy(b.prompt, a.prompt, (size_t)n * sizeof b.prompt[0]);
        memcpy(b.prompt + n, a.output, 30 * sizeof b.prompt[0]);
        submit(g, &b);
        run(g);
        check_output(g, &b);
        cr_assert_eq(b.r.n_cached, n / 16 * 16);
        rig_close(g);
    }
}

Test(engine, the_same_prompt_again_computes_its_last_token_only)
{
    for (int n = 14; n <= 50; n++) {
        struct fake_options o = fake_defaults();
        struct rig *g = rig_open(&o, true, 4);
        struct job a, b;
        submit(g, job_own(&a, 1, n, 20)); /* its output fills the prompt's last block */
        run(g);
        submit(g, job_own(&b, 1, n, 20));
        run(g);
        check_output(g, &b);
        cr_assert_eq(b.r.n_cached, n - 1);
        rig_close(g);
    }
}

Test(engine, a_prefix_that_is_being_computed_is_waited_for_not_computed_again)
{
    for (int ahead = 1; ahead <= 3; ahead++) {
        struct fake_options o = fake_defaults();
        o.rows = 16;
        o.run_ahead = ahead;
        o.step_tokens = 40;
        struct rig *g = rig_open(&o, true, 32);
        struct job jobs[16];
        for (int i = 0; i < 16; i++) {
            job_own(&jobs[i], 7, 100 + i % 3, 30);
            jobs[i].prompt[97] = i; /* 6 blocks and a token in common */
        }
        submit_all(g, jobs, 16);
        run(g);
        int cached = 0;
        for (int i = 0; i < 16; i++) {
            check_output(g, &jobs[i]);
            cached += jobs[i].r.n_cached;
        }
        cr_assert_geq(cached, 15 * 96);
        cr_assert_leq(fake_counts(g->b).fed, 96 + 16 * 6);
        rig_close(g);
    }
}

/* With steps queued ahead a row's blocks hold tokens that never came back: nobody may find those. */
Test(engine, a_cancelled_row_leaves_only_what_is_known_of_it)
{
    for (int turns = 1; turns <= 40; turns++) {
        struct fake_options o = fake_defaults();
        o.run_ahead = 3;
        struct rig *g = rig_open(&o, true, 4);
        struct job a, b;
        for (int i = 0; i < MAX_TOKENS; i++)
            a.output[i] = 7777;
        submit(g, job_own(&a, 1, 20, 100));
        for (int i = 0; i < turns; i++)
            turn(g);
        engine_cancel(g->en, &a.r);
        run(g);
        memcpy(b.prompt, a.prompt, 20 * sizeof b.prompt[0]);
        memcpy(b.prompt + 20, a.output, 100 * sizeof b.prompt[0]); /* its output, then what lay in the buffer */
        submit(g, job_init(&b, NULL, 100, 10));
        run(g);
        check_output(g, &b);
        cr_assert_leq(b.r.n_cached, 20 + a.r.n_output);
        rig_close(g);
    }
}

Test(engine, a_request_that_fills_the_pool_gives_up_what_it_would_have_copied)
{
    struct fake_options o = fake_defaults();
    o.blocks = 4;
    struct rig *g = rig_open(&o, true, 4);
    struct job a, b;

    submit(g, job_own(&a, 1, 40, 20));
    run(g);
    job_own(&b, 2, 60, 5);
    memcpy(b.prompt, a.prompt, 20 * sizeof b.prompt[0]);
    submit(g, &b);
    run(g);
    cr_assert_eq(b.r.n_cached, 16); /* not 20 */
    check_output(g, &b);
    rig_close(g);
}

Test(engine, nothing_is_shared_with_the_cache_off)
{
    struct fake_options o = fake_defaults();
    struct rig *g = rig_open(&o, false, 4);
    struct job a, b;

    submit(g, job_own(&a, 1, 40, 20));
    submit(g, job_own(&b, 1, 40, 20));
    run(g);
    check_output(g, &a);
    check_output(g, &b);
    cr_assert_eq(stats_of(g).cached_tokens, 0);
    cr_assert_eq(stats_of(g).blocks_cached, 0);
    rig_close(g);
}

Test(engine, ten_thousand_prompts_from_fifty_prefixes_in_64_blocks)
{
    for (int ahead = 1; ahead <= 3; ahead++) {
        struct fake_options o = fake_defaults();
        o.blocks = 64;
        o.run_ahead = ahead;
        o.eos_one_in = 10;
        struct rig *g = rig_open(&o, true, 32);
        struct job *jobs = calloc(32, sizeof *jobs);
        int submitted = 0;
        while (submitted < 10000 || engine_is_busy(g->en)) {
            for (int i = 0; i < 32 && submitted < 10000; i++) {
                struct job *j = &jobs[i];
                if (j->came_back)
                    check_output(g, j);
                if (!j->came_back && j->r.owner)
                    continue;
                int which = pick(50), length = 5 + which * 7 % 60, tail = 1 + pick(20);
                for (int k = 0; k < length + tail; k++)
                    j->prompt[k] = k < length ? which * 100 + k : 50000 + pick(4);
                job_init(j, NULL, length + tail, 1 + pick(40));
                submit(g, j);
                submitted++;
            }
            turn(g);
        }
        cr_assert_gt(stats_of(g).cached_tokens, stats_of(g).prompt_tokens / 5);
        free(jobs);
        rig_close(g);
    }
}

/* --- a pool that is too small --- */

Test(engine, gives_the_same_with_a_pool_that_is_nearly_too_small)
{
    static const int pools[] = {10, 11, 14, 20, 40, 400};
    int put_back = 0;

    for (int ahead = 1; ahead <= 3; ahead++)
        for (size_t p = 0; p < sizeof pools / sizeof pools[0]; p++)
            for (int cache = 0; cache <= 1; cache++) {
                struct fake_options o = fake_defaults();
                o.rows = 16;
                o.blocks = pools[p];
                o.run_ahead = ahead;
                o.eos_one_in = 40;
                struct rig *g = rig_open(&o, cache, 128);
                struct job *jobs = calloc(128, sizeof *jobs);
                for (int i = 0; i < 128; i++) {
                    job_own(&jobs[i], i % 30, 3 + i * 7 % 60, 10 + i * 11 % 88);
                    jobs[i].r.sampling.temperature = i % 2 ? 0.7f : 0;
                    jobs[i].r.sampling.seed = (uint64_t)i;
                }
                submit_all(g, jobs, 128);
                run(g);
                for (int i = 0; i < 128; i++) {
                    check_output(g, &jobs[i]);
                    cr_assert(jobs[i].r.order != 1 || jobs[i].r.times_put_back == 0);
                    put_back += jobs[i].r.times_put_back;
                }
                free(jobs);
                rig_close(g);
            }
    cr_assert_gt(put_back, 10, "the test meets no full pool");
}

static int32_t short_at_first(void *arg, const int32_t *tokens, int n, const struct sampling *s)
{
    (void)arg;
    (void)s;
    return tokens[0] == 1 && n > 22 ? EOS : 1000 + (tokens[n - 1] * 7 + n) % 900;
}

Test(engine, puts_the_youngest_back_never_the_oldest_and_all_finish)
{
    for (int ahead = 1; ahead <= 3; ahead++)
        for (int cache = 0; cache <= 1; cache++) {
            struct fake_options o = fake_defaults();
            o.rows = 32;
            o.blocks = 8 * 10; /* 8 sequences of 160 tokens */
            o.run_ahead = ahead;
            o.next = short_at_first;
            struct rig *g = rig_open(&o, cache, 256);
            struct job *jobs = calloc(250, sizeof *jobs);
            for (int i = 0; i < 250; i++) { /* 50 that end early teach the engine to expect little */
                job_own(&jobs[i], i, 20, i < 50 ? 140 : 140 - (i - 50) % 4 * 20);
                jobs[i].prompt[0] = i < 50;
                submit(g, &jobs[i]);
            }
            run(g);
            int put_back = 0;
            for (int i = 0; i < 250; i++) {
                check_output(g, &jobs[i]);
                put_back += jobs[i].r.times_put_back;
            }
            cr_assert_eq(jobs[0].r.times_put_back, 0);
            cr_assert_gt(put_back, 0, "the test meets no full pool");
            cr_assert_lt(put_back, 2 * 200);
            cr_assert_eq(stats_of(g).put_back, (uint64_t)put_back);
            printf("run_ahead %d, cache %d: %d put back, %d steps\n", ahead, cache, put_back,
                   (int)fake_counts(g->b).steps);
            free(jobs);
            rig_close(g);
        }
}

static int32_t by_first_token(void *arg, const int32_t *tokens, int n, const struct sampling *s)
{
    if (tokens[0] == 1)
        return EOS;
    return tokens[0] == 2 ? 1000 + n : loops(arg, tokens, n, s);
}

Test(engine, a_loop_goes_on_counting_when_its_row_was_put_back)
{
    struct fake_options o = fake_defaults();
    o.blocks = 12;
    o.max_positions = 192;
    o.next = by_first_token;
    struct rig *g = rig_open(&o, true, 64);
    struct job quick, old, young;

    for (int i = 0; i < 60; i++) { /* little output is expected from now on */
        submit(g, job_init(&quick, (const int32_t[]){1}, 1, 100));
        run(g);
    }
    submit(g, job_init(&old, (const int32_t[]){2}, 1, 150));
    submit(g, job_init(&young, (const int32_t[]){3}, 1, 150));
    run(g);
    cr_assert_eq(old.r.times_put_back, 0);
    cr_assert_eq(old.r.finish, FINISH_LENGTH);
    cr_assert_eq(young.r.times_put_back, 1);
    cr_assert_eq(young.r.finish, FINISH_REPETITION);
    cr_assert_eq(young.r.n_output, 19 + 96);
    rig_close(g);
}

/* --- everything at once --- */

/* What a life in production does to the pool, compressed: joins, leaves, cancels, deadlines, rows put back. */
static void churn(int lives, int ahead, int blocks, bool prefix_cache)
{
    enum { INSIDE = 48 };
    struct fake_options o = fake_defaults();
    o.rows = 12;
    o.blocks = blocks;
    o.run_ahead = ahead;
    o.block_tokens = 4;
    o.step_tokens = 24;
    o.max_positions = 96;
    o.eos_one_in = 12;
    o.bad_token = 666;
    o.refused_token = 667;
    o.decode_rounds = ahead == 3;
    struct rig *g = rig_open(&o, prefix_cache, INSIDE);
    struct job *jobs = calloc(INSIDE, sizeof *jobs);
    int begun = 0, counts[FINISH_ERROR + 1] = {0};

    while (begun < lives || engine_is_busy(g->en)) {
        for (int i = 0; i < INSIDE; i++) {
            struct job *j = &jobs[i];
            if (j->came_back == 1) {
                counts[j->r.finish]++;
                if (j->r.finish == FINISH_EOS || j->r.finish == FINISH_LENGTH)
                    check_output(g, j);
                j->came_back = 0;
                j->r.owner = NULL;
            }
            if (!j->r.owner && begun < lives && pick(3) == 0) {
                int n = 1 + pick(40), which = pick(20);
                for (int k = 0; k < n; k++)
                    j->prompt[k] = k < 2 * which ? which : pick(5);
                job_init(j, NULL, n, 1 + pick(40));
                j->r.priority = pick(3);
                if (pick(10) == 0)
                    j->r.deadline_ns = clock_mono_ns() + pick(300000);
                if (pick(4000) == 0)
                    j->prompt[n - 1] = 666 + pick(2);
                submit(g, j);
                begun++;
            } else if (j->r.owner && pick(2000) == 0) {
                engine_cancel(g->en, &j->r);
            }
        }
        turn(g);
        if (pick(20000) == 0)
            engine_forget_prefixes(g->en);
    }
    for (int i = 0; i < INSIDE; i++)
        counts[jobs[i].r.finish] += jobs[i].came_back == 1;
    printf("churn: %d blocks, run_ahead %d: eos %d length %d deadline %d cancelled %d error %d, put back %d\n", blocks,
           ahead, counts[FINISH_EOS], counts[FINISH_LENGTH], counts[FINISH_DEADLINE], counts[FINISH_CANCELLED],
           counts[FINISH_ERROR], (int)stats_of(g).put_back);
    cr_assert(counts[FINISH_EOS] && counts[FINISH_LENGTH] && counts[FINISH_DEADLINE] && counts[FINISH_CANCELLED]);
    free(jobs);
    rig_close(g);
}

Test(engine, leaks_no_block_over_a_hundred_thousand_lives)
{
    churn(30000, 1, 24, true);
    churn(30000, 2, 60, true);
    churn(20000, 3, 24, true);
    churn(10000, 2, 30, false);
    churn(10000, 2, 1000, true);
}

Test(engine, counts_what_it_does)
{
    struct fake_options o = fake_defaults();
    struct rig *g = rig_open(&o, true, 8);
    struct job a, b;

    submit(g, job_own(&a, 1, 20, 10));
    submit(g, job_own(&b, 2, 30, 5));
    cr_assert_eq(stats_of(g).waiting, 2);
    turn(g);
    struct engine_stats s = stats_of(g);
    cr_assert_eq(s.rows_running, 2);
    cr_assert_eq(s.rows_total, 8);
    cr_assert_eq(s.waiting, 0);
    cr_assert_eq(s.blocks_total, 256);
    cr_assert_eq(s.blocks_free, 256 - 4);
    run(g);
    s = stats_of(g);
    cr_assert_eq(s.steps, 10);
    cr_assert_eq(s.rows_in_steps, 15);
    cr_assert_eq(s.prompt_tokens, 50);
    cr_assert_eq(s.output_tokens, 15);
    cr_assert_eq(s.requests_done, 2);
    cr_assert_eq(s.rows_running, 0);
    cr_assert_eq(s.blocks_cached, 1 + 2);
    rig_close(g);
}
