#include "wire/schema.h"

#include "base/clock.h"
#include "wire/avro_walk.h"

#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RECORD(fields) "{\"type\":\"record\",\"name\":\"R\",\"fields\":[" fields "]}"
#define FIELD(type)    RECORD("{\"name\":\"f\",\"type\":" type "}")

static uint64_t fingerprint_of(const char *text)
{
    struct schema *s;
    struct err e;

    cr_assert_eq(schema_open(&s, text, strlen(text), &e), ERR_OK, "%s: %s", text, e.msg);
    uint64_t fp = s->fingerprint;
    schema_close(s);
    return fp;
}

/* the specification's own example of CRC-64-AVRO, and fastavro's of a record */
Test(schema, fingerprints_are_those_of_the_specification)
{
    cr_assert_eq(crc64_avro("\"null\"", 6), 0x63dd24e7cc258f8a);
    cr_assert_eq(crc64_avro("\"string\"", 8), 0x8f014872634503c7);
    cr_assert_eq(crc64_avro("", 0), 0xc15d213aa4d7a795);
}

Test(schema, the_canonical_form_ignores_what_does_not_matter)
{
    static const char plain[] =
        "{\"name\":\"a.b.R\",\"type\":\"record\",\"fields\":[{\"name\":\"f\",\"type\":\"string\"},"
        "{\"name\":\"g\",\"type\":{\"name\":\"a.b.E\",\"type\":\"enum\",\"symbols\":[\"X\",\"Y\"]}},"
        "{\"name\":\"h\",\"type\":[\"null\",\"a.b.E\"]}]}";
    static const char wordy[] =
        " {\"fields\" : [ {\"type\": {\"type\":\"string\",\"avro.java.string\":\"String\"}, \"doc\":\"d\", "
        "\"name\":\"f\", \"order\":\"ignore\", \"aliases\":[\"q\"]},\n {\"name\":\"g\", \"default\":\"X\", "
        "\"type\":{\"symbols\":[\"X\",\"Y\"],\"doc\":\"\\u00e9\",\"type\":\"enum\",\"name\":\"E\",\"default\":\"Y\"}},"
        "{\"default\":null,\"name\":\"h\",\"type\":[\"null\",\"E\"]}], \"namespace\":\"a.b\", \"name\":\"R\", "
        "\"type\":\"record\", \"doc\":\"x\"}";

    cr_assert_eq(fingerprint_of(plain), crc64_avro(plain, strlen(plain)), "is canonical already");
    cr_assert_eq(fingerprint_of(wordy), fingerprint_of(plain));
}

Test(schema, names_are_resolved_by_namespace)
{
    /* a full name makes the namespace inside; an empty namespace is none; a name without dot falls back to none */
    static const char *const texts[] = {
        "{\"type\":\"record\",\"name\":\"x.y.R\",\"namespace\":\"ignored\",\"fields\":["
        "{\"name\":\"a\",\"type\":{\"type\":\"fixed\",\"name\":\"F\",\"size\":4}},{\"name\":\"b\",\"type\":\"F\"},"
        "{\"name\":\"c\",\"type\":\"x.y.F\"}]}",
        "{\"type\":\"record\",\"name\":\"R\",\"namespace\":\"\",\"fields\":["
        "{\"name\":\"a\",\"type\":{\"type\":\"fixed\",\"name\":\"F\",\"size\":4}},{\"name\":\"b\",\"type\":\"F\"}]}",
        "{\"type\":\"record\",\"name\":\"n.R\",\"fields\":["
        "{\"name\":\"a\",\"type\":{\"type\":\"record\",\"name\":\"m.F\",\"fields\":[{\"name\":\"x\",\"type\":"
        "{\"type\":\"enum\",\"name\":\"E\",\"symbols\":[\"A\"]}}]}},{\"name\":\"b\",\"type\":\"m.E\"}]}",
    };

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        fingerprint_of(texts[i]);
}

/* avro-c puts a name without a namespace into the enclosing one, so that E and a.E would be one type, recursive here */
Test(schema, types_that_differ_in_namespace_alone_are_kept_apart)
{
    static const char text[] =
        "{\"type\":\"record\",\"name\":\"a.R\",\"fields\":["
        "{\"name\":\"f\",\"type\":{\"type\":\"enum\",\"name\":\"a.E\",\"symbols\":[\"X\"]}},"
        "{\"name\":\"g\",\"type\":{\"type\":\"record\",\"name\":\"E\",\"namespace\":\"\",\"fields\":["
        "{\"name\":\"x\",\"type\":\"a.E\"}]}},{\"name\":\"h\",\"type\":\"a.E\"}]}";
    struct schema *s;
    struct err e;

    cr_assert_eq(schema_open(&s, text, strlen(text), &e), ERR_OK, "%s", e.msg);
    cr_assert_eq(avro_walk(s->avro, "\0\0\0", 3, 100, &e), ERR_OK, "%s", e.msg);
    schema_close(s);
}

Test(schema, notices_a_deadline_in_microseconds)
{
    static const struct {
        const char *type;
        bool micros;
    } cases[] = {
        {"\"long\"", false},
        {"{\"type\":\"long\",\"logicalType\":\"timestamp-millis\"}", false},
        {"{\"type\":\"long\",\"logicalType\":\"timestamp-micros\"}", true},
        {"[\"null\",{\"type\":\"long\",\"logicalType\":\"timestamp-micros\"}]", true},
        {"[{\"type\":\"long\",\"logicalType\":\"timestamp-micros\"},\"null\"]", true},
        {"[\"null\",{\"type\":\"long\",\"logicalType\":\"timestamp-millis\"}]", false},
    };
    char text[512];
    struct schema *s;
    struct err e;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(text, sizeof text, RECORD("{\"name\":\"deadline\",\"type\":%s}"), cases[i].type);
        cr_assert_eq(schema_open(&s, text, strlen(text), &e), ERR_OK, "%s", e.msg);
        cr_assert_eq(s->deadline_micros, cases[i].micros, "%s", text);
        schema_close(s);
    }
}

Test(schema, refuses_by_name_what_avro_c_would_trip_over)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "not valid JSON"},
        {"{", "not valid JSON"},
        {"{\"type\":\"record\",\"type\":\"record\"}", "not valid JSON"},
        {"3", "no string, array or object"},
        {"null", "no string, array or object"},
        {"\"string\"", "no record"},
        {"[\"null\",\"string\"]", "no record"},
        {"{}", "\"type\" is no string"},
        {"{\"type\":{\"type\":\"string\"}}", "\"type\" is no string"},
        {"{\"type\":\"record\",\"fields\":[]}", "without a valid name"},
        {"{\"type\":\"record\",\"name\":\"int\",\"fields\":[]}", "without a valid name"},
        {"{\"type\":\"record\",\"name\":\"a..b\",\"fields\":[]}", "without a valid name"},
        {"{\"type\":\"record\",\"name\":\"R\",\"namespace\":7,\"fields\":[]}", "namespace"},
        {"{\"type\":\"record\",\"name\":\"R\",\"namespace\":\"a b\",\"fields\":[]}", "namespace"},
        {"{\"type\":\"record\",\"name\":\"R\"}", "no fields"},
        {RECORD(""), "no fields"},
        {RECORD("3"), "no valid name"},
        {RECORD("{\"name\":\"a-b\",\"type\":\"int\"}"), "no valid name"},
        {RECORD("{\"name\":\"a\"}"), "no type"},
        {RECORD("{\"name\":\"a\",\"type\":\"int\"},{\"name\":\"a\",\"type\":\"int\"}"), "twice"},
        {FIELD("\"strin\""), "not defined"},
        {FIELD("\"x y\""), "no type"},
        {FIELD("\"R\""), "recursive"},
        {FIELD("[\"null\",\"R\"]"), "recursive"},
        {FIELD("{\"type\":\"array\",\"items\":\"R\"}"), "recursive"},
        {FIELD("{\"type\":\"array\"}"), "without items"},
        {FIELD("{\"type\":\"map\"}"), "without values"},
        {FIELD("{\"type\":\"array\",\"items\":\"null\"}"), "take no bytes"},
        {FIELD("{\"type\":\"map\",\"values\":\"null\"}"), "take no bytes"},
        {FIELD("{\"type\":\"array\",\"items\":{\"type\":\"record\",\"name\":\"Z\",\"fields\":[{\"name\":\"n\","
               "\"type\":\"null\"}]}}"),
         "take no bytes"},
        {FIELD("[]"), "without branches"},
        {FIELD("[\"null\",[\"int\"]]"), "union in a union"},
        {FIELD("[\"int\",\"int\"]"), "same branch twice"},
        {FIELD("[{\"type\":\"array\",\"items\":\"int\"},{\"type\":\"array\",\"items\":\"long\"}]"),
         "same branch twice"},
        {FIELD("{\"type\":\"enum\",\"name\":\"E\"}"), "no symbols"},
        {FIELD("{\"type\":\"enum\",\"name\":\"E\",\"symbols\":[]}"), "no symbols"},
        {FIELD("{\"type\":\"enum\",\"name\":\"E\",\"symbols\":[3]}"), "is no name"},
        {FIELD("{\"type\":\"enum\",\"name\":\"E\",\"symbols\":[\"A\",\"A\"]}"), "twice"},
        {FIELD("{\"type\":\"enum\",\"name\":\"R\",\"symbols\":[\"A\"]}"), "defined twice"},
        {FIELD("{\"type\":\"fixed\",\"name\":\"F\"}"), "size must be"},
        {FIELD("{\"type\":\"fixed\",\"name\":\"F\",\"size\":0}"), "size must be"},
        {FIELD("{\"type\":\"fixed\",\"name\":\"F\",\"size\":-1}"), "size must be"},
        {FIELD("{\"type\":\"fixed\",\"name\":\"F\",\"size\":1099511627776}"), "size must be"},
    };
    struct schema *s;
    struct err e;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_assert_eq(schema_open(&s, cases[i].text, strlen(cases[i].text), &e), ERR_UNKNOWN_SCHEMA, "%s",
                     cases[i].text);
        cr_assert_null(s);
        cr_assert_eq(e.act, ERR_SKIP);
        cr_assert(strstr(e.msg, "schema refused: ") == e.msg && strstr(e.msg, cases[i].says), "%s: %s", cases[i].text,
                  e.msg);
    }
}

struct buffer {
    char *s;
    size_t n, cap;
};

static void __attribute__((format(printf, 2, 3))) add(struct buffer *b, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    int n = vsnprintf(b->s + b->n, b->cap - b->n, fmt, ap);
    va_end(ap);
    cr_assert_lt((size_t)n, b->cap - b->n);
    b->n += (size_t)n;
}

static void assert_refused(const struct buffer *b, const char *says)
{
    int64_t t0 = clock_mono_ns();
    struct schema *s;
    struct err e;

    cr_assert_eq(schema_open(&s, b->s, b->n, &e), ERR_UNKNOWN_SCHEMA, "%s", says);
    cr_assert(strstr(e.msg, says), "%s", e.msg);
    cr_assert_lt(clock_mono_ns() - t0, 2 * NS_PER_S);
}

Test(schema, size_depth_and_expansion_are_bounded)
{
    struct buffer b = {.cap = 4 << 20};
    b.s = malloc(b.cap);
    cr_assert(b.s);

    memset(b.s, ' ', b.cap);
    b.n = SCHEMA_MAX_TEXT + 1;
    assert_refused(&b, "1048577 bytes");

    b.n = 0;
    add(&b, "{\"type\":\"record\",\"name\":\"R\",\"fields\":[{\"name\":\"f\",\"type\":");
    for (int i = 0; i < 40; i++)
        add(&b, "{\"type\":\"array\",\"items\":");
    add(&b, "\"int\"");
    for (int i = 0; i < 40; i++)
        add(&b, "}");
    add(&b, "}]}");
    assert_refused(&b, "levels deep");

    /* deep by way of names: each is used by the next, none inside the other */
    b.n = 0;
    add(&b, "{\"type\":\"record\",\"name\":\"R\",\"fields\":[{\"name\":\"f\",\"type\":{\"type\":\"record\","
            "\"name\":\"N0\",\"fields\":[{\"name\":\"x\",\"type\":\"int\"}]}}");
    for (int i = 1; i < 40; i++)
        add(&b,
            ",{\"name\":\"f%d\",\"type\":{\"type\":\"record\",\"name\":\"N%d\",\"fields\":[{\"name\":\"x\","
            "\"type\":\"N%d\"}]}}",
            i, i, i - 1);
    add(&b, "]}");
    assert_refused(&b, "levels deep");

    /* 2^25 values in 25 records */
    b.n = 0;
    add(&b, "{\"type\":\"record\",\"name\":\"R\",\"fields\":[{\"name\":\"f\",\"type\":{\"type\":\"record\","
            "\"name\":\"N0\",\"fields\":[{\"name\":\"x\",\"type\":\"int\"}]}}");
    for (int i = 1; i < 25; i++)
        add(&b,
            ",{\"name\":\"f%d\",\"type\":{\"type\":\"record\",\"name\":\"N%d\",\"fields\":[{\"name\":\"x\","
            "\"type\":\"N%d\"},{\"name\":\"y\",\"type\":\"N%d\"}]}}",
            i, i, i - 1, i - 1);
    add(&b, "]}");
    assert_refused(&b, "expands to more than");

    b.n = 0;
    add(&b, "{\"type\":\"record\",\"name\":\"R\",\"fields\":[");
    for (int i = 0; i < 1025; i++)
        add(&b, "%s{\"name\":\"f%d\",\"type\":\"int\"}", i ? "," : "", i);
    add(&b, "]}");
    assert_refused(&b, "more than 1024 fields");

    b.n = 0;
    add(&b, "{\"type\":\"record\",\"name\":\"R\",\"fields\":[{\"name\":\"f\",\"type\":{\"type\":\"enum\","
            "\"name\":\"E\",\"symbols\":[");
    for (int i = 0; i < 5000; i++)
        add(&b, "%s\"S%d\"", i ? "," : "", i);
    add(&b, "]}}]}");
    assert_refused(&b, "more than 4096");

    b.n = 0;
    for (int i = 0; i < 100000; i++)
        add(&b, "[");
    assert_refused(&b, "not valid JSON");
    free(b.s);
}
