#include "text/pattern.h"

#include <criterion/criterion.h>
#include <string.h>

#include "tests/support/pcre2_classes.h"

static bool matches_all(const char *pattern, const char *text)
{
    char translated[2048];
    struct regex *r;
    size_t from, to;
    bool all;

    cr_assert_null(pattern_translate(pattern, strlen(pattern), translated, sizeof translated), "%s", pattern);
    r = regex_must_compile(translated);
    all = regex_next(r, text, 0, 0, strlen(text), &from, &to) && from == 0 && to == strlen(text);
    regex_free(r);
    return all;
}

Test(pattern, keeps_the_meaning_of_what_it_lets_through)
{
    cr_expect(matches_all("\\p{N}{1,3}", "123"));
    cr_expect(matches_all("(?i:'s|'t)", "'S"));
    cr_expect(matches_all("[^\\r\\n\\p{L}]?\\p{Lu}+(?!\\S)", "-ABC"));
    cr_expect(matches_all("(a|b){2,}[\\]\\[\\\\-]", "abab-"));
    cr_expect(matches_all("[一-龥]+", "中文"));
    cr_expect(matches_all("\\d\\P{L}\\S", "1.x"));
}

/* PCRE2's own \s has U+180E as well. */
Test(pattern, white_space_is_unicodes)
{
    static const char *const spaces[] = {" ", "\t", "\x0b", "\xC2\x85", "\xC2\xA0", "\xE2\x80\xA8", "\xE3\x80\x80"};
    static const char *const none[] = {"\x1c", "\x1f", "\xE1\xA0\x8E", "\xE2\x80\x8B", "\xEF\xBB\xBF", "a"};

    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++) {
        cr_expect(matches_all("\\s", spaces[i]));
        cr_expect(matches_all("[\\sx]", spaces[i]));
        cr_expect_not(matches_all("\\S", spaces[i]));
    }
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        cr_expect(matches_all("\\S", none[i]));
        cr_expect(matches_all("[^\\s]", none[i]));
        cr_expect_not(matches_all("\\s", none[i]));
    }
}

Test(pattern, refuses_where_the_dialects_part)
{
    static const char *const refused[] = {
        "\\w+",    "\\b",    "a.c",      "^a",    "a$",    "(?<=a)b",  "(?<!a)b",        "(?<n>a)",
        "(?>a)",   "[a[b]]", "[a&&b]",   "[]a]",  "[a",    "\\p{Han}", "\\pL",           "\\p{L",
        "\\p{^L}", "a{,3}",  "a{2}{3}",  "a{2}+", "a{2}?", "a{1001}",  "a{99999999999}", "a{x}",
        "\\1",     "\\x41",  "\\",       "[\\S]", "\\Q",   "(?#c)",    "(?i)a",          "a\xFF",
        "\\K",     "[\\w]",  "a{1,2,3}",
    };
    char out[2048];

    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        cr_expect_not_null(pattern_translate(refused[i], strlen(refused[i]), out, sizeof out), "%s", refused[i]);
    cr_expect_not_null(pattern_translate("a\0b", 3, out, sizeof out));
    cr_expect_not_null(pattern_translate("aaaaaaaa", 8, out, 8));
    cr_expect_null(pattern_translate("aaaaaaa", 7, out, 8));
}
