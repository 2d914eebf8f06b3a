#include "engine/sampling.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

Test(sampling, names_the_value_that_makes_no_sense)
{
    const struct sampling good = {.temperature = 0.7f, .top_p = 0.6f, .repetition_penalty = 1.05f, .top_k = 20};
    const float bad_temperature[] = {-0.1f, 100.5f, NAN, INFINITY, -INFINITY};
    const float bad_top_p[] = {0, -1, 1.01f, NAN, INFINITY};
    const float bad_penalty[] = {0, -1, 0.001f, 1e9f, NAN, INFINITY};
    struct err e;

    cr_assert_eq(sampling_check(&good, &e), ERR_OK);
    for (size_t i = 0; i < sizeof bad_temperature / sizeof bad_temperature[0]; i++) {
        struct sampling s = good;
        s.temperature = bad_temperature[i];
        cr_assert_eq(sampling_check(&s, &e), ERR_INVALID_FIELD);
        cr_assert_eq(e.act, ERR_SKIP);
        cr_assert(strstr(e.msg, "temperature"));
    }
    for (size_t i = 0; i < sizeof bad_top_p / sizeof bad_top_p[0]; i++) {
        struct sampling s = good;
        s.top_p = bad_top_p[i];
        cr_assert_eq(sampling_check(&s, &e), ERR_INVALID_FIELD);
        cr_assert(strstr(e.msg, "top_p"));
    }
    for (size_t i = 0; i < sizeof bad_penalty / sizeof bad_penalty[0]; i++) {
        struct sampling s = good;
        s.repetition_penalty = bad_penalty[i];
        cr_assert_eq(sampling_check(&s, &e), ERR_INVALID_FIELD);
        cr_assert(strstr(e.msg, "repetition_penalty"));
    }
    struct sampling s = good;
    s.top_k = -1;
    cr_assert_eq(sampling_check(&s, &e), ERR_INVALID_FIELD);
    cr_assert(strstr(e.msg, "top_k"));
}

Test(sampling, allows_the_ends_of_every_range)
{
    struct sampling s = {.temperature = 0, .top_p = 1, .repetition_penalty = 1};

    cr_assert_eq(sampling_check(&s, NULL), ERR_OK);
    s = (struct sampling){.temperature = 100, .top_p = 1e-6f, .repetition_penalty = 2, .top_k = 1 << 30};
    cr_assert_eq(sampling_check(&s, NULL), ERR_OK);
}
