#include "wire/job.h"

#include <criterion/criterion.h>
#include <string.h>

Test(job, a_text_that_shows_nothing_is_empty)
{
    static const char *const blank[] = {"", " ", " \t\r\n\v\f", "\u00a0\u3000\u2003", "\u200b\ufeff\u2060 "};
    struct err e;

    for (size_t i = 0; i < sizeof blank / sizeof *blank; i++) {
        struct job j = {.text = {blank[i], strlen(blank[i])}};
        cr_assert_eq(job_check(&j, &e), ERR_EMPTY_TEXT, "%zu", i);
        cr_assert_eq(e.act, ERR_SKIP);
    }
}

Test(job, anything_that_shows_is_text)
{
    static const char *const texts[] = {".", "  a ", "\u3000\u4e16", "0", "\U0001f30d"};
    struct err e;

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct job j = {.text = {texts[i], strlen(texts[i])}};
        cr_assert_eq(job_check(&j, &e), ERR_OK, "%s", texts[i]);
    }
}

Test(job, an_empty_source_language_or_context_is_an_absent_one)
{
    struct job j = {.text = {"x", 1}, .source_lang = {"", 0}, .context = {"", 0}};

    cr_assert_eq(job_check(&j, NULL), ERR_OK);
    cr_assert_null(j.source_lang.s);
    cr_assert_null(j.context.s);
}

Test(job, statuses_have_names)
{
    cr_assert_str_eq(result_status_name(RESULT_OK), "OK");
    cr_assert_str_eq(result_status_name(RESULT_TRUNCATED), "TRUNCATED");
    cr_assert_str_eq(result_status_name(RESULT_EXPIRED), "EXPIRED");
    cr_assert_str_eq(result_status_name(RESULT_FAILED), "FAILED");
    cr_assert_str_eq(result_status_name(RESULT_STATUSES), "?");
}
