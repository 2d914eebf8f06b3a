/* Steps, prompts and whole workloads of a backend, beside floors from ceilings that the same run measures.
 * Everything goes through engine/backend.h and the engine, as in production; lengths are forced, so that no figure
 * hangs on when a random model happens to end. */
#include "cli/bench_device.h"

#include "base/clock.h"
#include "cli/cli.h"
#include "engine/engine.h"
#include "engine/random.h"

#include <jansson.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_COUNTS = 16,
    WARM_STEPS = 4,
    TIMED_STEPS = 28,
    PROMPT_TOKENS = 256,
    PROMPT_ROUNDS = 5,
    MAX_WORKLOAD_TOKENS = 256
};

struct bench {
    /* asked for */
    const char *shape, *backend;
    bool random_weights, json;
    int rows, step_tokens, jobs, context;
    int counts[MAX_COUNTS], n_counts;
    /* opened */
    const struct backend_ops *ops;
    struct model *m;
    struct backend *b;
    struct backend_info info;
    double ready_seconds, copy_rate, matrix_rate;
    json_t *out;
    int32_t *tokens; /* [context] random ids */
};

static const struct sampling real = {
    .temperature = 0.7f, .top_p = 0.6f, .top_k = 20, .repetition_penalty = 1.05f, .seed = 1};

/* --- what must be moved and computed --- */

static double layer_weights(const struct dims *d)
{
    const double h = d->hidden, q = (double)d->heads * d->head_dim, kv = (double)d->kv_heads * d->head_dim;

    return h * (q + 2 * kv) + q * h + 3 * h * d->inter;
}

static double decode_floor(const struct bench *k, int rows, double *bytes, double *flops)
{
    const struct dims *d = &k->m->dims;
    const double weights = layer_weights(d) * d->layers + (double)d->vocab * d->hidden;
    const double kv = 4.0 * d->layers * d->kv_heads * d->head_dim * k->context * rows;

    *bytes = 2 * weights + kv;
    *flops = 2 * weights * rows;
    const double move = *bytes / k->copy_rate, multiply = *flops / k->matrix_rate + kv / k->copy_rate;
    return move > multiply ? move : multiply;
}

static double prompt_flops(const struct dims *d, int length)
{
    /* a token's products, and its attention to half of the prompt on average */
    return 2 * layer_weights(d) * d->layers + 2.0 * d->layers * d->heads * d->head_dim * length;
}

/* --- steps --- */

static void make_tokens(struct bench *k, int32_t *to, int n, uint64_t seed)
{
    for (int i = 0; i < n; i++)
        to[i] = (int32_t)(random_uniform(seed, (uint64_t)i) * k->m->dims.vocab_used);
}

static enum err_code collect_one(struct bench *k, struct step_token *out, struct err *e)
{
    bool ready;

    return k->ops->collect(k->b, out, k->info.rows, true, &ready, e);
}

/* Rows 0..rows: row r has blocks r * per_row .. */
static enum err_code join_rows(struct bench *k, int rows, int n_tokens, int n_cached, int per_row, int max_length,
                               struct err *e)
{
    int32_t *blocks = malloc((size_t)per_row * sizeof *blocks);
    enum err_code rc = ERR_OK;

    if (!blocks)
        return err_set(e, ERR_NOMEM, ERR_STOP, "bench: out of memory");
    for (int r = 0; r < rows && rc == ERR_OK; r++) {
        for (int i = 0; i < per_row; i++)
            blocks[i] = r * per_row + i;
        struct row_join j = {.row = r,
                             .tokens = k->tokens,
                             .n_tokens = n_tokens,
                             .n_cached = n_cached,
                             .blocks = blocks,
                             .n_blocks = per_row,
                             .sampling = real,
                             .max_length = max_length};
        j.sampling.seed = (uint64_t)r;
        rc = k->ops->join(k->b, &j, e);
    }
    free(blocks);
    return rc;
}

/* Feeds n tokens of each of the rows; *seconds for all of them. */
static enum err_code feed_rows(struct bench *k, int rows, int n, struct step_row *plan, struct step_token *got,
                               double *seconds, struct err *e)
{
    const int each = k->info.step_tokens / n > 0 ? k->info.step_tokens / n : 1;
    const int64_t start = clock_mono_ns();
    int queued = 0;
    enum err_code rc = ERR_OK;

    for (int r = 0; r < rows && rc == ERR_OK; r += each) {
        const int some = rows - r < each ? rows - r : each;
        for (int i = 0; i < some; i++)
            plan[i] = (struct step_row){r + i, n};
        if (queued == k->info.run_ahead) {
            rc = collect_one(k, got, e);
            queued--;
        }
        if (rc == ERR_OK)
            rc = k->ops->step(k->b, plan, some, e);
        queued++;
    }
    while (rc == ERR_OK && queued-- > 0)
        rc = collect_one(k, got, e);
    *seconds = (double)(clock_mono_ns() - start) * 1e-9;
    return rc;
}

static enum err_code time_steps(struct bench *k, int rows, struct step_row *plan, struct step_token *got, double *ms,
                                struct err *e)
{
    int queued = 0, collected = 0;
    int64_t start = 0, now = 0;
    enum err_code rc = ERR_OK;

    for (int r = 0; r < rows; r++)
        plan[r] = (struct step_row){r, 0};
    for (int i = 0; i < WARM_STEPS + TIMED_STEPS && rc == ERR_OK; i++) {
        if (queued == k->info.run_ahead) {
            rc = collect_one(k, got, e);
            queued--;
            if (++collected == WARM_STEPS)
                start = clock_mono_ns();
        }
        if (rc == ERR_OK)
            rc = k->ops->step(k->b, plan, rows, e);
        queued++;
    }
    while (rc == ERR_OK && queued-- > 0) {
        rc = collect_one(k, got, e);
        now = clock_mono_ns();
        collected++;
    }
    *ms = (double)(now - start) * 1e-6 / (collected - WARM_STEPS);
    return rc;
}

static enum err_code bench_steps(struct bench *k, struct err *e)
{
    /* The rows' context grows through `context` while they are timed */
    const int first = k->context - (WARM_STEPS + TIMED_STEPS) / 2, longest = first + WARM_STEPS + TIMED_STEPS + 2;
    const int per_row = (longest + k->info.block_tokens - 1) / k->info.block_tokens;
    const int rows = k->info.rows < k->info.blocks / per_row ? k->info.rows : k->info.blocks / per_row;
    struct step_row *plan = calloc((size_t)k->info.rows, sizeof *plan);
    struct step_token *got = calloc((size_t)k->info.rows, sizeof *got);
    json_t *list = json_array();
    double seconds, unused;
    enum err_code rc = plan && got ? ERR_OK : err_set(e, ERR_NOMEM, ERR_STOP, "bench: out of memory");

    if (rc == ERR_OK && first < 1)
        rc = err_set(e, ERR_USAGE, ERR_STOP, "--context %d is too short, at least %d", k->context,
                     1 + (WARM_STEPS + TIMED_STEPS) / 2);
    /* Real keys and values for everybody first */
    if (rc == ERR_OK && (rc = join_rows(k, rows, first, 0, per_row, longest, e)) == ERR_OK)
        rc = feed_rows(k, rows, first, plan, got, &seconds, e);
    for (int i = 0; i < k->n_counts && rc == ERR_OK; i++) {
        const int n = k->counts[i];
        double ms, bytes, flops;
        if (n > rows)
            continue;
        if ((rc = join_rows(k, n, first, first - 1, per_row, longest, e)) != ERR_OK ||
            (rc = feed_rows(k, n, 1, plan, got, &unused, e)) != ERR_OK ||
            (rc = time_steps(k, n, plan, got, &ms, e)) != ERR_OK)
            break;
        const double floor_ms = decode_floor(k, n, &bytes, &flops) * 1e3;
        if (!k->json)
            printf("  %4d rows  %7.3f ms  floor %7.3f  %5.1f%%  %9.0f tokens/s\n", n, ms, floor_ms, 100 * floor_ms / ms,
                   n / ms * 1e3);
        (void)json_array_append_new(list, json_pack("{s:i,s:f,s:f,s:f}", "rows", n, "ms", ms, "floor_ms", floor_ms,
                                                    "tokens_per_s", n / ms * 1e3));
    }
    (void)json_object_set_new(k->out, "steps", list);
    for (int r = 0; r < rows && rc == ERR_OK; r++)
        rc = k->ops->leave(k->b, r, e);
    free(plan);
    free(got);
    return rc;
}

static enum err_code bench_prompts(struct bench *k, struct err *e)
{
    const int n = PROMPT_TOKENS < k->info.max_positions - 1 ? PROMPT_TOKENS : k->info.max_positions - 1;
    const int per_row = (n + 1 + k->info.block_tokens - 1) / k->info.block_tokens;
    int rows = k->info.step_tokens / n * 8;
    struct step_row *plan = calloc((size_t)k->info.rows, sizeof *plan);
    struct step_token *got = calloc((size_t)k->info.rows, sizeof *got);
    int32_t *all = k->tokens, *mine = malloc((size_t)n * sizeof *mine);
    double seconds = 1;
    enum err_code rc = plan && got && mine ? ERR_OK : err_set(e, ERR_NOMEM, ERR_STOP, "bench: out of memory");

    rows = rows < k->info.rows ? rows : k->info.rows;
    rows = rows < k->info.blocks / per_row ? rows : k->info.blocks / per_row;
    if (rc == ERR_OK) {
        make_tokens(k, mine, n, 3);
        k->tokens = mine;
        double all_rounds = 0;
        for (int round = -1; round < PROMPT_ROUNDS && rc == ERR_OK; round++) { /* the first one warms up */
            if ((rc = join_rows(k, rows, n, 0, per_row, n + 1, e)) == ERR_OK)
                rc = feed_rows(k, rows, n, plan, got, &seconds, e);
            all_rounds += round >= 0 ? seconds : 0;
        }
        seconds = all_rounds / PROMPT_ROUNDS;
        k->tokens = all;
    }
    if (rc == ERR_OK) {
        const double rate = rows * (double)n / seconds, share = rate * prompt_flops(&k->m->dims, n) / k->matrix_rate;
        if (!k->json)
            printf("prompts of %d tokens, %d a step: %.0f tokens/s, %.1f%% of the matrix rate\n", n,
                   k->info.step_tokens, rate, 100 * share);
        (void)json_object_set_new(k->out, "prompts",
                                  json_pack("{s:i,s:f,s:f}", "tokens_each", n, "tokens_per_s", rate, "of_matrix_rate",
                                            share));
    }
    for (int r = 0; r < rows && rc == ERR_OK; r++)
        rc = k->ops->leave(k->b, r, e);
    free(plan);
    free(got);
    free(mine);
    return rc;
}

/* --- workloads: everything offered at once, through the engine --- */

struct workload {
    const char *name;
    int in_least, in_most, out_least, out_most;
};

static const struct workload workloads[] = {{"64 in, 48 out", 64, 64, 48, 48},
                                            {"128 in, 128 out", 128, 128, 128, 128},
                                            {"mixed", 32, 88, 8, 72}};

struct bench_job {
    struct request r;
    int32_t prompt[MAX_WORKLOAD_TOKENS], output[MAX_WORKLOAD_TOKENS];
};

static int between(int least, int most, uint64_t at)
{
    return least + (int)(random_uniform(11, at) * (most - least + 1));
}

static int by_time(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

static enum err_code run_workload(struct bench *k, struct engine *en, struct bench_job *jobs, struct request **reqs,
                                  double *seconds, struct err *e)
{
    struct request *done[512];
    const int64_t start = clock_mono_ns();
    enum err_code rc = engine_submit(en, reqs, k->jobs, e);

    for (int left = k->jobs, n; left > 0 && rc == ERR_OK; left -= n) {
        n = 0;
        rc = engine_step(en, done, 512, &n, e);
    }
    *seconds = (double)(clock_mono_ns() - start) * 1e-9;
    for (int i = 0; i < k->jobs && rc == ERR_OK; i++)
        if (jobs[i].r.n_output != jobs[i].r.max_output)
            rc = err_set(e, ERR_DEVICE, ERR_STOP, "bench: job %d gave %d tokens of %d (%s): %s", i, jobs[i].r.n_output,
                         jobs[i].r.max_output, finish_name(jobs[i].r.finish), jobs[i].r.error.msg);
    return rc;
}

/* Seconds; ns is sorted. */
static double percentile(const int64_t *ns, int n, int percent)
{
    const int i = n * percent / 100;

    return (double)ns[i] * 1e-9;
}

static void report_workload(struct bench *k, const struct workload *w, const struct bench_job *jobs, double seconds,
                            double busy, double rows_a_step, json_t *list)
{
    int64_t *ns = malloc((size_t)k->jobs * sizeof *ns);
    double in = 0, out = 0;

    if (!ns)
        return;
    for (int i = 0; i < k->jobs; i++) {
        ns[i] = jobs[i].r.finished_ns - jobs[i].r.submitted_ns;
        in += jobs[i].r.n_prompt;
        out += jobs[i].r.n_output;
    }
    qsort(ns, (size_t)k->jobs, sizeof *ns, by_time);
    const double p50 = percentile(ns, k->jobs, 50), p95 = percentile(ns, k->jobs, 95),
                 p99 = percentile(ns, k->jobs, 99);
    if (!k->json)
        printf("  %-16s %7.0f jobs/s  %8.0f tokens in/s  %8.0f out/s  p50 %.3f s, p95 %.3f, p99 %.3f  card busy "
               "%.1f%%  %.0f rows a step\n",
               w->name, k->jobs / seconds, in / seconds, out / seconds, p50, p95, p99, 100 * busy / seconds,
               rows_a_step);
    (void)json_array_append_new(list, json_pack("{s:s,s:i,s:f,s:f,s:f,s:f,s:f,s:f,s:f}", "name", w->name, "jobs",
                                                k->jobs, "jobs_per_s", k->jobs / seconds, "tokens_in_per_s",
                                                in / seconds, "tokens_out_per_s", out / seconds, "p50_s", p50, "p95_s",
                                                p95, "p99_s", p99, "busy", busy / seconds));
    free(ns);
}

static enum err_code bench_workloads(struct bench *k, struct err *e)
{
    struct bench_job *jobs = calloc((size_t)k->jobs, sizeof *jobs);
    struct request **reqs = calloc((size_t)k->jobs, sizeof *reqs);
    json_t *list = json_array();
    enum err_code rc = jobs && reqs ? ERR_OK : err_set(e, ERR_NOMEM, ERR_STOP, "bench: out of memory");

    for (size_t i = 0; i < sizeof workloads / sizeof *workloads && rc == ERR_OK; i++) {
        const struct workload *w = &workloads[i];
        const struct engine_options o = {.max_requests = k->jobs,
                                         .max_sequence = w->in_most + w->out_most,
                                         .prefix_cache = true,
                                         .weights_key = i + 1};
        struct engine *en;
        struct engine_stats stats;
        double seconds, busy = k->ops->busy_seconds ? k->ops->busy_seconds(k->b) : 0;

        if (o.max_sequence > k->info.max_positions)
            continue;
        for (int j = 0; j < k->jobs; j++) {
            struct bench_job *job = &jobs[j];
            job->r = (struct request){.prompt = job->prompt,
                                      .n_prompt = between(w->in_least, w->in_most, (uint64_t)j * 2),
                                      .max_output = between(w->out_least, w->out_most, (uint64_t)j * 2 + 1),
                                      .sampling = real,
                                      .output = job->output};
            job->r.sampling.seed = (uint64_t)j;
            make_tokens(k, job->prompt, job->r.n_prompt, 1000 + (uint64_t)j);
            reqs[j] = &job->r;
        }
        if ((rc = engine_open(&en, k->ops, k->b, &o, e)) != ERR_OK)
            break;
        rc = run_workload(k, en, jobs, reqs, &seconds, e);
        engine_get_stats(en, &stats);
        engine_close(en);
        if (rc == ERR_OK)
            report_workload(k, w, jobs, seconds, k->ops->busy_seconds ? k->ops->busy_seconds(k->b) - busy : 0,
                            stats.steps ? (double)stats.rows_in_steps / (double)stats.steps : 0, list);
    }
    (void)json_object_set_new(k->out, "workloads", list);
    free(jobs);
    free(reqs);
    return rc;
}

/* --- start --- */

static enum err_code open_all(struct bench *k, struct err *e)
{
    struct backend_options o = {.rows = k->rows,
                                .step_tokens = k->step_tokens,
                                .max_positions = 1024,
                                .memory_fraction = 0.9,
                                .deterministic = true};
    const int64_t start = clock_mono_ns();
    enum err_code rc = backend_find(&k->ops, k->backend, e);

    if (rc == ERR_OK)
        rc = k->random_weights ? model_open_shape(&k->m, k->shape, e) : model_open(&k->m, k->shape, e);
    if (rc != ERR_OK)
        return rc;
    if (k->m->dims.max_positions < o.max_positions)
        o.max_positions = k->m->dims.max_positions;
    o.random_weights = k->random_weights;
    if ((rc = k->ops->open(&k->b, k->m, &o, e)) != ERR_OK)
        return rc;
    k->ready_seconds = (double)(clock_mono_ns() - start) * 1e-9;
    k->ops->info(k->b, &k->info);
    if (k->context > k->info.max_positions - TIMED_STEPS)
        k->context = k->info.max_positions - TIMED_STEPS;
    k->tokens = malloc((size_t)k->info.max_positions * sizeof *k->tokens);
    if (!k->tokens)
        return err_set(e, ERR_NOMEM, ERR_STOP, "bench: out of memory");
    make_tokens(k, k->tokens, k->info.max_positions, 2);
    if (!k->ops->ceilings)
        return err_set(e, ERR_UNSUPPORTED, ERR_STOP, "backend %s does not measure its device", k->ops->name);
    return k->ops->ceilings(k->b, &k->copy_rate, &k->matrix_rate, e);
}

static void report_start(struct bench *k)
{
    const double gib = 1 << 30;
    const struct backend_info *i = &k->info;

    if (!k->json) {
        printf("%s on %s: %s weights, ready in %.2f s\n", k->shape, i->device, k->random_weights ? "random" : "real",
               k->ready_seconds);
        printf("memory: weights %.2f GiB, KV %.2f GiB (%d blocks of %d tokens: %lld), workspace %.2f GiB; %.2f of %.2f "
               "GiB were free\n",
               (double)i->weight_bytes / gib, (double)i->kv_bytes / gib, i->blocks, i->block_tokens,
               (long long)i->blocks * i->block_tokens, (double)i->workspace_bytes / gib, (double)i->free_bytes / gib,
               (double)i->total_bytes / gib);
        printf("ceilings: copy %.2f TB/s, bf16 products %.0f TFLOP/s\n", k->copy_rate * 1e-12, k->matrix_rate * 1e-12);
        printf("steps with %d tokens of context, temperature 0.7, top-p 0.6, top-k 20, penalty 1.05:\n", k->context);
    }
    (void)json_object_update_new(k->out, json_pack("{s:s,s:s,s:f,s:I,s:I,s:I,s:i,s:f,s:f,s:i}", "shape", k->shape,
                                                   "device", i->device, "ready_s", k->ready_seconds, "weight_bytes",
                                                   (json_int_t)i->weight_bytes, "kv_bytes", (json_int_t)i->kv_bytes,
                                                   "workspace_bytes", (json_int_t)i->workspace_bytes, "rows", i->rows,
                                                   "copy_bytes_per_s", k->copy_rate, "matrix_flops_per_s",
                                                   k->matrix_rate, "context", k->context));
}

static bool parse_counts(struct bench *k, const char *text)
{
    k->n_counts = 0;
    while (*text && k->n_counts < MAX_COUNTS) {
        char *end;
        const long n = strtol(text, &end, 10);
        if (end == text || n < 1 || n > 1 << 20 || (*end && *end != ','))
            return false;
        k->counts[k->n_counts++] = (int)n;
        text = *end ? end + 1 : end;
    }
    return k->n_counts > 0;
}

static bool parse_int(const char *text, int least, int *out)
{
    char *end;
    const long n = text ? strtol(text, &end, 10) : -1;

    if (!text || !*text || *end || n < least || n > 1 << 24)
        return false;
    *out = (int)n;
    return true;
}

static bool parse(struct bench *k, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *v = i + 1 < argc ? argv[i + 1] : NULL;

        if (strcmp(a, "--random-weights") == 0)
            k->random_weights = true;
        else if (strcmp(a, "--json") == 0)
            k->json = true;
        else if (strcmp(a, "--shape") == 0 && v)
            k->shape = v, i++;
        else if (strcmp(a, "--backend") == 0 && v)
            k->backend = v, i++;
        else if (strcmp(a, "--rows") == 0 && parse_int(v, 0, &k->rows))
            i++;
        else if (strcmp(a, "--step-tokens") == 0 && parse_int(v, 0, &k->step_tokens))
            i++;
        else if (strcmp(a, "--jobs") == 0 && parse_int(v, 0, &k->jobs))
            i++;
        else if (strcmp(a, "--context") == 0 && parse_int(v, 1, &k->context))
            i++;
        else if (strcmp(a, "--rows-list") == 0 && v && parse_counts(k, v))
            i++;
        else
            return false;
    }
    return k->shape != NULL;
}

int bench_device(int argc, char **argv)
{
    struct bench k = {.backend = "auto", .jobs = 2048, .context = 256};
    struct err e = {0};
    enum err_code rc;

    (void)parse_counts(&k, "1,8,32,64,128,256,512");
    if (!parse(&k, argc, argv)) {
        fprintf(stderr, "usage: bench --shape 1.8b|7b|FOLDER [--random-weights] [--backend NAME] [--rows N] "
                        "[--step-tokens N] [--rows-list A,B,...] [--jobs N] [--context N] [--json]\n");
        return EXIT_USAGE;
    }
    if (strcmp(k.shape, "1.8b") == 0 || strcmp(k.shape, "7b") == 0)
        k.random_weights = true;
    k.out = json_object();
    rc = open_all(&k, &e);
    if (rc == ERR_OK) {
        report_start(&k);
        rc = bench_steps(&k, &e);
    }
    if (rc == ERR_OK)
        rc = bench_prompts(&k, &e);
    if (rc == ERR_OK && k.jobs > 0) {
        if (!k.json)
            printf("workloads, %d jobs offered at once, lengths forced:\n", k.jobs);
        rc = bench_workloads(&k, &e);
    }
    if (rc == ERR_OK && k.json) {
        (void)json_dumpf(k.out, stdout, JSON_INDENT(2));
        printf("\n");
    }
    if (k.b)
        k.ops->close(k.b);
    model_close(k.m);
    free(k.tokens);
    json_decref(k.out);
    return rc == ERR_OK ? EXIT_OK : cli_fail(&e);
}
