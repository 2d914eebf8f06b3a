#include "text/language.h"

#include <criterion/criterion.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

Test(language, has_the_38_by_code_and_by_name_in_any_case)
{
    const struct language *l;
    size_t n = 0;

    for (; (l = language_at(n)); n++) {
        char upper[64] = "";
        cr_expect_eq(language_find(l->code), l);
        cr_expect_eq(language_find(l->english), l);
        for (size_t i = 0; l->english[i]; i++)
            upper[i] = (char)toupper((unsigned char)l->english[i]);
        cr_expect_eq(language_find(upper), l, "%s", upper);
        for (size_t i = 0; i <= strlen(l->code); i++)
            upper[i] = (char)toupper((unsigned char)l->code[i]);
        cr_expect_eq(language_find(upper), l, "%s", upper);
        for (size_t k = 0; k < n; k++)
            cr_expect(strcmp(l->code, language_at(k)->code) != 0 && strcmp(l->chinese, language_at(k)->chinese) != 0);
    }
    cr_expect_eq(n, 38);
}

Test(language, falls_back_from_region_and_script)
{
    static const char *const cases[][2] = {
        {"de-DE", "de"},
        {"de_AT", "de"},
        {"pt-BR", "pt"},
        {"en-Latn-US", "en"},
        {"zh", "zh"},
        {"zh-CN", "zh"},
        {"zh_SG", "zh"},
        {"zh-Hans", "zh"},
        {"zh-Hans-TW", "zh"},
        {"zh-Hant", "zh-Hant"},
        {"ZH_TW", "zh-Hant"},
        {"zh-HK", "zh-Hant"},
        {"zh-MO", "zh-Hant"},
        {"zh-Hant-HK", "zh-Hant"},
        {"zh-hant-cn", "zh-Hant"},
        {"cmn-TW", "zh-Hant"},
        {"yue", "yue"},
        {"yue-HK", "yue"},
        {"zh-yue", "yue"},
        {"fil", "tl"},
        {"fil-PH", "tl"},
        {"iw", "he"},
        {"kk-Arab", "kk"},
        {"mn-Cyrl-MN", "mn"},
        {"cantonese", "yue"},
        {"traditional chinese", "zh-Hant"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct language *l = language_find(cases[i][0]);
        cr_expect(l && strcmp(l->code, cases[i][1]) == 0, "%s: %s", cases[i][0], l ? l->code : "unknown");
    }
}

Test(language, knows_nothing_else)
{
    static const char *const unknown[] = {"",
                                          "-",
                                          "d",
                                          "de-",
                                          "de--DE",
                                          "deu-",
                                          "sv",
                                          "Klingon",
                                          "german-x!",
                                          "zhx",
                                          "-de",
                                          " de",
                                          "de DE",
                                          "zh-",
                                          "中文",
                                          "xx",
                                          "e",
                                          "eng lish",
                                          "toolongtobealanguage",
                                          "de-toolongasubtag",
                                          "a-b-c-d-e-f-g-h-i-j"};

    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        cr_expect_null(language_find(unknown[i]), "%s", unknown[i]);
}

Test(language, marks_what_takes_the_chinese_prompt)
{
    for (size_t i = 0; language_at(i); i++) {
        const char *code = language_at(i)->code;
        cr_expect_eq(language_at(i)->is_chinese, strncmp(code, "zh", 2) == 0 || strcmp(code, "yue") == 0, "%s", code);
    }
}
