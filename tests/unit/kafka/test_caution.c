#include "kafka/caution.h"

#include <criterion/criterion.h>
#include <string.h>

static const struct caution_rule rule = {.max_crashes = 2, .window = 100, .most = 350};

/* What the group holds for a partition: an offset and the crash fields of its note. */
struct stored {
    struct commit_note n;
    int64_t offset;
};

static struct stored group;

static void nothing_stored(int64_t offset)
{
    memset(&group, 0, sizeof group);
    group.n.suspect = -1;
    group.offset = offset;
}

static void commit(struct caution *c, int64_t offset)
{
    caution_write(c, &group.n, offset);
    group.offset = offset;
    c->saved = c->changes;
}

static struct caution assigned(bool died)
{
    struct caution c;

    cr_expect_eq(caution_found(&c, &rule, &group.n, group.offset), died);
    return c;
}

static struct caution died_in_crowd(void)
{
    struct caution c = assigned(group.n.in_work);

    caution_begin(&c);
    commit(&c, group.offset);
    return c;
}

Test(caution, notes_once_that_work_has_begun)
{
    struct caution c;

    nothing_stored(5);
    c = assigned(false);
    cr_expect(caution_is_saved(&c));
    caution_begin(&c);
    cr_expect_not(caution_is_saved(&c));
    commit(&c, 5);
    cr_expect(group.n.in_work);
    for (int64_t offset = 6; offset < 20; offset++) {
        caution_begin(&c);
        cr_expect(caution_is_saved(&c), "one commit, not one a job");
    }
}

Test(caution, end_in_order_is_no_death)
{
    struct caution c;

    nothing_stored(5);
    c = died_in_crowd();
    caution_rest(&c);
    cr_expect_not(caution_is_saved(&c));
    commit(&c, 5);
    c = assigned(false);
    cr_expect_eq(c.deaths, 0);
    cr_expect_not(c.careful);
}

Test(caution, second_death_at_one_offset_makes_careful)
{
    struct caution c;

    nothing_stored(5);
    died_in_crowd();
    c = died_in_crowd();
    cr_expect_eq(c.deaths, 1);
    cr_expect_not(c.careful);
    c = assigned(true);
    cr_expect_eq(c.deaths, 2);
    cr_expect(c.careful);
    cr_expect_eq(c.left, rule.window);
}

Test(caution, deaths_of_an_offset_that_moves_are_not_added_up)
{
    nothing_stored(5);
    for (int64_t offset = 6; offset < 30; offset++) {
        struct caution c = died_in_crowd();
        cr_expect_leq(c.deaths, 1);
        cr_expect_not(c.careful);
        commit(&c, offset);
    }
}

Test(caution, deaths_live_through_an_end_in_order)
{
    struct caution c;

    nothing_stored(5);
    died_in_crowd();
    c = died_in_crowd();
    caution_rest(&c);
    commit(&c, 5);
    c = assigned(false);
    cr_expect_eq(c.deaths, 1);
    caution_begin(&c);
    commit(&c, 5);
    cr_expect(assigned(true).careful);
}

Test(caution, death_is_counted_once)
{
    struct caution c;

    nothing_stored(5);
    died_in_crowd();
    c = assigned(true);
    cr_expect_not(caution_is_saved(&c));
    c = assigned(true);
    cr_expect_eq(c.deaths, 1, "found again before it was stored");
    commit(&c, 5);
    c = assigned(false);
    cr_expect_eq(c.deaths, 1);
}

/* The case of a job at offset 5 that ends every worker: two restarts, then alone, and set aside. */
Test(caution, condemns_the_job_that_ends_its_worker_alone)
{
    struct caution c;
    int deaths = 0;

    nothing_stored(5);
    for (; deaths < 10; deaths++) {
        c = assigned(deaths > 0);
        if (caution_condemns(&c, &rule, 5))
            break;
        if (c.careful)
            caution_suspect(&c, 5);
        else
            caution_begin(&c);
        commit(&c, 5);
    }
    cr_expect_eq(deaths, CAUTION_DEATHS + rule.max_crashes);
    cr_expect_eq(c.crashes, rule.max_crashes);
    cr_expect_not(caution_condemns(&c, &rule, 6), "its neighbours are innocent");
    caution_suspect(&c, 6);
    cr_expect_eq(c.crashes, 0);
    commit(&c, 6);
    cr_expect_eq(assigned(true).crashes, 1);
}

Test(caution, any_number_of_deaths_in_a_crowd_condemns_nobody)
{
    struct caution c;

    nothing_stored(5);
    for (int i = 0; i < 1000; i++)
        died_in_crowd();
    c = assigned(true);
    cr_expect(c.careful);
    for (int64_t offset = 0; offset < 200; offset++)
        cr_expect_not(caution_condemns(&c, &rule, offset));
    cr_expect_leq(group.n.deaths, COMMIT_NOTE_MAX_COUNT);
}

Test(caution, suspect_that_was_finished_is_forgotten)
{
    struct caution c;

    nothing_stored(5);
    died_in_crowd();
    died_in_crowd();
    c = assigned(true);
    caution_suspect(&c, 5);
    commit(&c, 5);
    commit(&c, 6); /* the result and the offset, before the next suspect is named */
    cr_expect_eq(group.n.suspect, -1);
    cr_expect_eq(assigned(true).crashes, 0);
}

Test(caution, ends_with_nothing_counted)
{
    struct caution c;

    nothing_stored(5);
    died_in_crowd();
    died_in_crowd();
    c = assigned(true);
    caution_suspect(&c, 5);
    commit(&c, 5);
    caution_over(&c);
    cr_expect_not(caution_is_saved(&c));
    caution_begin(&c);
    commit(&c, 105);
    c = assigned(true);
    cr_expect_eq(c.deaths, 1);
    cr_expect_eq(c.suspect, -1);
    cr_expect_not(c.careful);
}

Test(caution, window_that_held_nobody_is_doubled_at_the_next_death_until_the_offset_moves)
{
    static const int windows[] = {100, 200, 350, 350};
    struct caution c;

    nothing_stored(5);
    died_in_crowd();
    died_in_crowd();
    for (int i = 0; i < 4; i++) {
        c = assigned(true);
        cr_expect(c.careful);
        cr_expect_eq(c.left, windows[i]);
        caution_suspect(&c, group.offset);
        commit(&c, group.offset);
        caution_pass(&c, group.offset + 100);
        cr_expect_not(c.careful);
        commit(&c, group.offset + 100);
        cr_expect(group.n.in_work, "the next records are in work at once");
    }
    commit(&c, group.offset + 1);
    c = assigned(true);
    cr_expect_eq(c.deaths, 1);
    cr_expect_not(c.careful);
}

Test(caution, suspect_given_up_in_order_keeps_its_count)
{
    struct caution c;

    nothing_stored(5);
    group.n.in_work = true;
    group.n.suspect = 5;
    c = assigned(true);
    cr_expect_eq(c.crashes, 1);
    caution_suspect(&c, 5);
    caution_rest(&c);
    commit(&c, 5);
    c = assigned(false);
    cr_expect_eq(c.crashes, 1);
    cr_expect(c.careful);
}

Test(caution, deaths_that_another_partition_explains_are_forgotten)
{
    struct caution c;

    nothing_stored(5);
    died_in_crowd();
    died_in_crowd();
    c = assigned(true);
    caution_suspect(&c, 5); /* named, and nothing more */
    caution_excuse(&c);
    cr_expect_not(c.careful);
    cr_expect_eq(c.deaths, 0);
    cr_expect_not(caution_is_saved(&c));

    nothing_stored(5);
    group.n.in_work = true;
    group.n.suspect = 5;
    c = assigned(true);
    caution_excuse(&c);
    cr_expect(c.careful, "a suspect's own deaths stay");
    cr_expect_eq(c.crashes, 1);
}

Test(caution, is_off_where_no_crash_is_too_many)
{
    static const struct caution_rule off = {.max_crashes = 0, .window = 100};
    struct caution c;

    nothing_stored(5);
    group.n.in_work = true;
    group.n.deaths = 9;
    group.n.suspect = 5;
    group.n.crashes = 9;
    cr_expect_not(caution_found(&c, &off, &group.n, 5));
    cr_expect_not(c.careful);
    cr_expect_not(caution_condemns(&c, &off, 5));
    caution_write(&c, &group.n, 5);
    cr_expect_not(group.n.in_work);
    cr_expect_eq(group.n.suspect, -1);
}
