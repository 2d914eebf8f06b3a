#include "base/clock.h"
#include "kafka/reader.h"
#include "tests/support/kafka_case.h"

#include <criterion/criterion.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { PRODUCE = 0, MOST = 2000 };

/* What was reported, by the number that each record carries as its opaque. */
struct reports {
    int ok, too_large, invalid, retry, stop;
    int by_number[MOST];
};

static void count(void *ctx, void *opaque, enum err_code rc, const struct err *e)
{
    struct reports *r = ctx;

    r->by_number[(intptr_t)opaque]++;
    if (rc == ERR_OK)
        r->ok++;
    else if (rc == ERR_RESULT_TOO_LARGE)
        r->too_large++;
    else if (rc == ERR_RESULT_REFUSED)
        r->invalid++;
    else if (e->act == ERR_STOP)
        r->stop++;
    else
        r->retry++;
}

static struct publisher *opened(const struct kafka_case *kc, struct reports *r)
{
    struct publisher *p;
    struct err e;

    memset(r, 0, sizeof *r);
    cr_assert_eq(publisher_open(&p, &kc->k, kc->bootstrap, &kc->d, count, r, &e), ERR_OK, "%s", e.msg);
    return p;
}

static enum err_code send_bytes(struct publisher *p, int number, size_t bytes)
{
    static char value[200000];
    struct outgoing o = {.to = PUBLISH_RESULT, .partition = 0, .value = value, .value_size = bytes};
    struct err e;

    o.opaque = (void *)(intptr_t)number;
    return publisher_send(p, &o, &e);
}

static int reported(const struct reports *r)
{
    return r->ok + r->too_large + r->invalid + r->retry + r->stop;
}

static void turn_until(struct publisher *p, const struct reports *r, int all, int ms)
{
    int64_t until = clock_mono_ns() + ms * NS_PER_MS;

    while (reported(r) < all && clock_mono_ns() < until)
        publisher_turn(p, 20);
    cr_assert_eq(reported(r), all, "%d ok, %d too large, %d invalid, %d retry, %d stop", r->ok, r->too_large,
                 r->invalid, r->retry, r->stop);
}

static void assert_once_each(const struct reports *r, int n)
{
    for (int i = 0; i < n; i++)
        cr_assert_eq(r->by_number[i], 1, "record %d reported %d times", i, r->by_number[i]);
}

Test(publisher, reports_each_record_once, .timeout = 30)
{
    struct kafka_case kc;
    struct reports r;
    struct publisher_stats s;

    kafka_case_open(&kc, 2);
    struct publisher *p = opened(&kc, &r);
    for (int i = 0; i < 1000; i++)
        cr_assert_eq(send_bytes(p, i, 100), ERR_OK);
    turn_until(p, &r, 1000, 10000);
    cr_assert_eq(r.ok, 1000);
    assert_once_each(&r, 1000);
    publisher_get_stats(p, &s);
    cr_assert_eq(s.sent, 1000);
    cr_assert_eq(s.acknowledged, 1000);
    cr_assert_eq(s.queue_depth, 0);
    publisher_close(p, 1000);
    kafka_case_close(&kc);
}

Test(publisher, is_bounded_and_says_busy, .timeout = 30)
{
    struct kafka_case kc;
    struct reports r;
    int n = 0;

    kafka_case_open(&kc, 1);
    kc.d.max_in_flight_jobs = 10;
    rd_kafka_mock_broker_set_down(kc.mock, -1);
    struct publisher *p = opened(&kc, &r);
    while (n < MOST && send_bytes(p, n, 10) == ERR_OK)
        n++;
    cr_assert_eq(n, 10 * 2 + 1024);
    rd_kafka_mock_broker_set_up(kc.mock, -1);
    turn_until(p, &r, n, 10000);
    cr_assert_eq(send_bytes(p, 0, 10), ERR_OK);
    publisher_close(p, 5000);
    cr_assert_eq(r.ok, n + 1);
    kafka_case_close(&kc);
}

/* The original with everything that can be in a header comes out as it went in. */
Test(publisher, headers_keys_and_values_keep_their_bytes_and_order, .timeout = 30)
{
    static const unsigned char binary[] = {0xFF, 0x00, 0xC3, 0x28};
    static char names[200][16];
    struct header h[206] = {{"bin", binary, sizeof binary},
                            {"null", NULL, 0},
                            {"empty", "", 0},
                            {"same", "1", 1},
                            {"same", "2", 1},
                            {"same", "3", 1}};
    struct outgoing o = {.to = PUBLISH_REQUEST, .partition = 0, .headers = h, .n_headers = 206};
    const struct record *got;
    struct kafka_case kc;
    struct reports r;
    struct reader *rd;
    struct err e;
    bool at_end;

    for (int i = 0; i < 200; i++) {
        snprintf(names[i], sizeof names[i], "h%d", i);
        h[6 + i] = (struct header){names[i], names[i], strlen(names[i])};
    }
    kafka_case_open(&kc, 1);
    struct publisher *p = opened(&kc, &r);
    o.opaque = (void *)0;
    cr_assert_eq(publisher_send(p, &o, &e), ERR_OK); /* null key, null value */
    o.opaque = (void *)1;
    o.key = o.value = "";
    o.n_headers = 0;
    cr_assert_eq(publisher_send(p, &o, &e), ERR_OK); /* empty ones */
    turn_until(p, &r, 2, 5000);
    publisher_close(p, 1000);

    cr_assert_eq(reader_open(&rd, &kc.k, kc.bootstrap, "requests", true, &e), ERR_OK, "%s", e.msg);
    cr_assert_eq(reader_next(rd, &got, &at_end, 5000, &e), ERR_OK);
    cr_assert_not_null(got);
    cr_assert_null(got->key);
    cr_assert_null(got->value);
    cr_assert_eq(got->n_headers, 206);
    for (int i = 0; i < 206; i++) {
        cr_assert_str_eq(got->headers[i].name, h[i].name);
        cr_assert_eq(got->headers[i].size, h[i].size);
        cr_assert_eq(got->headers[i].value == NULL, h[i].value == NULL, "header %s", h[i].name);
        if (h[i].size)
            cr_assert_arr_eq(got->headers[i].value, h[i].value, h[i].size);
    }
    cr_assert_leq(llabs(got->timestamp_ms - clock_wall_ms()), 5000);
    cr_assert_eq(reader_next(rd, &got, &at_end, 5000, &e), ERR_OK);
    cr_assert_not_null(got);
    cr_assert_not_null(got->key);
    cr_assert_not_null(got->value);
    cr_assert_eq(got->key_size + got->value_size, 0);
    cr_assert_eq(got->at.offset, 1);
    cr_assert_eq(reader_next(rd, &got, &at_end, 5000, &e), ERR_OK);
    cr_assert_null(got);
    cr_assert(at_end);
    reader_close(rd);
    kafka_case_close(&kc);
}

/* Values of Java's Utils.murmur2, so that every producer puts a key into the same partition. */
Test(publisher, keys_go_where_javas_producers_put_them, .timeout = 30)
{
    static const struct {
        const char *key;
        uint32_t hash;
    } known[] = {{"21", (uint32_t)-973932308}, {"foobar", (uint32_t)-790332482}, {"abc", 479470107}};
    const struct record *got;
    struct kafka_case kc;
    struct reports r;
    struct reader *rd;
    struct err e;

    kafka_case_open(&kc, 6);
    struct publisher *p = opened(&kc, &r);
    for (size_t i = 0; i < 3; i++) {
        struct outgoing o = {.to = PUBLISH_RESULT, .partition = -1, .key = known[i].key};
        o.key_size = strlen(known[i].key);
        cr_assert_eq(publisher_send(p, &o, &e), ERR_OK);
    }
    turn_until(p, &r, 3, 5000);
    publisher_close(p, 1000);
    cr_assert_eq(reader_open(&rd, &kc.k, kc.bootstrap, "results", true, &e), ERR_OK);
    for (int i = 0; i < 3;) {
        cr_assert_eq(reader_next(rd, &got, NULL, 5000, &e), ERR_OK);
        if (!got)
            continue;
        for (size_t j = 0; j < 3; j++)
            if (got->key_size == strlen(known[j].key) && memcmp(got->key, known[j].key, got->key_size) == 0)
                cr_assert_eq(got->at.partition, (int32_t)((known[j].hash & 0x7FFFFFFF) % 6), "%s", known[j].key);
        i++;
    }
    reader_close(rd);
    kafka_case_close(&kc);
}

Test(publisher, what_is_over_the_producers_own_limit_is_refused_at_once, .timeout = 30)
{
    static const char *const small[] = {"message.max.bytes=100000", NULL};
    struct kafka_case kc;
    struct reports r;

    kafka_case_open(&kc, 1);
    kc.k.properties = small;
    struct publisher *p = opened(&kc, &r);
    cr_assert_eq(send_bytes(p, 0, 150000), ERR_RESULT_TOO_LARGE);
    cr_assert_eq(send_bytes(p, 1, 1000), ERR_OK);
    turn_until(p, &r, 1, 5000);
    cr_assert_eq(r.ok, 1);
    publisher_close(p, 1000);
    cr_assert_eq(r.by_number[0], 0, "no report follows a failed call");
    kafka_case_close(&kc);
}

/* Ten in one batch that is refused, and the first one again where it is alone. */
static void refuse_a_batch(rd_kafka_resp_err_t why, struct reports *r)
{
    struct kafka_case kc;

    kafka_case_open(&kc, 1);
    struct publisher *p = opened(&kc, r);
    cr_assert_eq(send_bytes(p, 0, 10), ERR_OK);
    turn_until(p, r, 1, 5000); /* connected: what follows is one batch */
    rd_kafka_mock_push_request_errors(kc.mock, PRODUCE, 2, why, why);
    for (int i = 1; i <= 10; i++)
        cr_assert_eq(send_bytes(p, i, 1000), ERR_OK);
    turn_until(p, r, 11, 15000);
    cr_assert_eq(r->ok, 10);
    assert_once_each(r, 11);
    publisher_close(p, 1000);
    kafka_case_close(&kc);
}

Test(publisher, a_batch_refused_for_its_size_is_split_and_only_the_guilty_one_fails, .timeout = 30)
{
    struct reports r;

    refuse_a_batch(RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, &r);
    cr_assert_eq(r.too_large, 1);
}

Test(publisher, a_batch_called_invalid_is_split_and_only_the_guilty_one_fails, .timeout = 30)
{
    struct reports r;

    refuse_a_batch(RD_KAFKA_RESP_ERR_INVALID_RECORD, &r);
    cr_assert_eq(r.invalid, 1);
}

Test(publisher, missing_rights_to_a_topic_may_come_so_the_record_is_to_be_sent_again, .timeout = 30)
{
    struct kafka_case kc;
    struct reports r;

    kafka_case_open(&kc, 1);
    struct publisher *p = opened(&kc, &r);
    rd_kafka_mock_push_request_errors(kc.mock, PRODUCE, 1, RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED);
    cr_assert_eq(send_bytes(p, 0, 10), ERR_OK);
    turn_until(p, &r, 1, 10000);
    cr_assert_eq(r.retry, 1);
    publisher_close(p, 1000);
    kafka_case_close(&kc);
}

Test(publisher, errors_that_pass_are_not_reported_at_all, .timeout = 30)
{
    struct kafka_case kc;
    struct reports r;

    kafka_case_open(&kc, 1);
    struct publisher *p = opened(&kc, &r);
    rd_kafka_mock_push_request_errors(kc.mock, PRODUCE, 3, RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
                                      RD_KAFKA_RESP_ERR__TRANSPORT, RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS);
    cr_assert_eq(send_bytes(p, 0, 10), ERR_OK);
    turn_until(p, &r, 1, 10000);
    cr_assert_eq(r.ok, 1);
    publisher_close(p, 1000);
    kafka_case_close(&kc);
}

Test(publisher, a_fatal_producer_is_built_anew_and_its_records_may_be_sent_again, .timeout = 60)
{
    struct kafka_case kc;
    struct reports r;
    struct publisher_stats s;

    kafka_case_open(&kc, 1);
    struct publisher *p = opened(&kc, &r);
    cr_assert_eq(send_bytes(p, 0, 10), ERR_OK);
    turn_until(p, &r, 1, 5000);
    rd_kafka_mock_push_request_errors(kc.mock, PRODUCE, 1, RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER);
    for (int i = 1; i <= 20; i++)
        cr_assert_eq(send_bytes(p, i, 10), ERR_OK);
    turn_until(p, &r, 21, 20000);
    publisher_turn(p, 0);
    publisher_get_stats(p, &s);
    cr_assert_eq(s.rebuilds, 1);
    cr_assert_gt(r.retry, 0);
    assert_once_each(&r, 21);
    int before = r.ok;
    for (int i = 21; i < 41; i++)
        cr_assert_eq(send_bytes(p, i, 10), ERR_OK);
    turn_until(p, &r, 41, 10000);
    cr_assert_eq(r.ok, before + 20);
    publisher_close(p, 1000);
    kafka_case_close(&kc);
}

Test(publisher, a_broker_that_is_away_too_long_means_retry_and_not_loss, .timeout = 60)
{
    struct kafka_case kc;
    struct reports r;

    kafka_case_open(&kc, 1);
    kc.d.publish_timeout_ms = 1000;
    struct publisher *p = opened(&kc, &r);
    cr_assert_eq(send_bytes(p, 0, 10), ERR_OK);
    turn_until(p, &r, 1, 5000);
    rd_kafka_mock_broker_set_down(kc.mock, -1);
    for (int i = 1; i <= 10; i++)
        cr_assert_eq(send_bytes(p, i, 10), ERR_OK);
    turn_until(p, &r, 11, 10000);
    cr_assert_eq(r.retry, 10);
    rd_kafka_mock_broker_set_up(kc.mock, -1);
    int all = 11, number = 11;
    for (int i = 0; i < 100 && r.ok < 11; i++) { /* the owner sends again, as often as it takes */
        while (send_bytes(p, number, 10) != ERR_OK)
            publisher_turn(p, 20);
        number++;
        turn_until(p, &r, ++all, 10000);
    }
    cr_assert_eq(r.ok, 11);
    publisher_close(p, 1000);
    assert_once_each(&r, number);
    kafka_case_close(&kc);
}

Test(publisher, close_is_bounded_and_reports_the_rest, .timeout = 60)
{
    struct kafka_case kc;
    struct reports r;
    int64_t t0;

    kafka_case_open(&kc, 1);
    kc.d.publish_timeout_ms = 60000;
    struct publisher *p = opened(&kc, &r);
    rd_kafka_mock_broker_set_down(kc.mock, -1);
    for (int i = 0; i < 50; i++)
        cr_assert_eq(send_bytes(p, i, 10), ERR_OK);
    t0 = clock_mono_ns();
    publisher_close(p, 500);
    cr_assert_lt(clock_mono_ns() - t0, 6 * NS_PER_S);
    cr_assert_eq(r.retry, 50);
    assert_once_each(&r, 50);
    kafka_case_close(&kc);
}

Test(publisher, reports_wake_the_owners_eventfd, .timeout = 30)
{
    struct kafka_case kc;
    struct reports r;
    int fd = eventfd(0, EFD_NONBLOCK);
    struct pollfd pfd = {.fd = fd, .events = POLLIN};
    int64_t until = clock_mono_ns() + 10 * NS_PER_S;
    uint64_t n;

    kafka_case_open(&kc, 1);
    struct publisher *p = opened(&kc, &r);
    publisher_set_wake_fd(p, fd);
    for (int i = 0; i < 100; i++) {
        cr_assert_eq(send_bytes(p, i, 10), ERR_OK);
        while (r.ok <= i && clock_mono_ns() < until) {
            cr_assert_eq(poll(&pfd, 1, 5000), 1, "no event for record %d", i);
            cr_assert_eq(read(fd, &n, sizeof n), (ssize_t)sizeof n);
            publisher_turn(p, 0);
        }
    }
    cr_assert_eq(r.ok, 100);
    publisher_close(p, 1000);
    close(fd);
    kafka_case_close(&kc);
}

Test(publisher, a_reader_from_the_end_sees_only_what_comes_after_it_opened, .timeout = 30)
{
    const struct record *got = NULL;
    struct kafka_case kc;
    struct reader *rd;
    struct err e;
    bool at_end = false;

    kafka_case_open(&kc, 2);
    kafka_case_submit(&kc, 0, 10, -1);
    cr_assert_eq(reader_open(&rd, &kc.k, kc.bootstrap, "requests", false, &e), ERR_OK, "%s", e.msg);
    kafka_case_submit(&kc, 10, 1, 0);
    for (int i = 0; i < 100 && !got; i++)
        cr_assert_eq(reader_next(rd, &got, &at_end, 100, &e), ERR_OK);
    cr_assert_not_null(got);
    cr_assert_eq(kafka_case_number(got), 10);
    for (int i = 0; i < 100 && !at_end; i++)
        cr_assert_eq(reader_next(rd, &got, &at_end, 100, &e), ERR_OK);
    cr_assert(at_end);
    reader_close(rd);
    kafka_case_close(&kc);
}

Test(publisher, a_reader_without_a_broker_gives_up_in_time, .timeout = 30)
{
    struct kafka_case kc;
    struct reader *rd;
    struct err e;

    kafka_case_open(&kc, 1);
    cr_assert_eq(reader_open(&rd, &kc.k, "127.0.0.1:1", "requests", true, &e), ERR_KAFKA);
    cr_assert_eq(e.act, ERR_RETRY);
    kafka_case_close(&kc);
}
