#include "text/normalizer.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tests/support/tokenizers.h"

static void expect_nfc(const char *text, const char *want)
{
    struct text_buffer b = {NULL, 0};
    size_t len = strlen(text);
    struct err e;

    cr_assert_eq(normalizer_nfc(&b, &text, &len, &e), ERR_OK, "%s", e.msg);
    cr_expect(len == strlen(want) && memcmp(text, want, len) == 0, "%.*s, should be %s", (int)len, text, want);
    text_buffer_free(&b);
}

Test(normalizer, composes)
{
    expect_nfc("", "");
    expect_nfc("plain", "plain");
    expect_nfc("e\xCC\x81", "\xC3\xA9");
    expect_nfc("a\xCC\x81\xCC\xA3", "\xE1\xBA\xA1\xCC\x81");            /* marks in order, then composed */
    expect_nfc("\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB", "\xED\x95\x9C"); /* Hangul */
    expect_nfc("\xE2\x84\xAB", "\xC3\x85");                             /* the angstrom sign */
    expect_nfc("\xEF\xA4\x80", "\xE8\xB1\x88");                         /* a compatibility ideograph */
    expect_nfc("\xEF\xAC\x81", "\xEF\xAC\x81");                         /* a ligature stays: that would be NFKC */
}

Test(normalizer, result_is_stable_and_valid)
{
    struct text_buffer b = {NULL, 0};
    char text[4 * 100], once[16 * 400];
    uint64_t seed = 17;

    for (int i = 0; i < 3000; i++) {
        size_t n = random_text(&seed, 100, text), m;
        const char *s = text;
        cr_assert_eq(normalizer_nfc(&b, &s, &n, NULL), ERR_OK);
        cr_assert_eq(utf8_valid(s, n), n);
        memcpy(once, s, n);
        s = once;
        m = n;
        cr_assert_eq(normalizer_nfc(&b, &s, &m, NULL), ERR_OK);
        cr_assert(m == n && memcmp(s, once, n) == 0);
    }
    text_buffer_free(&b);
}

/* Sorting n marks takes n * n steps in the library. */
Test(normalizer, refuses_endless_marks)
{
    struct text_buffer b = {NULL, 0};
    char text[1 + 2 * 1025];
    const char *s = text;
    size_t n = sizeof text;
    struct err e;

    text[0] = 'a';
    for (int i = 0; i < 1025; i++)
        memcpy(text + 1 + 2 * i, i % 2 ? "\xCC\x81" : "\xCC\xA3", 2);
    cr_expect_eq(normalizer_nfc(&b, &s, &n, &e), ERR_INVALID_FIELD);
    cr_expect_eq(e.act, ERR_SKIP);
    n -= 2;
    s = text;
    cr_expect_eq(normalizer_nfc(&b, &s, &n, &e), ERR_OK);
    text_buffer_free(&b);
}

Test(normalizer, repairs_utf8)
{
    char out[32];

    cr_expect_eq(utf8_repair("", 0, out), 0);
    cr_expect_eq(utf8_repair("ab", 2, out), 2);
    cr_expect_eq(utf8_repair("a\xE4\xB8z\xFF\xFF", 6, out), 11);
    cr_expect_arr_eq(out, "a\xEF\xBF\xBDz\xEF\xBF\xBD\xEF\xBF\xBD", 11);
}
