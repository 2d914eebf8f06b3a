#include "tests/chaos/nemesis.h"

#include <criterion/criterion.h>
#include <string.h>

enum { SESSION_MS = 6000 };

Test(nemesis, draws_the_same_list_for_the_same_seed_and_another_for_another)
{
    int same = 0;

    for (int i = 0; i < 200; i++) {
        struct fault a, b, c;
        nemesis_draw(&a, 5, i, fault_mask(NULL), SESSION_MS);
        nemesis_draw(&b, 5, i, fault_mask(NULL), SESSION_MS);
        nemesis_draw(&c, 6, i, fault_mask(NULL), SESSION_MS);
        cr_assert(a.kind == b.kind && a.target == b.target && a.duration_ms == b.duration_ms && a.rest_ms == b.rest_ms);
        same += a.kind == c.kind && a.target == c.target;
    }
    cr_expect_lt(same, 5);
}

Test(nemesis, draws_every_kind_and_within_its_times)
{
    int counts[FAULT_KINDS] = {0};

    for (int i = 0; i < 2000; i++) {
        struct fault f;
        nemesis_draw(&f, 1, i, fault_mask(NULL), SESSION_MS);
        cr_assert(f.kind < FAULT_KINDS);
        cr_assert(f.duration_ms >= 0 && f.duration_ms <= 20000 && f.rest_ms >= 0 && f.rest_ms <= 4000);
        cr_assert(f.kind != FAULT_ZOMBIE || f.duration_ms > SESSION_MS);
        cr_assert(f.kind != FAULT_PAUSE || f.duration_ms < SESSION_MS);
        counts[f.kind]++;
    }
    for (int k = 0; k < FAULT_KINDS; k++)
        cr_expect_gt(counts[k], 10, "%s", fault_name((enum fault_kind)k));
}

Test(nemesis, draws_only_what_the_mask_allows)
{
    unsigned mask = fault_mask("term,join");

    cr_assert_eq(mask, 1u << FAULT_TERM | 1u << FAULT_JOIN);
    for (int i = 0; i < 200; i++) {
        struct fault f;
        nemesis_draw(&f, 1, i, mask, SESSION_MS);
        cr_assert(f.kind == FAULT_TERM || f.kind == FAULT_JOIN);
    }
    cr_expect_eq(fault_mask("term,nothing"), 0);
    cr_expect_eq(fault_mask(NULL), (1u << FAULT_KINDS) - 1);
}
