/* The consumer's part in finding a job that ends its worker; the rule alone is test_caution.c's.  That a revocation is
 * no death shows only on a real broker (tests/integration/test_crash.sh): the embedded one refuses commits meanwhile. */
#include "kafka/commit_note.h"
#include "tests/support/member.h"

#include <criterion/criterion.h>
#include <stdbool.h>
#include <string.h>

enum { MAX_CRASHES = 2, DEADLY = 5 };

static void join_watching(struct member *m, const struct kafka_case *kc)
{
    member_join(m, kc);
    consumer_watch_crashes(m->c, MAX_CRASHES, kc->d.max_in_flight_jobs);
}

static void leave_in_order(struct member *m)
{
    consumer_rest(m->c);
    member_leave(m);
}

/* As a worker dies: what is finished may have been committed, that nothing is in work was not. */
static void die(struct member *m)
{
    member_leave(m);
}

static void note_of(const struct kafka_case *kc, int partition, struct commit_note *n)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    char why[200];
    struct err e;

    rd_kafka_conf_set(conf, "bootstrap.servers", kc->bootstrap, why, sizeof why);
    rd_kafka_conf_set(conf, "group.id", kc->k.group_id, why, sizeof why);
    rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_CONSUMER, conf, why, sizeof why);
    const rd_kafka_topic_partition_t *tp = rd_kafka_topic_partition_list_add(list, kc->k.request_topic, partition);
    cr_assert_eq(rd_kafka_committed(rk, list, 5000), RD_KAFKA_RESP_ERR_NO_ERROR);
    cr_assert_eq(commit_note_decode(n, tp->metadata, tp->metadata_size, tp->offset, &e), ERR_OK, "%s", e.msg);
    rd_kafka_topic_partition_list_destroy(list);
    rd_kafka_destroy(rk);
}

/* Nothing more comes for some turns. */
static void expect_none(struct member *m, int turns)
{
    for (int i = 0; i < turns; i++)
        member_turn(m, 10);
    cr_assert_eq(queue_depth(m->records), 0);
}

Test(consumer, work_is_noted_before_its_first_record_and_until_the_end_in_order, .timeout = 60)
{
    static struct commit_note n;
    struct kafka_case kc;
    struct record *held[3];
    struct member m;

    kafka_case_open(&kc, 1);
    kafka_case_submit(&kc, 0, 3, 0);
    join_watching(&m, &kc);
    member_hold(&m, held, 3);
    note_of(&kc, 0, &n);
    cr_assert(n.in_work);
    cr_assert_eq(m.s.commits, 1, "one commit, not one a record");
    member_finish(&m, held[0]);
    member_turn(&m, 0);
    for (int i = 0; i < 200 && kafka_case_committed(&kc, 0) != 1; i++)
        member_turn(&m, 20);
    note_of(&kc, 0, &n);
    cr_assert(n.in_work);
    member_finish(&m, held[1]);
    member_finish(&m, held[2]);
    leave_in_order(&m);
    note_of(&kc, 0, &n);
    cr_assert_not(n.in_work);
    kafka_case_close(&kc);
}

/* A worker that takes all that it gets, and dies of job DEADLY, or at once where it gets many.  true: it went through. */
static bool live(struct kafka_case *kc, int jobs, int *done, int *set_aside)
{
    struct member m;

    join_watching(&m, kc);
    while (*done < jobs) {
        struct record *r = member_next(&m);
        bool deadly = kafka_case_number(r) == DEADLY && r->crashes == 0;

        for (int i = 0; i < 5; i++)
            member_turn(&m, 5);
        if (deadly || queue_depth(m.records) > 0) { /* in a crowd DEADLY is not far */
            consumer_release(m.c, r);
            die(&m);
            return false;
        }
        if (r->crashes > 0) {
            cr_assert_eq(r->crashes, MAX_CRASHES);
            cr_assert_eq(kafka_case_number(r), DEADLY);
            ++*set_aside;
        }
        member_finish(&m, r);
        member_turn(&m, 0);
        ++*done;
    }
    for (int i = 0; i < 100 && m.s.lag != 0; i++)
        member_turn(&m, 20);
    leave_in_order(&m);
    return true;
}

Test(consumer, job_that_ends_each_worker_is_found_and_set_aside, .timeout = 120)
{
    enum { JOBS = 10 };
    static struct commit_note n;
    struct kafka_case kc;
    int deaths = 0, done = 0, set_aside = 0;

    kafka_case_open(&kc, 1);
    kafka_case_submit(&kc, 0, JOBS, 0);
    while (deaths < 10 && !live(&kc, JOBS, &done, &set_aside))
        deaths++;
    cr_assert_eq(deaths, 2 + MAX_CRASHES, "%d deaths", deaths);
    cr_assert_eq(set_aside, 1);
    cr_assert_eq(done, JOBS, "each once");
    cr_assert_eq(kafka_case_committed(&kc, 0), JOBS);
    note_of(&kc, 0, &n);
    cr_assert_not(n.in_work);
    cr_assert_eq(n.deaths, 0);
    cr_assert_eq(n.suspect, -1);
    kafka_case_close(&kc);
}

Test(consumer, suspect_is_alone_in_the_whole_process_and_then_all_flows_again, .timeout = 120)
{
    static struct commit_note n;
    struct kafka_case kc;
    struct member m;
    struct record *r;

    kafka_case_open(&kc, 2);
    kc.d.max_in_flight_jobs = 3; /* the window of suspects */
    kafka_case_submit(&kc, 0, 10, 0);
    for (int i = 0; i < 2; i++) { /* partition 1 is empty: these deaths are not of its work */
        join_watching(&m, &kc);
        consumer_release(m.c, member_next(&m));
        die(&m);
    }
    kafka_case_submit(&kc, 100, 1, 1);
    rd_kafka_mock_partition_set_leader(kc.mock, kc.k.request_topic, 0, -1);
    join_watching(&m, &kc);
    struct record *other = member_next(&m);
    cr_assert_eq(kafka_case_number(other), 100, "a careful partition without records holds up nobody");
    rd_kafka_mock_partition_set_leader(kc.mock, kc.k.request_topic, 0, 1);
    expect_none(&m, 100);
    kafka_case_submit(&kc, 101, 19, 1);
    member_finish(&m, other);
    for (int i = 0; i < 3; i++) {
        r = member_next(&m);
        cr_assert_eq(kafka_case_number(r), i);
        expect_none(&m, 20);
        note_of(&kc, 0, &n);
        cr_assert(n.in_work);
        cr_assert_eq(n.suspect, i);
        note_of(&kc, 1, &n);
        cr_assert_not(n.in_work);
        member_finish(&m, r);
    }
    for (int i = 3; i < 29; i++)
        member_finish(&m, member_next(&m));
    for (int i = 0; i < 100 && m.s.lag != 0; i++)
        member_turn(&m, 20);
    cr_assert_eq(m.s.lag, 0);
    cr_assert_eq(m.s.deaths_found, 1);
    leave_in_order(&m);
    kafka_case_close(&kc);
}

Test(consumer, without_max_crashes_nothing_is_noted_and_nobody_careful, .timeout = 60)
{
    static struct commit_note n;
    struct kafka_case kc;
    struct record *held[3];
    struct member m;

    kafka_case_open(&kc, 1);
    kafka_case_submit(&kc, 0, 3, 0);
    for (int i = 0; i < 4; i++) {
        member_join(&m, &kc);
        member_hold(&m, held, 3);
        if (i == 3)
            member_finish(&m, held[0]);
        for (int k = i == 3; k < 3; k++)
            consumer_release(m.c, held[k]);
        cr_assert_eq(m.s.deaths_found, 0);
        die(&m);
    }
    note_of(&kc, 0, &n);
    cr_assert_not(n.in_work);
    kafka_case_close(&kc);
}
