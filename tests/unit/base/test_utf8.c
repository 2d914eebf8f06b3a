#include "base/utf8.h"

#include <criterion/criterion.h>
#include <string.h>

/* One code point in UTF-8, by the definition. */
static int put(uint32_t c, char *out)
{
    unsigned char *p = (unsigned char *)out;

    if (c < 0x80) {
        p[0] = (unsigned char)c;
        return 1;
    }
    if (c < 0x800) {
        p[0] = (unsigned char)(0xC0 | c >> 6);
        p[1] = (unsigned char)(0x80 | (c & 63));
        return 2;
    }
    if (c < 0x10000) {
        p[0] = (unsigned char)(0xE0 | c >> 12);
        p[1] = (unsigned char)(0x80 | (c >> 6 & 63));
        p[2] = (unsigned char)(0x80 | (c & 63));
        return 3;
    }
    p[0] = (unsigned char)(0xF0 | c >> 18);
    p[1] = (unsigned char)(0x80 | (c >> 12 & 63));
    p[2] = (unsigned char)(0x80 | (c >> 6 & 63));
    p[3] = (unsigned char)(0x80 | (c & 63));
    return 4;
}

Test(utf8, accepts_every_scalar_value_and_no_surrogate)
{
    char s[4];
    uint32_t back;

    for (uint32_t c = 0; c <= 0x110000; c++) {
        int n = put(c, s);
        bool valid = c <= 0x10FFFF && !(c >= 0xD800 && c <= 0xDFFF);
        cr_assert_eq(utf8_next(s, (size_t)n, &back), valid ? n : 0, "U+%04X", c);
        if (valid)
            cr_assert_eq(back, c);
    }
}

Test(utf8, refuses_what_is_no_character)
{
    static const char *const bad[] = {"\x80",         "\xC0\x80",         "\xC1\xBF",         "\xE0\x80\x80",
                                      "\xE0\x9F\xBF", "\xF0\x80\x80\x80", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80",
                                      "\xFF",         "\xE4\xBD",         "\xE4\x41\x41",     "\xC3"};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        cr_assert_eq(utf8_next(bad[i], strlen(bad[i]), NULL), 0, "case %zu", i);
    cr_assert_eq(utf8_next("", 0, NULL), 0);
}

Test(utf8, valid_finds_the_first_bad_byte_at_any_offset)
{
    char s[64];

    for (size_t at = 0; at < 40; at++) {
        memset(s, 'x', sizeof s);
        s[at] = '\xFF';
        cr_assert_eq(utf8_valid(s, sizeof s), at);
    }
    cr_assert_eq(utf8_valid("a\xC3\xA4", 3), 3);
}

Test(utf8, incomplete_tail_counts_what_may_still_become_a_character)
{
    static const struct {
        const char *s;
        int want;
    } cases[] = {{"", 0},         {"a", 0},        {"\xC3", 1},     {"\xE4\xBD", 2}, {"\xF0\x9F\x98", 3},
                 {"\xC3\xA4", 0}, {"\x80", 0},     {"\xE0\x80", 0}, {"\xED\xA0", 0}, {"\xF4\x90", 0},
                 {"\xC0", 0},     {"\xF0\x8F", 0}, {"\xF0\x90", 2}, {"a\xE4", 1},    {"\xE4\xBD\xA0\xE5", 1},
                 {"\xFF", 0}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        cr_assert_eq(utf8_incomplete_tail(cases[i].s, strlen(cases[i].s)), cases[i].want, "case %zu", i);
}

Test(utf8, invalid_part_is_the_longest_beginning_of_a_character)
{
    static const struct {
        const char *s;
        int want;
    } cases[] = {{"\x80", 1},         {"\xFF\xFF", 1},     {"\xC3", 1},         {"\xC3z", 1},
                 {"\xE4\xBD", 2},     {"\xE4\xBDz", 2},    {"\xE0\x80\x80", 1}, {"\xED\xA0\x80", 1},
                 {"\xF0\x9F\x98", 3}, {"\xF0\x9F\xF0", 2}, {"\xF0\x8F\x80", 1}, {"\xF4\x90\x80", 1},
                 {"\xC0\xAF", 1},     {"\xE4\xE4", 1},     {"\xF5\x80\x80", 1}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        cr_assert_eq(utf8_invalid(cases[i].s, strlen(cases[i].s)), cases[i].want, "case %zu", i);
}
