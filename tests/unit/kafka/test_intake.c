#include "base/clock.h"
#include "tests/support/kafka_case.h"

#include <criterion/criterion.h>
#include <stdbool.h>
#include <string.h>

enum { WAIT_MS = 20000, WINDOW = 20, LEDGER = 4 * WINDOW, JOBS = 500, OTHER = 1000 };

struct member {
    struct consumer *c;
    struct queue *records;
    struct consumer_stats s;
    struct record *held; /* job 0, for as long as hold says */
    bool hold;
    int seen[2 * OTHER];
};

static void join(struct member *m, const struct kafka_case *kc)
{
    struct err e;

    memset(m, 0, sizeof *m);
    cr_assert_eq(queue_open(&m->records, (size_t)kc->d.max_in_flight_jobs, &e), ERR_OK);
    cr_assert_eq(consumer_open(&m->c, &kc->k, kc->bootstrap, &kc->d, m->records, &e), ERR_OK, "%s", e.msg);
}

static void finish(struct member *m, struct record *r)
{
    if (consumer_owns(m->c, &r->at))
        consumer_finish(m->c, &r->at);
    else
        consumer_drop_late(m->c, &r->at);
    consumer_release(m->c, r);
}

/* One turn; what comes is finished at once, but for job 0. */
static void turn(struct member *m)
{
    struct record *r;
    struct err e;

    cr_assert_eq(consumer_turn(m->c, 10, &e), ERR_OK, "%s", e.msg);
    while ((r = queue_pop(m->records, 0))) {
        int n = kafka_case_number(r);

        if (n >= 0)
            m->seen[n]++;
        if (n == 0 && m->hold && !m->held)
            m->held = r;
        else
            finish(m, r);
    }
    consumer_get_stats(m->c, &m->s);
}

static void leave(struct member *m)
{
    consumer_close(m->c, 5000);
    queue_free(m->records);
}

static int count(const struct member *m, int first, int n)
{
    int have = 0;

    for (int i = first; i < first + n; i++)
        have += m->seen[i] > 0;
    return have;
}

static void see(struct member *m, int first, int n)
{
    int64_t until = clock_mono_ns() + WAIT_MS * NS_PER_MS;

    while (count(m, first, n) < n && clock_mono_ns() < until)
        turn(m);
    cr_assert_eq(count(m, first, n), n, "%d of %d jobs came", count(m, first, n), n);
}

/* Partition 0 with job 0 held until its ledger is full, partition 1 read to its end meanwhile. */
static void open_with_a_full_ledger(struct kafka_case *kc, struct member *m)
{
    kafka_case_open(kc, 2);
    kc->d.max_in_flight_jobs = WINDOW;
    kafka_case_submit(kc, 0, JOBS, 0);
    kafka_case_submit(kc, OTHER, JOBS, 1);
    join(m, kc);
    m->hold = true;
    see(m, OTHER, JOBS);
    see(m, 0, LEDGER);
    for (int i = 0; i < 20; i++)
        turn(m);
    cr_assert_eq(count(m, 0, JOBS), LEDGER, "the ledger is full");
}

Test(intake, a_job_far_behind_holds_up_its_own_partition_alone_and_nothing_is_repeated, .timeout = 60)
{
    struct kafka_case kc;
    static struct member m;

    open_with_a_full_ledger(&kc, &m);
    kafka_case_submit(&kc, OTHER + JOBS, 100, 1);
    see(&m, OTHER + JOBS, 100);
    finish(&m, m.held);
    int64_t t0 = clock_mono_ns();
    see(&m, 0, JOBS);
    cr_assert_lt(clock_mono_ns() - t0, 5000 * NS_PER_MS);
    for (int i = 0; i < JOBS; i++)
        cr_assert_eq(m.seen[i], 1, "job %d came %d times", i, m.seen[i]);
    for (int i = OTHER; i < OTHER + JOBS + 100; i++)
        cr_assert_eq(m.seen[i], 1);
    leave(&m);
    cr_assert_eq(kafka_case_committed(&kc, 0), JOBS);
    cr_assert_eq(kafka_case_committed(&kc, 1), JOBS + 100);
    kafka_case_close(&kc);
}

Test(intake, a_partition_that_was_held_up_flows_again_after_it_changed_hands, .timeout = 60)
{
    struct kafka_case kc;
    static struct member a, b;
    int64_t until = clock_mono_ns() + WAIT_MS * NS_PER_MS;

    open_with_a_full_ledger(&kc, &a);
    kc.d.revoke_timeout_ms = 100;
    a.hold = false;
    join(&b, &kc);
    while ((a.s.partitions != 1 || b.s.partitions != 1) && clock_mono_ns() < until) {
        turn(&a);
        turn(&b);
    }
    finish(&a, a.held); /* late by now: the partition was given up, if only to come back */
    leave(&b);
    while ((a.s.partitions != 2 || !a.s.joined) && clock_mono_ns() < until)
        turn(&a);
    int64_t t0 = clock_mono_ns();
    kafka_case_submit(&kc, JOBS, 10, 0);
    see(&a, JOBS, 10);
    cr_assert_lt(clock_mono_ns() - t0, 5000 * NS_PER_MS);
    leave(&a);
    cr_assert_eq(kafka_case_committed(&kc, 0), JOBS + 10);
    kafka_case_close(&kc);
}
