#include "kafka/commit_note.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* Notes are large for a stack: one of each for a test. */
static struct commit_note in, back;
static char text[COMMIT_NOTE_MAX_BYTES + 1];

/* Neighbours become one run, as a ledger would have them. */
static void add(struct commit_note *n, int64_t first, int64_t last)
{
    if (n->n_runs > 0 && n->runs[n->n_runs - 1].last + 1 == first)
        n->runs[n->n_runs - 1].last = last;
    else
        n->runs[n->n_runs++] = (struct note_run){first, last};
}

static void round_trip(int64_t frontier)
{
    size_t size;
    struct err e;

    cr_assert_eq(commit_note_encode(&in, frontier, text, &size, &e), ERR_OK, "%s", e.msg);
    cr_assert_eq(strlen(text), size);
    cr_assert_leq(size, COMMIT_NOTE_MAX_BYTES);
    cr_assert_eq(commit_note_decode(&back, text, size, frontier, &e), ERR_OK, "%s", e.msg);
    cr_assert_eq(back.n_runs, in.n_runs);
    cr_assert_eq(memcmp(back.runs, in.runs, in.n_runs * sizeof in.runs[0]), 0);
    cr_assert_eq(back.in_work, in.in_work);
    cr_assert_eq(back.deaths, in.deaths);
    cr_assert_eq(back.crashes, in.crashes);
    cr_assert_eq(back.suspect, in.suspect);
}

static void reset(void)
{
    in.in_work = false;
    in.deaths = in.crashes = 0;
    in.suspect = -1;
    in.n_runs = 0;
}

Test(commit_note, says_nothing_when_there_is_nothing_to_say)
{
    size_t size = 9;

    reset();
    cr_assert_eq(commit_note_encode(&in, 5, text, &size, NULL), ERR_OK);
    cr_assert_eq(size, 0);
    cr_assert_eq(commit_note_decode(&back, "", 0, 5, NULL), ERR_OK);
    cr_assert_eq(back.n_runs, 0);
    cr_assert_eq(back.suspect, -1);
}

Test(commit_note, brings_back_runs_and_suspect)
{
    reset();
    add(&in, 101, 101);
    add(&in, 103, 150);
    add(&in, 1000003, 1000003);
    round_trip(100);
    in.crashes = 2;
    in.suspect = 100;
    round_trip(100);
    cr_assert(commit_note_has(&back, 101));
    cr_assert_not(commit_note_has(&back, 102));
    cr_assert(commit_note_has(&back, 150));
    cr_assert_not(commit_note_has(&back, 151));
    cr_assert_not(commit_note_has(&back, 100));
    cr_assert(commit_note_has(&back, 1000003));
}

Test(commit_note, keeps_a_suspect_alone)
{
    reset();
    in.crashes = 1;
    in.suspect = 7;
    round_trip(7);
}

Test(commit_note, brings_back_what_is_said_of_work_and_deaths)
{
    for (int i = 0; i < 16; i++) {
        reset();
        in.in_work = i & 1;
        in.deaths = i & 2 ? COMMIT_NOTE_MAX_COUNT : 0;
        in.suspect = i & 4 ? 7 : -1;
        in.crashes = i & 4 && i & 8 ? COMMIT_NOTE_MAX_COUNT : 0;
        round_trip(7);
        add(&in, 9, 11);
        round_trip(7);
    }
}

Test(commit_note, counts_no_further_than_it_can_read_back)
{
    size_t size;

    reset();
    in.deaths = in.crashes = 100000;
    in.suspect = 7;
    cr_assert_eq(commit_note_encode(&in, 7, text, &size, NULL), ERR_OK);
    cr_assert_eq(commit_note_decode(&back, text, size, 7, NULL), ERR_OK);
    cr_assert_eq(back.deaths, COMMIT_NOTE_MAX_COUNT);
    cr_assert_eq(back.crashes, COMMIT_NOTE_MAX_COUNT);
}

Test(commit_note, suspect_below_the_offset_is_left_out)
{
    size_t size;

    reset();
    in.suspect = 6;
    in.crashes = 1;
    cr_assert_eq(commit_note_encode(&in, 7, text, &size, NULL), ERR_OK);
    cr_assert_eq(size, 0);
}

/* Every second offset of the widest window, and every other pattern: what fits() allows must encode. */
Test(commit_note, fits_whatever_order_a_permitted_window_finishes_in)
{
    unsigned seed = 1;

    for (int round = 0; round < 300; round++) {
        int64_t frontier = 1000, at = frontier;
        size_t taken = 1;
        reset();
        unsigned density = 1 + (unsigned)round % 7, gaps = (unsigned)round % 3;
        while (commit_note_fits(frontier, at + 1, taken + 1) && taken < 30000) {
            int64_t next = at + 1 + (gaps == 2 && rand_r(&seed) % 5 == 0 ? rand_r(&seed) % 1000 : 0);
            if (gaps == 1)
                next = at + 1 + (int64_t)(rand_r(&seed) % 2);
            if (!commit_note_fits(frontier, next, taken + 1))
                break;
            at = next;
            taken++;
            if (rand_r(&seed) % (density + 1) == 0 || (round == 0 && taken % 2))
                add(&in, at, at);
        }
        in.in_work = true;
        in.deaths = in.crashes = COMMIT_NOTE_MAX_COUNT;
        in.suspect = frontier;
        round_trip(frontier);
    }
}

Test(commit_note, takes_far_apart_offsets_by_count)
{
    int64_t at = 0;
    size_t taken = 1;

    reset();
    while (commit_note_fits(0, at + ((int64_t)1 << 36), taken + 1)) {
        at += (int64_t)1 << 36;
        taken++;
        add(&in, at, at);
    }
    cr_assert_gt(taken, 300);
    round_trip(0);
}

Test(commit_note, refuses_what_is_not_its_own)
{
    static const char *const foreign[] = {"tw2.AAAA", "{\"a\":1}", "x", "tw", "tw1", "checkpoint"};
    struct err e;

    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        cr_assert_eq(commit_note_decode(&back, foreign[i], strlen(foreign[i]), 5, &e), ERR_UNSUPPORTED, "%s",
                     foreign[i]);
        cr_assert_eq(back.n_runs, 0);
    }
    cr_assert_eq(commit_note_decode(&back, "tw1.", 4, 5, &e), ERR_UNDECODABLE);
    cr_assert_eq(commit_note_decode(&back, "tw1.!!!!!!!!", 12, 5, &e), ERR_UNDECODABLE);
}

Test(commit_note, is_worthless_beside_another_offset_or_with_a_byte_changed)
{
    size_t size;
    char damaged[COMMIT_NOTE_MAX_BYTES + 1];

    reset();
    for (int64_t o = 11; o < 300; o += 3)
        add(&in, o, o + (o & 1));
    cr_assert_eq(commit_note_encode(&in, 10, text, &size, NULL), ERR_OK);
    cr_assert_eq(commit_note_decode(&back, text, size, 9, NULL), ERR_UNDECODABLE);
    cr_assert_eq(back.n_runs, 0);
    for (size_t i = 0; i < size; i++) {
        memcpy(damaged, text, size + 1);
        damaged[i] = damaged[i] == 'A' ? 'B' : 'A';
        cr_assert_neq(commit_note_decode(&back, damaged, size, 10, NULL), ERR_OK, "byte %zu", i);
        cr_assert_eq(back.n_runs, 0);
    }
    for (size_t cut = 1; cut < size; cut++)
        cr_assert_neq(commit_note_decode(&back, text, cut, 10, NULL), ERR_OK);
}
