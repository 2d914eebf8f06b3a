#include "engine/repetition.h"

#include <criterion/criterion.h>
#include <stdlib.h>

enum { CAP = 2048 };

/* A start of other tokens, then unit tokens over and over until the loop is n tokens long. */
static int loop(int32_t *ids, int start, int unit, int n)
{
    for (int i = 0; i < start; i++)
        ids[i] = 10000 + i;
    for (int i = 0; i < n; i++)
        ids[start + i] = 7 + i % unit;
    return start + n;
}

Test(repetition, applies_at_96_tokens_and_8_units_not_one_token_earlier)
{
    static const struct {
        int unit, tokens;
    } table[] = {{1, 96}, {2, 96}, {3, 96}, {5, 96}, {11, 96}, {12, 96}, {13, 104}, {32, 256}, {63, 504}, {64, 512}};
    int32_t ids[CAP];

    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        for (int start = 0; start < 70; start += 23) {
            int n = loop(ids, start, table[i].unit, table[i].tokens);
            cr_assert(repetition_is_endless(ids, n), "unit %d", table[i].unit);
            cr_assert(repetition_is_inside(ids, n), "unit %d", table[i].unit);
            cr_assert_not(repetition_is_endless(ids, n - 1), "unit %d", table[i].unit);
            cr_assert_not(repetition_is_inside(ids, n - 1), "unit %d", table[i].unit);
        }
}

Test(repetition, lets_units_of_more_than_64_tokens_pass)
{
    int32_t ids[CAP];

    cr_assert_not(repetition_is_inside(ids, loop(ids, 0, 65, 2000)));
}

Test(repetition, lets_legitimate_repetition_pass)
{
    int32_t ids[CAP];
    int n = 0;

    cr_assert_not(repetition_is_inside(ids, loop(ids, 5, 2, 40)));   /* "ha ha ha ..." twenty times */
    cr_assert_not(repetition_is_inside(ids, loop(ids, 5, 1, 60)));   /* a line of leaders, token by token */
    cr_assert_not(repetition_is_inside(ids, loop(ids, 5, 30, 200))); /* a refrain, six times */
    for (int line = 0; line < 100; line++) {                         /* a table: the frame is the same, a cell is not */
        static const int32_t frame[] = {5, 6, 5, 0, 5, 8};
        for (size_t i = 0; i < sizeof frame / sizeof frame[0]; i++)
            ids[n++] = frame[i] ? frame[i] : 1000 + line;
    }
    cr_assert_not(repetition_is_inside(ids, n));
    n = 0;
    for (int line = 0; line < 40; line++) { /* lists whose items are leaders of several lengths */
        for (int i = 0; i < 20 + line % 3; i++)
            ids[n++] = 9;
        ids[n++] = 2000 + line;
    }
    cr_assert_not(repetition_is_inside(ids, n));
}

Test(repetition, pushed_token_by_token_says_what_the_rule_says)
{
    int32_t ids[CAP];

    srand(7);
    for (int round = 0; round < 200; round++) {
        struct repetition s;
        int n = 0;
        repetition_reset(&s);
        while (n < 700) {
            int unit = 1 + rand() % 70, span = rand() % 300, from = n;
            for (int i = 0; i < span && n < 700; i++, n++)
                ids[n] = i < unit ? rand() % 3 : ids[n - unit];
            for (int k = from; k < n; k++)
                cr_assert_eq(repetition_push(&s, ids, k + 1), repetition_is_endless(ids, k + 1));
        }
    }
}
