/* The whole backend through the engine, on the demonstration model. */
#include "cpu/cpu_backend.h"
#include "engine/engine.h"
#include "tests/gpu/gpu_test.h"
#include "tests/support/evaluation.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const struct backend_ops translate_worker_backend;

enum { MAX_OUTPUT = 200, MAX_SEQUENCE = 512 };
static const struct sampling greedy = {.top_p = 1, .repetition_penalty = 1};

struct job {
    struct request r;
    int32_t output[MAX_OUTPUT];
    bool back;
};

struct rig {
    struct model *m;
    struct backend *b;
    struct engine *en;
    struct backend_info info;
};

static bool open_rig(struct gpu_test_run *t, struct rig *g, const struct backend_ops *ops,
                     const struct backend_options *o, bool prefixes)
{
    struct err e = {0};
    struct backend_options full = *o;

    memset(g, 0, sizeof *g);
    full.max_positions = MAX_SEQUENCE;
    full.deterministic = true;
    if (full.memory_fraction <= 0)
        full.memory_fraction = 0.05;
    if (!gpu_ok(t, model_open(&g->m, "ops/demo/model", &e), &e) || !gpu_ok(t, ops->open(&g->b, g->m, &full, &e), &e))
        return false;
    ops->info(g->b, &g->info);
    const struct engine_options eo = {.max_requests = 4096,
                                      .max_sequence = MAX_SEQUENCE,
                                      .prefix_cache = prefixes,
                                      .eos = g->m->generation.eos,
                                      .n_eos = g->m->generation.n_eos,
                                      .weights_key = 1};
    return gpu_ok(t, engine_open(&g->en, ops, g->b, &eo, &e), &e);
}

static void close_rig(struct rig *g, const struct backend_ops *ops)
{
    engine_close(g->en);
    if (g->b)
        ops->close(g->b);
    model_close(g->m);
}

static void set_job(struct job *j, const struct evaluation_case *c, const struct sampling *s)
{
    memset(&j->r, 0, sizeof j->r);
    j->r.prompt = c->prompt;
    j->r.n_prompt = c->n_prompt;
    j->r.max_output = MAX_SEQUENCE - c->n_prompt < MAX_OUTPUT ? MAX_SEQUENCE - c->n_prompt : MAX_OUTPUT;
    j->r.sampling = *s;
    j->r.output = j->output;
    j->r.owner = j;
    j->back = false;
}

static void run_jobs(struct gpu_test_run *t, struct rig *g, struct job *jobs, int n)
{
    struct request **reqs = calloc((size_t)n, sizeof *reqs), *done[256];
    struct err e = {0};
    int left = n;

    for (int i = 0; i < n; i++)
        reqs[i] = &jobs[i].r;
    if (gpu_ok(t, engine_submit(g->en, reqs, n, &e), &e))
        while (left > 0) {
            int k = 0;
            if (!gpu_ok(t, engine_step(g->en, done, 256, &k, &e), &e))
                break;
            for (int i = 0; i < k; i++)
                ((struct job *)done[i]->owner)->back = true;
            left -= k;
            if (k == 0 && !gpu_expect(t, engine_is_busy(g->en), "%d jobs never came back", left))
                break;
        }
    free(reqs);
}

static bool same(const struct job *a, const struct job *b)
{
    return a->r.n_output == b->r.n_output && a->r.finish == b->r.finish && a->r.sum_logprob == b->r.sum_logprob &&
           memcmp(a->output, b->output, (size_t)a->r.n_output * sizeof(int32_t)) == 0;
}

static void evaluation(struct gpu_test_run *t)
{
    struct evaluation v = evaluation_load(DEMO_EVALUATION);
    struct job *jobs = gpu_host(t, (size_t)v.n * sizeof *jobs);
    const struct backend_options o = {.rows = 256};
    struct rig g;
    int equal = 0;

    if (open_rig(t, &g, &translate_worker_backend, &o, true)) {
        for (int i = 0; i < v.n; i++)
            set_job(&jobs[i], &v.cases[i], &greedy);
        run_jobs(t, &g, jobs, v.n);
        for (int i = 0; i < v.n; i++)
            equal += jobs[i].r.n_output == v.cases[i].n_output &&
                     memcmp(jobs[i].output, v.cases[i].output, (size_t)v.cases[i].n_output * 4) == 0;
        printf("    %d of %d outputs are the reference implementation's (%.2f%%)\n", equal, v.n, 100.0 * equal / v.n);
        (void)gpu_expect(t, equal >= v.n * 0.97, "too few");
    }
    close_rig(&g, &translate_worker_backend);
    evaluation_free(&v);
}

static void as_the_cpu(struct gpu_test_run *t)
{
    enum { N = 60 };
    struct evaluation v = evaluation_load(DEMO_EVALUATION);
    struct job *here = gpu_host(t, N * sizeof *here), *there = gpu_host(t, N * sizeof *there);
    const struct sampling p = {
        .temperature = 0.7f, .top_p = 0.6f, .top_k = 20, .repetition_penalty = 1.05f, .seed = 99};
    const struct backend_options o = {.rows = 64}, cpu = {.rows = 64, .kv_bytes = 1 << 28};
    struct rig g;
    int equal = 0;

    for (int i = 0; i < N; i++) {
        set_job(&here[i], &v.cases[i * v.n / N], &p);
        set_job(&there[i], &v.cases[i * v.n / N], &p);
    }
    if (open_rig(t, &g, &translate_worker_backend, &o, true))
        run_jobs(t, &g, here, N);
    close_rig(&g, &translate_worker_backend);
    if (open_rig(t, &g, &backend_cpu_ops, &cpu, true))
        run_jobs(t, &g, there, N);
    close_rig(&g, &backend_cpu_ops);
    for (int i = 0; i < N; i++)
        equal += here[i].r.n_output == there[i].r.n_output &&
                 memcmp(here[i].output, there[i].output, (size_t)here[i].r.n_output * 4) == 0;
    printf("    %d of %d sampled outputs are the CPU backend's\n", equal, N);
    (void)gpu_expect(t, equal >= N * 0.8, "too few"); /* a draw near a border may fall on the other side */
    evaluation_free(&v);
}

/* Each of 64 sampled jobs alone, and in batches of many sizes, with and without prefix hits: one output each. */
static void independent(struct gpu_test_run *t)
{
    enum { N = 64 };
    static const int rows[] = {1, 2, 7, 8, 9, 33, 48, 64, 200, 256};
    struct evaluation v = evaluation_load(DEMO_EVALUATION);
    struct job *alone = gpu_host(t, N * sizeof *alone), *jobs = gpu_host(t, 4 * N * sizeof *jobs);
    struct rig g;

    for (size_t round = 0; round < sizeof rows / sizeof *rows; round++) {
        const struct backend_options o = {.rows = rows[round],
                                          .step_tokens = round % 3 == 0 ? 0 : 64 + 37 * (int)round};
        const int n = round == 0 ? N : 4 * N;
        int differ = 0;
        if (!open_rig(t, &g, &translate_worker_backend, &o, round % 2 == 1))
            break;
        for (int i = 0; i < n; i++) { /* the 64 among others, in another order each time */
            const int which = round == 0 ? i : (int)((unsigned)i * 77u + (unsigned)round * 13u) % n;
            const struct sampling p = {.temperature = 0.7f,
                                       .top_p = 0.6f,
                                       .top_k = which % 3 ? 20 : 0,
                                       .repetition_penalty = 1.05f,
                                       .seed = (uint64_t)which};
            set_job(&(round == 0 ? alone : jobs)[i], &v.cases[which * v.n / (4 * N)], &p);
        }
        run_jobs(t, &g, round == 0 ? alone : jobs, n);
        for (int i = 0; i < n && round > 0; i++) {
            const int which = (int)((unsigned)i * 77u + (unsigned)round * 13u) % n;
            differ += which < N && !same(&jobs[i], &alone[which]);
        }
        (void)gpu_expect(t, differ == 0, "%d rows: %d of %d jobs have another output than alone", rows[round], differ,
                         N);
        close_rig(&g, &translate_worker_backend);
    }
    evaluation_free(&v);
}

/* Prompts that go on with what others put out: whoever comes with them into a full cache and whoever is alone. */
static void continued(struct gpu_test_run *t)
{
    enum { N = 32 };
    const struct backend_options o = {.rows = 64};
    struct evaluation v = evaluation_load(DEMO_EVALUATION);
    struct job *first = gpu_host(t, N * sizeof *first), *then = gpu_host(t, N * sizeof *then),
               *alone = gpu_host(t, N * sizeof *alone);
    int32_t(*text)[MAX_SEQUENCE] = gpu_host(t, N * sizeof *text);
    struct rig g;
    int differ = 0, found = 0;

    for (int i = 0; i < N; i++)
        set_job(&first[i], &v.cases[i], &greedy);
    if (open_rig(t, &g, &translate_worker_backend, &o, true)) {
        run_jobs(t, &g, first, N);
        for (int i = 0; i < N; i++) {
            const int n = first[i].r.n_prompt, more = first[i].r.n_output, whole = n / 16 * 16;
            memcpy(text[i], first[i].r.prompt, (size_t)n * sizeof(int32_t));
            memcpy(text[i] + n, first[i].output, (size_t)more * sizeof(int32_t));
            const struct evaluation_case c = {.prompt = text[i], .n_prompt = n + more};
            set_job(&then[i], &c,
                    &(struct sampling){.temperature = 1, .top_p = 1, .repetition_penalty = 1.3f, .seed = 7});
            then[i].r.max_output = 40;
            alone[i] = then[i];
            alone[i].r.output = alone[i].output;
            alone[i].r.owner = &alone[i];
            found += whole;
        }
        run_jobs(t, &g, then, N);
    }
    close_rig(&g, &translate_worker_backend);
    if (open_rig(t, &g, &translate_worker_backend, &(struct backend_options){.rows = 1}, false))
        run_jobs(t, &g, alone, N);
    close_rig(&g, &translate_worker_backend);
    for (int i = 0; i < N; i++) {
        differ += !same(&then[i], &alone[i]);
        found -= then[i].r.n_cached;
    }
    (void)gpu_expect(t, found <= 0, "%d tokens of prompts were not found", found);
    (void)gpu_expect(t, differ == 0, "%d of %d have another output than alone", differ, N);
    evaluation_free(&v);
}

static void small_pool(struct gpu_test_run *t)
{
    enum { N = 200 };
    struct evaluation v = evaluation_load(DEMO_EVALUATION);
    struct job *roomy = gpu_host(t, N * sizeof *roomy), *tight = gpu_host(t, N * sizeof *tight);
    struct engine_stats stats;
    struct rig g;
    int differ = 0, back = 0;

    /* Translations use little of the output that they are allowed, and the engine counts on that; then come rows that
     * use all of it */
    const struct sampling endless = {.temperature = 3, .top_p = 1, .repetition_penalty = 1.3f, .seed = 5};
    for (int i = 0; i < N; i++) {
        set_job(&roomy[i], &v.cases[i], i % 2 && i > N / 4 ? &endless : &greedy);
        set_job(&tight[i], &v.cases[i], i % 2 && i > N / 4 ? &endless : &greedy);
    }
    if (open_rig(t, &g, &translate_worker_backend, &(struct backend_options){.rows = 64}, true))
        run_jobs(t, &g, roomy, N);
    close_rig(&g, &translate_worker_backend);
    /* 8 layers * 2 heads * 16 tokens * 2 * 64 * 2 bytes = 64 KiB a block: room for about eight rows */
    if (open_rig(t, &g, &translate_worker_backend, &(struct backend_options){.rows = 64, .kv_bytes = 48 * 65536},
                 true)) {
        run_jobs(t, &g, tight, N);
        engine_get_stats(g.en, &stats);
        (void)gpu_expect(t, stats.blocks_free + stats.blocks_cached == stats.blocks_total, "blocks are lost");
        for (int i = 0; i < N; i++) {
            differ += tight[i].r.sampling.temperature <= 0 && !same(&roomy[i], &tight[i]);
            back += tight[i].r.times_put_back;
        }
        printf("    %d blocks: %d rows were put back, %d greedy outputs of %d differ from those with room\n",
               g.info.blocks, back, differ, N);
        (void)gpu_expect(t, back > 0, "nothing was put back");
        (void)gpu_expect(t, differ <= N / 50, "too many differ");
    }
    close_rig(&g, &translate_worker_backend);
    evaluation_free(&v);
}

/* 10,000 requests that come and are given up at any moment. */
static void joins_and_leaves(struct gpu_test_run *t)
{
    enum { N = 10000, INSIDE = 400 };
    struct evaluation v = evaluation_load(DEMO_EVALUATION);
    struct job *jobs = gpu_host(t, INSIDE * sizeof *jobs);
    struct request *done[256];
    struct err e = {0};
    struct engine_stats stats;
    struct rig g;
    int submitted = 0, finished = 0, cancelled = 0, idle[INSIDE], n_idle = INSIDE;

    for (int i = 0; i < INSIDE; i++)
        idle[i] = i;
    if (open_rig(t, &g, &translate_worker_backend, &(struct backend_options){.rows = 96, .kv_bytes = 900 * 65536},
                 true)) {
        while (finished < N) {
            while (n_idle > 0 && submitted < N && gpu_random(t) % 8) {
                struct job *j = &jobs[idle[--n_idle]];
                const struct sampling p = {.temperature = gpu_random(t) % 2 ? 0.7f : 0,
                                           .top_p = 0.9f,
                                           .top_k = (int)(gpu_random(t) % 40),
                                           .repetition_penalty = 1.05f,
                                           .seed = gpu_random(t)};
                set_job(j, &v.cases[gpu_random(t) % (uint32_t)v.n], &p);
                j->r.max_output = 1 + (int)(gpu_random(t) % 40);
                if (!gpu_ok(t, engine_submit(g.en, &(struct request *){&j->r}, 1, &e), &e))
                    goto out;
                submitted++;
            }
            for (int i = 0; i < 3; i++) {
                struct job *j = &jobs[gpu_random(t) % INSIDE];
                if (gpu_random(t) % 4 == 0)
                    engine_cancel(g.en, &j->r);
            }
            int k = 0;
            if (!gpu_ok(t, engine_step(g.en, done, 256, &k, &e), &e))
                goto out;
            for (int i = 0; i < k; i++) {
                cancelled += done[i]->finish == FINISH_CANCELLED;
                (void)gpu_expect(t, done[i]->finish != FINISH_ERROR, "%s", done[i]->error.msg);
                idle[n_idle++] = (int)((struct job *)done[i]->owner - jobs);
            }
            finished += k;
        }
        engine_get_stats(g.en, &stats);
        printf("    %d requests, %d given up, %llu steps, %llu rows put back\n", finished, cancelled,
               (unsigned long long)stats.steps, (unsigned long long)stats.put_back);
        (void)gpu_expect(t, stats.blocks_free + stats.blocks_cached == stats.blocks_total, "blocks are lost");
    }
out:
    close_rig(&g, &translate_worker_backend);
    evaluation_free(&v);
}

static void without_graphs(struct gpu_test_run *t)
{
    enum { N = 40 };
    struct evaluation v = evaluation_load(DEMO_EVALUATION);
    struct job *a = gpu_host(t, N * sizeof *a), *b = gpu_host(t, N * sizeof *b);
    struct rig g;
    int differ = 0;

    for (int i = 0; i < N; i++) {
        set_job(&a[i], &v.cases[i], &greedy);
        set_job(&b[i], &v.cases[i], &greedy);
    }
    if (open_rig(t, &g, &translate_worker_backend, &(struct backend_options){.rows = 16}, true))
        run_jobs(t, &g, a, N);
    close_rig(&g, &translate_worker_backend);
    if (open_rig(t, &g, &translate_worker_backend, &(struct backend_options){.rows = 16, .check_launches = true}, true))
        run_jobs(t, &g, b, N);
    close_rig(&g, &translate_worker_backend);
    for (int i = 0; i < N; i++)
        differ += !same(&a[i], &b[i]);
    (void)gpu_expect(t, differ == 0, "%d of %d outputs differ with graphs and overlap off", differ, N);
    evaluation_free(&v);
}

static void too_large(struct gpu_test_run *t)
{
    struct model *m = NULL;
    struct backend *b = NULL;
    struct err e = {0};
    const struct backend_options o = {.max_positions = 512, .memory_fraction = 0.0001};

    if (gpu_ok(t, model_open(&m, "ops/demo/model", &e), &e)) {
        const enum err_code rc = translate_worker_backend.open(&b, m, &o, &e);
        (void)gpu_expect(t, rc == ERR_NOMEM && !b && strstr(e.msg, "GiB"), "%s: %s", err_name(rc), e.msg);
    }
    model_close(m);
}

const struct gpu_test backend_tests[] = {{"backend/demo_model_gives_the_reference_outputs", evaluation},
                                         {"backend/graphs_and_overlap_change_nothing", without_graphs},
                                         {"backend/samples_as_the_cpu_backend", as_the_cpu},
                                         {"backend/a_job_does_not_depend_on_its_batch", independent},
                                         {"backend/a_prompt_may_go_on_with_an_output", continued},
                                         {"backend/a_full_pool_puts_rows_back", small_pool},
                                         {"backend/joins_and_leaves", joins_and_leaves},
                                         {"backend/a_model_that_does_not_fit_is_refused", too_large},
                                         {NULL, NULL}};
