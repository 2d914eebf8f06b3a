#include "worker/dead_window.h"

#include <criterion/criterion.h>

static const struct dead_letter_config config = {.max_share = 0.01, .max_run = 1000};

static int count(struct dead_window *w, const struct dead_letter_config *c, bool dead, int n)
{
    struct err e;

    for (int i = 0; i < n; i++)
        if (dead_window_count(w, c, dead, &e) != ERR_OK) {
            cr_assert_eq(e.code, ERR_POISON);
            cr_assert_eq(e.act, ERR_STOP);
            return i + 1;
        }
    return 0;
}

Test(dead_window, lets_one_percent_pass_and_stops_above)
{
    static struct dead_window w;

    for (int i = 0; i < 300; i++) {
        cr_assert_eq(count(&w, &config, false, 99), 0);
        cr_assert_eq(count(&w, &config, true, 1), 0, "dead letter %d", i);
    }
    cr_assert_eq(count(&w, &config, true, 1), 1, "101 of 10,000");
}

Test(dead_window, does_not_judge_before_a_thousand_jobs)
{
    static struct dead_window w;

    cr_assert_eq(count(&w, &config, true, 999), 0);
    cr_assert_eq(count(&w, &config, true, 1), 1, "job 1,000 of 1,000 is the first that counts");
}

Test(dead_window, stops_at_a_run_longer_than_allowed_and_forgets_a_broken_one)
{
    const struct dead_letter_config c = {.max_share = 1, .max_run = 20};
    static struct dead_window w;

    cr_assert_eq(count(&w, &c, true, 20), 0);
    cr_assert_eq(count(&w, &c, false, 1), 0);
    cr_assert_eq(count(&w, &c, true, 30), 21);
}

Test(dead_window, forgets_what_has_left_the_window)
{
    const struct dead_letter_config c = {.max_share = 0.01, .max_run = 100000};
    static struct dead_window w;

    cr_assert_eq(count(&w, &c, true, 900), 0);
    cr_assert_eq(count(&w, &c, false, 20000), 0);
    cr_assert_eq(w.dead, 0);
    cr_assert_eq(count(&w, &c, true, 100), 0);
    cr_assert_eq(count(&w, &c, true, 1), 1);
}
