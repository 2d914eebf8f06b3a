#include "wire/message.h"

#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_ID_BYTES = 256 };

static const char *const formats[] = {[JOB_PLAIN] = "PLAIN", [JOB_TAGGED] = "TAGGED"};
static const char *const statuses[] = {
    [RESULT_OK] = "OK", [RESULT_TRUNCATED] = "TRUNCATED", [RESULT_EXPIRED] = "EXPIRED", [RESULT_FAILED] = "FAILED"};

static const struct range one_or_more = {1, INT32_MAX, false, "1 or more"};
static const struct range zero_or_more = {0, INT32_MAX, false, "0 or more"};
static const struct range temperatures = {0, 10, false, "0 to 10"};
static const struct range top_ps = {0, 1, true, "over 0, up to 1"};
static const struct range penalties = {0, 10, true, "over 0, up to 10"};

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define NAME(n)  .name = (n), .key = {",\"" n "\":", sizeof(",\"" n "\":") - 1}
#define AT(m)    NAME(#m), .path = #m, .at = offsetof(struct job, m)
#define OPT(m)   NAME(#m), .path = "options." #m, .at = offsetof(struct job, m), .has_at = offsetof(struct job, has_##m)

static const struct field option_fields[] = {
    {OPT(max_output_tokens), .kind = FIELD_INT, .range = &one_or_more},
    {OPT(temperature), .kind = FIELD_DOUBLE, .range = &temperatures},
    {OPT(top_p), .kind = FIELD_DOUBLE, .range = &top_ps},
    {OPT(top_k), .kind = FIELD_INT, .range = &zero_or_more},
    {OPT(repetition_penalty), .kind = FIELD_DOUBLE, .range = &penalties},
    {OPT(seed), .kind = FIELD_LONG},
};

static const struct field request_fields[] = {
    {AT(job_id), .kind = FIELD_TEXT, .limit = LIMIT_ID, .required = true},
    {AT(text), .kind = FIELD_TEXT, .limit = LIMIT_TEXT, .required = true},
    {AT(target_lang), .kind = FIELD_TEXT, .required = true},
    {AT(source_lang), .kind = FIELD_TEXT},
    {AT(context), .kind = FIELD_TEXT, .limit = LIMIT_CONTEXT},
    {AT(glossary), .kind = FIELD_TERMS, .count_at = offsetof(struct job, n_glossary)},
    {AT(format), .kind = FIELD_SYMBOL, .symbols = formats, .n_symbols = COUNT(formats), .other_symbol = -1},
    {NAME("options"), .path = "options", .kind = FIELD_GROUP, .fields = option_fields,
     .n_fields = COUNT(option_fields)},
    {AT(priority), .kind = FIELD_INT},
    {NAME("deadline"), .path = "deadline", .kind = FIELD_TIME, .at = offsetof(struct job, deadline_ms),
     .has_at = offsetof(struct job, has_deadline)},
    {AT(metadata), .kind = FIELD_PAIRS, .count_at = offsetof(struct job, n_metadata)},
};
const struct message message_request = {"request", request_fields, COUNT(request_fields)};

#undef AT
#undef OPT
#define AT(m)       NAME(#m), .path = #m, .at = offsetof(struct result, m)
#define SAMPLING(m) NAME(#m), .path = "sampling." #m, .at = offsetof(struct result, m)

static const struct field sampling_fields[] = {
    {SAMPLING(max_output_tokens), .kind = FIELD_INT},
    {SAMPLING(temperature), .kind = FIELD_DOUBLE},
    {SAMPLING(top_p), .kind = FIELD_DOUBLE},
    {SAMPLING(top_k), .kind = FIELD_INT},
    {SAMPLING(repetition_penalty), .kind = FIELD_DOUBLE},
    {SAMPLING(seed), .kind = FIELD_LONG},
};

static const struct field result_fields[] = {
    {AT(job_id), .kind = FIELD_TEXT, .limit = LIMIT_VALUE, .required = true},
    {AT(status), .kind = FIELD_SYMBOL, .symbols = statuses, .n_symbols = COUNT(statuses),
     .other_symbol = RESULT_FAILED},
    {AT(translation), .kind = FIELD_TEXT, .limit = LIMIT_VALUE},
    {AT(source_lang), .kind = FIELD_TEXT, .limit = LIMIT_VALUE},
    {AT(target_lang), .kind = FIELD_TEXT, .limit = LIMIT_VALUE},
    {AT(model), .kind = FIELD_TEXT, .limit = LIMIT_VALUE},
    {AT(model_digest), .kind = FIELD_TEXT, .limit = LIMIT_VALUE},
    {AT(prompt_tokens), .kind = FIELD_INT},
    {AT(cached_tokens), .kind = FIELD_INT},
    {AT(output_tokens), .kind = FIELD_INT},
    {AT(finish_reason), .kind = FIELD_TEXT, .limit = LIMIT_VALUE},
    {AT(error_code), .kind = FIELD_TEXT, .limit = LIMIT_VALUE},
    {AT(error_message), .kind = FIELD_TEXT, .limit = LIMIT_VALUE},
    {AT(mean_logprob), .kind = FIELD_DOUBLE},
    {AT(min_logprob), .kind = FIELD_DOUBLE},
    {NAME("sampling"), .path = "sampling", .kind = FIELD_GROUP, .fields = sampling_fields,
     .n_fields = COUNT(sampling_fields)},
    {AT(queue_ms), .kind = FIELD_DOUBLE},
    {AT(batch_wait_ms), .kind = FIELD_DOUBLE},
    {AT(decode_ms), .kind = FIELD_DOUBLE},
    {AT(attempts), .kind = FIELD_INT},
    {AT(metadata), .kind = FIELD_PAIRS, .count_at = offsetof(struct result, n_metadata)},
};
const struct message message_result = {"result", result_fields, COUNT(result_fields)};

static void set_has(const struct intake *in, const struct field *f)
{
    if (f->has_at)
        *(bool *)((char *)in->base + f->has_at) = true;
}

static size_t limit_of(const struct codec_limits *l, enum field_limit limit)
{
    switch (limit) {
    case LIMIT_FIELD: return l->max_field_bytes;
    case LIMIT_ID: return MAX_ID_BYTES;
    case LIMIT_TEXT: return l->max_text_bytes;
    case LIMIT_CONTEXT: return l->max_context_bytes;
    case LIMIT_VALUE: break;
    }
    return l->max_value_bytes;
}

static enum err_code no_memory(const struct intake *in)
{
    return err_set(in->e, ERR_NOMEM, ERR_RETRY, "decode: out of memory after %zu bytes", in->a->used_bytes);
}

/* Checks s, and copies it unless it stays where it is.  The path is "f", "f[i]" or "f[i].part". */
static enum err_code take_text(const struct intake *in, const struct field *f, const char *index_part, const char *s,
                               size_t n, enum field_limit limit, struct text *out)
{
    size_t max = limit_of(in->limits, limit), valid;
    bool long_text = limit == LIMIT_TEXT || limit == LIMIT_CONTEXT;

    if (n > max)
        return err_set(in->e, long_text ? ERR_TEXT_TOO_LONG : ERR_INVALID_FIELD, ERR_SKIP,
                       "%s%s: %zu bytes, at most %zu are allowed", f->path, index_part, n, max);
    if (in->in_place) {
        *out = (struct text){s, n};
        return ERR_OK;
    }
    valid = utf8_valid(s, n);
    if (valid != n)
        return err_set(in->e, ERR_INVALID_UTF8, ERR_SKIP, "%s%s: byte %zu is not valid UTF-8 (0x%02X)", f->path,
                       index_part, valid, (unsigned char)s[valid]);
    out->s = arena_copy(in->a, s, n);
    if (!out->s)
        return no_memory(in);
    out->n = n;
    return ERR_OK;
}

enum err_code message_put_text(const struct intake *in, const struct field *f, const char *s, size_t n)
{
    struct text t;
    enum err_code rc = take_text(in, f, "", s, n, f->limit, &t);

    if (rc != ERR_OK)
        return rc;
    if (f->required && n == 0 && f->limit != LIMIT_TEXT) /* an empty text has its own error */
        return err_set(in->e, ERR_MISSING_FIELD, ERR_SKIP, "%s: empty", f->path);
    *(struct text *)message_at(f, in->base) = t;
    return ERR_OK;
}

enum err_code message_put_symbol(const struct intake *in, const struct field *f, const char *s, size_t n)
{
    char allowed[128] = "";
    int *out = message_at(f, in->base);

    for (int i = 0; i < f->n_symbols; i++) {
        if (strlen(f->symbols[i]) == n && memcmp(f->symbols[i], s, n) == 0) {
            *out = i;
            return ERR_OK;
        }
    }
    if (f->other_symbol >= 0) {
        *out = f->other_symbol;
        return ERR_OK;
    }
    for (int i = 0; i < f->n_symbols; i++) {
        if (i)
            strncat(allowed, ", ", sizeof allowed - strlen(allowed) - 1);
        strncat(allowed, f->symbols[i], sizeof allowed - strlen(allowed) - 1);
    }
    return err_set(in->e, ERR_INVALID_FIELD, ERR_SKIP, "%s: found \"%.*s\", allowed are %s", f->path,
                   n > 40 ? 40 : (int)n, s, allowed);
}

static bool in_range(const struct range *r, double v)
{
    return !r || (v >= r->min && v <= r->max && !(r->over_min && v == r->min));
}

enum err_code message_put_int(const struct intake *in, const struct field *f, int64_t v)
{
    if (f->kind == FIELD_DOUBLE)
        return message_put_double(in, f, (double)v);
    if (f->kind == FIELD_INT && (v < INT32_MIN || v > INT32_MAX || !in_range(f->range, (double)v)))
        return err_set(in->e, ERR_INVALID_FIELD, ERR_SKIP, "%s: found %lld, allowed is %s", f->path, (long long)v,
                       f->range ? f->range->text : "a 32-bit integer");
    if (f->kind == FIELD_INT)
        *(int32_t *)message_at(f, in->base) = (int32_t)v;
    else
        *(int64_t *)message_at(f, in->base) = v;
    set_has(in, f);
    return ERR_OK;
}

enum err_code message_put_double(const struct intake *in, const struct field *f, double v)
{
    if (f->kind != FIELD_DOUBLE) {
        /* 5.0 is an integer; past 2^53 a double no longer says which */
        if (!(fabs(v) <= 9007199254740992.0) || v != trunc(v))
            return err_set(in->e, ERR_INVALID_FIELD, ERR_SKIP, "%s: found %g, allowed is an integer", f->path, v);
        return message_put_int(in, f, (int64_t)v);
    }
    if (f->range && !in_range(f->range, v))
        return err_set(in->e, ERR_INVALID_FIELD, ERR_SKIP, "%s: found %g, allowed is %s", f->path, v, f->range->text);
    *(double *)message_at(f, in->base) = v;
    set_has(in, f);
    return ERR_OK;
}

enum err_code message_put_count(const struct intake *in, const struct field *f, size_t n)
{
    bool terms = f->kind == FIELD_TERMS;
    size_t max = terms ? in->limits->max_glossary : in->limits->max_metadata;
    size_t size = terms ? sizeof(struct term) : sizeof(struct pair);
    void *p;

    if (n > max)
        return err_set(in->e, ERR_INVALID_FIELD, ERR_SKIP, "%s: %zu entries, at most %zu are allowed", f->path, n, max);
    p = n ? arena_take(in->a, n * size) : NULL;
    if (n && !p)
        return no_memory(in);
    if (n)
        memset(p, 0, n * size);
    memcpy(message_at(f, in->base), &p, sizeof p);
    *(size_t *)((char *)in->base + f->count_at) = n;
    return ERR_OK;
}

/* The rare path gets the text of the index only when something is wrong: so the check runs twice there. */
static enum err_code take_entry(const struct intake *in, const struct field *f, size_t i, const char *part,
                                const char *s, size_t n, struct text *out)
{
    char where[64];

    if (n <= in->limits->max_field_bytes && (in->in_place || utf8_valid(s, n) == n))
        return take_text(in, f, "", s, n, LIMIT_FIELD, out);
    snprintf(where, sizeof where, "[%zu]%s", i, part);
    return take_text(in, f, where, s, n, LIMIT_FIELD, out);
}

enum err_code message_put_term(const struct intake *in, const struct field *f, size_t i, const char *source,
                               size_t n_source, const char *target, size_t n_target)
{
    struct term *t = *(struct term **)message_at(f, in->base) + i;
    enum err_code rc;

    if (!source || !n_source || !target || !n_target)
        return err_set(in->e, ERR_INVALID_FIELD, ERR_SKIP, "%s[%zu].%s: %s, allowed is a string that is not empty",
                       f->path, i, !source || !n_source ? "source" : "target",
                       (!source || !n_source ? source : target) ? "empty" : "missing");
    if ((rc = take_entry(in, f, i, ".source", source, n_source, &t->source)) != ERR_OK)
        return rc;
    return take_entry(in, f, i, ".target", target, n_target, &t->target);
}

enum err_code message_put_pair(const struct intake *in, const struct field *f, size_t i, const char *key, size_t n_key,
                               const char *value, size_t n_value)
{
    struct pair *p = *(struct pair **)message_at(f, in->base) + i;
    enum err_code rc;

    if ((rc = take_entry(in, f, i, " (key)", key, n_key, &p->key)) != ERR_OK)
        return rc;
    return take_entry(in, f, i, "", value, n_value, &p->value);
}

const char *message_kind(const struct field *f)
{
    switch (f->kind) {
    case FIELD_TEXT: return "a string";
    case FIELD_SYMBOL: return "an enum symbol";
    case FIELD_INT:
    case FIELD_LONG: return "an integer";
    case FIELD_TIME: return "an integer (milliseconds since 1970)";
    case FIELD_DOUBLE: return "a number";
    case FIELD_TERMS: return "an array of {source, target}";
    case FIELD_PAIRS: return "a map of strings";
    case FIELD_GROUP: return "a record";
    }
    return "?";
}

enum err_code message_mistyped(const struct intake *in, const struct field *f, const char *found)
{
    return err_set(in->e, ERR_INVALID_FIELD, ERR_SKIP, "%s: expected %s, found %s", f->path, message_kind(f), found);
}

enum err_code message_check_required(const struct message *m, const void *base, struct err *e)
{
    for (size_t i = 0; i < m->n_fields; i++)
        if (m->fields[i].required && !((const struct text *)message_at(&m->fields[i], base))->s)
            return err_set(e, ERR_MISSING_FIELD, ERR_SKIP, "%s: missing", m->fields[i].path);
    return ERR_OK;
}

bool message_has(const struct field *f, const void *base)
{
    if (f->has_at)
        return *(const bool *)((const char *)base + f->has_at);
    switch (f->kind) {
    case FIELD_TEXT: return ((const struct text *)message_at(f, base))->s != NULL;
    case FIELD_DOUBLE: return isfinite(*(const double *)message_at(f, base));
    case FIELD_TERMS:
    case FIELD_PAIRS: return message_count(f, base) > 0;
    case FIELD_GROUP:
        for (size_t i = 0; i < f->n_fields; i++)
            if (message_has(&f->fields[i], base))
                return true;
        return false;
    default: return true;
    }
}
