#include "kafka/dead_letter.h"

#include "wire/record.h"

#include <criterion/criterion.h>
#include <stdint.h>
#include <string.h>

static const unsigned char traced[] = {0xFF, 0x00, 0xFE};
static const struct header own[] = {
    {"trace", traced, sizeof traced}, {"note", "a", 1}, {"note", NULL, 0}, {"note", "", 0}, {"note", "b", 1}};

static struct record plain_record(void)
{
    return (struct record){.at = {.partition = 3, .assignment = 1, .offset = 0x0102030405},
                           .topic = "requests",
                           .timestamp_ms = 1700000000123,
                           .key = "k",
                           .key_size = 1,
                           .value = "bad",
                           .value_size = 3,
                           .headers = own,
                           .n_headers = 5};
}

static struct err why(const char *text)
{
    struct err e;

    err_set(&e, ERR_UNKNOWN_LANGUAGE, ERR_SKIP, "%s", text);
    return e;
}

static struct record sent_back(const struct outgoing *o, int32_t partition, int64_t offset)
{
    return (struct record){.at = {.partition = partition, .assignment = 1, .offset = offset},
                           .topic = "dead",
                           .timestamp_ms = 1800000000000,
                           .key = o->key,
                           .key_size = o->key_size,
                           .value = o->value,
                           .value_size = o->value_size,
                           .headers = o->headers,
                           .n_headers = o->n_headers};
}

static const struct header *only(const struct outgoing *o, const char *name)
{
    const struct header *found = NULL;

    for (size_t i = 0; i < o->n_headers; i++)
        if (strcmp(o->headers[i].name, name) == 0) {
            cr_assert_null(found, "%s twice", name);
            found = &o->headers[i];
        }
    cr_assert_not_null(found, "%s is missing", name);
    return found;
}

static int64_t number(const struct outgoing *o, const char *name, size_t bytes)
{
    const struct header *h = only(o, name);
    uint64_t n = 0;

    cr_assert_eq(h->size, bytes, "%s has %zu bytes", name, h->size);
    for (size_t i = 0; i < bytes; i++)
        n = n << 8 | ((const unsigned char *)h->value)[i];
    return (int64_t)n;
}

static void assert_text(const struct outgoing *o, const char *name, const char *text)
{
    const struct header *h = only(o, name);

    cr_assert_eq(h->size, strlen(text));
    cr_assert_arr_eq(h->value, text, h->size);
}

Test(dead_letter, carries_the_record_untouched_and_the_names_kafka_users_know)
{
    struct record r = plain_record();
    struct err w = why("target_lang: \"xx\" is no language we know");
    struct outgoing o = {0};
    struct arena a;

    arena_init(&a, 1 << 16, 1 << 20);
    cr_assert_eq(dead_letter_build(&o, &r, &w, 1, &a, NULL), ERR_OK);
    cr_assert_eq(o.to, PUBLISH_DEAD_LETTER);
    cr_assert_eq(o.key, r.key);
    cr_assert_eq(o.value, r.value);
    cr_assert_eq(o.n_headers, 5 + 7);
    for (int i = 0; i < 5; i++) { /* in their order, repeated names, null and empty apart */
        cr_assert_str_eq(o.headers[i].name, own[i].name);
        cr_assert_eq(o.headers[i].value, own[i].value);
        cr_assert_eq(o.headers[i].size, own[i].size);
    }
    assert_text(&o, "kafka_dlt-original-topic", "requests");
    cr_assert_eq(number(&o, "kafka_dlt-original-partition", 4), 3);
    cr_assert_eq(number(&o, "kafka_dlt-original-offset", 8), 0x0102030405);
    cr_assert_eq(number(&o, "kafka_dlt-original-timestamp", 8), 1700000000123);
    assert_text(&o, "kafka_dlt-exception-fqcn", "UNKNOWN_LANGUAGE");
    assert_text(&o, "kafka_dlt-exception-message", w.msg);
    cr_assert_eq(number(&o, "kafka_dlt-attempts", 4), 1);
    arena_free(&a);
}

Test(dead_letter, null_key_and_value_stay_null_and_no_time_is_minus_one)
{
    struct record r = {.topic = "requests", .timestamp_ms = -1};
    struct err w = why("");
    struct outgoing o = {.key = "x", .value = "y"};
    struct arena a;

    arena_init(&a, 1 << 16, 1 << 20);
    cr_assert_eq(dead_letter_build(&o, &r, &w, 0, &a, NULL), ERR_OK);
    cr_assert_null(o.key);
    cr_assert_null(o.value);
    cr_assert_eq(number(&o, "kafka_dlt-original-timestamp", 8), -1);
    cr_assert_not_null(only(&o, "kafka_dlt-exception-message")->value, "empty, not null");
    arena_free(&a);
}

static size_t header_bytes(const struct outgoing *o)
{
    size_t n = 0;

    for (size_t i = 0; i < o->n_headers; i++)
        n += strlen(o->headers[i].name) + o->headers[i].size;
    return n;
}

Test(dead_letter, twenty_passes_keep_the_size_and_the_first_origin)
{
    struct record r = plain_record();
    struct err w = why("no such language");
    struct outgoing o = {0};
    struct arena a;
    size_t bytes = 0;

    arena_init(&a, 1 << 16, 1 << 20);
    for (int pass = 1; pass <= 20; pass++) {
        cr_assert_eq(dead_letter_build(&o, &r, &w, 1, &a, NULL), ERR_OK);
        cr_assert(pass == 1 || header_bytes(&o) == bytes, "pass %d: %zu bytes, before %zu", pass, header_bytes(&o),
                  bytes);
        bytes = header_bytes(&o);
        assert_text(&o, "kafka_dlt-original-topic", "requests");
        cr_assert_eq(number(&o, "kafka_dlt-original-partition", 4), 3);
        cr_assert_eq(number(&o, "kafka_dlt-original-offset", 8), 0x0102030405);
        cr_assert_eq(number(&o, "kafka_dlt-attempts", 4), pass);
        r = sent_back(&o, pass, pass * 1000);
    }
    arena_free(&a);
}

Test(dead_letter, the_latest_reason_replaces_the_first)
{
    struct record r = plain_record();
    struct err first = why("first"), second = why("second");
    struct outgoing o = {0};
    struct arena a;

    second.code = ERR_TEXT_TOO_LONG;
    arena_init(&a, 1 << 16, 1 << 20);
    cr_assert_eq(dead_letter_build(&o, &r, &first, 1, &a, NULL), ERR_OK);
    r = sent_back(&o, 0, 0);
    cr_assert_eq(dead_letter_build(&o, &r, &second, 2, &a, NULL), ERR_OK);
    assert_text(&o, "kafka_dlt-exception-message", "second");
    assert_text(&o, "kafka_dlt-exception-fqcn", "TEXT_TOO_LONG");
    cr_assert_eq(number(&o, "kafka_dlt-attempts", 4), 3);
    arena_free(&a);
}

Test(dead_letter, foreign_values_under_our_names_do_no_harm)
{
    static const struct header odd[] = {{"kafka_dlt-attempts", "\xFF\xFF\xFF\xFF", 4},
                                        {"kafka_dlt-original-topic", NULL, 0},
                                        {"kafka_dlt-original-topic", "again", 5},
                                        {"kafka_dlt-something-else", "kept", 4}};
    struct record r = plain_record();
    struct err w = why("w");
    struct outgoing o = {0};
    struct arena a;

    r.headers = odd;
    r.n_headers = 4;
    arena_init(&a, 1 << 16, 1 << 20);
    cr_assert_eq(dead_letter_build(&o, &r, &w, 1, &a, NULL), ERR_OK);
    cr_assert_null(only(&o, "kafka_dlt-original-topic")->value, "the first of that name stays as it is");
    assert_text(&o, "kafka_dlt-something-else", "kept");
    cr_assert_eq(number(&o, "kafka_dlt-attempts", 4), 1);
    arena_free(&a);
}

Test(dead_letter, without_memory_it_says_so)
{
    struct record r = plain_record();
    struct err w = why("w"), e;
    struct outgoing o = {0};
    struct arena a;

    arena_init(&a, 64, 64);
    cr_assert_eq(dead_letter_build(&o, &r, &w, 1, &a, &e), ERR_NOMEM);
    cr_assert_eq(e.act, ERR_RETRY);
    arena_free(&a);
}
