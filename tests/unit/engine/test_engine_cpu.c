/* The engine on the CPU backend, with real arithmetic: what a request gives depends on itself alone. */
#include "engine/engine.h"
#include "model/model.h"
#include "tests/support/cpu_model.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JOBS = 24, MAX_PROMPT = 120, MAX_OUTPUT = 40 };

struct job {
    struct request r;
    int32_t prompt[MAX_PROMPT], output[MAX_OUTPUT];
};

/* Pairs and triples with long common beginnings, lengths from 1, greedy and seeded, every parameter in use. */
static void make_jobs(struct job *jobs, int vocab)
{
    uint32_t x = 12345;

    for (int i = 0; i < JOBS; i++) {
        struct job *j = &jobs[i];
        int n = i == 0 ? 1 : 3 + i * 29 % (MAX_PROMPT - 3);
        for (int k = 0; k < n; k++) {
            x = x * 1664525 + 1013904223;
            j->prompt[k] = k < n * 3 / 4 ? 10 + (k * 7 + i % 5 * 31) % (vocab - 10) : 10 + (int)(x >> 8) % (vocab - 10);
        }
        memset(&j->r, 0, sizeof j->r);
        j->r.prompt = j->prompt;
        j->r.n_prompt = n;
        j->r.max_output = MAX_OUTPUT - i % 9;
        j->r.output = j->output;
        j->r.sampling = (struct sampling){.top_p = 1, .repetition_penalty = 1};
        if (i % 3)
            j->r.sampling = (struct sampling){
                .temperature = 0.9f, .top_p = 0.8f, .top_k = 20 + i, .repetition_penalty = 1.05f, .seed = (uint64_t)i};
    }
}

static const int32_t lesson[] = {11, 12, 13};

static struct engine *open_engine(const struct cpu_model *m, bool prefix_cache, const int *eos)
{
    struct engine *en;
    struct err e = {0};
    const struct engine_options o = {.max_requests = JOBS,
                                     .max_sequence = MAX_PROMPT + MAX_OUTPUT,
                                     .prefix_cache = prefix_cache,
                                     .eos = eos,
                                     .n_eos = 1};

    cr_assert_eq(engine_open(&en, m->ops, m->b, &o, &e), ERR_OK, "%s", e.msg);
    return en;
}

static void run(struct engine *en, struct request **rs, int n, int a_turn)
{
    struct request *done[JOBS];
    struct err e = {0};
    int sent = 0, n_done;

    while (sent < n || engine_is_busy(en)) {
        int more = n - sent < a_turn ? n - sent : a_turn;
        cr_assert_eq(engine_submit(en, rs + sent, more, &e), ERR_OK, "%s", e.msg);
        sent += more;
        cr_assert_eq(engine_step(en, done, JOBS, &n_done, &e), ERR_OK, "%s", e.msg);
    }
}

/* The end token of these tests: the one that the model says after the lesson. */
static int end_token(const struct cpu_model *m)
{
    const int none = -1;
    struct engine *en = open_engine(m, false, &none);
    int32_t output[1];
    struct request r = {.prompt = lesson,
                        .n_prompt = 3,
                        .max_output = 1,
                        .output = output,
                        .sampling = {.top_p = 1, .repetition_penalty = 1}};
    struct request *rs[] = {&r};

    run(en, rs, 1, 1);
    engine_close(en);
    return output[0];
}

/* Requests that allow much output and give none: from now on the engine expects little and admits too many. */
static void teach(struct engine *en)
{
    int32_t output[MAX_OUTPUT];
    struct request r, *rs[] = {&r};

    for (int i = 0; i < 60; i++) {
        r = (struct request){.prompt = lesson,
                             .n_prompt = 3,
                             .max_output = MAX_OUTPUT,
                             .output = output,
                             .sampling = {.top_p = 1, .repetition_penalty = 1}};
        run(en, rs, 1, 1);
        cr_assert_eq(r.finish, FINISH_EOS);
        cr_assert_eq(r.n_output, 0);
    }
}

static void compare(const struct job *got, const struct job *alone, const char *how)
{
    for (int i = 0; i < JOBS; i++) {
        const struct request *a = &got[i].r, *b = &alone[i].r;
        cr_assert(a->finish == b->finish && a->n_output == b->n_output, "job %d, %s", i, how);
        cr_assert_arr_eq(a->output, b->output, (size_t)b->n_output * sizeof b->output[0], "job %d, %s", i, how);
        cr_assert_arr_eq(&a->sum_logprob, &b->sum_logprob, sizeof a->sum_logprob, "job %d, %s", i, how);
        cr_assert_arr_eq(&a->min_logprob, &b->min_logprob, sizeof a->min_logprob, "job %d, %s", i, how);
    }
}

/* Returns how often a row was put back. */
static int in_company(const char *dir, const struct job *alone, struct backend_options o, bool cache, int a_turn)
{
    struct cpu_model m = cpu_model_open(dir, &o);
    const int eos = end_token(&m);
    struct engine *en = open_engine(&m, cache, &eos);
    struct job *jobs = calloc(JOBS, sizeof *jobs);
    struct request *rs[JOBS];
    struct engine_stats s;
    char how[160];

    make_jobs(jobs, m.m->dims.vocab_used);
    for (int i = 0; i < JOBS; i++)
        rs[i] = &jobs[i * 7 % JOBS].r;
    teach(en);
    run(en, rs, JOBS, a_turn);
    engine_get_stats(en, &s);
    (void)snprintf(how, sizeof how, "%s: %d rows, %d blocks, %d a turn, %d tokens a step, cache %d", dir, o.rows,
                   m.info.blocks, a_turn, o.step_tokens, cache);
    printf("%s: mean batch %.1f, %llu cached, %llu put back\n", how, (double)s.rows_in_steps / (double)s.steps,
           (unsigned long long)s.cached_tokens, (unsigned long long)s.put_back);
    compare(jobs, alone, how);
    engine_close(en);
    cpu_model_close(&m);
    free(jobs);
    return (int)s.put_back;
}

static void alone_and_in_company(const char *dir)
{
    struct backend_options o = {
        .rows = JOBS, .block_tokens = 16, .max_positions = 160, .kv_bytes = 64 << 20, .deterministic = true};
    struct cpu_model m = cpu_model_open(dir, &o);
    struct job *alone = calloc(JOBS, sizeof *alone);
    size_t block_bytes = m.info.kv_bytes / (size_t)m.info.blocks;
    const int eos = end_token(&m);
    int put_back;

    make_jobs(alone, m.m->dims.vocab_used);
    for (int i = 0; i < JOBS; i++) {
        struct engine *en = open_engine(&m, false, &eos);
        struct request *r = &alone[i].r;
        run(en, &r, 1, 1);
        engine_close(en);
    }
    cpu_model_close(&m);
    put_back = in_company(dir, alone, o, true, JOBS);
    put_back += in_company(dir, alone, o, false, 1);
    cr_assert_eq(put_back, 0);
    o.step_tokens = 7;
    (void)in_company(dir, alone, o, true, 2); /* as it comes */
    o.kv_bytes = 12 * block_bytes;            /* one request and a bit */
    put_back = in_company(dir, alone, o, true, JOBS);
    o.kv_bytes = 30 * block_bytes;
    o.rows = 5;
    o.step_tokens = 64;
    put_back += in_company(dir, alone, o, true, 3);
    put_back += in_company(dir, alone, o, false, JOBS);
    cr_assert_gt(put_back, 0);
    free(alone);
}

Test(engine_cpu, a_request_gives_the_same_bits_alone_and_in_any_company, .timeout = 120)
{
    alone_and_in_company("tests/golden/tiny-a");
    alone_and_in_company("tests/golden/tiny-b");
}
