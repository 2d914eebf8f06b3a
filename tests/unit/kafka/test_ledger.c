#include "kafka/ledger.h"

#include <criterion/criterion.h>
#include <stdbool.h>
#include <stdio.h>
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

/* ---- notes ---- */

static struct commit_note note; /* large */

static void expect_note(const struct ledger *l, int64_t offset, const char *runs)
{
    char text[400] = "";
    size_t n = 0;

    cr_assert_eq(ledger_note(l, &note), offset);
    for (size_t i = 0; i < note.n_runs; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%lld-%lld", i ? " " : "", (long long)note.runs[i].first,
                              (long long)note.runs[i].last);
    cr_assert_str_eq(text, runs);
}

Test(ledger, note_tells_what_is_finished_ahead_and_a_gap_does_not_part_a_run)
{
    struct ledger *l = opened(16);

    expect_note(l, -1, "");
    for (int i = 10; i < 16; i++)
        take(l, i);
    take(l, 20);
    take(l, 21);
    finish(l, 11);
    expect_note(l, 10, "11-11");
    cr_assert_eq(ledger_frontier(l), -1, "nothing contiguous yet");
    finish(l, 15);
    finish(l, 20);
    finish(l, 13);
    expect_note(l, 10, "11-11 13-13 15-20");
    finish(l, 10);
    expect_note(l, 12, "13-13 15-20");
    finish(l, 21);
    finish(l, 12);
    finish(l, 14);
    expect_note(l, 22, "");
    ledger_close(l);
}

Test(ledger, held_offsets_count_in_the_note_and_not_in_the_frontier)
{
    struct ledger *l = opened(8);
    struct err e;

    for (int i = 0; i < 5; i++)
        take(l, i);
    uint64_t before = ledger_changes(l);
    cr_assert_eq(ledger_hold(l, 0, &e), ERR_OK);
    cr_assert_eq(ledger_hold(l, 3, &e), ERR_OK);
    cr_assert_eq(ledger_hold(l, 3, &e), ERR_BUSY);
    cr_assert_eq(ledger_hold(l, 7, &e), ERR_BUSY);
    expect_note(l, 1, "3-3");
    cr_assert_eq(ledger_frontier(l), -1);
    cr_assert_eq(ledger_in_flight(l), 5);
    cr_assert_gt(ledger_changes(l), before);
    ledger_unhold_all(l);
    expect_note(l, 0, "");
    cr_assert_eq(ledger_changes(l), before);
    cr_assert_eq(ledger_hold(l, 0, &e), ERR_OK);
    uint64_t sent = ledger_changes(l);
    finish(l, 0);
    cr_assert_eq(ledger_changes(l), sent, "what was held says nothing new once it is finished");
    cr_assert_eq(ledger_frontier(l), 1);
    cr_assert_eq(ledger_hold(l, 0, &e), ERR_BUSY);
    ledger_close(l);
}

static struct ledger *seeded(size_t window, int64_t committed, const struct note_run *runs, size_t n)
{
    struct ledger *l = opened(window);
    struct err e;

    note.n_runs = n;
    memcpy(note.runs, runs, n * sizeof *runs);
    cr_assert_eq(ledger_seed(l, committed, &note, &e), ERR_OK);
    return l;
}

Test(ledger, seed_is_known_as_it_is_read_and_kept_until_then)
{
    struct ledger *l = seeded(64, 100, (const struct note_run[]){{102, 103}, {105, 109}, {150, 160}}, 3);

    cr_assert_eq(ledger_frontier(l), 100);
    expect_note(l, 100, "102-103 105-109 150-160");
    for (int64_t o = 100; o < 107; o++) {
        cr_assert_eq(ledger_is_seeded(l, o), o == 102 || o == 103 || o >= 105);
        take(l, o);
        if (o == 102 || o == 103 || o >= 105)
            finish(l, o);
    }
    expect_note(l, 100, "102-103 105-106 107-109 150-160");
    finish(l, 100);
    finish(l, 101);
    expect_note(l, 104, "105-106 107-109 150-160");
    finish(l, 104);
    expect_note(l, 110, "150-160"); /* over what is known though not read yet */
    cr_assert_eq(ledger_frontier(l), 110);
    for (int64_t o = 107; o < 110; o++) {
        cr_assert(ledger_is_seeded(l, o));
        take(l, o);
        finish(l, o);
        cr_assert_eq(ledger_frontier(l), 110, "never back");
    }
    cr_assert(!ledger_is_seeded(l, 110));
    ledger_close(l);
}

Test(ledger, taking_stops_before_a_note_could_be_too_long)
{
    struct ledger *l = opened(200000);
    static char text[COMMIT_NOTE_MAX_BYTES + 1];
    int64_t o = 1000;
    size_t size;
    struct err e;

    take(l, o++);
    while (ledger_fits(l, o))
        take(l, o++);
    cr_assert_gt(o, 20000);
    for (int64_t i = 1002; i < o; i += 2)
        finish(l, i);
    cr_assert_eq(ledger_note(l, &note), 1000);
    cr_assert_eq(commit_note_encode(&note, 1000, text, &size, &e), ERR_OK, "%s", e.msg);
    finish(l, 1000);
    cr_assert(ledger_fits(l, o), "the frontier has moved");
    ledger_close(l);
}

Test(ledger, every_state_of_a_random_history_is_what_its_note_says)
{
    unsigned x = 5;

    for (int round = 0; round < 200; round++) {
        struct ledger *l = opened(64);
        static char text[COMMIT_NOTE_MAX_BYTES + 1];
        bool done[400] = {false}, taken[400] = {false};
        int64_t o = (round % 3) * 7, last = -1;

        for (int step = 0; step < 300; step++) {
            x = x * 1664525u + 1013904223u;
            if (x >> 16 & 1 && o < 390 && ledger_room(l) > 0) {
                taken[o] = true;
                take(l, last = o);
                o += 1 + (x >> 20) % 3;
            } else if (last >= 0) {
                int64_t at = (x >> 18) % (unsigned)(last + 1);
                if (taken[at] && !done[at]) {
                    finish(l, at);
                    done[at] = true;
                }
            }
            int64_t offset = ledger_note(l, &note);
            struct err e;
            size_t size;
            if (offset < 0)
                continue;
            cr_assert_eq(commit_note_encode(&note, offset, text, &size, &e), ERR_OK);
            cr_assert_eq(commit_note_decode(&note, text, size, offset, &e), ERR_OK, "%s", e.msg);
            for (int64_t i = 0; i <= last; i++)
                if (taken[i])
                    cr_assert_eq(i < offset || commit_note_has(&note, i), done[i], "offset %lld", (long long)i);
        }
        ledger_close(l);
    }
}

Test(ledger, begins_where_the_log_is_read_from_if_nothing_is_committed)
{
    static struct commit_note n;
    struct ledger *l = opened(8);

    ledger_begin(l, 40);
    cr_assert_eq(ledger_note(l, &n), 40, "a note may go with it before anything is finished");
    ledger_begin(l, 41);
    take(l, 40);
    ledger_begin(l, 42);
    cr_assert_eq(ledger_note(l, &n), 40);
    finish(l, 40);
    cr_assert_eq(ledger_frontier(l), 41);
    ledger_close(l);

    l = opened(8);
    cr_assert_eq(ledger_seed(l, 7, NULL, NULL), ERR_OK);
    ledger_begin(l, 9);
    cr_assert_eq(ledger_note(l, &n), 7);
    ledger_close(l);
}
