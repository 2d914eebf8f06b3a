#include "base/clock.h"
#include "tests/support/tally.h"

#include <criterion/criterion.h>

enum { WAIT_MS = 20000, WINDOW = 20, LEDGER = 4 * WINDOW, JOBS = 500, OTHER = 1000 };

/* Partition 0 with job 0 held until its ledger is full, partition 1 read to its end meanwhile. */
static void open_with_a_full_ledger(struct kafka_case *kc, struct tally *t)
{
    kafka_case_open(kc, 2);
    kc->d.max_in_flight_jobs = WINDOW;
    kafka_case_submit(kc, 0, JOBS, 0);
    kafka_case_submit(kc, OTHER, JOBS, 1);
    tally_join(t, kc);
    t->hold = true;
    cr_assert(tally_see(t, OTHER, JOBS), "%s", t->e.msg);
    cr_assert(tally_see(t, 0, LEDGER), "%s", t->e.msg);
    for (int i = 0; i < 20; i++)
        cr_assert_eq(tally_turn(t), ERR_OK, "%s", t->e.msg);
    cr_assert_eq(tally_count(t, 0, JOBS), LEDGER, "the ledger is full");
}

Test(intake, a_job_far_behind_holds_up_its_own_partition_alone_and_nothing_is_repeated, .timeout = 60)
{
    struct kafka_case kc;
    static struct tally t;

    open_with_a_full_ledger(&kc, &t);
    kafka_case_submit(&kc, OTHER + JOBS, 100, 1);
    cr_assert(tally_see(&t, OTHER + JOBS, 100), "%s", t.e.msg);
    member_finish(&t.m, t.held);
    int64_t t0 = clock_mono_ns();
    cr_assert(tally_see(&t, 0, JOBS), "%s", t.e.msg);
    cr_assert_lt(clock_mono_ns() - t0, 5000 * NS_PER_MS);
    for (int i = 0; i < JOBS; i++)
        cr_assert_eq(t.seen[i], 1, "job %d came %d times", i, t.seen[i]);
    for (int i = OTHER; i < OTHER + JOBS + 100; i++)
        cr_assert_eq(t.seen[i], 1);
    member_leave(&t.m);
    cr_assert_eq(kafka_case_committed(&kc, 0), JOBS);
    cr_assert_eq(kafka_case_committed(&kc, 1), JOBS + 100);
    kafka_case_close(&kc);
}

Test(intake, a_partition_that_was_held_up_flows_again_after_it_changed_hands, .timeout = 60)
{
    struct kafka_case kc;
    static struct tally a, b;
    int64_t until = clock_mono_ns() + WAIT_MS * NS_PER_MS;

    open_with_a_full_ledger(&kc, &a);
    kc.d.revoke_timeout_ms = 100;
    a.hold = false;
    tally_join(&b, &kc);
    while ((a.m.s.partitions != 1 || b.m.s.partitions != 1) && clock_mono_ns() < until) {
        cr_assert_eq(tally_turn(&a), ERR_OK, "%s", a.e.msg);
        cr_assert_eq(tally_turn(&b), ERR_OK, "%s", b.e.msg);
    }
    member_finish(&a.m, a.held); /* late by now: the partition was given up, if only to come back */
    member_leave(&b.m);
    while ((a.m.s.partitions != 2 || !a.m.s.joined) && clock_mono_ns() < until)
        cr_assert_eq(tally_turn(&a), ERR_OK, "%s", a.e.msg);
    int64_t t0 = clock_mono_ns();
    kafka_case_submit(&kc, JOBS, 10, 0);
    cr_assert(tally_see(&a, JOBS, 10), "%s", a.e.msg);
    cr_assert_lt(clock_mono_ns() - t0, 5000 * NS_PER_MS);
    member_leave(&a.m);
    cr_assert_eq(kafka_case_committed(&kc, 0), JOBS + 10);
    kafka_case_close(&kc);
}

/* The library would leave the queue empty for a second each time that it was full: some 15 here. */
Test(intake, a_queue_that_runs_dry_is_filled_again_soon, .timeout = 60)
{
    static const char *const properties[] = {"queued.min.messages=30", "fetch.message.max.bytes=1000", NULL};
    enum { BATCHES = 30, EACH = 20 };
    struct kafka_case kc;
    static struct tally t;

    kafka_case_open(&kc, 1);
    kc.k.properties = properties;
    for (int i = 0; i < BATCHES; i++)
        kafka_case_submit(&kc, i * EACH, EACH, 0);
    tally_join(&t, &kc);
    cr_assert(tally_see(&t, 0, EACH), "%s", t.e.msg);
    int64_t t0 = clock_mono_ns();
    cr_assert(tally_see(&t, 0, BATCHES * EACH), "%s", t.e.msg);
    cr_assert_lt(clock_mono_ns() - t0, 8000 * NS_PER_MS);
    member_leave(&t.m);
    kafka_case_close(&kc);
}
