/* golden -- checks a backend against folders of known figures:
 *
 *   build/golden [--backend NAME] [--logits-tolerance X] [--gap X] [--sampling-tolerance X] DIR...
 *
 * A folder is a checkpoint beside expected_logits.safetensors, expected.json and expected_sampling.json (computed in
 * float64).  One line a check with its worst figure; exit code 1 when one fails.
 *   logits     ||out - ref|| / ||ref|| over the last positions of each prompt, fed whole, singly and by sevens
 *   greedy     the continuation, alone and with all cases in one batch; after a different token at a gap to the
 *              runner-up below --gap the rest of a case says nothing and is left out
 *   sampling   largest difference of a probability */
#include "base/json.h"
#include "cpu/cpu_backend.h"
#include "engine/backend.h"
#include "model/model.h"
#include "model/safetensors.h"
#include "tests/support/decode.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CASES = 32, MAX_OUTPUT = 256, MAX_JSON = 64 << 20 };

struct limits {
    double logits, gap, sampling;
};

struct check {
    const struct backend_ops *ops;
    struct backend *b;
    struct model *m;
    struct limits limits;
    const char *dir;
    int failed;
};

/* --- reading --- */

static json_t *load(const struct check *c, const char *file, struct err *e)
{
    char path[1024];
    json_t *j = NULL;

    snprintf(path, sizeof path, "%s/%s", c->dir, file);
    if (json_load_path(&j, path, MAX_JSON, e) != ERR_OK)
        return NULL;
    if (!json_is_array(json_object_get(j, "cases"))) {
        (void)err_set(e, ERR_USAGE, ERR_STOP, "%s: no cases", path);
        json_decref(j);
        return NULL;
    }
    return j;
}

static int32_t *ids(const json_t *array, int *n)
{
    int32_t *out;

    *n = (int)json_array_size(array);
    if (!(out = calloc((size_t)*n + 1, sizeof *out)))
        abort();
    for (int i = 0; i < *n; i++)
        out[i] = (int32_t)json_integer_value(json_array_get(array, (size_t)i));
    return out;
}

static void say(struct check *c, const char *what, bool ok, const char *figures)
{
    printf("%-28s %-12s %-4s  %s\n", c->dir, what, ok ? "PASS" : "FAIL", figures);
    c->failed += !ok;
}

static enum err_code say_error(struct check *c, const char *what, const struct err *e)
{
    say(c, what, false, e->msg);
    return e->code;
}

/* What is not a number is worse than anything. */
static void raise_to(double *worst, double x)
{
    if (!(x <= *worst))
        *worst = isnan(x) ? INFINITY : x;
}

/* --- logits --- */

static double relative(const float *out, const float *ref, size_t n)
{
    double d = 0, r = 0;

    for (size_t i = 0; i < n; i++) {
        d += ((double)out[i] - ref[i]) * ((double)out[i] - ref[i]);
        r += (double)ref[i] * ref[i];
    }
    return sqrt(d / r);
}

/* Raises *worst to the relative error of case i; INFINITY where it cannot be compared. */
static enum err_code check_case_logits(struct check *c, const struct safetensors *s, const json_t *kase, size_t i,
                                       int chunk, double *worst, struct err *e)
{
    char name[32];
    const struct st_tensor *t;
    int n, last;
    int32_t *prompt = ids(json_object_get(kase, "prompt"), &n);
    size_t vocab = (size_t)c->m->dims.vocab;
    float *out = NULL;
    enum err_code rc = ERR_OK;

    snprintf(name, sizeof name, "logits.%zu", i);
    t = safetensors_find(s, name);
    if (!t || t->n_dims != 2 || t->shape[1] != (int64_t)vocab || strcmp(t->dtype, "F32") != 0) {
        rc = err_set(e, ERR_USAGE, ERR_STOP, "%s: %s is missing or has another shape", safetensors_path(s), name);
        goto out;
    }
    last = (int)t->shape[0];
    if (!(out = calloc((size_t)last * vocab, sizeof *out)))
        abort();
    if ((rc = c->ops->logits(c->b, prompt, n, last, chunk, out, e)) == ERR_OK)
        raise_to(worst, relative(out, t->data, (size_t)last * vocab));
out:
    free(out);
    free(prompt);
    return rc;
}

static enum err_code check_logits(struct check *c, const json_t *cases, struct err *e)
{
    static const int chunks[] = {0, 1, 7};
    char path[1024], text[128];
    struct safetensors *s = NULL;
    const json_t *kase;
    size_t i;
    enum err_code rc;

    snprintf(path, sizeof path, "%s/expected_logits.safetensors", c->dir);
    if ((rc = safetensors_open(&s, path, e)) != ERR_OK)
        return say_error(c, "logits", e);
    for (size_t k = 0; k < sizeof chunks / sizeof *chunks; k++) {
        double worst = 0;

        json_array_foreach(cases, i, kase) if ((rc = check_case_logits(c, s, kase, i, chunks[k], &worst, e)) != ERR_OK)
        {
            say_error(c, "logits", e);
            goto out;
        }
        snprintf(text, sizeof text, "%zu cases, chunk %d: worst relative error %.2e (limit %.0e)",
                 json_array_size(cases), chunks[k], worst, c->limits.logits);
        say(c, "logits", json_array_size(cases) > 0 && worst <= c->limits.logits, text);
    }
out:
    safetensors_close(s);
    return rc;
}

/* --- greedy continuations --- */

struct greedy {
    int tokens, agree, excused; /* compared, equal, cases that parted at a small gap */
};

static void compare_greedy(const struct check *c, const json_t *kase, const struct decode_job *j, struct greedy *g)
{
    const json_t *want = json_object_get(kase, "greedy"), *gaps = json_object_get(kase, "gaps");

    for (int i = 0; i < j->max_output; i++) {
        double gap = json_number_value(json_array_get(gaps, (size_t)i));

        g->tokens++;
        if (i < j->n_output && j->output[i] == json_integer_value(json_array_get(want, (size_t)i))) {
            g->agree++;
            continue;
        }
        if (gap <= c->limits.gap && i < j->n_output) {
            g->tokens--;
            g->excused++;
        }
        return;
    }
}

static enum err_code check_greedy(struct check *c, const json_t *cases, bool together, struct err *e)
{
    struct decode_job jobs[MAX_CASES] = {0};
    static int32_t output[MAX_CASES][MAX_OUTPUT];
    static float logprobs[MAX_CASES][MAX_OUTPUT];
    int n = 0;
    struct greedy g = {0};
    char text[128];
    const json_t *kase;
    size_t i;
    enum err_code rc = ERR_OK;

    json_array_foreach(cases, i, kase)
    {
        int want = (int)json_array_size(json_object_get(kase, "greedy"));
        struct decode_job *j = &jobs[n];

        if (n == MAX_CASES || want < 1 || want > MAX_OUTPUT)
            break;
        *j = (struct decode_job){.max_output = want, .sampling = decode_greedy(), .chunk = together ? 7 : 0};
        j->prompt = ids(json_object_get(kase, "prompt"), &j->n_prompt);
        j->output = output[n];
        j->logprobs = logprobs[n++];
    }
    for (int k = 0; k < n && !together && rc == ERR_OK; k++)
        rc = decode_jobs(c->ops, c->b, &jobs[k], 1, e);
    if (together)
        rc = decode_jobs(c->ops, c->b, jobs, n, e);
    for (int k = 0; k < n; k++) {
        if (rc == ERR_OK)
            compare_greedy(c, json_array_get(cases, (size_t)k), &jobs[k], &g);
        free((void *)jobs[k].prompt);
    }
    if (rc != ERR_OK)
        return say_error(c, "greedy", e);
    snprintf(text, sizeof text, "%d cases %s: %d of %d tokens equal, %d cases left out from a gap below %.0e on", n,
             together ? "in one batch" : "alone", g.agree, g.tokens, g.excused, c->limits.gap);
    say(c, "greedy", n > 0 && g.agree == g.tokens, text);
    return ERR_OK;
}

/* --- sampling --- */

static enum err_code check_distribution(struct check *c, const json_t *kase, float *out, double *worst, struct err *e)
{
    struct sampling s = {
        .temperature = (float)json_number_value(json_object_get(kase, "temperature")),
        .top_p = (float)json_number_value(json_object_get(kase, "top_p")),
        .repetition_penalty = (float)json_number_value(json_object_get(kase, "repetition_penalty")),
        .top_k = (int)json_integer_value(json_object_get(kase, "top_k")),
    };
    const json_t *want = json_object_get(kase, "probabilities");
    int n;
    int32_t *prompt = ids(json_object_get(kase, "ids"), &n);
    enum err_code rc = c->ops->distribution(c->b, prompt, n, &s, out, e);
    char key[16];

    for (int id = 0; rc == ERR_OK && id < c->m->dims.vocab; id++) {
        snprintf(key, sizeof key, "%d", id);
        raise_to(worst, fabs(out[id] - json_number_value(json_object_get(want, key))));
    }
    free(prompt);
    return rc;
}

static enum err_code check_sampling(struct check *c, struct err *e)
{
    json_t *j = load(c, "expected_sampling.json", e);
    const json_t *cases, *kase;
    float *out = calloc((size_t)c->m->dims.vocab, sizeof *out);
    double worst = 0;
    char text[128];
    size_t i;
    enum err_code rc = j ? ERR_OK : e->code;

    if (!out)
        abort();
    cases = json_object_get(j, "cases");
    json_array_foreach(cases, i, kase) if (rc == ERR_OK) rc = check_distribution(c, kase, out, &worst, e);
    if (rc == ERR_OK) {
        snprintf(text, sizeof text, "%zu cases: worst difference of a probability %.2e (limit %.0e)",
                 json_array_size(cases), worst, c->limits.sampling);
        say(c, "sampling", json_array_size(cases) > 0 && worst <= c->limits.sampling, text);
    } else {
        say_error(c, "sampling", e);
    }
    free(out);
    json_decref(j);
    return rc;
}

/* --- a folder --- */

static enum err_code open_backend(struct check *c, struct err *e)
{
    struct backend_options o = {.rows = MAX_CASES,
                                .max_positions = 1024,
                                .deterministic = true,
                                .memory_fraction = 0.3};
    enum err_code rc = model_open(&c->m, c->dir, e);

    if (rc == ERR_OK)
        rc = c->ops->open(&c->b, c->m, &o, e);
    return rc;
}

static int check_folder(const struct backend_ops *ops, const struct limits *limits, const char *dir)
{
    struct check c = {.ops = ops, .limits = *limits, .dir = dir};
    struct err e = {0};
    json_t *j = NULL;
    enum err_code rc = open_backend(&c, &e);

    if (rc == ERR_OK && !(j = load(&c, "expected.json", &e)))
        rc = e.code;
    if (rc != ERR_OK) {
        say_error(&c, "open", &e);
    } else {
        (void)check_logits(&c, json_object_get(j, "cases"), &e); /* each says its own failure */
        (void)check_greedy(&c, json_object_get(j, "cases"), false, &e);
        (void)check_greedy(&c, json_object_get(j, "cases"), true, &e);
        (void)check_sampling(&c, &e);
    }
    json_decref(j);
    if (c.b)
        ops->close(c.b);
    model_close(c.m);
    return c.failed;
}

static bool take_number(const char *arg, const char *value, double *out)
{
    char *end;

    *out = value ? strtod(value, &end) : 0;
    if (value && *value && !*end && *out > 0)
        return true;
    fprintf(stderr, "golden: %s needs a number above 0\n", arg);
    return false;
}

static bool parse(int argc, char **argv, const char **backend, struct limits *l, int *first)
{
    int i = 1;

    for (; i < argc && argv[i][0] == '-'; i += 2) {
        const char *arg = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;

        if (strcmp(arg, "--backend") == 0 && value)
            *backend = value;
        else if (strcmp(arg, "--logits-tolerance") == 0 && take_number(arg, value, &l->logits))
            continue;
        else if (strcmp(arg, "--gap") == 0 && take_number(arg, value, &l->gap))
            continue;
        else if (strcmp(arg, "--sampling-tolerance") == 0 && take_number(arg, value, &l->sampling))
            continue;
        else
            return false;
    }
    *first = i;
    return i < argc;
}

int main(int argc, char **argv)
{
    struct limits limits = {.logits = 1e-4, .gap = 1e-2, .sampling = 1e-4};
    const char *name = "cpu";
    const struct backend_ops *ops;
    struct err e = {0};
    int first, failed = 0;

    if (!parse(argc, argv, &name, &limits, &first)) {
        fprintf(stderr, "usage: golden [--backend NAME] [--logits-tolerance X] [--gap X] [--sampling-tolerance X] "
                        "DIR...\n");
        return 2;
    }
    backend_register(&backend_cpu_ops);
    if (backend_find(&ops, name, &e) != ERR_OK) {
        fprintf(stderr, "golden: %s\n", e.msg);
        return 2;
    }
    for (int i = first; i < argc; i++)
        failed += check_folder(ops, &limits, argv[i]);
    printf("golden: %d folders, backend %s: %s\n", argc - first, ops->name, failed ? "FAIL" : "PASS");
    return failed ? 1 : 0;
}
