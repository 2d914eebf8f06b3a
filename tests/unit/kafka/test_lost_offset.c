#include "base/clock.h"
#include "kafka/commit_note.h"
#include "tests/support/tally.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { WAIT_MS = 20000 };

static void turn_until_lost(struct tally *t, int n)
{
    int64_t until = clock_mono_ns() + WAIT_MS * NS_PER_MS;

    while (t->m.s.lost_offsets < n && clock_mono_ns() < until)
        cr_assert_eq(tally_turn(t), ERR_OK, "%s", t->e.msg);
    cr_assert_eq(t->m.s.lost_offsets, n);
}

Test(lost_offset, past_the_end_stops_after_its_time_and_never_begins_at_the_beginning, .timeout = 60)
{
    struct kafka_case kc;
    struct tally t;

    kafka_case_open(&kc, 2);
    kafka_case_submit(&kc, 0, 10, 0);
    kafka_case_submit(&kc, 10, 10, 1);
    kafka_case_commit(&kc, 0, 50, "");
    tally_join(&t, &kc);
    turn_until_lost(&t, 1);
    int64_t t0 = clock_mono_ns();
    cr_assert(tally_see(&t, 10, 10), "the other partition goes on");
    cr_assert_eq(tally_turn_until_stopped(&t), ERR_KAFKA);
    cr_assert_geq(clock_mono_ns() - t0, 1300 * NS_PER_MS, "it waits for kafka.offset_wait_ms");
    cr_assert_eq(t.e.act, ERR_STOP);
    cr_assert_not_null(strstr(t.e.msg, "offset 50 is past the end of the log, 10"), "%s", t.e.msg);
    cr_assert_not_null(strstr(t.e.msg, "kafka.offset_past_end"), "%s", t.e.msg);
    for (int i = 0; i < 10; i++)
        cr_assert_eq(t.seen[i], 0);
    member_leave(&t.m);
    cr_assert_eq(kafka_case_committed(&kc, 0), 50, "what the group has is left to a person");
    kafka_case_close(&kc);
}

Test(lost_offset, an_end_that_comes_back_in_time_changes_nothing, .timeout = 60)
{
    struct kafka_case kc;
    struct tally t;

    kafka_case_open(&kc, 2);
    kc.k.offset_wait_ms = 20000;
    kafka_case_submit(&kc, 0, 10, 0);
    kafka_case_submit(&kc, 100, 10, 1);
    kafka_case_commit(&kc, 0, 15, "");
    tally_join(&t, &kc);
    turn_until_lost(&t, 1);
    kafka_case_submit(&kc, 10, 10, 0);
    cr_assert(tally_see(&t, 15, 5));
    cr_assert(tally_see(&t, 100, 10));
    cr_assert_eq(t.m.s.lost_offsets, 0);
    for (int i = 0; i < 15; i++)
        cr_assert_eq(t.seen[i], 0, "job %d was committed", i);
    for (int i = 100; i < 110; i++)
        cr_assert_eq(t.seen[i], 1, "a partition that was well repeats nothing");
    tally_turn_until_committed(&t, &kc, 0, 20);
    member_leave(&t.m);
    kafka_case_close(&kc);
}

/* What an explicit rule does once the time is over, the partition's jobs after that, and its commits. */
static void past_end_with_rule(const char *rule, int first, int n)
{
    struct kafka_case kc;
    struct tally t;

    kafka_case_open(&kc, 2);
    kc.k.offset_past_end = rule;
    kafka_case_submit(&kc, 0, 10, 0);
    kafka_case_submit(&kc, 100, 10, 1);
    kafka_case_commit(&kc, 0, 50, "");
    tally_join(&t, &kc);
    turn_until_lost(&t, 1);
    kafka_case_submit(&kc, 10, 5, 0); /* while it waits: new in any case */
    cr_assert(tally_see(&t, first, n), "%s", t.e.msg);
    for (int i = 0; i < first; i++)
        cr_assert_eq(t.seen[i], 0);
    tally_turn_until_committed(&t, &kc, 0, 15);
    cr_assert_eq(t.m.s.offset_resets, 2, "partition 1 had no offset");
    member_leave(&t.m);
    kafka_case_close(&kc);
}

Test(lost_offset, past_the_end_begins_at_the_first_record_where_that_is_asked, .timeout = 60)
{
    past_end_with_rule("earliest", 0, 15);
}

Test(lost_offset, past_the_end_begins_at_the_end_first_seen_where_that_is_asked, .timeout = 60)
{
    past_end_with_rule("latest", 10, 5);
}

/* Each of them makes the library begin with all of them again, before anything was read. */
Test(lost_offset, two_partitions_past_the_end_both_begin_at_the_end, .timeout = 60)
{
    struct kafka_case kc;
    struct tally t;

    kafka_case_open(&kc, 2);
    kc.k.offset_past_end = "latest";
    kc.k.offset_wait_ms = 1500;
    kafka_case_submit(&kc, 0, 10, 0);
    kafka_case_submit(&kc, 100, 10, 1);
    kafka_case_commit(&kc, 0, 50, "");
    kafka_case_commit(&kc, 1, 60, "");
    tally_join(&t, &kc);
    turn_until_lost(&t, 2);
    kafka_case_submit(&kc, 10, 5, 0);
    kafka_case_submit(&kc, 110, 5, 1);
    cr_assert(tally_see(&t, 10, 5), "%s", t.e.msg);
    cr_assert(tally_see(&t, 110, 5), "%s", t.e.msg);
    tally_turn_until_committed(&t, &kc, 0, 15);
    tally_turn_until_committed(&t, &kc, 1, 15);
    for (int i = 0; i < 10; i++)
        cr_assert(t.seen[i] == 0 && t.seen[100 + i] == 0, "what was there before is not read again");
    member_leave(&t.m);
    kafka_case_close(&kc);
}

/* The embedded broker keeps 5 MB a partition. */
static void fill(struct kafka_case *kc, int n)
{
    static char big[200000];
    struct publisher *p;
    struct err e;
    unsigned x = 1;
    int done = 0;

    for (size_t i = 0; i < sizeof big; i++)
        big[i] = (char)((x = x * 1664525u + 1013904223u) >> 24); /* does not compress */
    cr_assert_eq(publisher_open(&p, &kc->k, kc->bootstrap, &kc->d, kafka_case_count, &done, &e), ERR_OK);
    for (int i = 0; i < n; i++) {
        struct outgoing o = {.to = PUBLISH_REQUEST, .value = big, .value_size = sizeof big};
        cr_assert_eq(publisher_send(p, &o, &e), ERR_OK);
        while (done <= i)
            publisher_turn(p, 10); /* a batch each, so that there is something to delete */
    }
    publisher_close(p, 5000);
}

Test(lost_offset, deleted_records_are_passed_over_to_the_first_one_left, .timeout = 60)
{
    struct kafka_case kc;
    struct tally t;
    static const char *const rules[] = {"earliest", "latest"};

    kafka_case_open(&kc, 1);
    fill(&kc, 40);
    for (int i = 0; i < 2; i++) {
        kc.k.group_id = kc.k.offset_reset = rules[i]; /* a group each */
        kafka_case_commit(&kc, 0, 1, "");
        tally_join(&t, &kc);
        tally_turn_until_committed(&t, &kc, 0, 40);
        cr_assert_gt(t.first, 1);
        cr_assert_lt(t.first, 40, "%s leaves out no more than was deleted", rules[i]);
        cr_assert_eq(t.m.s.cut, t.first - 1);
        cr_assert_eq(t.m.s.offset_resets, 1);
        member_leave(&t.m);
    }
    kc.k.group_id = kc.k.offset_reset = "error";
    kafka_case_commit(&kc, 0, 1, "");
    tally_join(&t, &kc);
    cr_assert_eq(tally_turn_until_stopped(&t), ERR_KAFKA);
    cr_assert_not_null(strstr(t.e.msg, "offset 1 is before the first one left"), "%s", t.e.msg);
    member_leave(&t.m);
    kafka_case_close(&kc);
}

/* The first record is in flight when it is cut away with others that were not read. */
Test(lost_offset, a_job_in_flight_outlives_a_cut, .timeout = 60)
{
    static const char *const properties[] = {"queued.min.messages=1", "fetch.message.max.bytes=1000", NULL};
    enum { RECORDS = 41 };
    struct record *held;
    struct kafka_case kc;
    struct tally t;

    kafka_case_open(&kc, 1);
    kc.k.properties = properties; /* hardly anything is fetched before it is asked for */
    kafka_case_submit(&kc, 0, 1, 0);
    tally_join(&t, &kc);
    while (!(held = queue_pop(t.m.records, 0)))
        cr_assert_eq(consumer_turn(t.m.c, 20, &t.e), ERR_OK, "%s", t.e.msg);
    fill(&kc, RECORDS - 1);
    while (t.m.s.records + t.m.s.cut < RECORDS)
        cr_assert_eq(tally_turn(&t), ERR_OK, "%s", t.e.msg);
    cr_assert_gt(t.m.s.cut, 0);
    cr_assert_leq(kafka_case_committed(&kc, 0), 0);
    cr_assert(consumer_owns(t.m.c, &held->at));
    member_finish(&t.m, held);
    tally_turn_until_committed(&t, &kc, 0, RECORDS);
    cr_assert_eq(t.m.s.late_results, 0);
    member_leave(&t.m);
    kafka_case_close(&kc);
}

/* The note of the committed offset speaks of records that are still there: they are not read again. */
Test(lost_offset, a_note_outlives_a_cut, .timeout = 60)
{
    enum { RECORDS = 40 };
    struct commit_note n = {.suspect = -1, .n_runs = 1, .runs = {{RECORDS - 3, RECORDS - 2}}};
    char text[COMMIT_NOTE_MAX_BYTES + 1];
    struct kafka_case kc;
    struct tally t;
    struct err e;
    size_t size;

    kafka_case_open(&kc, 1);
    fill(&kc, RECORDS);
    cr_assert_eq(commit_note_encode(&n, 1, text, &size, &e), ERR_OK, "%s", e.msg);
    kafka_case_commit(&kc, 0, 1, text);
    tally_join(&t, &kc);
    tally_turn_until_committed(&t, &kc, 0, RECORDS);
    cr_assert_gt(t.m.s.cut, 0);
    cr_assert_eq(t.m.s.skipped, 2);
    member_leave(&t.m);
    kafka_case_close(&kc);
}

Test(lost_offset, none_begins_as_offset_reset_says_and_is_counted, .timeout = 60)
{
    struct kafka_case kc;
    struct tally t;

    kafka_case_open(&kc, 1);
    kafka_case_submit(&kc, 0, 10, 0);
    kc.k.offset_reset = "latest";
    tally_join(&t, &kc);
    for (int i = 0; i < 500 && !(t.m.s.joined && t.m.s.lag == 0); i++)
        cr_assert_eq(tally_turn(&t), ERR_OK);
    kafka_case_submit(&kc, 10, 10, 0);
    cr_assert(tally_see(&t, 10, 10));
    for (int i = 0; i < 10; i++)
        cr_assert_eq(t.seen[i], 0);
    cr_assert_eq(t.m.s.offset_resets, 1);
    member_leave(&t.m);
    kc.k.group_id = "others";
    kc.k.offset_reset = "error";
    tally_join(&t, &kc);
    cr_assert_eq(tally_turn_until_stopped(&t), ERR_KAFKA);
    cr_assert_not_null(strstr(t.e.msg, "kafka.offset_reset is \"error\""), "%s", t.e.msg);
    member_leave(&t.m);
    kafka_case_close(&kc);
}
