#include "base/clock.h"
#include "base/queue.h"
#include "kafka/consumer.h"
#include "kafka/publisher.h"
#include "tests/support/kafka_case.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The embedded cluster throws the offsets of transactions away and isolates nothing, so this shows what the worker's
 * side does: which records are reported how, and that offsets follow.  What a reader sees is shown by
 * tests/integration/test_exactly_once.sh and the chaos runs against a real Kafka. */

enum { JOBS = 40, PRODUCE = 0, ADD_OFFSETS = 25, END_TXN = 26, TXN_OFFSET_COMMIT = 28 };

struct rig {
    struct kafka_case kc;
    struct queue *records;
    struct consumer *c;
    struct publisher *p;
    struct record *held[JOBS];
    struct outgoing out[JOBS];
    pthread_t thread;
    _Atomic bool stop;
    /* reports by job */
    int ok[JOBS], busy[JOBS], alone[JOBS], too_large[JOBS], retry[JOBS], fenced[JOBS];
    int n_out, n_ok;
};

static struct rig rig;

static void on_report(void *ctx, void *opaque, enum err_code rc, const struct err *e)
{
    struct rig *r = ctx;
    int i = (int)(intptr_t)opaque;

    r->n_out--;
    if (rc == ERR_OK) {
        r->ok[i]++;
        r->n_ok++;
        consumer_finish(r->c, &r->held[i]->at);
    } else if (rc == ERR_BUSY) {
        r->busy[i]++;
    } else if (rc == ERR_RESULT_TOO_LARGE) {
        *(e->act == ERR_RETRY ? &r->alone[i] : &r->too_large[i]) += 1;
    } else if (rc == ERR_FENCED) {
        r->fenced[i]++;
    } else {
        r->retry[i]++;
    }
}

static void *turn_consumer(void *arg)
{
    struct rig *r = arg;
    struct err e;

    while (!atomic_load(&r->stop))
        if (consumer_turn(r->c, 20, &e) != ERR_OK)
            break;
    return NULL;
}

static void rig_open(struct rig *r)
{
    struct err e;

    memset(r, 0, sizeof *r);
    kafka_case_open(&r->kc, 1);
    r->kc.k.bootstrap_servers = r->kc.bootstrap;
    r->kc.d.mode = DELIVERY_EXACTLY_ONCE;
    r->kc.d.transactional_id = "one";
    kafka_case_submit(&r->kc, 0, JOBS, 0);
    kafka_case_commit(&r->kc, 0, 0, ""); /* stays: the embedded broker forgets the offsets of transactions */
    cr_assert_eq(queue_open(&r->records, 2000, &e), ERR_OK);
    cr_assert_eq(consumer_open(&r->c, &r->kc.k, r->kc.bootstrap, &r->kc.d, r->records, &e), ERR_OK, "%s", e.msg);
    cr_assert_eq(publisher_open_transactional(&r->p, &r->kc.k, &r->kc.d, r->c, on_report, r, &e), ERR_OK, "%s", e.msg);
    pthread_create(&r->thread, NULL, turn_consumer, r);
    for (int i = 0; i < JOBS; i++) {
        r->held[i] = queue_pop(r->records, clock_mono_ns() + 20 * NS_PER_S);
        cr_assert_not_null(r->held[i]);
        r->out[i] = (struct outgoing){.to = PUBLISH_RESULT, .partition = 0, .value = "result", .value_size = 6};
        r->out[i].opaque = (void *)(intptr_t)i;
        r->out[i].at = &r->held[i]->at;
    }
}

static void rig_close(struct rig *r)
{
    publisher_close(r->p, 1000);
    atomic_store(&r->stop, true);
    pthread_join(r->thread, NULL);
    for (int i = 0; i < JOBS; i++)
        consumer_release(r->c, r->held[i]);
    consumer_close(r->c, 3000);
    queue_free(r->records);
    kafka_case_close(&r->kc);
}

static void send_job(struct rig *r, int i)
{
    int64_t until = clock_mono_ns() + 20 * NS_PER_S;
    enum err_code rc;
    struct err e;

    while ((rc = publisher_send(r->p, &r->out[i], &e)) == ERR_BUSY && clock_mono_ns() < until)
        publisher_turn(r->p, 5);
    cr_assert_eq(rc, ERR_OK, "%s", e.msg);
    r->n_out++;
}

static void until_reported(struct rig *r)
{
    int64_t until = clock_mono_ns() + 25 * NS_PER_S;

    while (r->n_out > 0 && clock_mono_ns() < until)
        publisher_turn(r->p, 5);
    cr_assert_eq(r->n_out, 0);
}

static int64_t committed(struct rig *r)
{
    struct consumer_partition p = {.committed = -1};

    consumer_get_partitions(r->c, &p, 1);
    return p.committed;
}

static void until_committed(struct rig *r, int64_t offset)
{
    int64_t until = clock_mono_ns() + 10 * NS_PER_S;

    while (committed(r) != offset && clock_mono_ns() < until)
        publisher_turn(r->p, 5);
    cr_assert_eq(committed(r), offset);
}

Test(transaction, commits_results_in_any_order_with_their_offsets, .timeout = 60)
{
    struct publisher_stats s;

    rig_open(&rig);
    for (int i = JOBS - 1; i > 0; i--)
        send_job(&rig, i);
    until_reported(&rig);
    cr_assert_eq(rig.n_ok, JOBS - 1);
    until_committed(&rig, 0); /* the first is not there yet: the note tells of the others */
    send_job(&rig, 0);
    until_reported(&rig);
    until_committed(&rig, JOBS);
    publisher_get_stats(rig.p, &s);
    cr_assert_geq(s.commits, 2);
    cr_assert_eq(s.aborts, 0);
    cr_assert_eq(kafka_case_committed(&rig.kc, 0), 0, "nothing is committed beside the transactions");
    rig_close(&rig);
}

Test(transaction, record_that_is_too_large_is_found_among_its_batch, .timeout = 60)
{
    rig_open(&rig);
    send_job(&rig, 39); /* a batch without fault first, so that the producer is warm */
    until_reported(&rig);
    rd_kafka_mock_push_request_errors(rig.kc.mock, PRODUCE, 1, RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE);
    for (int i = 0; i < 3; i++)
        send_job(&rig, i);
    until_reported(&rig);
    int refused = rig.alone[0] + rig.alone[1] + rig.alone[2] + rig.too_large[0] + rig.too_large[1] + rig.too_large[2];
    cr_assert_geq(refused, 1);
    cr_assert_eq(rig.n_ok, 1);
    rd_kafka_mock_push_request_errors(rig.kc.mock, PRODUCE, 1, RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE);
    for (int i = 0; i < 3; i++)
        rig.out[i].alone = true;
    memset(rig.too_large, 0, sizeof rig.too_large);
    memset(rig.alone, 0, sizeof rig.alone);
    for (int i = 0; i < 3; i++)
        send_job(&rig, i);
    until_reported(&rig);
    cr_assert_eq(rig.too_large[0], 1, "alone, so it is the one");
    cr_assert_eq(rig.too_large[1] + rig.too_large[2] + rig.alone[1] + rig.alone[2], 0);
    rig_close(&rig);
}

Test(transaction, abortable_error_aborts_and_the_records_can_be_sent_again, .timeout = 60)
{
    rig_open(&rig);
    rd_kafka_mock_push_request_errors(rig.kc.mock, ADD_OFFSETS, 1, RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED);
    for (int i = 0; i < 10; i++)
        send_job(&rig, i);
    until_reported(&rig);
    cr_assert_eq(rig.n_ok, 0);
    cr_assert_eq(rig.retry[0] + rig.busy[0], 1);
    cr_assert_eq(committed(&rig), 0);
    for (int i = 0; i < 10; i++)
        send_job(&rig, i);
    until_reported(&rig);
    cr_assert_eq(rig.n_ok, 10);
    until_committed(&rig, 10);
    rig_close(&rig);
}

Test(transaction, fatal_error_builds_a_new_producer, .timeout = 60)
{
    struct publisher_stats s;

    rig_open(&rig);
    rd_kafka_mock_push_request_errors(rig.kc.mock, ADD_OFFSETS, 1, RD_KAFKA_RESP_ERR_INVALID_TXN_STATE);
    for (int i = 0; i < 10; i++)
        send_job(&rig, i);
    until_reported(&rig);
    publisher_get_stats(rig.p, &s);
    cr_assert_eq(s.rebuilds, 1);
    cr_assert_eq(rig.n_ok, 0);
    for (int i = 0; i < 10; i++)
        send_job(&rig, i);
    until_reported(&rig);
    cr_assert_eq(rig.n_ok, 10);
    until_committed(&rig, 10);
    rig_close(&rig);
}

Test(transaction, fenced_producer_stops_for_good, .timeout = 60)
{
    struct err e;

    rig_open(&rig);
    rd_kafka_mock_push_request_errors(rig.kc.mock, ADD_OFFSETS, 1, RD_KAFKA_RESP_ERR_PRODUCER_FENCED);
    for (int i = 0; i < 10; i++)
        send_job(&rig, i);
    until_reported(&rig);
    cr_assert_eq(rig.fenced[0], 1);
    cr_assert_eq(publisher_failure(rig.p, &e), ERR_FENCED);
    cr_assert_eq(e.act, ERR_STOP);
    cr_assert_eq(publisher_send(rig.p, &rig.out[0], &e), ERR_FENCED);
    cr_assert_eq(committed(&rig), 0);
    rig_close(&rig);
}

Test(transaction, commit_of_unknown_outcome_is_judged_by_the_groups_offsets, .timeout = 60)
{
    struct publisher_stats s;

    rig_open(&rig);
    rd_kafka_mock_push_request_errors(rig.kc.mock, END_TXN, 1, RD_KAFKA_RESP_ERR_INVALID_TXN_STATE);
    for (int i = 0; i < 10; i++)
        send_job(&rig, i);
    until_reported(&rig);
    publisher_get_stats(rig.p, &s);
    cr_assert_eq(s.rebuilds, 1);
    cr_assert_eq(rig.n_ok, 0, "this cluster has kept no offset, so nothing was committed");
    cr_assert_eq(rig.busy[0], 1);
    for (int i = 0; i < 10; i++)
        send_job(&rig, i);
    until_reported(&rig);
    cr_assert_eq(rig.n_ok, 10);
    rig_close(&rig);
}

Test(transaction, job_that_is_no_longer_ours_holds_up_nobody, .timeout = 60)
{
    struct source gone;

    rig_open(&rig);
    gone = *rig.out[3].at;
    gone.assignment += 1;
    rig.out[3].at = &gone;
    for (int i = 0; i < 10; i++)
        send_job(&rig, i);
    until_reported(&rig);
    cr_assert_eq(rig.n_ok, 0, "the results of a lost partition are not committed");
    cr_assert_eq(rig.busy[3], 1);
    for (int i = 0; i < 10; i++)
        if (i != 3) /* the owner drops this one */
            send_job(&rig, i);
    until_reported(&rig);
    cr_assert_eq(rig.n_ok, 9);
    until_committed(&rig, 3);
    rig_close(&rig);
}

Test(transaction, consumer_that_has_ended_fails_what_is_sent_at_once, .timeout = 60)
{
    rig_open(&rig);
    for (int i = 0; i < 3; i++)
        send_job(&rig, i);
    consumer_abandon(rig.c);
    int64_t begun = clock_mono_ns();
    until_reported(&rig);
    cr_assert_lt(clock_mono_ns() - begun, 5 * NS_PER_S);
    cr_assert_eq(rig.retry[0] + rig.retry[1] + rig.retry[2], 3);
    rig_close(&rig);
}

/* The coordinator refuses one of the steps for longer than a transaction may last, then it is well again. */
static void coordinator_is_away(int api)
{
    struct publisher_stats s = {.rebuilds = 0};
    int64_t begun;

    rig_open(&rig);
    send_job(&rig, 39); /* one that goes well first, so that the producer is warm */
    until_reported(&rig);
    for (int i = 0; i < 1000; i++)
        rd_kafka_mock_push_request_errors(rig.kc.mock, (int16_t)api, 1, RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE);
    for (int i = 0; i < 10; i++)
        send_job(&rig, i);
    begun = clock_mono_ns();
    while (s.rebuilds + s.aborts == 0 && clock_mono_ns() - begun < 30 * NS_PER_S) {
        publisher_turn(rig.p, 5);
        publisher_get_stats(rig.p, &s);
    }
    cr_assert_geq(s.rebuilds + s.aborts, 1, "bounded by the transaction's time");
    cr_assert_eq(rig.n_ok, 1, "nothing is taken for committed");
    rd_kafka_mock_clear_request_errors(rig.kc.mock, (int16_t)api);
    until_reported(&rig);
    cr_assert_eq(rig.n_ok, 1);
    for (int i = 0; i < 10; i++)
        send_job(&rig, i);
    until_reported(&rig);
    cr_assert_eq(rig.n_ok, 11);
    rig_close(&rig);
}

Test(transaction, coordinator_that_is_away_at_the_commit_costs_the_producer_and_no_record, .timeout = 90)
{
    coordinator_is_away(END_TXN);
}

Test(transaction, coordinator_that_takes_no_offsets_costs_the_transaction_and_no_record, .timeout = 90)
{
    coordinator_is_away(TXN_OFFSET_COMMIT);
}

Test(transaction, out_of_order_sequence_is_over_in_five_seconds, .timeout = 60)
{
    rig_open(&rig);
    send_job(&rig, 39);
    until_reported(&rig);
    rd_kafka_mock_push_request_errors(rig.kc.mock, PRODUCE, 1, RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER);
    int64_t begun = clock_mono_ns();
    for (int i = 0; i < 10; i++)
        send_job(&rig, i);
    until_reported(&rig);
    for (int i = 0; i < 10; i++)
        if (!rig.ok[i])
            send_job(&rig, i);
    until_reported(&rig);
    cr_assert_eq(rig.n_ok, 11);
    cr_assert_lt(clock_mono_ns() - begun, 5 * NS_PER_S);
    rig_close(&rig);
}
