#include "kafka/ledger.h"

#include <criterion/criterion.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static struct ledger *opened(size_t window)
{
    struct ledger *l;

    cr_assert_eq(ledger_open(&l, window, NULL), ERR_OK);
    return l;
}

static void take(struct ledger *l, int64_t offset)
{
    struct err e;

    cr_assert_eq(ledger_take(l, offset, &e), ERR_OK, "%s", e.msg);
}

static void finish(struct ledger *l, int64_t offset)
{
    struct err e;

    cr_assert_eq(ledger_finish(l, offset, &e), ERR_OK, "%s", e.msg);
}

Test(ledger, commits_the_next_offset_not_the_last)
{
    struct ledger *l = opened(8);

    cr_assert_eq(ledger_frontier(l), -1);
    for (int i = 0; i < 3; i++)
        take(l, i);
    cr_assert_eq(ledger_frontier(l), -1, "taken is not finished");
    for (int i = 0; i < 3; i++)
        finish(l, i);
    cr_assert_eq(ledger_frontier(l), 3);
    cr_assert_eq(ledger_in_flight(l), 0);
    cr_assert_eq(ledger_oldest(l), -1);
    ledger_close(l);
}

Test(ledger, gaps_in_offsets_are_no_holes_in_any_order_of_finishing)
{
    static const int64_t offsets[] = {0, 1, 5, 6, 1000003}, next[] = {1, 2, 6, 7, 1000004};
    int order[5], n = 0;

    for (int code = 0; code < 5 * 5 * 5 * 5 * 5; code++) {
        bool used[5] = {false}, done[5] = {false}, valid = true;

        for (int i = 0, c = code; i < 5; i++, c /= 5) {
            order[i] = c % 5;
            valid &= !used[order[i]];
            used[order[i]] = true;
        }
        if (!valid)
            continue;
        struct ledger *l = opened(5);
        for (int i = 0; i < 5; i++)
            take(l, offsets[i]);
        for (int i = 0; i < 5; i++) {
            int run = 0;

            finish(l, offsets[order[i]]);
            done[order[i]] = true;
            while (run < 5 && done[run])
                run++;
            cr_assert_eq(ledger_frontier(l), run ? next[run - 1] : -1);
            cr_assert_eq(ledger_oldest(l), run < 5 ? offsets[run] : -1);
        }
        ledger_close(l);
        n++;
    }
    cr_assert_eq(n, 120, "all permutations");
}

Test(ledger, is_bounded_by_its_window_from_the_oldest_on)
{
    struct ledger *l = opened(4);

    for (int i = 0; i < 4; i++)
        take(l, 10 + i);
    cr_assert_eq(ledger_room(l), 0);
    cr_assert_eq(ledger_take(l, 14, NULL), ERR_BUSY);
    finish(l, 11);
    finish(l, 13);
    cr_assert_eq(ledger_room(l), 0, "the oldest still holds the window");
    finish(l, 10);
    cr_assert_eq(ledger_room(l), 2);
    cr_assert_eq(ledger_frontier(l), 12);
    take(l, 14);
    ledger_close(l);
}

Test(ledger, what_was_never_taken_or_is_finished_is_refused)
{
    struct ledger *l = opened(4);
    struct err e;

    cr_assert_eq(ledger_finish(l, 0, &e), ERR_BUSY);
    take(l, 5);
    take(l, 9);
    cr_assert_eq(ledger_finish(l, 4, &e), ERR_BUSY);
    cr_assert_eq(ledger_finish(l, 7, &e), ERR_BUSY);
    cr_assert_eq(ledger_finish(l, 10, &e), ERR_BUSY);
    finish(l, 9);
    cr_assert_eq(ledger_finish(l, 9, &e), ERR_BUSY);
    cr_assert_eq(e.act, ERR_SKIP);
    finish(l, 5);
    cr_assert_eq(ledger_finish(l, 5, &e), ERR_BUSY);
    cr_assert_eq(ledger_frontier(l), 10);
    ledger_close(l);
}

Test(ledger, an_offset_that_goes_back_is_refused_and_changes_nothing)
{
    struct ledger *l = opened(4);

    take(l, 5);
    cr_assert_eq(ledger_take(l, 5, NULL), ERR_KAFKA);
    cr_assert_eq(ledger_take(l, 4, NULL), ERR_KAFKA);
    cr_assert_eq(ledger_take(l, -1, NULL), ERR_KAFKA);
    cr_assert_eq(ledger_in_flight(l), 1);
    finish(l, 5);
    cr_assert_eq(ledger_take(l, 5, NULL), ERR_KAFKA, "finished is not forgotten");
    ledger_close(l);
}

Test(ledger, reaching_the_end_passes_markers_once_all_before_is_finished)
{
    struct ledger *l = opened(4);

    ledger_reach(l, 3); /* nothing but markers so far */
    cr_assert_eq(ledger_frontier(l), 3);
    take(l, 3);
    take(l, 4);
    ledger_reach(l, 7); /* 5 and 6 are markers */
    finish(l, 4);
    cr_assert_eq(ledger_frontier(l), 3);
    finish(l, 3);
    cr_assert_eq(ledger_frontier(l), 7);
    ledger_reach(l, 5);
    cr_assert_eq(ledger_frontier(l), 7, "it never goes back");
    take(l, 7);
    finish(l, 7);
    cr_assert_eq(ledger_frontier(l), 8);
    ledger_close(l);
}

/* Against a model that keeps every offset and its state in a plain array. */
Test(ledger, agrees_with_a_naive_model_over_random_lives)
{
    enum { WINDOW = 37, STEPS = 200000 };
    static int64_t taken[STEPS];
    static bool done[STEPS];
    struct ledger *l = opened(WINDOW);
    size_t n = 0, first = 0;
    int64_t offset = 0, frontier = -1;

    srand(11);
    for (int step = 0; step < STEPS; step++) {
        int64_t before = ledger_frontier(l);

        if (rand() % 2 && ledger_room(l) > 0) {
            offset += 1 + (rand() % 5 == 0 ? rand() % 1000 : 0);
            take(l, offset);
            taken[n++] = offset;
        } else if (first < n) {
            size_t pick = first + (size_t)rand() % (n - first);

            cr_assert_eq(ledger_finish(l, taken[pick], NULL), done[pick] ? ERR_BUSY : ERR_OK);
            done[pick] = true;
            for (; first < n && done[first]; first++)
                frontier = taken[first] + 1;
        }
        cr_assert_eq(ledger_frontier(l), frontier);
        cr_assert_geq(ledger_frontier(l), before);
        cr_assert_eq(ledger_oldest(l), first < n ? taken[first] : -1);
        cr_assert_eq(ledger_room(l), WINDOW - (n - first));
    }
    cr_assert_gt(n, 1000);
    ledger_close(l);
}
