#include "base/err.h"
#include "base/utf8.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

Test(err, carries_code_act_and_text)
{
    struct err e;

    cr_assert_eq(err_set(&e, ERR_MODEL, ERR_STOP, "%s: %d", "config.json", 7), ERR_MODEL);
    cr_assert_eq(e.act, ERR_STOP);
    cr_assert_str_eq(e.msg, "config.json: 7");
    cr_assert_eq(err_set(NULL, ERR_IO, ERR_RETRY, "nobody listens"), ERR_IO);
}

Test(err, prefix_keeps_code_act_and_the_old_text)
{
    struct err e;

    err_set(&e, ERR_KAFKA, ERR_RETRY, "broker away");
    cr_assert_eq(err_prefix(&e, "topic %s", "t"), ERR_KAFKA);
    cr_assert_str_eq(e.msg, "topic t: broker away");
    cr_assert_eq(e.act, ERR_RETRY);
}

Test(err, never_cuts_a_character_in_half)
{
    struct err e;
    char text[400];

    for (size_t pad = 0; pad < 5; pad++) {
        memset(text, 'a', pad);
        for (size_t i = pad; i + 4 < sizeof text; i += 4)
            memcpy(text + i, "\xF0\x9F\x98\x80", 4);
        text[pad + 392] = '\0';
        err_set(&e, ERR_IO, ERR_STOP, "%s", text);
        cr_assert_eq(utf8_valid(e.msg, strlen(e.msg)), strlen(e.msg), "pad %zu", pad);
        cr_assert_geq(strlen(e.msg), sizeof e.msg - 5);
    }
}

Test(err, every_code_has_its_own_name)
{
    for (int i = 0; i < ERR_CODES; i++) {
        cr_assert_str_neq(err_name((enum err_code)i), "UNKNOWN", "code %d", i);
        for (int j = 0; j < i; j++)
            cr_assert_str_neq(err_name((enum err_code)i), err_name((enum err_code)j));
    }
    cr_assert_str_eq(err_name((enum err_code)9999), "UNKNOWN");
}
