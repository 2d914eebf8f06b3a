/* The sampler against src/cpu/sampler.h, which is its specification. */
#include "cuda/sample.h"
#include "cpu/sampler.h"
#include "engine/random.h"
#include "tests/gpu/gpu_test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 5 };

struct vocabulary {
    int n, used, ld, groups;
    struct sampler *cpu;
    float *logits;  /* [ROWS, ld] */
    uint64_t *seen; /* [ROWS, words / 2] */
    struct row_table table;
    struct sample_job job;
    int *row, *pos;
    struct sampled *answers; /* mapped */
    int *turn;
};

static void open_vocabulary(struct gpu_test_run *t, struct vocabulary *v, int n, int used, int rows)
{
    struct err e = {0};
    const int words = (n + 127) / 128 * 4;

    memset(v, 0, sizeof *v);
    v->n = n;
    v->used = used;
    v->ld = (n + 127) / 128 * 128;
    v->groups = (n + 127) / 128;
    (void)gpu_ok(t, sampler_open(&v->cpu, kernels_portable, n, &e), &e);
    v->logits = gpu_host(t, (size_t)rows * (size_t)v->ld * 4);
    v->seen = gpu_host(t, (size_t)rows * (size_t)words * 4);
    v->table = (struct row_table){.state = gpu_poisoned(t, (size_t)rows * sizeof(struct row_state)),
                                  .seen = gpu_poisoned(t, (size_t)rows * (size_t)words * 4),
                                  .rows = rows,
                                  .words = words};
    v->row = gpu_host(t, (size_t)rows * 4);
    v->pos = gpu_host(t, (size_t)rows * 4);
    v->answers = gpu_poisoned(t, (size_t)rows * sizeof *v->answers);
    const int zero = 0;
    v->turn = gpu_upload(t, &zero, sizeof zero);
    v->job = (struct sample_job){.ld = v->ld,
                                 .vocab = used,
                                 .group_max = gpu_poisoned(t, (size_t)rows * (size_t)v->groups * 4),
                                 .group_sum = gpu_poisoned(t, (size_t)rows * (size_t)v->groups * 8),
                                 .turn = v->turn,
                                 .stride = rows};
}

static void random_logits(struct gpu_test_run *t, struct vocabulary *v, int rows, float spread, bool coarse)
{
    const size_t words = (size_t)v->table.words / 2;

    for (int r = 0; r < rows; r++) {
        float *z = v->logits + (size_t)r * (size_t)v->ld;
        for (int i = 0; i < v->n; i++) {
            z[i] = gpu_normal(t) * spread;
            if (coarse)
                z[i] = roundf(z[i] * 2) / 2; /* many equal ones */
        }
        for (int i = v->used; i < v->ld; i++)
            z[i] = i % 2 ? 1e30f : NAN; /* padding is noise: nobody may look */
        memset(v->seen + (size_t)r * words, 0, words * 8);
        for (int i = 0; i < 60; i++) {
            const uint32_t id = gpu_random(t) % (uint32_t)v->used;
            v->seen[(size_t)r * words + id / 64] |= (uint64_t)1 << (id % 64);
        }
    }
}

static void run(struct gpu_test_run *t, struct vocabulary *v, const struct sampling *p, int rows, const int *row,
                struct sampled *out, float *distribution)
{
    struct row_state *states = gpu_host(t, (size_t)rows * sizeof *states);
    struct err e = {0};
    const size_t words = (size_t)v->table.words;

    for (int r = 0; r < rows; r++)
        states[r] = (struct row_state){.max_length = 1 << 20,
                                       .temperature = p->temperature,
                                       .top_p = p->top_p,
                                       .penalty = p->repetition_penalty,
                                       .top_k = p->top_k,
                                       .seed = p->seed + (uint64_t)r,
                                       .eos = {3},
                                       .n_eos = 1};
    (void)cudaMemcpy(v->table.state, states, (size_t)rows * sizeof *states, cudaMemcpyHostToDevice);
    (void)cudaMemcpy(v->table.seen, v->seen, (size_t)rows * words * 4, cudaMemcpyHostToDevice);
    v->job.logits = gpu_upload(t, v->logits, (size_t)rows * (size_t)v->ld * 4);
    v->job.row = gpu_upload(t, row, (size_t)rows * 4);
    v->job.pos = gpu_upload(t, v->pos, (size_t)rows * 4);
    v->job.distribution = NULL;
    if (distribution) {
        float *card = gpu_poisoned(t, (size_t)v->n * 4);
        (void)cudaMemset(card, 0, (size_t)v->n * 4);
        v->job.distribution = card;
    }
    (void)cudaDeviceSynchronize();
    (void)gpu_ok(t, sample(&v->job, &v->table, rows, v->answers, &t->gpu, &e), &e);
    gpu_download(t, out, v->answers, (size_t)rows * sizeof *out);
    if (distribution)
        gpu_download(t, distribution, v->job.distribution, (size_t)v->n * 4);
}

static const struct sampling settings[] = {
    {.temperature = 0, .top_p = 1, .repetition_penalty = 1},
    {.temperature = 0, .top_p = 1, .repetition_penalty = 1.3f},
    {.temperature = 0.7f, .top_p = 0.6f, .repetition_penalty = 1.05f, .top_k = 20},
    {.temperature = 0.7f, .top_p = 0.8f, .repetition_penalty = 1.05f, .top_k = 20},
    {.temperature = 1.3f, .top_p = 0.95f, .repetition_penalty = 1.2f, .top_k = 64},
    {.temperature = 1, .top_p = 1, .repetition_penalty = 1, .top_k = 1},
    {.temperature = 1, .top_p = 1, .repetition_penalty = 1, .top_k = 300},
    {.temperature = 1, .top_p = 0.7f, .repetition_penalty = 1.05f, .top_k = 5000},
    {.temperature = 1, .top_p = 0.9f, .repetition_penalty = 1.05f},
    {.temperature = 2, .top_p = 1, .repetition_penalty = 1.05f},
    {.temperature = 0.05f, .top_p = 0.999f, .repetition_penalty = 1e9f, .top_k = 50},
};

static void compare(struct gpu_test_run *t, struct vocabulary *v, const struct sampling *p, const char *what)
{
    static const int rows[ROWS] = {2, -1, 0, 4, 3};
    const size_t words = (size_t)v->table.words / 2;
    float *want = gpu_host(t, (size_t)v->n * 4), *got = gpu_host(t, (size_t)v->n * 4);
    struct sampled out[ROWS];

    for (int i = 0; i < ROWS; i++)
        v->pos[i] = 17 + i;
    run(t, v, p, ROWS, rows, out, got);
    for (int i = 0; i < ROWS; i++) {
        int32_t token;
        float logprob;
        if (rows[i] < 0) {
            (void)gpu_expect(t, out[i].token == -1 && out[i].end == 0, "a place without a row gave %d", out[i].token);
            continue;
        }
        const float *z = v->logits + (size_t)i * (size_t)v->ld;
        const uint64_t *seen = v->seen + (size_t)rows[i] * words;
        (void)gpu_expect(t,
                         sampler_draw(v->cpu, z, v->used, p, seen,
                                      random_uniform(p->seed + (uint64_t)rows[i], (uint64_t)v->pos[i]), &token,
                                      &logprob),
                         "reference refuses");
        (void)gpu_expect(t, out[i].token == token, "%s, %d ids, T %g p %g k %d penalty %g: token %d, should be %d",
                         what, v->used, (double)p->temperature, (double)p->top_p, p->top_k,
                         (double)p->repetition_penalty, out[i].token, token);
        (void)gpu_expect(t, fabsf(out[i].logprob - logprob) < 1e-3f, "log-probability %g, should be %g",
                         (double)out[i].logprob, (double)logprob);
        (void)gpu_expect(t, out[i].end == (token == 3), "end %d", out[i].end);
        if (i > 0)
            continue;
        double wrong = 0;
        (void)gpu_expect(t, sampler_distribution(v->cpu, z, v->used, p, seen, want), "reference refuses");
        for (int id = 0; id < v->used; id++)
            wrong += fabs((double)want[id] - got[id]);
        (void)gpu_expect(t, wrong < 1e-3, "%s, %d ids, T %g p %g k %d: distributions differ by %.3g", what, v->used,
                         (double)p->temperature, (double)p->top_p, p->top_k, wrong);
    }
}

static void agrees(struct gpu_test_run *t)
{
    static const int sizes[][2] = {{130, 130}, {515, 513}, {1031, 1031}, {12006, 12005}, {120818, 120818}};

    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        struct vocabulary v;
        open_vocabulary(t, &v, sizes[s][0], sizes[s][1], ROWS);
        for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
            struct sampling p = settings[i];
            p.seed = 1234 + i;
            if (i % 3 != s % 3 && sizes[s][0] > 2000 && s != 4)
                continue;
            random_logits(t, &v, ROWS, i % 2 ? 3 : 1, false);
            compare(t, &v, &p, "random");
            if (sizes[s][0] <= 12006) {
                random_logits(t, &v, ROWS, 2, true);
                compare(t, &v, &p, "equal logits");
            }
        }
        sampler_close(v.cpu);
    }
}

/* 20,000 draws from a small distribution: their shares are its probabilities. */
static void draws_follow(struct gpu_test_run *t)
{
    enum { N = 20000, IDS = 40 };
    const struct sampling p = {.temperature = 1, .top_p = 0.95f, .repetition_penalty = 1, .top_k = 20, .seed = 7};
    struct vocabulary v;
    float *want = gpu_host(t, IDS * 4), *z = gpu_host(t, IDS * 4);
    struct sampled *out = gpu_host(t, N * sizeof *out);
    int *row = gpu_host(t, N * 4), count[IDS] = {0};
    double chi = 0;
    int kept = 0;

    open_vocabulary(t, &v, IDS, IDS, N);
    for (int i = 0; i < IDS; i++)
        z[i] = gpu_normal(t);
    for (int r = 0; r < N; r++) {
        memcpy(v.logits + (size_t)r * (size_t)v.ld, z, IDS * 4);
        row[r] = r;
        v.pos[r] = 5;
    }
    run(t, &v, &p, N, row, out, NULL);
    (void)gpu_expect(t, sampler_distribution(v.cpu, z, IDS, &p, v.seen, want), "reference refuses");
    for (int r = 0; r < N; r++)
        if (gpu_expect(t, out[r].token >= 0 && out[r].token < IDS, "token %d", out[r].token))
            count[out[r].token]++;
    for (int i = 0; i < IDS; i++) {
        (void)gpu_expect(t, want[i] > 0 || count[i] == 0, "id %d was drawn %d times and has no probability", i,
                         count[i]);
        if (want[i] > 0) {
            chi += pow(count[i] - N * (double)want[i], 2) / (N * (double)want[i]);
            kept++;
        }
    }
    (void)gpu_expect(t, chi < kept + 5 * sqrt(2.0 * kept), "chi-squared %.1f over %d ids", chi, kept);
    sampler_close(v.cpu);
}

static void bad_logits(struct gpu_test_run *t)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    static const int rows[ROWS] = {0, 1, 2, 3, 4};
    const struct sampling p = settings[2];
    struct vocabulary v;
    struct sampled out[ROWS];

    open_vocabulary(t, &v, 5000, 5000, ROWS);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        random_logits(t, &v, ROWS, 1, false);
        v.logits[(size_t)v.ld * 1 + 4999] = bad[i];
        run(t, &v, &p, ROWS, rows, out, NULL);
        for (int r = 0; r < ROWS; r++)
            (void)gpu_expect(t, (out[r].end == 3) == (r == 1), "row %d ends with %d", r, out[r].end);
    }
    sampler_close(v.cpu);
}

const struct gpu_test sample_tests[] = {{"sample/agrees_with_the_specification", agrees},
                                        {"sample/draws_follow_the_distribution", draws_follow},
                                        {"sample/a_row_that_is_not_finite_fails_alone", bad_logits},
                                        {NULL, NULL}};
