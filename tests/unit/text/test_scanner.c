#include "text/scanner.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tests/support/pcre2_classes.h"
#include "tests/support/tokenizers.h"
#include "text/pattern.h"

struct both {
    struct charclass *cc;
    bool *unknown; /* to PCRE2: it may be of an older Unicode than the classes */
    scanner_next *next;
    struct regex *regex;
};

/* Leaves out what only one of the two knows. */
static size_t keep_known(const struct both *b, char *s, size_t n)
{
    size_t m = 0;
    uint32_t c;

    for (size_t i = 0, len; i < n; i += len) {
        len = (size_t)utf8_next(s + i, n - i, &c);
        if (b->unknown[c] && charclass_get(b->cc, c))
            continue;
        memmove(s + m, s + i, len);
        m += len;
    }
    return m;
}

static void compare(const struct both *b, const char *s, size_t begin, size_t end)
{
    size_t pos = begin, from, to, want_from, want_to;
    bool more = true;

    while (more && pos < end) {
        more = regex_next(b->regex, s, begin, pos, end, &want_from, &want_to);
        cr_assert_eq(b->next(b->cc, (const unsigned char *)s, pos, end, &from, &to), more);
        cr_assert(!more || (from == want_from && to == want_to), "at %zu of \"%.*s\": %zu-%zu, should be %zu-%zu", pos,
                  (int)(end - begin), s + begin, from, to, want_from, want_to);
        pos = to;
    }
}

static void setup(struct both *b, const char *pattern)
{
    char translated[4096];

    b->cc = malloc(sizeof *b->cc);
    cr_assert_not_null(b->cc);
    charclass_init(b->cc);
    b->unknown = regex_members("\\p{Cn}");
    b->next = scanner_find(pattern, strlen(pattern));
    cr_assert(b->next);
    cr_assert_null(pattern_translate(pattern, strlen(pattern), translated, sizeof translated));
    b->regex = regex_must_compile(translated);
}

static void teardown(struct both *b)
{
    free(b->cc);
    free(b->unknown);
    regex_free(b->regex);
}

/* Short strings of what the patterns tell apart: all of up to four characters. */
static void compare_short(const struct both *b)
{
    static const char *const atoms[] = {"a",
                                        "S",
                                        "t",
                                        "l",
                                        "v",
                                        "e",
                                        "'",
                                        "\xC5\xBF",
                                        " ",
                                        "\n",
                                        "\r",
                                        "\t",
                                        "1",
                                        "½",
                                        ".",
                                        "+",
                                        "中",
                                        "の",
                                        "\xCC\x81",
                                        "\x01",
                                        "\xC2\x85",
                                        "\xE3\x80\x80",
                                        "\xE2\x80\x8B",
                                        "\xE1\xA0\x8E"};
    enum { ATOMS = sizeof atoms / sizeof *atoms };
    char s[32];

    for (size_t i = 0; i < (size_t)ATOMS * ATOMS * ATOMS * ATOMS; i++) {
        size_t n = 0;
        for (size_t k = 0, rest = i; k < 4; k++, rest /= ATOMS) {
            memcpy(s + n, atoms[rest % ATOMS], strlen(atoms[rest % ATOMS]));
            n += strlen(atoms[rest % ATOMS]);
        }
        compare(b, s, 0, n);
    }
}

static void compare_random(const struct both *b)
{
    char s[4 * 60];
    uint64_t seed = 11;

    for (int i = 0; i < 20000; i++) {
        size_t n = keep_known(b, s, random_text(&seed, 60, s)), begin = 0;
        compare(b, s, 0, n);
        /* a piece of the text: nothing outside it may count */
        for (int skip = (int)(next_random(&seed) % 8); skip && begin < n; skip--)
            begin += (size_t)utf8_next(s + begin, n - begin, NULL);
        while (n > begin && next_random(&seed) % 4)
            do
                n--;
            while (n > begin && (s[n] & 0xC0) == 0x80);
        compare(b, s, begin, n);
    }
}

Test(scanner, matches_what_pcre2_matches)
{
    for (size_t i = 0; scanner_pattern(i); i++) {
        struct both b;
        setup(&b, scanner_pattern(i));
        compare_short(&b);
        compare_random(&b);
        teardown(&b);
    }
}

Test(scanner, is_chosen_by_the_exact_pattern)
{
    const char *p = scanner_pattern(0);

    cr_assert_not_null(p);
    cr_expect(scanner_find(p, strlen(p)));
    cr_expect_not(scanner_find(p, strlen(p) - 1));
    cr_expect_not(scanner_find("\\s+", 3));
    cr_expect_not(scanner_find("", 0));
}
