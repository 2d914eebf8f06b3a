/* What a row gives does not depend on its company, on how its prompt was cut, on what was found in the cache, or on an
 * interruption: tokens and log-probabilities are compared bit by bit. */
#include "engine/engine.h"
#include "tests/support/cpu_model.h"
#include "tests/support/decode.h"
#include "tests/support/evaluation.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { JOBS = 12, CUT = 5, OUTPUT = 14, LONG = 280 }; /* CUT: so many have prompts cut out of the long text */

struct result {
    int32_t output[OUTPUT];
    float logprobs[OUTPUT];
    int n;
    enum backend_end end;
};

struct world {
    struct evaluation v;
    struct decode_job jobs[JOBS]; /* without buffers */
    struct result alone[JOBS];
    int32_t text[LONG]; /* one long prompt, put together from many */
};

static struct cpu_model open_demo(int threads, int block_tokens)
{
    struct backend_options o = {
        .rows = 48, .max_positions = 512, .kv_bytes = 400 << 20, .threads = threads, .block_tokens = block_tokens};

    return cpu_model_open(DEMO_MODEL, &o);
}

/* Prompts of 1 to LONG tokens, greedy and sampled with every kind of limit. */
static void describe(struct world *w, const struct model *m)
{
    static const struct sampling kinds[] = {
        {.temperature = 0, .top_p = 1, .repetition_penalty = 1},
        {.temperature = 0.7f, .top_p = 0.6f, .repetition_penalty = 1.05f, .top_k = 20},
        {.temperature = 1, .top_p = 1, .repetition_penalty = 1},
        {.temperature = 0.9f, .top_p = 0.9f, .repetition_penalty = 1.2f},
        {.temperature = 0, .top_p = 1, .repetition_penalty = 1.3f},
    };
    static const int lengths[CUT] = {1, 15, 16, 17, LONG};
    int n = 0;

    w->v = evaluation_load(DEMO_EVALUATION);
    for (int i = 0; n < LONG; i++)
        for (int k = 0; k < w->v.cases[i].n_prompt && n < LONG; k++)
            w->text[n++] = w->v.cases[i].prompt[k];
    for (int i = 0; i < JOBS; i++) {
        struct decode_job *j = &w->jobs[i];

        *j = (struct decode_job){.prompt = w->v.cases[i * 10].prompt,
                                 .n_prompt = w->v.cases[i * 10].n_prompt,
                                 .max_output = OUTPUT,
                                 .sampling = kinds[i % 5],
                                 .eos = m->generation.eos,
                                 .n_eos = m->generation.n_eos};
        if (i < CUT)
            j->prompt = w->text, j->n_prompt = lengths[i];
        j->sampling.seed = (uint64_t)i * 1000003;
    }
}

static void run(struct cpu_model *c, struct decode_job *jobs, struct result *results, int n)
{
    struct err e = {0};

    for (int i = 0; i < n; i++) {
        memset(&results[i], 0x7f, sizeof results[i]);
        jobs[i].output = results[i].output;
        jobs[i].logprobs = results[i].logprobs;
    }
    cr_assert(decode_jobs(c->ops, c->b, jobs, n, &e) == ERR_OK, "%s", e.msg);
    for (int i = 0; i < n; i++) {
        results[i].n = jobs[i].n_output;
        results[i].end = jobs[i].end;
    }
}

static void compare(const struct result *got, const struct result *want, const char *what, int job)
{
    cr_assert(got->n == want->n && got->end == want->end, "%s: job %d ends at %d, not %d", what, job, got->n, want->n);
    for (int i = 0; i < want->n; i++) {
        cr_assert(got->output[i] == want->output[i], "%s: job %d token %d", what, job, i);
        cr_assert(memcmp(&got->logprobs[i], &want->logprobs[i], sizeof(float)) == 0,
                  "%s: job %d log-probability %d: %.9g, not %.9g", what, job, i, got->logprobs[i], want->logprobs[i]);
    }
}

/* Each job alone, its prompt as one: what all else is compared with. */
static struct world *open_world(struct cpu_model *c)
{
    struct world *w = calloc(1, sizeof *w);
    int distinct = 0;

    cr_assert(w);
    *c = open_demo(1, 16);
    describe(w, c->m);
    for (int i = 0; i < JOBS; i++) {
        run(c, &w->jobs[i], &w->alone[i], 1);
        cr_assert(w->alone[i].n > 0);
        distinct += i > 0 && w->alone[i].output[0] != w->alone[i - 1].output[0];
    }
    cr_assert(distinct > JOBS / 2, "the jobs are too alike to tell them apart");
    return w;
}

static void close_world(struct world *w, struct cpu_model *c)
{
    evaluation_free(&w->v);
    free(w);
    cpu_model_close(c);
}

Test(determinism, a_row_is_the_same_in_any_batch_with_rows_that_come_and_go)
{
    static const int chunks[] = {0, 1, 7, 16};
    struct cpu_model c;
    struct world *w = open_world(&c);

    for (int round = 0; round < 4; round++) {
        struct decode_job jobs[JOBS];
        struct result results[JOBS];

        for (int i = 0; i < JOBS; i++) { /* another order: another row, other neighbours */
            jobs[i] = w->jobs[(i * 7 + round * 5) % JOBS];
            jobs[i].chunk = chunks[(i + round) % 4];
            jobs[i].start = round == 3 ? 0 : (i * 5 + round) % 17;
        }
        run(&c, jobs, results, JOBS);
        for (int i = 0; i < JOBS; i++)
            compare(&results[i], &w->alone[(i * 7 + round * 5) % JOBS], "batch", (i * 7 + round * 5) % JOBS);
    }
    close_world(w, &c);
}

Test(determinism, one_job_in_all_rows_at_once_is_the_job_alone)
{
    static const int sizes[] = {2, 7, 9, 48};
    struct cpu_model c;
    struct world *w = open_world(&c);

    for (int s = 0; s < 4; s++) {
        struct decode_job jobs[48];
        struct result results[48];

        for (int i = 0; i < sizes[s]; i++)
            jobs[i] = w->jobs[8 + s];
        run(&c, jobs, results, sizes[s]);
        for (int i = 0; i < sizes[s]; i++)
            compare(&results[i], &w->alone[8 + s], "copies", 8 + s);
    }
    close_world(w, &c);
}

Test(determinism, threads_and_block_size_change_nothing)
{
    struct cpu_model c, other;
    struct world *w = open_world(&c);
    static const int settings[][2] = {{2, 16}, {5, 16}, {1, 1}, {1, 64}};

    for (int s = 0; s < 4; s++) {
        struct result results[JOBS];
        struct decode_job jobs[JOBS];

        memcpy(jobs, w->jobs, sizeof jobs);
        other = open_demo(settings[s][0], settings[s][1]);
        run(&other, jobs, results, JOBS);
        for (int i = 0; i < JOBS; i++)
            compare(&results[i], &w->alone[i], "threads and blocks", i);
        cpu_model_close(&other);
    }
    close_world(w, &c);
}

/* The prefix lies in the first row's blocks: whole blocks are shared, the last, partly used one is copied. */
Test(determinism, a_prefix_found_in_the_cache_is_the_prefix_computed)
{
    struct cpu_model c;
    struct world *w = open_world(&c);
    struct err e = {0};

    for (int job = 2; job < JOBS; job += 5) {
        int n = w->jobs[job].n_prompt;
        const int cached[] = {1, 15, 16, 17, n / 2, n - 2, n - 1};

        for (int k = 0; k < 7; k++) {
            struct decode_job first = w->jobs[job], second = w->jobs[job];
            struct result result;
            int32_t blocks[64];
            int whole = cached[k] / 16, part = cached[k] % 16;

            if (cached[k] < 1 || cached[k] >= n)
                continue;
            first.sampling = decode_greedy(); /* goes on in another way behind the prompt */
            run(&c, &first, &result, 1);      /* blocks 0, 1, ... */
            for (int i = 0; i < 64; i++)
                blocks[i] = i < whole ? i : 100 + i;
            if (part)
                cr_assert(c.ops->copy_block(c.b, whole, 100 + whole, part, &e) == ERR_OK, "%s", e.msg);
            second.blocks = blocks;
            second.n_cached = cached[k];
            run(&c, &second, &result, 1);
            compare(&result, &w->alone[job], "cached prefix", job);
        }
    }
    close_world(w, &c);
}

Test(determinism, a_row_that_was_put_back_goes_on_as_if_nothing_had_been)
{
    struct cpu_model c;
    struct world *w = open_world(&c);

    for (int job = 0; job < JOBS; job++)
        for (int after = 1; after < w->alone[job].n; after += 7) {
            struct decode_job again = w->jobs[job];
            int32_t tokens[LONG + OUTPUT];
            struct result rest, want = {.n = w->alone[job].n - after, .end = w->alone[job].end};

            memcpy(tokens, again.prompt, (size_t)again.n_prompt * sizeof *tokens);
            memcpy(tokens + again.n_prompt, w->alone[job].output, (size_t)after * sizeof *tokens);
            memcpy(want.output, w->alone[job].output + after, (size_t)want.n * sizeof *tokens);
            memcpy(want.logprobs, w->alone[job].logprobs + after, (size_t)want.n * sizeof(float));
            again.prompt = tokens;
            again.n_prompt += after;
            again.max_output -= after;
            again.chunk = after % 2 ? 0 : 5;
            run(&c, &again, &rest, 1);
            compare(&rest, &want, "put back", job);
        }
    close_world(w, &c);
}

/* --- the same through the engine --- */

struct engine_run {
    struct request requests[JOBS];
    int32_t output[JOBS][OUTPUT];
};

static void run_engine(struct engine *en, const struct world *w, struct engine_run *r, int first, int per_submit)
{
    struct err e = {0};
    struct request *done[8];
    int submitted = first, finished = first, n;

    for (int i = 0; i < JOBS; i++)
        r->requests[i] = (struct request){.prompt = w->jobs[i].prompt,
                                          .n_prompt = w->jobs[i].n_prompt,
                                          .max_output = OUTPUT,
                                          .sampling = w->jobs[i].sampling,
                                          .output = r->output[i]};
    while (finished < JOBS) {
        for (int i = 0; i < per_submit && submitted < JOBS; i++, submitted++) {
            struct request *one = &r->requests[submitted];
            cr_assert(engine_submit(en, &one, 1, &e) == ERR_OK, "%s", e.msg);
        }
        cr_assert(engine_step(en, done, 8, &n, &e) == ERR_OK, "%s", e.msg);
        finished += n;
    }
}

static void compare_engine(const struct engine_run *r, const struct world *w, int first, const char *what)
{
    for (int i = first; i < JOBS; i++) {
        const struct result *a = &w->alone[i];
        const struct request *q = &r->requests[i];
        bool eos = a->end == BACKEND_END_EOS;
        float sum = 0, min = INFINITY;

        cr_assert(q->finish == (eos ? FINISH_EOS : FINISH_LENGTH), "%s: job %d is %s", what, i, finish_name(q->finish));
        cr_assert(q->n_output == a->n - eos, "%s: job %d has %d tokens, not %d", what, i, q->n_output, a->n - eos);
        cr_assert(memcmp(q->output, a->output, (size_t)q->n_output * sizeof *q->output) == 0, "%s: job %d", what, i);
        for (int k = 0; k < a->n; k++) {
            sum += a->logprobs[k];
            min = fminf(min, a->logprobs[k]);
        }
        cr_assert(memcmp(&min, &q->min_logprob, sizeof min) == 0, "%s: job %d min %g, not %g", what, i, q->min_logprob,
                  min);
        cr_assert(fabsf(sum - q->sum_logprob) <= 1e-5f * fabsf(sum), "%s: job %d sum %g, not %g", what, i,
                  q->sum_logprob, sum);
    }
}

/* Short answers where long ones were allowed: the engine learns to expect few tokens, admits more rows than the pool
 * holds to their ends, and has to put some back. */
static void teach_short_answers(struct engine *en, const struct world *w, int max)
{
    static int32_t output[512];
    struct request *done;
    struct err e = {0};
    int n, brief = 0;

    for (int i = 1; i < w->v.n; i++)
        if (w->v.cases[i].n_output < w->v.cases[brief].n_output)
            brief = i;
    for (int i = 0; i < 50; i++) {
        struct request r = {.prompt = w->v.cases[brief].prompt,
                            .n_prompt = w->v.cases[brief].n_prompt,
                            .max_output = max - w->v.cases[brief].n_prompt,
                            .sampling = decode_greedy(),
                            .output = output};
        struct request *one = &r;

        cr_assert(engine_submit(en, &one, 1, &e) == ERR_OK, "%s", e.msg);
        for (n = 0; n == 0;)
            cr_assert(engine_step(en, &done, 1, &n, &e) == ERR_OK, "%s", e.msg);
    }
}

/* Jobs first..JOBS-1 through an engine; max: most positions of a row; pool: of all blocks together. */
static struct engine_stats check_engine(const struct world *w, int first, int max, int pool, int block_tokens, int rows,
                                        bool prefix_cache, int per_submit, const char *what)
{
    struct backend_options o = {.rows = rows,
                                .max_positions = max,
                                .kv_bytes = (size_t)pool * 8192,
                                .block_tokens = block_tokens,
                                .threads = 2};
    struct cpu_model c = cpu_model_open(DEMO_MODEL, &o);
    struct engine_options eo = {.max_requests = JOBS,

                                .max_sequence = max,
                                .prefix_cache = prefix_cache,
                                .eos = c.m->generation.eos,
                                .n_eos = c.m->generation.n_eos};
    struct engine_run *r = calloc(1, sizeof *r);
    struct engine *en;
    struct engine_stats stats;
    struct err e = {0};

    cr_assert(r && engine_open(&en, c.ops, c.b, &eo, &e) == ERR_OK, "%s", e.msg);
    teach_short_answers(en, w, max);
    for (int round = 0; round < 2; round++) { /* the second finds the prefixes of the first */
        run_engine(en, w, r, first, per_submit);
        compare_engine(r, w, first, what);
    }
    engine_get_stats(en, &stats);
    engine_close(en);
    free(r);
    cpu_model_close(&c);
    return stats;
}

Test(determinism, jobs_through_the_engine_are_the_jobs_alone)
{
    struct cpu_model c;
    struct world *w = open_world(&c);

    struct engine_stats large = check_engine(w, 0, 512, 8192, 16, 32, true, JOBS, "engine");
    struct engine_stats cold = check_engine(w, 0, 512, 8192, 16, 5, false, 1, "engine, few rows, without prefixes");
    struct engine_stats small = check_engine(w, CUT, 100, 130, 1, 32, true, JOBS, "engine, pool nearly too small");

    cr_assert(large.cached_tokens > 0 && cold.cached_tokens == 0 && small.put_back > 0,
              "cached %llu and %llu, put back %llu: not what this test is about",
              (unsigned long long)large.cached_tokens, (unsigned long long)cold.cached_tokens,
              (unsigned long long)small.put_back);
    close_world(w, &c);
}
