#include "wire/codec.h"

#include "tests/support/wire_setup.h"
#include "wire/own_schema.h"

#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* cases C1, E1 and F11: the reason names which */
Test(codec, bytes_that_are_no_value_are_refused_by_name)
{
    static const struct {
        const char *bytes;
        size_t n;
        const char *says;
        enum err_code code;
    } cases[] = {
        {NULL, 0, "null", ERR_UNDECODABLE},
        {"", 0, "0 bytes", ERR_UNDECODABLE},
        {"\0", 1, "frame of 1 bytes", ERR_UNDECODABLE},
        {"\0\0\0\1", 4, "frame of 4 bytes", ERR_UNDECODABLE},
        {"\0\0\0\1\0", 5, "schema 256", ERR_UNKNOWN_SCHEMA},
        {"\0\xFF\xFF\xFF\xFFx", 6, "unframed data?", ERR_UNKNOWN_SCHEMA},
        {"\xC3", 1, "single object of 1 bytes", ERR_UNDECODABLE},
        {"\xC3\x01\1\2\3\4\5\6\7", 9, "single object of 9 bytes", ERR_UNDECODABLE},
        {"\xC3\x01\1\2\3\4\5\6\7\x08", 10, "fingerprint 0807060504030201", ERR_UNKNOWN_SCHEMA},
        {"\xC3\x02\1\2\3\4\5\6\7\x08", 10, "unknown magic byte 0xC3", ERR_UNDECODABLE},
        {"hello", 5, "unknown magic byte 0x68", ERR_UNDECODABLE},
        {"[]", 2, "unknown magic byte 0x5B", ERR_UNDECODABLE},
        {"\xEF\xBB\xBF{}", 5, "unknown magic byte 0xEF", ERR_UNDECODABLE},
        {"\1", 1, "unknown magic byte 0x01", ERR_UNDECODABLE},
    };
    struct wire_setup w;

    wire_setup_open(&w);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_assert_eq(wire_decode(&w, cases[i].bytes, cases[i].n), cases[i].code, "%zu: %s", i, w.e.msg);
        cr_assert_eq(w.e.act, ERR_SKIP, "%s", w.e.msg);
        cr_assert(strstr(w.e.msg, cases[i].says), "%s", w.e.msg);
        cr_assert_null(w.job.job_id.s);
    }
    wire_setup_close(&w);
}

/* case E7 */
Test(codec, a_schema_id_in_a_header_is_refused_by_name)
{
    struct header h = {"__value_schema_id", "\1xxxxxxxxxxxxxxxx", 17};
    struct record r = wire_record("\2a\2b\4de", 7);
    struct wire_setup w;

    wire_setup_open(&w);
    r.headers = &h;
    r.n_headers = 1;
    cr_assert_eq(codec_decode_request(w.codec, &r, &w.job, &w.enc, &w.arena, &w.e), ERR_UNDECODABLE);
    cr_assert(strstr(w.e.msg, "schema id in header not supported"), "%s", w.e.msg);
    cr_assert_eq(w.e.act, ERR_SKIP);
    wire_setup_close(&w);
}

Test(codec, a_text_of_ten_megabytes_is_too_long_and_its_job_is_known)
{
    size_t n = 10 << 20;
    char *json = malloc(n + 100);
    struct wire_setup w;
    struct text t;

    wire_setup_open(&w);
    int head = sprintf(json, "{\"job_id\":\"big\",\"target_lang\":\"de\",\"text\":\"");
    memset(json + head, 'x', n);
    memcpy(json + head + n, "\"}", 2);
    cr_assert_eq(wire_decode(&w, json, (size_t)head + n + 2), ERR_TEXT_TOO_LONG);
    cr_assert_str_eq(w.e.msg, "text: 10485760 bytes, at most 1048576 are allowed");
    cr_assert(text_is(w.job.job_id, "big"));
    cr_assert_lt(w.arena.used_bytes, 1000, "refused before it is copied");

    struct job j = {.job_id = {"big", 3}, .text = {json + head, n}, .target_lang = {"de", 2}};
    for (int enc = ENCODING_SINGLE_OBJECT; enc <= ENCODING_SINGLE_OBJECT; enc++) {
        struct arena a;
        arena_init(&a, 1 << 16, 64 << 20);
        cr_assert_eq(codec_encode_request(w.codec, &j, enc, -1, &a, &t, &w.e), ERR_OK);
        cr_assert_eq(wire_decode(&w, t.s, t.n), ERR_TEXT_TOO_LONG);
        cr_assert_str_eq(w.e.msg, "text: 10485760 bytes, at most 1048576 are allowed");
        cr_assert(text_is(w.job.job_id, "big"));
        arena_free(&a);
    }
    free(json);

    json = calloc(1, (16 << 20) + 1);
    json[0] = '{';
    cr_assert_eq(wire_decode(&w, json, (16 << 20) + 1), ERR_TEXT_TOO_LONG);
    cr_assert(strstr(w.e.msg, "16777217 bytes, at most 16777216"), "%s", w.e.msg);
    free(json);
    wire_setup_close(&w);
}

static struct job full_job(void)
{
    static struct term terms[] = {{{"a", 1}, {"b", 1}}, {{"c\0d", 3}, {"\u00e9", 2}}};
    static struct pair pairs[] = {{{"k", 1}, {"v", 1}}, {{"", 0}, {"", 0}}};

    return (struct job){.job_id = {"j-1", 3},
                        .text = {"a\0b", 3},
                        .target_lang = {"de", 2},
                        .source_lang = {"en", 2},
                        .context = {"ctx", 3},
                        .glossary = terms,
                        .n_glossary = 2,
                        .format = JOB_TAGGED,
                        .has_max_output_tokens = true,
                        .max_output_tokens = INT32_MAX,
                        .has_temperature = true,
                        .temperature = 0.1,
                        .has_seed = true,
                        .seed = INT64_MIN,
                        .priority = INT32_MIN,
                        .has_deadline = true,
                        .deadline_ms = -1,
                        .metadata = pairs,
                        .n_metadata = 2};
}

static bool same(struct text a, struct text b)
{
    return a.n == b.n && !a.s == !b.s && (a.n == 0 || memcmp(a.s, b.s, a.n) == 0);
}

Test(codec, every_encoding_brings_a_request_back)
{
    struct job j = full_job();
    struct wire_setup w;
    struct arena a;
    struct text t;
    struct text own = own_schema_text(OWN_REQUEST);

    wire_setup_open(&w);
    arena_init(&a, 4096, 1 << 20);
    cr_assert_eq(schema_store_add(w.store, 77, own.s, own.n, &w.e), ERR_OK);
    for (int enc = ENCODING_JSON; enc <= ENCODING_REGISTRY; enc++) {
        cr_assert_eq(codec_encode_request(w.codec, &j, enc, 77, &a, &t, &w.e), ERR_OK, "%s", w.e.msg);
        cr_assert_eq(wire_decode(&w, t.s, t.n), ERR_OK, "%s: %s", encoding_name(enc), w.e.msg);
        cr_assert_eq((int)w.enc, enc);
        cr_assert(same(w.job.job_id, j.job_id) && same(w.job.text, j.text) && same(w.job.target_lang, j.target_lang) &&
                  same(w.job.source_lang, j.source_lang) && same(w.job.context, j.context));
        cr_assert_eq(w.job.n_glossary, 2);
        for (int i = 0; i < 2; i++)
            cr_assert(same(w.job.glossary[i].source, j.glossary[i].source) &&
                      same(w.job.glossary[i].target, j.glossary[i].target));
        cr_assert_eq(w.job.n_metadata, 2);
        for (int i = 0; i < 2; i++)
            cr_assert(same(w.job.metadata[i].key, j.metadata[i].key) &&
                      same(w.job.metadata[i].value, j.metadata[i].value));
        cr_assert_eq(w.job.format, j.format);
        cr_assert(w.job.has_max_output_tokens && w.job.max_output_tokens == INT32_MAX);
        cr_assert(w.job.has_temperature && w.job.temperature == 0.1);
        cr_assert(w.job.has_seed && w.job.seed == INT64_MIN);
        cr_assert_not(w.job.has_top_p || w.job.has_top_k || w.job.has_repetition_penalty);
        cr_assert_eq(w.job.priority, INT32_MIN);
        cr_assert(w.job.has_deadline && w.job.deadline_ms == -1);
    }
    arena_free(&a);
    wire_setup_close(&w);
}

Test(codec, every_encoding_brings_a_result_back)
{
    static const struct pair metadata = {{"k", 1}, {"v", 1}};
    struct result r = {.job_id = {"j", 1},
                       .translation = {"\u00dc\0b", 4},
                       .target_lang = {"de", 2},
                       .model = {"m", 1},
                       .model_digest = {"d", 1},
                       .prompt_tokens = 1,
                       .cached_tokens = 2,
                       .output_tokens = 3,
                       .finish_reason = {"eos", 3},
                       .mean_logprob = -0.25,
                       .min_logprob = NAN,
                       .temperature = 0.7,
                       .top_p = 0.6,
                       .repetition_penalty = 1.05,
                       .top_k = 20,
                       .max_output_tokens = 9,
                       .seed = INT64_MAX,
                       .queue_ms = 0,
                       .batch_wait_ms = 1,
                       .decode_ms = NAN,
                       .attempts = 4,
                       .metadata = &metadata,
                       .n_metadata = 1};
    struct text t, own = own_schema_text(OWN_RESULT);
    struct wire_setup w;
    struct arena a;

    wire_setup_open(&w);
    arena_init(&a, 4096, 1 << 20);
    cr_assert_eq(schema_store_add(w.store, 78, own.s, own.n, &w.e), ERR_OK);
    for (int enc = ENCODING_JSON; enc <= ENCODING_REGISTRY; enc++) {
        for (int status = 0; status < RESULT_STATUSES; status++) {
            r.status = (enum result_status)status;
            cr_assert_eq(codec_encode_result(w.codec, &r, enc, 78, &a, &t, &w.e), ERR_OK, "%s", w.e.msg);
            cr_assert_eq(wire_decode_result(&w, t.s, t.n), ERR_OK, "%s: %s", encoding_name(enc), w.e.msg);
            const struct result *q = &w.result;
            cr_assert_eq(q->status, r.status);
            cr_assert(same(q->job_id, r.job_id) && same(q->translation, r.translation) && !q->source_lang.s &&
                      same(q->target_lang, r.target_lang) && same(q->model, r.model) &&
                      same(q->model_digest, r.model_digest) && same(q->finish_reason, r.finish_reason) &&
                      !q->error_code.s && !q->error_message.s);
            cr_assert(q->prompt_tokens == 1 && q->cached_tokens == 2 && q->output_tokens == 3 && q->attempts == 4);
            cr_assert(q->mean_logprob == -0.25 && isnan(q->min_logprob) && isnan(q->decode_ms) && q->queue_ms == 0 &&
                      q->batch_wait_ms == 1);
            cr_assert(q->temperature == 0.7 && q->top_p == 0.6 && q->repetition_penalty == 1.05 && q->top_k == 20 &&
                      q->max_output_tokens == 9 && q->seed == INT64_MAX);
            cr_assert(q->n_metadata == 1 && same(q->metadata[0].value, metadata.value));
        }
    }
    arena_free(&a);
    wire_setup_close(&w);
}

Test(codec, a_status_of_a_newer_worker_reads_as_failed)
{
    static const char json[] = "{\"job_id\":\"j\",\"status\":\"PARTIAL\"}";
    struct wire_setup w;

    wire_setup_open(&w);
    cr_assert_eq(wire_decode_result(&w, json, strlen(json)), ERR_OK, "%s", w.e.msg);
    cr_assert_eq(w.result.status, RESULT_FAILED);
    cr_assert_eq(w.result.attempts, 1);
    wire_setup_close(&w);
}

Test(codec, encoding_refuses_what_could_not_be_read_back)
{
    struct job j = full_job();
    struct wire_setup w;
    struct text t;

    wire_setup_open(&w);
    cr_assert_eq(codec_encode_request(w.codec, &j, ENCODING_REGISTRY, -1, &w.arena, &t, &w.e), ERR_CONFIG);
    cr_assert_eq(w.e.act, ERR_STOP);
    j.text = (struct text){"a\xFF", 2};
    for (int enc = ENCODING_JSON; enc <= ENCODING_REGISTRY; enc++) {
        cr_assert_eq(codec_encode_request(w.codec, &j, enc, 7, &w.arena, &t, &w.e), ERR_INVALID_UTF8);
        cr_assert(strstr(w.e.msg, "text"), "%s", w.e.msg);
        cr_assert_null(t.s);
    }
    j.text = (struct text){0};
    cr_assert_eq(codec_encode_request(w.codec, &j, ENCODING_JSON, -1, &w.arena, &t, &w.e), ERR_MISSING_FIELD);
    wire_setup_close(&w);
}

Test(codec, avro_strings_are_checked_for_utf8)
{
    static const char payload[] = "\0\0\0\0\7"
                                  "\2j"
                                  "\4a\xFF"
                                  "\4de";
    static const char schema[] =
        "{\"type\":\"record\",\"name\":\"R\",\"fields\":[{\"name\":\"job_id\",\"type\":\"string\"},"
        "{\"name\":\"text\",\"type\":\"string\"},{\"name\":\"target_lang\",\"type\":\"string\"}]}";
    struct wire_setup w;

    wire_setup_open(&w);
    cr_assert_eq(schema_store_add(w.store, 7, schema, strlen(schema), &w.e), ERR_OK);
    cr_assert_eq(wire_decode(&w, payload, sizeof payload - 1), ERR_INVALID_UTF8);
    cr_assert_str_eq(w.e.msg, "text: byte 1 is not valid UTF-8 (0xFF)");
    cr_assert(text_is(w.job.job_id, "j"));
    wire_setup_close(&w);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#elif defined(__has_feature)
enum { SANITIZED = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) };
#else
enum { SANITIZED = 0 };
#endif

/* 0 under a sanitizer, which keeps freed memory for a while; it looks for leaks itself */
static long resident_kb(void)
{
    if (SANITIZED)
        return 0;
    FILE *f = fopen("/proc/self/statm", "r");
    long size = 0, resident = 0;

    cr_assert(f && fscanf(f, "%ld %ld", &size, &resident) == 2);
    fclose(f);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

/* case D7: avro-c leaks what it had read when a payload is cut off, unless it never sees it.  TW_PAYLOADS makes more. */
Test(codec, truncated_and_broken_payloads_leave_memory_flat)
{
    const char *env = getenv("TW_PAYLOADS");
    long count = env ? atol(env) : 50000, warm = 0;
    struct job j = full_job();
    struct wire_setup w;
    struct arena a;
    struct text t[2];
    unsigned char broken[512];
    unsigned seed = 1;
    int refused = 0;

    wire_setup_open(&w);
    arena_init(&a, 4096, 1 << 20);
    cr_assert_eq(codec_encode_request(w.codec, &j, ENCODING_SINGLE_OBJECT, -1, &a, &t[0], &w.e), ERR_OK);
    cr_assert_eq(codec_encode_request(w.codec, &j, ENCODING_JSON, -1, &a, &t[1], &w.e), ERR_OK);
    for (long i = 0; i < count; i++) {
        const struct text *whole = &t[i % 8 == 7];
        size_t n = 10 + (size_t)rand_r(&seed) % (whole->n - 10);
        cr_assert_leq(whole->n, sizeof broken);
        memcpy(broken, whole->s, n);
        if (i % 2)
            broken[10 + (size_t)rand_r(&seed) % (n - 9)] ^= (unsigned char)rand_r(&seed);
        refused += wire_decode(&w, broken, n) != ERR_OK;
        if (i == count / 10)
            warm = resident_kb();
    }
    cr_assert_gt(refused, count * 9 / 10);
    cr_assert_leq(resident_kb() - warm, 2048, "grew by %ld kB over %ld payloads", resident_kb() - warm, count);
    arena_free(&a);
    wire_setup_close(&w);
}

static void *encode_many(void *arg)
{
    struct wire_setup *w = arg;
    struct job j = full_job();
    struct codec *own;
    struct text t;
    struct arena a;
    struct codec_limits l = codec_default_limits();

    arena_init(&a, 4096, 1 << 20);
    cr_assert_eq(codec_open(&own, w->store, &l, NULL), ERR_OK);
    for (int i = 0; i < 2000; i++) {
        arena_reset(&a);
        cr_assert_eq(codec_encode_request(own, &j, i % 3, 7, &a, &t, NULL), ERR_OK);
    }
    codec_close(own);
    arena_free(&a);
    return NULL;
}

Test(codec, one_thread_decodes_while_another_encodes)
{
    struct job j = full_job();
    struct wire_setup w;
    struct arena a;
    struct text t;
    pthread_t other;

    wire_setup_open(&w);
    arena_init(&a, 4096, 1 << 20);
    cr_assert_eq(codec_encode_request(w.codec, &j, ENCODING_SINGLE_OBJECT, -1, &a, &t, &w.e), ERR_OK);
    cr_assert_eq(pthread_create(&other, NULL, encode_many, &w), 0);
    for (int i = 0; i < 2000; i++) {
        cr_assert_eq(wire_decode(&w, t.s, t.n), ERR_OK, "%s", w.e.msg);
        cr_assert_eq(wire_decode(&w, t.s, t.n - 1), ERR_UNDECODABLE);
    }
    pthread_join(other, NULL);
    arena_free(&a);
    wire_setup_close(&w);
}
