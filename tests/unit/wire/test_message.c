#include "wire/message.h"

#include "tests/support/wire_setup.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Puts value (JSON) beside the required fields. */
static enum err_code with(struct wire_setup *w, const char *key_value)
{
    char json[1024];
    int n = snprintf(json, sizeof json, "{\"job_id\":\"j\",\"text\":\"t\",\"target_lang\":\"de\"%s%s}",
                     key_value[0] ? "," : "", key_value);

    return wire_decode(w, json, (size_t)n);
}

Test(message, required_fields_are_named_when_they_are_missing)
{
    static const struct {
        const char *json, *says;
        enum err_code code;
    } cases[] = {
        {"{}", "job_id: missing", ERR_MISSING_FIELD},
        {"{\"job_id\":null,\"text\":\"t\",\"target_lang\":\"de\"}", "job_id: missing", ERR_MISSING_FIELD},
        {"{\"job_id\":\"\",\"text\":\"t\",\"target_lang\":\"de\"}", "job_id: empty", ERR_MISSING_FIELD},
        {"{\"job_id\":\"j\",\"target_lang\":\"de\"}", "text: missing", ERR_MISSING_FIELD},
        {"{\"job_id\":\"j\",\"text\":\"t\"}", "target_lang: missing", ERR_MISSING_FIELD},
        {"{\"job_id\":\"j\",\"text\":\"t\",\"target_lang\":\"\"}", "target_lang: empty", ERR_MISSING_FIELD},
        {"{\"job_id\":\"j\",\"text\":\"\",\"target_lang\":\"de\"}", "text: empty", ERR_EMPTY_TEXT},
        {"{\"job_id\":\"j\",\"text\":\" \\n\",\"target_lang\":\"de\"}", "white space", ERR_EMPTY_TEXT},
    };
    struct wire_setup w;

    wire_setup_open(&w);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_assert_eq(wire_decode(&w, cases[i].json, strlen(cases[i].json)), cases[i].code, "%s: %s", cases[i].json,
                     w.e.msg);
        cr_assert_eq(w.e.act, ERR_SKIP);
        cr_assert(strstr(w.e.msg, cases[i].says), "%s: %s", cases[i].json, w.e.msg);
    }
    wire_setup_close(&w);
}

Test(message, options_have_ranges)
{
    static const struct {
        const char *json, *says; /* says NULL = allowed */
    } cases[] = {
        {"\"temperature\":0", NULL},
        {"\"temperature\":10", NULL},
        {"\"temperature\":-0.1", "options.temperature: found -0.1, allowed is 0 to 10"},
        {"\"temperature\":10.5", "options.temperature"},
        {"\"temperature\":\"1\"", "options.temperature: expected a number, found string"},
        {"\"temperature\":null", NULL},
        {"\"top_p\":1", NULL},
        {"\"top_p\":1e-9", NULL},
        {"\"top_p\":0", "options.top_p: found 0, allowed is over 0, up to 1"},
        {"\"top_p\":1.0001", "options.top_p"},
        {"\"top_k\":0", NULL},
        {"\"top_k\":-1", "options.top_k: found -1, allowed is 0 or more"},
        {"\"top_k\":1.5", "options.top_k: found 1.5, allowed is an integer"},
        {"\"top_k\":20.0", NULL},
        {"\"top_k\":1e30", "options.top_k"},
        {"\"repetition_penalty\":1.05", NULL},
        {"\"repetition_penalty\":0", "options.repetition_penalty: found 0, allowed is over 0, up to 10"},
        {"\"repetition_penalty\":-1", "options.repetition_penalty"},
        {"\"repetition_penalty\":1e9", "options.repetition_penalty"},
        {"\"max_output_tokens\":1", NULL},
        {"\"max_output_tokens\":0", "options.max_output_tokens: found 0, allowed is 1 or more"},
        {"\"max_output_tokens\":2147483648", "options.max_output_tokens"},
        {"\"seed\":-9223372036854775808", NULL},
        {"\"seed\":9223372036854775807", NULL},
        {"\"seed\":1.5", "options.seed"},
    };
    char json[256];
    struct wire_setup w;

    wire_setup_open(&w);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(json, sizeof json, "\"options\":{%s}", cases[i].json);
        enum err_code want = cases[i].says ? ERR_INVALID_FIELD : ERR_OK;
        cr_assert_eq(with(&w, json), want, "%s: %s", json, w.e.msg);
        if (cases[i].says)
            cr_assert(strstr(w.e.msg, cases[i].says), "%s: %s", json, w.e.msg);
    }
    wire_setup_close(&w);
}

/* NaN and infinities come by Avro alone */
Test(message, numbers_that_are_none_are_out_of_every_range)
{
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    struct codec_limits l = codec_default_limits();
    struct job j = {0};
    struct err e;
    struct intake in = {.limits = &l, .e = &e, .base = &j};
    int tried = 0;

    for (size_t i = 0; i < message_request.n_fields; i++) {
        const struct field *group = &message_request.fields[i];
        for (size_t k = 0; group->kind == FIELD_GROUP && k < group->n_fields; k++) {
            for (size_t b = 0; b < 3; b++, tried++)
                cr_assert_eq(message_put_double(&in, &group->fields[k], bad[b]), ERR_INVALID_FIELD, "%s",
                             group->fields[k].path);
        }
    }
    cr_assert_eq(tried, 18);
}

Test(message, sizes_have_limits_that_the_error_tells)
{
    struct codec_limits l = {.max_value_bytes = 100000,
                             .max_text_bytes = 1000,
                             .max_context_bytes = 500,
                             .max_glossary = 2,
                             .max_metadata = 2,
                             .max_field_bytes = 20};
    static const struct {
        const char *field;
        size_t max;
        enum err_code code;
    } texts[] = {{"job_id", 256, ERR_INVALID_FIELD},
                 {"text", 1000, ERR_TEXT_TOO_LONG},
                 {"context", 500, ERR_TEXT_TOO_LONG},
                 {"target_lang", 20, ERR_INVALID_FIELD},
                 {"source_lang", 20, ERR_INVALID_FIELD}};
    struct err e;
    char *s = malloc(2000);

    memset(s, 'a', 2000);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct arena a;
        struct job j = {0};
        struct intake in = {.limits = &l, .a = &a, .e = &e, .base = &j};
        const struct field *f = message_request.fields;
        char says[64];
        arena_init(&a, 4096, 1 << 20);
        while (strcmp(f->name, texts[i].field) != 0)
            f++;
        cr_assert_eq(message_put_text(&in, f, s, texts[i].max), ERR_OK, "%s", texts[i].field);
        cr_assert_eq(message_put_text(&in, f, s, texts[i].max + 1), texts[i].code, "%s", texts[i].field);
        snprintf(says, sizeof says, "%s: %zu bytes, at most %zu are allowed", texts[i].field, texts[i].max + 1,
                 texts[i].max);
        cr_assert_str_eq(e.msg, says);
        arena_free(&a);
    }
    free(s);
}

Test(message, lists_have_limits_and_entries_are_named_by_index)
{
    static const struct {
        const char *json, *says;
        enum err_code code;
    } cases[] = {
        {"\"glossary\":{}", "glossary: expected an array", ERR_INVALID_FIELD},
        {"\"glossary\":[{\"source\":\"a\",\"target\":\"b\"},7]", "glossary[1]", ERR_INVALID_FIELD},
        {"\"glossary\":[{\"source\":\"a\"}]", "glossary[0].target: missing", ERR_INVALID_FIELD},
        {"\"glossary\":[{\"source\":\"\",\"target\":\"b\"}]", "glossary[0].source: empty", ERR_INVALID_FIELD},
        {"\"glossary\":[{\"source\":\"a\",\"target\":3}]", "glossary[0]", ERR_INVALID_FIELD},
        {"\"metadata\":[]", "metadata: expected a map", ERR_INVALID_FIELD},
        {"\"metadata\":{\"a\":1}", "metadata: key \"a\": expected a string, found integer", ERR_INVALID_FIELD},
        {"\"format\":\"HTML\"", "format: found \"HTML\", allowed are PLAIN, TAGGED", ERR_INVALID_FIELD},
        {"\"format\":1", "format: expected an enum symbol, found integer", ERR_INVALID_FIELD},
        {"\"priority\":3000000000", "priority: found 3000000000, allowed is a 32-bit integer", ERR_INVALID_FIELD},
        {"\"deadline\":\"2026-01-01T00:00:00Z\"",
         "deadline: expected an integer (milliseconds since 1970), found string", ERR_INVALID_FIELD},
        {"\"options\":[]", "options: expected a record, found array", ERR_INVALID_FIELD},
        {"\"source_lang\":false", "source_lang: expected a string, found boolean", ERR_INVALID_FIELD},
    };
    struct codec_limits l = codec_default_limits();
    char *json = malloc(1 << 20);
    struct wire_setup w;
    size_t n;

    wire_setup_open(&w);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_assert_eq(with(&w, cases[i].json), cases[i].code, "%s: %s", cases[i].json, w.e.msg);
        cr_assert(strstr(w.e.msg, cases[i].says), "%s: %s", cases[i].json, w.e.msg);
        cr_assert(text_is(w.job.job_id, "j"), "known for the dead letter");
    }
    for (size_t entries = l.max_glossary; entries <= l.max_glossary + 1; entries++) {
        n = (size_t)sprintf(json, "{\"job_id\":\"j\",\"text\":\"t\",\"target_lang\":\"de\",\"glossary\":[");
        for (size_t i = 0; i < entries; i++)
            n += (size_t)sprintf(json + n, "%s{\"source\":\"a\",\"target\":\"b\"}", i ? "," : "");
        n += (size_t)sprintf(json + n, "]}");
        cr_assert_eq(wire_decode(&w, json, n), entries > l.max_glossary ? ERR_INVALID_FIELD : ERR_OK, "%s", w.e.msg);
    }
    cr_assert(strstr(w.e.msg, "glossary: 1001 entries, at most 1000"), "%s", w.e.msg);
    free(json);
    wire_setup_close(&w);
}

static void check_keys(const struct field *fields, size_t n)
{
    char want[80];

    for (size_t i = 0; i < n; i++) {
        snprintf(want, sizeof want, ",\"%s\":", fields[i].name);
        cr_assert_eq(fields[i].key.n, strlen(want));
        cr_assert_arr_eq(fields[i].key.s, want, strlen(want));
        check_keys(fields[i].fields, fields[i].n_fields);
    }
}

Test(message, every_field_has_its_json_key)
{
    check_keys(message_request.fields, message_request.n_fields);
    check_keys(message_result.fields, message_result.n_fields);
}
