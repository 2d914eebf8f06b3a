#include "base/clock.h"
#include "tests/support/kafka_case.h"
#include "tests/support/member.h"

#include <criterion/criterion.h>
#include <stdbool.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { WAIT_MS = 20000 };

static unsigned next_random(unsigned *x)
{
    *x = *x * 1664525u + 1013904223u;
    return *x >> 8;
}

/* Reads and finishes n jobs, in random order within a pool of 500, and counts each number in seen. */
static void work(struct member *m, int n, unsigned char *seen, unsigned *seed)
{
    struct record *held[500];
    int have = 0, read = 0;

    while (read < n || have > 0) {
        while (read < n && have < 500) {
            struct record *r = have == 0 ? member_next(m) : queue_pop(m->records, 0);
            if (!r)
                break;
            held[have++] = r;
            read++;
        }
        int i = (int)(next_random(seed) % (unsigned)have);
        seen[kafka_case_number(held[i])]++;
        member_finish(m, held[i]);
        held[i] = held[--have];
        if (have % 64 == 0)
            member_turn(m, 0);
    }
}

Test(consumer, ten_thousand_jobs_in_random_order_survive_restarts_without_loss, .timeout = 60)
{
    enum { JOBS = 10000 };
    struct kafka_case kc;
    struct member m;
    static unsigned char seen[JOBS];
    unsigned seed = 7;
    int64_t committed = 0;

    kafka_case_open(&kc, 6);
    kafka_case_submit(&kc, 0, JOBS, -1);
    member_join(&m, &kc);
    work(&m, 4000, seen, &seed);
    member_leave(&m); /* commits the frontier; what lay in the queue is read again */
    member_join(&m, &kc);
    work(&m, 6000, seen, &seed);
    for (int i = 0; i < 200 && (m.s.lag != 0 || m.s.in_flight_jobs > 0); i++)
        member_turn(&m, 20);
    cr_assert_eq(m.s.lag, 0, "lag %lld", (long long)m.s.lag);
    member_leave(&m);
    for (int i = 0; i < JOBS; i++)
        cr_assert_eq(seen[i], 1, "job %d seen %d times", i, seen[i]);
    for (int p = 0; p < 6; p++)
        committed += kafka_case_committed(&kc, p);
    cr_assert_eq(committed, JOBS);
    kafka_case_close(&kc);
}

/* ---- rebalances ---- */

/* Turns of two members, one after the other, until both have half of the partitions. */
static void settle(struct member *a, struct member *b, int each)
{
    int64_t until = clock_mono_ns() + WAIT_MS * NS_PER_MS;

    do {
        member_turn(a, 10);
        member_turn(b, 10);
    } while ((a->s.partitions != each || b->s.partitions != each || !a->s.joined || !b->s.joined) &&
             clock_mono_ns() < until);
    cr_assert_eq(a->s.partitions, each);
    cr_assert_eq(b->s.partitions, each);
}

static void finish_and_count(struct member *m, struct record *r, unsigned char *seen)
{
    const int n = kafka_case_number(r);

    seen[n] += member_finish(m, r);
}

Test(consumer, what_was_read_and_not_finished_belongs_to_the_next_owner, .timeout = 60)
{
    struct kafka_case kc;
    struct member a, b;
    struct record *held[40];
    unsigned char seen[40] = {0};
    struct source stale;

    kafka_case_open(&kc, 2);
    kc.d.revoke_timeout_ms = 300;
    kafka_case_submit(&kc, 0, 40, -1);
    member_join(&a, &kc);
    member_hold(&a, held, 40); /* read, none of them finished */
    member_join(&b, &kc);
    settle(&a, &b, 1);
    cr_assert_eq(kafka_case_committed(&kc, 0), -1);
    cr_assert_eq(kafka_case_committed(&kc, 1), -1);

    /* late results: not ours any more, counted, never committed */
    stale = held[0]->at;
    cr_assert_not(consumer_owns(a.c, &stale));
    cr_assert_geq(a.s.in_flight_jobs, 40);
    for (int i = 0; i < 40; i++) {
        if (i % 2)
            consumer_finish(a.c, &held[i]->at);
        else
            consumer_drop_late(a.c, &held[i]->at);
        consumer_release(a.c, held[i]);
    }
    member_turn(&a, 100);
    member_turn(&a, 100);
    cr_assert_eq(a.s.late_results, 40);
    for (int i = 0; i < 200; i++) { /* both get all of theirs again */
        struct record *r;

        member_turn(&a, 5);
        member_turn(&b, 5);
        while ((r = queue_pop(a.records, 0)))
            finish_and_count(&a, r, seen);
        while ((r = queue_pop(b.records, 0)))
            finish_and_count(&b, r, seen);
    }
    for (int i = 0; i < 40; i++)
        cr_assert_eq(seen[i], 1, "job %d came again %d times", i, seen[i]);
    member_leave(&b);
    member_leave(&a);
    cr_assert_eq(kafka_case_committed(&kc, 0), 20);
    cr_assert_eq(kafka_case_committed(&kc, 1), 20);
    kafka_case_close(&kc);
}

/* Finishes what it is given after a while, as a publisher's thread would while the consumer waits in a revoke. */
struct slow_publisher {
    struct member *m;
    struct record **held;
    int n, delay_ms;
};

static void *finish_slowly(void *arg)
{
    struct slow_publisher *s = arg;
    struct timespec t = {s->delay_ms / 1000, s->delay_ms % 1000 * NS_PER_MS};

    nanosleep(&t, NULL); /* the work of the job itself */
    for (int i = 0; i < s->n; i++)
        member_finish(s->m, s->held[i]);
    return NULL;
}

/* The embedded broker refuses commits once a rebalance began; that they arrive is shown on a real one. */
Test(consumer, revoke_waits_for_what_is_in_flight, .timeout = 60)
{
    struct kafka_case kc;
    struct member a, b;
    struct record *held[20];
    pthread_t t;
    int64_t until = clock_mono_ns() + WAIT_MS * NS_PER_MS;

    kafka_case_open(&kc, 2);
    kc.d.revoke_timeout_ms = 2000;
    kafka_case_submit(&kc, 0, 20, -1);
    member_join(&a, &kc);
    member_hold(&a, held, 20);
    struct slow_publisher s = {&a, held, 20, 1800};
    member_turn(&a, 0);
    pthread_create(&t, NULL, finish_slowly, &s); /* a heartbeat, once 1.2 s, tells of the new member */
    member_join(&b, &kc);
    while (a.s.partitions == 2 && clock_mono_ns() < until) {
        member_turn(&a, 10);
        member_turn(&b, 10);
    }
    pthread_join(t, NULL);
    member_turn(&a, 10);
    cr_assert_eq(a.s.late_results, 0);
    cr_assert_eq(a.s.in_flight_jobs, 0, "they came while the revoke waited");
    settle(&a, &b, 1);
    member_leave(&b);
    member_leave(&a);
    kafka_case_close(&kc);
}

Test(consumer, commits_go_on_after_partitions_left_and_came_back_twice, .timeout = 90)
{
    struct kafka_case kc;
    struct member a, b;
    int64_t before = 0;

    kafka_case_open(&kc, 2);
    member_join(&a, &kc);
    for (int round = 0; round < 2; round++) {
        uint32_t number;

        kafka_case_submit(&kc, round * 10, 10, 0);
        for (int i = 0; i < 10; i++) {
            struct record *r = member_next(&a);
            number = r->at.assignment;
            member_finish(&a, r);
        }
        for (int i = 0; i < 100 && kafka_case_committed(&kc, 0) != (round + 1) * 10; i++)
            member_turn(&a, 20);
        cr_assert_eq(kafka_case_committed(&kc, 0), (round + 1) * 10);
        cr_assert_gt(number, before, "each assignment has a number of its own");
        before = number;
        member_join(&b, &kc);
        settle(&a, &b, 1);
        member_leave(&b);
        for (int i = 0; i < 1000 && (a.s.partitions != 2 || !a.s.joined); i++)
            member_turn(&a, 20);
        cr_assert_eq(a.s.partitions, 2);
    }
    cr_assert_geq(a.s.rebalances, 5);
    for (int i = 0; i < 100 && a.s.lag != 0; i++)
        member_turn(&a, 20);
    cr_assert_eq(a.s.lag, 0);
    member_leave(&a);
    kafka_case_close(&kc);
}

Test(consumer, a_lost_assignment_is_dropped_without_a_commit, .timeout = 60)
{
    struct kafka_case kc;
    struct member m;
    struct record *held[10];
    int64_t until = clock_mono_ns() + WAIT_MS * NS_PER_MS;

    kafka_case_open(&kc, 1);
    kc.d.commit_interval_ms = 60000;
    kafka_case_submit(&kc, 0, 10, -1);
    member_join(&m, &kc);
    member_hold(&m, held, 10);
    member_finish(&m, held[0]); /* sets the commit timer, and is committed at once: nothing was before it */
    member_turn(&m, 50);
    member_turn(&m, 50);
    for (int i = 1; i < 5; i++)
        member_finish(&m, held[i]);
    rd_kafka_mock_push_request_errors(kc.mock, 12 /* Heartbeat */, 1, RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID);
    while (m.s.lost_partitions == 0 && clock_mono_ns() < until)
        member_turn(&m, 50);
    cr_assert_eq(m.s.lost_partitions, 1);
    cr_assert_eq(kafka_case_committed(&kc, 0), 1, "what was finished and lost is done again");
    for (int i = 5; i < 10; i++) {
        cr_assert_not(consumer_owns(m.c, &held[i]->at));
        consumer_drop_late(m.c, &held[i]->at);
        consumer_release(m.c, held[i]);
    }
    for (int i = 1; i < 10; i++) {
        struct record *r = member_next(&m);

        cr_assert_eq(kafka_case_number(r), i);
        member_finish(&m, r);
    }
    member_leave(&m);
    cr_assert_eq(kafka_case_committed(&kc, 0), 10);
    kafka_case_close(&kc);
}

/* ---- back-pressure ---- */

Test(consumer, a_full_window_costs_neither_membership_nor_a_record, .timeout = 60)
{
    enum { JOBS = 1000, WINDOW = 50 };
    struct kafka_case kc;
    struct member m;
    struct record *held[WINDOW];
    unsigned char seen[JOBS] = {0};
    int64_t until;

    kafka_case_open(&kc, 2);
    kc.d.max_in_flight_jobs = WINDOW;
    kc.k.max_poll_interval_ms = 4000;
    kafka_case_submit(&kc, 0, JOBS, -1);
    member_join(&m, &kc);
    member_hold(&m, held, WINDOW);
    until = clock_mono_ns() + 5500 * NS_PER_MS;
    while (clock_mono_ns() < until) { /* the GPU is slow: nothing finishes for longer than the poll limit */
        member_turn(&m, 100);
        cr_assert_null(queue_pop(m.records, 0), "over the window");
    }
    cr_assert_eq(m.s.lost_partitions, 0);
    cr_assert_eq(m.s.rebalances, 1);
    cr_assert_eq(m.s.in_flight_jobs, WINDOW);
    int64_t t0 = clock_mono_ns();
    for (int i = 0; i < WINDOW; i++) {
        seen[kafka_case_number(held[i])]++;
        member_finish(&m, held[i]);
    }
    for (int i = WINDOW; i < JOBS; i++) {
        struct record *r = member_next(&m);

        if (i == WINDOW)
            cr_assert_lt(clock_mono_ns() - t0, 200 * NS_PER_MS, "it starts again at once");
        seen[kafka_case_number(r)]++;
        member_finish(&m, r);
    }
    for (int i = 0; i < JOBS; i++)
        cr_assert_eq(seen[i], 1);
    member_leave(&m);
    kafka_case_close(&kc);
}

Test(consumer, the_window_counts_bytes_too, .timeout = 60)
{
    struct kafka_case kc;
    struct member m;
    struct record *r;
    struct publisher *p;
    struct err e;
    int have = 0;
    char *big = malloc(300000);

    memset(big, 'x', 300000);
    kafka_case_open(&kc, 1);
    kc.d.max_in_flight_mb = 1;
    cr_assert_eq(publisher_open(&p, &kc.k, kc.bootstrap, &kc.d, kafka_case_count, &have, &e), ERR_OK);
    for (int i = 0; i < 10; i++) {
        struct outgoing o = {.to = PUBLISH_REQUEST, .value = big, .value_size = 300000};
        cr_assert_eq(publisher_send(p, &o, &e), ERR_OK);
    }
    publisher_close(p, 5000);
    cr_assert_eq(have, 10);
    member_join(&m, &kc);
    struct record *held[10];
    held[0] = member_next(&m);
    for (int i = 0; i < 20; i++)
        member_turn(&m, 10);
    for (have = 1; (r = queue_pop(m.records, 0)); have++)
        held[have] = r;
    cr_assert_eq(have, 4, "one over the limit of 1 MiB is the most: %d", have);
    cr_assert_leq(m.s.in_flight_bytes, (1 << 20) + 300000);
    for (int i = 0; i < have; i++)
        member_finish(&m, held[i]);
    for (; have < 10; have++)
        member_finish(&m, member_next(&m));
    member_leave(&m);
    free(big);
    kafka_case_close(&kc);
}

/* ---- brokers and errors ---- */

Test(consumer, failed_commits_are_counted_and_tried_again, .timeout = 60)
{
    struct kafka_case kc;
    struct member m;

    kafka_case_open(&kc, 1);
    kafka_case_submit(&kc, 0, 10, -1);
    member_join(&m, &kc);
    rd_kafka_mock_push_request_errors(kc.mock, 8 /* OffsetCommit */, 2, RD_KAFKA_RESP_ERR_UNKNOWN,
                                      RD_KAFKA_RESP_ERR_INVALID_COMMIT_OFFSET_SIZE);
    for (int i = 0; i < 10; i++)
        member_finish(&m, member_next(&m));
    for (int i = 0; i < 300 && m.s.commits == 0; i++)
        member_turn(&m, 10);
    cr_assert_geq(m.s.commit_errors, 1);
    cr_assert_geq(m.s.commits, 1);
    cr_assert_eq(kafka_case_committed(&kc, 0), 10);
    member_leave(&m);
    kafka_case_close(&kc);
}

Test(consumer, an_illegal_generation_at_commit_loses_no_job, .timeout = 60)
{
    enum { JOBS = 50 };
    struct kafka_case kc;
    struct member m;
    unsigned char seen[2 * JOBS] = {0};

    kafka_case_open(&kc, 1);
    kafka_case_submit(&kc, 0, JOBS, -1);
    member_join(&m, &kc);
    rd_kafka_mock_push_request_errors(kc.mock, 8 /* OffsetCommit */, 1, RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION);
    for (int i = 0; i < JOBS; i++) {
        struct record *r = member_next(&m);

        seen[kafka_case_number(r)] = 1;
        member_finish(&m, r);
    }
    for (int i = 0; i < 200 && m.s.commit_errors == 0; i++)
        member_turn(&m, 10);
    cr_assert_geq(m.s.commit_errors, 1);
    kafka_case_submit(&kc, JOBS, JOBS, -1);
    for (int missing = JOBS; missing > 0;) {
        struct record *r = member_next(&m);
        int n = kafka_case_number(r);

        missing -= n >= JOBS && !seen[n];
        seen[n] = 1;
        member_finish(&m, r);
    }
    member_leave(&m);
    cr_assert_eq(kafka_case_committed(&kc, 0), 2 * JOBS);
    kafka_case_close(&kc);
}

static int64_t committed_by(const struct member *m)
{
    struct consumer_partition p[8];
    int64_t sum = 0;

    for (int i = 0, n = consumer_get_partitions(m->c, p, 8); i < n; i++)
        sum += p[i].committed;
    return sum;
}

Test(consumer, jobs_in_flight_outlive_a_broker_that_is_away, .timeout = 60)
{
    enum { JOBS = 200 };
    struct kafka_case kc;
    struct member m;
    struct record *held[JOBS];
    int64_t until;

    kafka_case_open(&kc, 2);
    kafka_case_submit(&kc, 0, JOBS, -1);
    member_join(&m, &kc);
    member_hold(&m, held, JOBS);
    cr_assert(m.s.broker_up);
    rd_kafka_mock_broker_set_down(kc.mock, -1);
    until = clock_mono_ns() + 2000 * NS_PER_MS;
    for (int i = 0; i < JOBS || clock_mono_ns() < until; i++) {
        if (i < JOBS)
            member_finish(&m, held[i]);
        member_turn(&m, 10);
    }
    cr_assert_not(m.s.broker_up);
    rd_kafka_mock_broker_set_up(kc.mock, -1);
    until = clock_mono_ns() + WAIT_MS * NS_PER_MS;
    while ((committed_by(&m) != JOBS || !m.s.broker_up) && clock_mono_ns() < until) {
        struct record *r = queue_pop(m.records, 0);

        if (r) /* the session may be over by then, and what was not committed comes again */
            member_finish(&m, r);
        member_turn(&m, 10);
    }
    cr_assert(m.s.broker_up);
    cr_assert_eq(committed_by(&m), JOBS);
    member_leave(&m);
    cr_assert_eq(kafka_case_committed(&kc, 0) + kafka_case_committed(&kc, 1), JOBS);
    kafka_case_close(&kc);
}

Test(consumer, stops_before_the_first_assignment_are_clean_and_bounded, .timeout = 60)
{
    struct kafka_case kc;

    kafka_case_open(&kc, 4);
    for (int i = 0; i < 20; i++) {
        struct member m;
        int64_t t0;

        member_join(&m, &kc);
        for (int j = 0; j < i; j++)
            member_turn(&m, 10);
        t0 = clock_mono_ns();
        member_leave(&m);
        cr_assert_lt(clock_mono_ns() - t0, 5500 * NS_PER_MS);
    }
    kafka_case_close(&kc);
}

Test(consumer, a_broker_that_never_comes_is_waited_for_and_left_in_time, .timeout = 60)
{
    struct kafka_case kc;
    struct member m;

    kafka_case_open(&kc, 1);
    kc.bootstrap = "127.0.0.1:1";
    member_join(&m, &kc);
    for (int i = 0; i < 50; i++)
        member_turn(&m, 20);
    cr_assert_not(m.s.broker_up);
    cr_assert_not(m.s.joined);
    int64_t t0 = clock_mono_ns();
    member_leave(&m);
    cr_assert_lt(clock_mono_ns() - t0, 5500 * NS_PER_MS);
    kafka_case_close(&kc);
}

static enum err_code turn_until_stopped(struct member *m, struct err *e)
{
    int64_t until = clock_mono_ns() + WAIT_MS * NS_PER_MS;
    enum err_code rc = ERR_OK;

    while (rc == ERR_OK && clock_mono_ns() < until)
        rc = consumer_turn(m->c, 50, e);
    return rc;
}

Test(consumer, without_an_offset_it_stops_when_told_so, .timeout = 60)
{
    struct kafka_case kc;
    struct member m;
    struct err e;

    kafka_case_open(&kc, 1);
    kc.k.offset_reset = "error";
    member_join(&m, &kc);
    cr_assert_eq(turn_until_stopped(&m, &e), ERR_KAFKA);
    cr_assert_eq(e.act, ERR_STOP);
    cr_assert_not_null(strstr(e.msg, "offset_reset"), "%s", e.msg);
    member_leave(&m);
    kafka_case_close(&kc);
}

Test(consumer, a_topic_that_stays_unknown_stops_it_with_its_name, .timeout = 60)
{
    static const char *const soon[] = {"topic.metadata.propagation.max.ms=1000", NULL};
    struct kafka_case kc;
    struct member m;
    struct err e;

    kafka_case_open(&kc, 1);
    kc.k.properties = soon;
    rd_kafka_mock_topic_set_error(kc.mock, "nowhere", RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
    kc.k.request_topic = "nowhere";
    member_join(&m, &kc);
    cr_assert_eq(turn_until_stopped(&m, &e), ERR_KAFKA);
    cr_assert_not_null(strstr(e.msg, "nowhere does not exist"), "%s", e.msg);
    member_leave(&m);
    kafka_case_close(&kc);
}

Test(consumer, a_topic_that_we_may_not_read_stops_it, .timeout = 60)
{
    struct kafka_case kc;
    struct member m;
    struct err e;

    kafka_case_open(&kc, 1);
    rd_kafka_mock_topic_set_error(kc.mock, "requests", RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED);
    member_join(&m, &kc);
    cr_assert_eq(turn_until_stopped(&m, &e), ERR_KAFKA);
    cr_assert_eq(e.act, ERR_STOP);
    cr_assert_not_null(strstr(e.msg, "authorization"), "%s", e.msg);
    member_leave(&m);
    kafka_case_close(&kc);
}

static void assert_refused(struct kafka_case *kc, const char *property, const char *needle)
{
    const char *const list[] = {property, NULL};
    struct consumer *c;
    struct queue *q;
    struct err e;

    kc->k.properties = list;
    cr_assert_eq(queue_open(&q, 2000, &e), ERR_OK);
    cr_assert_eq(consumer_open(&c, &kc->k, kc->bootstrap, &kc->d, q, &e), ERR_CONFIG);
    cr_assert_not_null(strstr(e.msg, needle), "%s", e.msg);
    cr_assert_null(c);
    queue_free(q);
}

Test(consumer, properties_that_break_promises_or_are_unknown_are_refused_by_name)
{
    struct kafka_case kc;

    kafka_case_open(&kc, 1);
    assert_refused(&kc, "enable.auto.commit=true", "enable.auto.commit cannot be set here");
    assert_refused(&kc, "no.such.thing=1", "no.such.thing");
    assert_refused(&kc, "fetch.wait.max.ms=never", "fetch.wait.max.ms");
    assert_refused(&kc, "nonsense", "not name=value");
    kc.k.properties = NULL;
    if (rd_kafka_version() < 0x02030000) {
        kc.k.assignment_strategy = "cooperative-sticky";
        struct consumer *c;
        struct err e;
        cr_assert_eq(consumer_open(&c, &kc.k, kc.bootstrap, &kc.d, NULL, &e), ERR_CONFIG);
        cr_assert_not_null(strstr(e.msg, "2.3"), "%s", e.msg);
    }
    kafka_case_close(&kc);
}

/* ---- notes ---- */

static void turn_until_committed(struct member *m, const struct kafka_case *kc, int64_t offset)
{
    int64_t commits = m->s.commits;

    for (int i = 0; i < 200 && m->s.commits == commits; i++)
        member_turn(m, 20);
    cr_assert_gt(m->s.commits, commits, "no commit");
    cr_assert_eq(kafka_case_committed(kc, 0), offset);
}

Test(consumer, what_finished_ahead_of_a_long_job_is_not_read_again, .timeout = 60)
{
    enum { JOBS = 100 };
    struct kafka_case kc;
    struct record *held[JOBS];
    struct member a, b;

    kafka_case_open(&kc, 1);
    kc.d.commit_interval_ms = 50;
    kafka_case_submit(&kc, 0, JOBS, 0);
    member_join(&a, &kc);
    member_hold(&a, held, JOBS);
    for (int i = 0; i < JOBS; i++)
        if (i != 0 && i != 57)
            member_finish(&a, held[i]);
    member_turn(&a, 0);
    turn_until_committed(&a, &kc, 0); /* the first is not finished: only the note has changed */
    consumer_release(a.c, held[0]);
    consumer_release(a.c, held[57]);
    member_leave(&a);

    member_join(&b, &kc);
    cr_assert_eq(kafka_case_number(held[0] = member_next(&b)), 0);
    cr_assert_eq(kafka_case_number(held[1] = member_next(&b)), 57);
    for (int i = 0; i < 200 && b.s.skipped < JOBS - 2; i++)
        member_turn(&b, 20);
    cr_assert_eq(b.s.skipped, JOBS - 2);
    member_finish(&b, held[0]);
    member_finish(&b, held[1]);
    for (int i = 0; i < 200 && b.s.lag != 0; i++)
        member_turn(&b, 20);
    member_leave(&b);
    cr_assert_eq(kafka_case_committed(&kc, 0), JOBS);
    kafka_case_close(&kc);
}

Test(consumer, broker_that_takes_no_notes_gets_offsets_alone, .timeout = 60)
{
    struct kafka_case kc;
    struct record *held[3];
    struct member m;

    kafka_case_open(&kc, 1);
    kafka_case_submit(&kc, 0, 3, 0);
    member_join(&m, &kc);
    member_hold(&m, held, 3);
    rd_kafka_mock_push_request_errors(kc.mock, 8 /* OffsetCommit */, 1, RD_KAFKA_RESP_ERR_OFFSET_METADATA_TOO_LARGE);
    member_finish(&m, held[0]);
    member_finish(&m, held[2]);
    member_turn(&m, 0);
    turn_until_committed(&m, &kc, 1);
    cr_assert_eq(m.s.commit_errors, 1);
    consumer_release(m.c, held[1]);
    member_leave(&m);
    member_join(&m, &kc);
    for (int i = 1; i < 3; i++) { /* the third is repeated: there was no note of it */
        struct record *r = member_next(&m);
        cr_assert_eq(kafka_case_number(r), i);
        member_finish(&m, r);
    }
    member_leave(&m);
    kafka_case_close(&kc);
}

Test(consumer, note_of_another_program_skips_nothing, .timeout = 60)
{
    static const char *const foreign[] = {"parallel-consumer: bm9uZQ==", "tw2.AAAAAAAA", "tw1.AAAAAAAA"};

    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        struct kafka_case kc;
        struct member m;

        kafka_case_open(&kc, 1);
        kafka_case_submit(&kc, 0, 5, 0);
        kafka_case_commit(&kc, 0, 0, foreign[i]);
        member_join(&m, &kc);
        for (int k = 0; k < 5; k++) {
            struct record *r = member_next(&m);
            cr_assert_eq(kafka_case_number(r), k);
            member_finish(&m, r);
        }
        member_turn(&m, 0);
        cr_assert_eq(m.s.notes_ignored, 1, "%s", foreign[i]);
        cr_assert_eq(m.s.skipped, 0);
        member_leave(&m);
        cr_assert_eq(kafka_case_committed(&kc, 0), 5);
        kafka_case_close(&kc);
    }
}

/* n records so large that the embedded broker, which keeps 5 MB a partition, drops the oldest. */
static void fill_log(struct kafka_case *kc, int n)
{
    enum { BYTES = 100000 };
    char *value = malloc(BYTES);
    unsigned seed = 5;
    struct publisher *p;
    struct err e;
    int done = 0;

    cr_assert_not_null(value);
    for (int i = 0; i < BYTES; i++) /* nothing to compress */
        value[i] = (char)next_random(&seed);

    cr_assert_eq(publisher_open(&p, &kc->k, kc->bootstrap, &kc->d, kafka_case_count, &done, &e), ERR_OK, "%s", e.msg);
    for (int i = 0; i < n; i++) {
        struct outgoing o = {.to = PUBLISH_REQUEST, .value = value, .value_size = BYTES};
        cr_assert_eq(publisher_send(p, &o, &e), ERR_OK, "%s", e.msg);
    }
    for (int i = 0; i < 1000 && done < n; i++)
        publisher_turn(p, 10);
    cr_assert_eq(done, n);
    publisher_close(p, 1000);
    free(value);
}

Test(consumer, a_log_that_was_cut_is_read_from_its_new_start_and_the_gap_is_counted, .timeout = 60)
{
    enum { FIRST = 10, CUT = 20, LARGE = 100 };
    struct kafka_case kc;
    struct record *r;
    struct member m;
    int64_t start;

    kafka_case_open(&kc, 1);
    kafka_case_submit(&kc, 0, FIRST, 0);
    member_join(&m, &kc);
    for (int i = 0; i < FIRST; i++)
        member_finish(&m, member_next(&m));
    member_leave(&m);
    cr_assert_eq(kafka_case_committed(&kc, 0), FIRST);
    kafka_case_submit(&kc, FIRST, CUT, 0);
    fill_log(&kc, LARGE);

    member_join(&m, &kc);
    r = member_next(&m);
    start = r->at.offset;
    cr_assert_gt(start, FIRST + CUT, "the embedded broker dropped nothing");
    for (int64_t at = start; at < FIRST + CUT + LARGE; at++) {
        cr_assert_eq(r->at.offset, at);
        member_finish(&m, r);
        r = at + 1 < FIRST + CUT + LARGE ? member_next(&m) : NULL;
    }
    member_turn(&m, 0);
    cr_expect_eq(m.s.cut, start - FIRST, "%lld cut", (long long)m.s.cut);
    member_leave(&m);
    cr_expect_eq(kafka_case_committed(&kc, 0), FIRST + CUT + LARGE);
    kafka_case_close(&kc);
}

/* ---- polls that are late ---- */

/* Every job of [first, first + n) comes, and is finished. */
static void take_numbers(struct member *m, int first, int n)
{
    unsigned char seen[200] = {0};

    for (int missing = n; missing > 0;) {
        struct record *r = member_next(m);
        int k = kafka_case_number(r) - first;

        missing -= k >= 0 && k < n && !seen[k];
        if (k >= 0 && k < n)
            seen[k] = 1;
        member_finish(m, r);
    }
}

Test(consumer, an_evicted_member_comes_back_by_itself, .timeout = 60)
{
    struct kafka_case kc;
    struct member m;

    kafka_case_open(&kc, 1);
    kc.k.max_poll_interval_ms = 3500;
    kafka_case_submit(&kc, 0, 10, 0);
    member_join(&m, &kc);
    take_numbers(&m, 0, 10);
    member_turn(&m, 50);
    member_turn(&m, 50);
    nanosleep(&(struct timespec){4, 500 * NS_PER_MS}, NULL); /* the loop stands still: that is the fault */
    kafka_case_submit(&kc, 10, 10, 0);
    take_numbers(&m, 10, 10);
    cr_assert_eq(m.s.lost_partitions, 1);
    cr_assert_eq(m.s.rebalances, 2);
    member_leave(&m);
    cr_assert_eq(kafka_case_committed(&kc, 0), 20);
    kafka_case_close(&kc);
}

Test(consumer, a_poll_gap_over_the_session_timeout_costs_nothing, .timeout = 60)
{
    struct kafka_case kc;
    struct member m;

    kafka_case_open(&kc, 1);
    kc.k.max_poll_interval_ms = 20000;
    kafka_case_submit(&kc, 0, 10, 0);
    member_join(&m, &kc);
    take_numbers(&m, 0, 10);
    nanosleep(&(struct timespec){4, 500 * NS_PER_MS}, NULL); /* the session is 3.2 s, the library keeps it */
    kafka_case_submit(&kc, 10, 10, 0);
    take_numbers(&m, 10, 10);
    cr_assert_eq(m.s.lost_partitions, 0);
    cr_assert_eq(m.s.rebalances, 1);
    member_leave(&m);
    cr_assert_eq(kafka_case_committed(&kc, 0), 20);
    kafka_case_close(&kc);
}

Test(consumer, stops_while_another_joins_are_bounded, .timeout = 60)
{
    struct kafka_case kc;
    struct member a, b;

    kafka_case_open(&kc, 2);
    for (int round = 0; round < 5; round++) {
        member_join(&a, &kc);
        for (int i = 0; i < 100 && !(round % 2 && a.s.joined); i++)
            member_turn(&a, 10);
        member_join(&b, &kc);
        for (int i = 0; i < 10 * round; i++) { /* somewhere in the rebalance */
            member_turn(&a, 5);
            member_turn(&b, 5);
        }
        int64_t t0 = clock_mono_ns();
        member_leave(&a);
        cr_assert_lt(clock_mono_ns() - t0, 6 * NS_PER_S);
        member_leave(&b);
        cr_assert_lt(clock_mono_ns() - t0, 12 * NS_PER_S);
    }
    kafka_case_close(&kc);
}
