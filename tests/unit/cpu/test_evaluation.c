/* The demo model's greedy outputs against the reference implementation's (float32), through the backend alone. */
#include "tests/support/cpu_model.h"
#include "tests/support/decode.h"
#include "tests/support/evaluation.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { COMMITTED = 50 }; /* cases of the default run */
#else
enum { COMMITTED = 250 };
#endif
enum { BATCH = 32, ROOM = 200 };

static bool same(const struct decode_job *j, const struct evaluation_case *c)
{
    return j->end == BACKEND_END_EOS && j->n_output == c->n_output + 1 &&
           memcmp(j->output, c->output, (size_t)c->n_output * sizeof *c->output) == 0;
}

/* How many of the cases come out the same. */
static int run(const char *model, const struct evaluation *v)
{
    static int32_t output[BATCH][ROOM];
    static float logprobs[BATCH][ROOM];
    struct backend_options o = {.rows = BATCH, .max_positions = 512, .kv_bytes = 200 << 20};
    struct cpu_model m = cpu_model_open(model, &o);
    struct decode_job jobs[BATCH];
    struct err e = {0};
    int equal = 0;

    for (int from = 0; from < v->n; from += BATCH) {
        int n = v->n - from < BATCH ? v->n - from : BATCH;

        for (int i = 0; i < n; i++)
            jobs[i] = (struct decode_job){.prompt = v->cases[from + i].prompt,
                                          .n_prompt = v->cases[from + i].n_prompt,
                                          .max_output = ROOM,
                                          .sampling = decode_greedy(),
                                          .eos = m.m->generation.eos,
                                          .n_eos = m.m->generation.n_eos,
                                          .start = i / 4,
                                          .output = output[i],
                                          .logprobs = logprobs[i]};
        cr_assert(decode_jobs(m.ops, m.b, jobs, n, &e) == ERR_OK, "%s", e.msg);
        for (int i = 0; i < n; i++)
            equal += same(&jobs[i], &v->cases[from + i]);
    }
    cpu_model_close(&m);
    return equal;
}

Test(evaluation, ids_equal_the_reference_for_99_of_100_committed_cases, .timeout = 300)
{
    struct evaluation v = evaluation_load(DEMO_EVALUATION);
    struct evaluation part = v;
    int equal;

    part.n = v.n < COMMITTED ? v.n : COMMITTED;
    equal = run(DEMO_MODEL, &part);
    printf("evaluation: %d of %d outputs equal\n", equal, part.n);
    cr_assert(equal * 100 >= part.n * 99, "%d of %d", equal, part.n);
    evaluation_free(&v);
}

Test(evaluation, ids_equal_the_reference_for_99_of_100_of_the_whole_set, .timeout = 600)
{
    static const char path[] = "../shared/demo-model/evaluation.json";
    int equal;

    if (!getenv("EVALUATION_ALL") || access(path, R_OK) != 0) {
        printf("evaluation: whole set skipped: set EVALUATION_ALL=1 and have %s\n", path);
        return;
    }
    struct evaluation v = evaluation_load(path);
    equal = run("../shared/demo-model", &v);
    printf("evaluation: %d of %d outputs equal\n", equal, v.n);
    cr_assert(equal * 100 >= v.n * 99, "%d of %d", equal, v.n);
    evaluation_free(&v);
}
