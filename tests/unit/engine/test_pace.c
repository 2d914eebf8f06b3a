#include "engine/pace.h"

#include "engine/engine.h"
#include "tests/support/fake_backend.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

Test(pace, without_a_limit_or_a_decoding_row_all_tokens_are_fed)
{
    struct pace none = {.limit = 0}, p = {.limit = 0.001};

    pace_learn(&none, 100, true, 1.0);
    cr_assert_eq(pace_budget(&none, 2048, true), 2048);
    pace_learn(&p, 100, true, 1.0);
    cr_assert_eq(pace_budget(&p, 2048, false), 2048);
}

Test(pace, begins_small_and_learns)
{
    struct pace p = {.limit = 0.010};

    cr_assert_eq(pace_budget(&p, 2048, true), PACE_FIRST);
    cr_assert_eq(pace_budget(&p, 64, true), 64);
    for (int i = 0; i < 60; i++) { /* a step takes 2 ms, a prompt token 20 us: 8 ms hold 400 */
        pace_learn(&p, 0, true, 0.002);
        pace_learn(&p, 200, true, 0.006);
    }
    cr_assert(pace_budget(&p, 2048, true) >= 399 && pace_budget(&p, 2048, true) <= 401, "%d",
              pace_budget(&p, 2048, true));
    for (int i = 0; i < 60; i++) { /* three times as slow: 4 ms hold 66 */
        pace_learn(&p, 0, true, 0.006);
        pace_learn(&p, 50, true, 0.009);
    }
    cr_assert(pace_budget(&p, 2048, true) >= 65 && pace_budget(&p, 2048, true) <= 68, "%d",
              pace_budget(&p, 2048, true));
}

Test(pace, prompts_always_go_on)
{
    struct pace p = {.limit = 0.001};

    pace_learn(&p, 0, true, 0.5);
    pace_learn(&p, 64, true, 1.0);
    cr_assert_eq(pace_budget(&p, 2048, true), PACE_LEAST);
    cr_assert_eq(pace_budget(&p, 4, true), 4);
}

Test(pace, odd_measurements_leave_a_usable_budget)
{
    struct pace p = {.limit = 0.010};

    pace_learn(&p, 0, true, 0.005);
    pace_learn(&p, 100, true, 0.004); /* faster than without prompts */
    pace_learn(&p, 100, true, 0);
    pace_learn(&p, 100, true, -1);
    const int budget = pace_budget(&p, 2048, true);
    cr_assert(budget >= PACE_LEAST && budget <= 2048, "%d", budget);
    cr_assert_eq(pace_budget(&p, 2048, false), 2048);
}

/* --- in the engine --- */

enum { JOBS = 60, PROMPT = 300, OUTPUT = 40 };
struct job {
    struct request r;
    int32_t prompt[PROMPT], output[OUTPUT];
};

/* Runs JOBS jobs, whose outputs must be what they always are; the most prompt tokens in a step beside decoding rows. */
static int most_fed(double limit)
{
    struct fake_options o = fake_defaults();
    struct err e = {0};
    struct engine *en;
    struct job *jobs = calloc(JOBS, sizeof *jobs);

    o.blocks = 1024;
    o.step_tokens = 512;
    o.run_ahead = 2;
    o.step_seconds = 0.001;
    o.token_seconds = 0.00001;
    struct backend *b = fake_open(&o);
    const struct engine_options eo = {.max_requests = JOBS, .max_sequence = 1024, .step_seconds = limit};
    cr_assert_eq(engine_open(&en, &fake_backend_ops, b, &eo, &e), ERR_OK, "%s", e.msg);
    for (int i = 0; i < JOBS; i++) {
        for (int k = 0; k < PROMPT; k++)
            jobs[i].prompt[k] = 1 + (i * 31 + k) % 900;
        jobs[i].r = (struct request){.prompt = jobs[i].prompt,
                                     .n_prompt = PROMPT,
                                     .max_output = 5 + i % (OUTPUT - 5),
                                     .sampling = {.top_p = 1, .repetition_penalty = 1, .seed = (uint64_t)i},
                                     .output = jobs[i].output};
        struct request *r = &jobs[i].r;
        cr_assert_eq(engine_submit(en, &r, 1, &e), ERR_OK, "%s", e.msg);
    }
    for (int turns = 0; engine_is_busy(en); turns++) {
        struct request *done[JOBS];
        int n;
        cr_assert_eq(engine_step(en, done, JOBS, &n, &e), ERR_OK, "%s", e.msg);
        cr_assert_lt(turns, 100000, "no end");
    }
    for (int i = 0; i < JOBS; i++) {
        int32_t expected[OUTPUT];
        enum backend_end end;
        const int n =
            fake_expect(&o, jobs[i].prompt, PROMPT, jobs[i].r.max_output, &jobs[i].r.sampling, NULL, 0, expected, &end);
        cr_assert(jobs[i].r.n_output == n && memcmp(jobs[i].output, expected, (size_t)n * sizeof expected[0]) == 0);
    }
    const int most = fake_counts(b).most_fed_beside;
    engine_close(en);
    fake_backend_ops.close(b);
    free(jobs);
    return most;
}

Test(pace, the_engine_cuts_prompts_to_the_limit)
{
    cr_assert_gt(most_fed(0), 300);
    const int most = most_fed(0.002); /* 1 ms is left for prompts: 100 tokens */
    cr_assert(most >= 60 && most <= 110, "%d", most);
}
