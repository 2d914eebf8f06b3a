#include "worker/plan.h"

#include "base/clock.h"
#include "base/hash.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct planner {
    const struct prompt *prompt;
    const struct generation *defaults;
    struct plan_limits limits;
    struct encoder *encoder;
    int32_t *scratch; /* [limits.max_input] */
};

static int min(int a, int b)
{
    return a < b ? a : b;
}

enum err_code plan_limits(struct plan_limits *out, const struct limits_config *c, const struct dims *dims,
                          const struct backend_info *info, struct err *e)
{
    int longest = dims->max_positions;

    if (info && info->max_positions > 0)
        longest = min(longest, info->max_positions);
    if (info && info->blocks > 0 && (int64_t)info->blocks * info->block_tokens < longest)
        longest = info->blocks * info->block_tokens;
    if (!info && c->max_sequence_tokens > dims->max_positions)
        return err_set(e, ERR_CONFIG, ERR_STOP, "limits.max_sequence_tokens: found %d, the model allows at most %d",
                       c->max_sequence_tokens, dims->max_positions);
    out->max_sequence = min(longest, c->max_sequence_tokens > 0 ? c->max_sequence_tokens : PLAN_MAX_SEQUENCE);
    out->max_input = c->max_input_tokens > 0 ? c->max_input_tokens : out->max_sequence / 2;
    if (out->max_input >= out->max_sequence)
        out->max_input = out->max_sequence - 1;
    out->max_output = min(c->max_output_tokens, out->max_sequence - 1);
    if (out->max_input < 1 || out->max_output < 1)
        return err_set(e, ERR_CONFIG, ERR_STOP,
                       "limits: a sequence of %d tokens leaves no room for a prompt and its answer", out->max_sequence);
    return ERR_OK;
}

struct backend_options plan_backend(const struct engine_config *c, const struct plan_limits *l)
{
    return (struct backend_options){.rows = c->rows,
                                    .block_tokens = c->block_tokens,
                                    .step_tokens = c->step_tokens,
                                    .max_positions = l->max_sequence,
                                    .kv_bytes = (size_t)c->kv_memory_mb << 20,
                                    .memory_fraction = c->gpu_memory_fraction,
                                    .device = c->device,
                                    .threads = c->threads,
                                    .deterministic = c->deterministic};
}

enum err_code planner_open(struct planner **out, const struct prompt *p, const struct tokenizer *t,
                           const struct generation *defaults, const struct plan_limits *l, struct err *e)
{
    enum err_code rc;
    struct planner *pl = calloc(1, sizeof *pl);

    *out = NULL;
    if (!pl)
        return err_set(e, ERR_NOMEM, ERR_STOP, "planner: no memory");
    pl->prompt = p;
    pl->defaults = defaults;
    pl->limits = *l;
    pl->scratch = malloc((size_t)l->max_input * sizeof pl->scratch[0]);
    if (!pl->scratch) {
        rc = err_set(e, ERR_NOMEM, ERR_STOP, "planner: no memory");
        goto out;
    }
    if ((rc = encoder_open(&pl->encoder, t, e)) != ERR_OK)
        goto out;
    *out = pl;
    pl = NULL;
out:
    planner_close(pl);
    return rc;
}

void planner_close(struct planner *p)
{
    if (!p)
        return;
    encoder_close(p->encoder);
    free(p->scratch);
    free(p);
}

static enum err_code find_language(const struct language **out, const struct text *name, const char *field,
                                   struct err *e)
{
    char z[64];

    *out = NULL;
    if (name->n < sizeof z && !memchr(name->s, '\0', name->n)) {
        memcpy(z, name->s, name->n);
        z[name->n] = '\0';
        *out = language_find(z);
    }
    if (*out)
        return ERR_OK;
    return err_set(e, ERR_UNKNOWN_LANGUAGE, ERR_SKIP, "%s: \"%.*s\" is no language of the model; " LANGUAGES_ALLOWED,
                   field, (int)(name->n < 40 ? name->n : 40), name->s);
}

/* What other issues will bring is refused by name: a translation that ignores its glossary would look like one that
 * obeyed it. */
static enum err_code check_supported(const struct job *j, struct err *e)
{
    const char *field = j->context.n > 0          ? "context"
                        : j->n_glossary > 0       ? "glossary"
                        : j->format == JOB_TAGGED ? "format TAGGED"
                                                  : NULL;

    if (!field)
        return ERR_OK;
    return err_set(e, ERR_UNSUPPORTED, ERR_SKIP, "%s: this version translates plain text without it", field);
}

static enum err_code out_of_range(const char *field, double found, const char *allowed, struct err *e)
{
    return err_set(e, ERR_INVALID_FIELD, ERR_SKIP, "options.%s: found %g, allowed is %s", field, found, allowed);
}

enum err_code plan_sampling(struct sampling *s, const struct job *j, const struct generation *g, struct err *e)
{
    double temperature = j->has_temperature ? j->temperature : g->do_sample ? (double)g->temperature : 0;
    double top_p = j->has_top_p ? j->top_p : (double)g->top_p;
    double penalty = j->has_repetition_penalty ? j->repetition_penalty : (double)g->repetition_penalty;
    int top_k = j->has_top_k ? j->top_k : g->top_k;

    if (!(temperature >= 0 && temperature <= 100)) /* so written, a NaN is refused too */
        return out_of_range("temperature", temperature, "0 (greedy) to 100", e);
    if (!(top_p > 0 && top_p <= 1))
        return out_of_range("top_p", top_p, "above 0, at most 1 (off)", e);
    if (!(penalty >= 0.01 && penalty <= 100))
        return out_of_range("repetition_penalty", penalty, "0.01 to 100; 1 is off", e);
    if (top_k < 0)
        return out_of_range("top_k", top_k, "0 (off) and more", e);
    *s = (struct sampling){.temperature = (float)temperature,
                           .top_p = (float)top_p,
                           .repetition_penalty = (float)penalty,
                           .top_k = top_k,
                           /* 63 bits: results echo it in a signed field */
                           .seed = j->has_seed ? (uint64_t)j->seed : hash_bytes(j->job_id.s, j->job_id.n, 0) >> 1};
    return ERR_OK;
}

int plan_max_output(const struct plan_limits *l, const struct job *j, int n_prompt, int n_source)
{
    int64_t n =
        j->has_max_output_tokens ? j->max_output_tokens : PLAN_OUTPUT_BASE + (int64_t)PLAN_OUTPUT_RATIO * n_source;

    if (n > l->max_output)
        n = l->max_output;
    if (n > l->max_sequence - n_prompt)
        n = l->max_sequence - n_prompt;
    return (int)n;
}

enum err_code plan_header_deadline(struct job *j, const struct record *r, struct err *e)
{
    const struct header *h = record_find_header(r, PLAN_DEADLINE_HEADER);
    char text[24] = "", *end;

    if (!h)
        return ERR_OK;
    if (h->value && h->size < sizeof text)
        memcpy(text, h->value, h->size);
    errno = 0;
    long long ms = strtoll(text, &end, 10);
    if (!text[0] || isspace((unsigned char)text[0]) || end != text + h->size || errno != 0)
        return err_set(e, ERR_INVALID_FIELD, ERR_SKIP,
                       "header " PLAN_DEADLINE_HEADER ": found \"%.*s\" (%zu bytes), allowed is a whole number of "
                       "milliseconds since 1970",
                       h->value ? (int)(h->size < 40 ? h->size : 40) : 0, h->value ? (const char *)h->value : "",
                       h->size);
    if (!j->has_deadline || ms < j->deadline_ms)
        j->deadline_ms = ms;
    j->has_deadline = true;
    return ERR_OK;
}

/* Wall-clock deadline to the engine's monotonic one; a far one is as good as none. */
static enum err_code plan_deadline(int64_t *out, const struct job *j, int64_t now_mono_ns, int64_t now_wall_ms,
                                   struct err *e)
{
    *out = 0;
    if (!j->has_deadline)
        return ERR_OK;
    if (j->deadline_ms <= now_wall_ms)
        return err_set(e, ERR_DEADLINE_PASSED, ERR_SKIP, "deadline: %lld ms ago when the job was read",
                       (long long)(now_wall_ms - (j->deadline_ms < 0 ? 0 : j->deadline_ms)));
    if (j->deadline_ms - now_wall_ms < 365LL * 24 * 3600 * 1000)
        *out = now_mono_ns + (j->deadline_ms - now_wall_ms) * NS_PER_MS;
    return ERR_OK;
}

static enum err_code check_job(struct task *t, struct err *e)
{
    struct job *j = &t->job;
    enum err_code rc;

    if ((rc = job_check(j, e)) != ERR_OK)
        return rc;
    if ((rc = find_language(&t->to, &j->target_lang, "target_lang", e)) != ERR_OK)
        return rc;
    if (j->source_lang.n > 0 && (rc = find_language(&t->from, &j->source_lang, "source_lang", e)) != ERR_OK)
        return rc;
    if (j->has_max_output_tokens && j->max_output_tokens < 1)
        return out_of_range("max_output_tokens", j->max_output_tokens, "1 and more", e);
    return check_supported(j, e);
}

enum err_code planner_plan(struct planner *p, struct task *t, int64_t now_mono_ns, int64_t now_wall_ms, struct err *e)
{
    struct request *r = &t->request;
    size_t n, n_prefix;
    enum err_code rc;
    int32_t *ids;

    if ((rc = check_job(t, e)) != ERR_OK || (rc = plan_sampling(&r->sampling, &t->job, p->defaults, e)) != ERR_OK ||
        (rc = plan_deadline(&r->deadline_ns, &t->job, now_mono_ns, now_wall_ms, e)) != ERR_OK)
        return rc;
    rc = prompt_build(p->prompt, p->encoder, t->from, t->to, t->job.text.s, t->job.text.n, p->scratch,
                      (size_t)p->limits.max_input, &n, &n_prefix, e);
    if (rc == ERR_TEXT_TOO_LONG)
        return err_set(e, ERR_TEXT_TOO_LONG, ERR_SKIP,
                       "text: %zu bytes give more than %d tokens of prompt (limits.max_input_tokens)", t->job.text.n,
                       p->limits.max_input);
    if (rc != ERR_OK)
        return rc;
    r->max_output = plan_max_output(&p->limits, &t->job, (int)n, (int)(n - n_prefix));
    if ((rc = task_take_ids(t, n + (size_t)r->max_output, &ids, e)) != ERR_OK)
        return rc;
    memcpy(ids, p->scratch, n * sizeof ids[0]);
    r->prompt = ids;
    r->n_prompt = (int)n;
    r->output = ids + n;
    r->priority = t->job.priority;
    r->owner = t;
    return ERR_OK;
}
