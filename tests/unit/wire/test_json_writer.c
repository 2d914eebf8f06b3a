#include "wire/json_writer.h"

#include "base/hash.h"

#include <criterion/criterion.h>
#include <float.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static char buf[4096];

static struct json_writer fresh(void)
{
    return (struct json_writer){.buf = buf, .cap = sizeof buf};
}

/* What jansson writes for v; takes v. */
static char *reference(json_t *v)
{
    char *s = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));

    json_decref(v);
    cr_assert_not_null(s);
    return s;
}

static void expect(const struct json_writer *w, json_t *v)
{
    char *want = reference(v);

    cr_assert_eq(w->n, strlen(want), "%.*s instead of %s", (int)w->n, buf, want);
    cr_assert_arr_eq(buf, want, w->n, "%.*s instead of %s", (int)w->n, buf, want);
    free(want);
}

static void check_real(double v)
{
    struct json_writer w = fresh();

    json_put_real(&w, v);
    expect(&w, json_real(v));
}

Test(json_writer, writes_reals_as_jansson_does)
{
    static const double cases[] = {0,
                                   -0.0,
                                   1,
                                   -1,
                                   0.7,
                                   0.6,
                                   1.05,
                                   1e-4,
                                   9.9e-5,
                                   1e6,
                                   999999,
                                   1e7,
                                   1e15,
                                   1e16,
                                   1e22,
                                   1e100,
                                   1e-7,
                                   1e-100,
                                   DBL_MAX,
                                   DBL_MIN,
                                   0.1,
                                   1.0 / 3,
                                   2.0 / 3,
                                   100,
                                   123456.789012,
                                   0.000123,
                                   1e5,
                                   -0.5,
                                   5e-324,
                                   1048576,
                                   1e-5,
                                   0.000100,
                                   999999.999999999};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_real(cases[i]);
    for (uint64_t i = 0; i < 300000; i++) {
        uint64_t h = hash_mix(i, 1), bits = hash_mix(h, 2);
        double any;
        memcpy(&any, &bits, sizeof any);
        check_real((double)(h % 1000000000000) / 1e6);                   /* times in ms, of whole ns */
        check_real(-(double)(h % 100000) / 256);                         /* log-probabilities */
        check_real((double)(float)((double)(h % 10000) / 1000));         /* floats that were short */
        check_real((double)(h >> 11) * 0x1p-53 * (double)(1 << i % 24)); /* no short form */
        check_real((double)(h % 1000003) / (double)(1 + bits % 999));
        check_real((double)(h % 9000000000000000 + 1000000000000000) / 1e10); /* a digit or two more than are told */
        if (isfinite(any))
            check_real(any);
    }
}

Test(json_writer, writes_reals_next_to_powers_of_ten_and_halfway)
{
    for (int k = -6; k <= 8; k++) {
        double up = pow(10, k), down = up;
        for (int i = 0; i < 2000; i++) {
            check_real(up);
            check_real(down);
            up = nextafter(up, INFINITY);
            down = nextafter(down, 0);
        }
    }
    for (int i = 1; i < 4096; i++) /* sixteen digits, the last of them a 5 */
        check_real(65536 * 8 + i * 0x1p-11);
}

Test(json_writer, writes_integers)
{
    static const int64_t cases[] = {0, 1, -1, 9, 10, -10, 99, 100, 4711, INT32_MIN, INT32_MAX, INT64_MIN, INT64_MAX};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct json_writer w = fresh();
        json_put_int(&w, cases[i]);
        expect(&w, json_integer(cases[i]));
    }
}

Test(json_writer, escapes_texts_as_jansson_does)
{
    char text[3];

    for (int c = 0; c < 0x80; c++) {
        struct json_writer w = fresh();
        memcpy(text, (char[]){'a', (char)c, 'b'}, 3);
        cr_assert(json_put_text(&w, (struct text){text, 3}));
        expect(&w, json_stringn(text, 3));
    }
    static const char *const cases[] = {"", "\"", "\\\\", "\n", "a\u4e16\U0001f30d\"b", "\x7f/\u2028", "\x01\x02"};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct json_writer w = fresh();
        cr_assert(json_put_text(&w, (struct text){cases[i], strlen(cases[i])}));
        expect(&w, json_string(cases[i]));
    }
}

Test(json_writer, escapes_wherever_in_a_long_text)
{
    static const char *const parts[] = {"\"", "\\", "\x1f", "\x7f",   " ",      "!",
                                        "#",  "[",  "]",    "\u00e9", "\u4e16", "\U0001f30d"};
    char text[64];

    for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++) {
        size_t n = strlen(parts[p]);
        for (size_t at = 0; at + n <= 40; at++) {
            struct json_writer w = fresh();
            memset(text, 'x', sizeof text);
            memcpy(text + at, parts[p], n);
            cr_assert(json_put_text(&w, (struct text){text, 40}));
            expect(&w, json_stringn(text, 40));
        }
    }
}

Test(json_writer, refuses_what_is_not_utf8)
{
    char text[40];
    static const char *const cases[] = {"\xC3", "a\x80", "\xED\xA0\x80", "\xF5\x80\x80\x80"};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct json_writer w = fresh();
        cr_assert_not(json_put_text(&w, (struct text){cases[i], strlen(cases[i])}));
        cr_assert_eq(w.n, 0);
        memset(text, 'x', sizeof text);
        memcpy(text + sizeof text - strlen(cases[i]), cases[i], strlen(cases[i]));
        json_put(&w, "[", 1);
        cr_assert_not(json_put_text(&w, (struct text){text, sizeof text}));
        cr_assert_eq(w.n, 1);
    }
}

Test(json_writer, counts_what_does_not_fit_and_writes_nothing_past_the_end)
{
    for (size_t cap = 0; cap < 16; cap++) {
        struct json_writer w = {.buf = buf, .cap = cap};
        memset(buf, '#', sizeof buf);
        cr_assert(json_put_text(&w, (struct text){"ab\ncd", 5}));
        json_put_int(&w, -12);
        json_put_real(&w, 1.5);
        cr_assert_eq(w.n, 14);
        cr_assert_arr_eq(buf, "\"ab\\ncd\"-121.5", cap < 14 ? cap : 14);
        cr_assert_eq(buf[cap < 14 ? cap : 14], '#');
    }
}
