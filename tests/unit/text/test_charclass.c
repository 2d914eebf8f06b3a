#include "text/charclass.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#include "tests/support/pcre2_classes.h"

/* Both libraries follow Unicode; they may know different versions of it. */
Test(charclass, agrees_with_pcre2_on_every_character_that_it_knows)
{
    static const struct {
        const char *pattern;
        unsigned class;
    } classes[] = {{"\\p{L}", CH_L},
                   {"\\p{M}", CH_M},
                   {"\\p{N}", CH_N},
                   {"\\p{P}", CH_P},
                   {"\\p{S}", CH_S},
                   {"[\\r\\n]", CH_NEWLINE},
                   {"[一-龥぀-ゟ゠-ヿ]", CH_CJK}};
    bool *unknown = regex_members("\\p{Cn}");

    for (size_t k = 0; k < sizeof classes / sizeof *classes; k++) {
        bool *is = regex_members(classes[k].pattern);
        size_t wrong = 0, members = 0;
        for (uint32_t c = 0; c < 0x110000; c++) {
            bool has = charclass_of(c) & classes[k].class;
            members += has;
            wrong += has != is[c] && !unknown[c];
        }
        cr_expect(wrong == 0 && members > 0, "%s: %zu of %zu differ", classes[k].pattern, wrong, members);
        free(is);
    }
    free(unknown);
}

Test(charclass, white_space_is_unicodes)
{
    static const uint32_t spaces[] = {9,      10,     11,     12,     13,     0x20,   0x85,   0xA0,   0x1680,
                                      0x2000, 0x2001, 0x2002, 0x2003, 0x2004, 0x2005, 0x2006, 0x2007, 0x2008,
                                      0x2009, 0x200A, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000};
    size_t n = 0;

    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++)
        cr_expect(charclass_of(spaces[i]) & CH_SPACE, "U+%04X", spaces[i]);
    for (uint32_t c = 0; c < 0x110000; c++)
        n += (charclass_of(c) & CH_SPACE) != 0;
    cr_expect_eq(n, sizeof spaces / sizeof *spaces); /* no U+001C, U+180E, U+200B, U+FEFF */
}

/* One of each that Unicode 15.1 and 16.0 added, whatever the library's version. */
Test(charclass, knows_what_unicode_16_added)
{
    cr_expect_eq(charclass_of(0x2EBF0), CH_L);
    cr_expect_eq(charclass_of(0x0897), CH_M);
    cr_expect_eq(charclass_of(0x10D40), CH_N);
    cr_expect_eq(charclass_of(0x1B4E), CH_P);
    cr_expect_eq(charclass_of(0x1FAE9), CH_S);
    cr_expect_eq(charclass_of(0x0378), 0);
}

Test(charclass, reads_a_character_of_any_length)
{
    static const struct {
        const char *s;
        size_t len;
        unsigned class;
    } cases[] = {
        {"a", 1, CH_L}, {"é", 2, CH_L}, {"中", 3, CH_L | CH_CJK}, {"😀", 4, CH_S}, {"\n", 1, CH_SPACE | CH_NEWLINE}};
    struct charclass *cc = malloc(sizeof *cc);
    size_t len;

    cr_assert_not_null(cc);
    charclass_init(cc);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_expect_eq(charclass_at(cc, (const unsigned char *)cases[i].s, &len), cases[i].class, "%s", cases[i].s);
        cr_expect_eq(len, cases[i].len);
    }
    for (uint32_t c = 0; c < 0x110000; c += 7)
        cr_expect_eq(charclass_get(cc, c), charclass_of(c));
    free(cc);
}
