#include "wire/json_codec.h"

#include "tests/support/wire_setup.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define HEAD "{\"job_id\":\"j\",\"text\":\"t\",\"target_lang\":\"de\""

Test(json_codec, unknown_keys_are_ignored_and_null_is_absent)
{
    static const char json[] = HEAD ",\"new\":{\"x\":[1,2,{}]},\"context\":null,\"options\":null,\"metadata\":null,"
                                    "\"glossary\":null,\"format\":null,\"deadline\":null,\"priority\":null}";
    struct wire_setup w;

    wire_setup_open(&w);
    cr_assert_eq(wire_decode(&w, json, strlen(json)), ERR_OK, "%s", w.e.msg);
    cr_assert_str_eq(wire_job_json(&w), HEAD ",\"format\":\"PLAIN\",\"priority\":0}");
    cr_assert_not(w.job.has_deadline);
    wire_setup_close(&w);
}

Test(json_codec, a_round_trip_keeps_every_field)
{
    static const char json[] =
        "{\"job_id\":\"j\",\"text\":\"a \\\"b\\\" \u4e16 \U0001f30d\",\"target_lang\":\"de\",\"source_lang\":\"en\","
        "\"context\":\"c\",\"glossary\":[{\"source\":\"a\",\"target\":\"b\"}],\"format\":\"TAGGED\",\"options\":{"
        "\"max_output_tokens\":5,\"temperature\":0.7,\"top_p\":0.6,\"top_k\":20,\"repetition_penalty\":1.05,"
        "\"seed\":-5},\"priority\":9,\"deadline\":1764547200123,\"metadata\":{\"z\":\"1\",\"a\":\"2\"}}";
    struct wire_setup w;

    wire_setup_open(&w);
    cr_assert_eq(wire_decode(&w, json, strlen(json)), ERR_OK, "%s", w.e.msg);
    cr_assert_eq(w.enc, ENCODING_JSON);
    cr_assert_eq(w.job.format, JOB_TAGGED);
    cr_assert_eq(w.job.deadline_ms, 1764547200123);
    cr_assert_float_eq(w.job.temperature, 0.7, 0);
    cr_assert_eq(w.job.n_metadata, 2);
    cr_assert(text_is(w.job.metadata[0].key, "z"));
    cr_assert_str_eq(wire_job_json(&w), json);
    wire_setup_close(&w);
}

Test(json_codec, of_a_key_that_came_twice_the_last_value_is_written)
{
    struct pair pairs[] = {{{"a", 1}, {"1", 1}}, {{"b", 1}, {"2", 1}}, {{"a", 1}, {"3", 1}}, {{NULL, 0}, {NULL, 0}}};
    struct wire_setup w;

    wire_setup_open(&w);
    cr_assert_eq(wire_decode(&w, HEAD "}", strlen(HEAD "}")), ERR_OK, "%s", w.e.msg);
    w.job.metadata = pairs;
    w.job.n_metadata = 4;
    cr_assert_str_eq(wire_job_json(&w),
                     HEAD ",\"format\":\"PLAIN\",\"priority\":0,\"metadata\":{\"a\":\"3\",\"b\":\"2\","
                          "\"\":\"\"}}");
    wire_setup_close(&w);
}

Test(json_codec, a_nul_inside_a_text_cuts_nothing)
{
    static const char json[] = "{\"job_id\":\"j\",\"text\":\"a\\u0000b\",\"target_lang\":\"de\"}";
    struct wire_setup w;

    wire_setup_open(&w);
    cr_assert_eq(wire_decode(&w, json, strlen(json)), ERR_OK, "%s", w.e.msg);
    cr_assert_eq(w.job.text.n, 3);
    cr_assert_arr_eq(w.job.text.s, "a\0b", 3);
    cr_assert_str_eq(wire_job_json(&w), "{\"job_id\":\"j\",\"text\":\"a\\u0000b\",\"target_lang\":\"de\","
                                        "\"format\":\"PLAIN\",\"priority\":0}");
    wire_setup_close(&w);
}

Test(json_codec, refuses_what_is_not_strict_json)
{
    static const struct {
        const char *json;
        enum err_code code;
    } cases[] = {
        {"{", ERR_UNDECODABLE},
        {HEAD, ERR_UNDECODABLE},
        {HEAD "}}", ERR_UNDECODABLE},
        {HEAD "} x", ERR_UNDECODABLE},
        {HEAD ",}", ERR_UNDECODABLE},
        {HEAD ",\"text\":\"again\"}", ERR_UNDECODABLE},
        {HEAD ",\"metadata\":{\"a\":\"1\",\"a\":\"2\"}}", ERR_UNDECODABLE},
        {HEAD ",\"options\":{\"temperature\":NaN}}", ERR_UNDECODABLE},
        {HEAD ",\"options\":{\"temperature\":1e999}}", ERR_UNDECODABLE},
        {HEAD ",\"options\":{\"seed\":99999999999999999999}}", ERR_UNDECODABLE},
        {HEAD ",\"context\":\"\\ud800\"}", ERR_UNDECODABLE},
        {HEAD ",\"context\":\"\xC3\x28\"}", ERR_INVALID_UTF8},
        {HEAD ",\"context\":\"\xED\xA0\x80\"}", ERR_INVALID_UTF8},
        {HEAD ",\"metadata\":{\"a\\u0000b\":\"1\"}}", ERR_UNDECODABLE},
        {HEAD ",\"context\":'x'}", ERR_UNDECODABLE},
        {"{}{}", ERR_UNDECODABLE},
    };
    struct wire_setup w;

    wire_setup_open(&w);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_assert_eq(wire_decode(&w, cases[i].json, strlen(cases[i].json)), cases[i].code, "%s: %s", cases[i].json,
                     w.e.msg);
        cr_assert_eq(w.e.act, ERR_SKIP);
        cr_assert(strstr(w.e.msg, "JSON: byte "), "%s: %s", cases[i].json, w.e.msg);
    }
    wire_setup_close(&w);
}

Test(json_codec, depth_and_number_of_values_are_bounded_before_anything_is_allocated)
{
    size_t n = 8 << 20;
    char *json = malloc(n);
    struct wire_setup w;

    wire_setup_open(&w);
    memset(json, '[', n);
    memcpy(json, "{\"a\":", 5);
    cr_assert_eq(wire_decode(&w, json, n), ERR_UNDECODABLE);
    cr_assert(strstr(w.e.msg, "levels deep"), "%s", w.e.msg);
    for (size_t i = 6; i + 1 < n; i += 2)
        memcpy(json + i, "0,", 2);
    cr_assert_eq(wire_decode(&w, json, n), ERR_UNDECODABLE);
    cr_assert(strstr(w.e.msg, "more than 200000 values"), "%s", w.e.msg);
    /* brackets and commas inside a string are text */
    n = 300000;
    memset(json, ',', n);
    memcpy(json, "{\"job_id\":\"\\\"\",\"target_lang\":\"de\",\"text\":\"", 42);
    memset(json + n - 1000, '[', 900);
    memcpy(json + n - 2, "\"}", 2);
    cr_assert_eq(wire_decode(&w, json, n), ERR_OK, "%s", w.e.msg);
    free(json);
    wire_setup_close(&w);
}

Test(json_codec, results_have_a_fixed_order_and_leave_out_what_is_not_there)
{
    struct pair metadata = {{"k", 1}, {"v", 1}};
    struct result r = {.job_id = {"j", 1},
                       .status = RESULT_TRUNCATED,
                       .translation = {"", 0},
                       .mean_logprob = NAN,
                       .min_logprob = -INFINITY,
                       .decode_ms = 1.5,
                       .queue_ms = NAN,
                       .attempts = 2,
                       .top_p = 0.6,
                       .finish_reason = {"length", 6},
                       .metadata = &metadata,
                       .n_metadata = 1};
    static const char want[] =
        "{\"job_id\":\"j\",\"status\":\"TRUNCATED\",\"translation\":\"\",\"prompt_tokens\":0,\"cached_tokens\":0,"
        "\"output_tokens\":0,\"finish_reason\":\"length\",\"sampling\":{\"max_output_tokens\":0,\"temperature\":0.0,"
        "\"top_p\":0.6,\"top_k\":0,\"repetition_penalty\":0.0,\"seed\":0},\"batch_wait_ms\":0.0,\"decode_ms\":1.5,"
        "\"attempts\":2,\"metadata\":{\"k\":\"v\"}}";
    struct wire_setup w;
    struct text t;

    wire_setup_open(&w);
    cr_assert_eq(codec_encode_result(w.codec, &r, ENCODING_JSON, -1, &w.arena, &t, &w.e), ERR_OK);
    cr_assert(text_is(t, want), "%.*s", (int)t.n, t.s);
    r.error_message = (struct text){"\xFF", 1};
    cr_assert_eq(codec_encode_result(w.codec, &r, ENCODING_JSON, -1, &w.arena, &t, &w.e), ERR_INVALID_UTF8);
    cr_assert(strstr(w.e.msg, "error_message"), "%s", w.e.msg);
    wire_setup_close(&w);
}
