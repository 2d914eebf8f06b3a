/* The whole pipeline in one process, against librdkafka's in-process cluster and a fake backend. */
#include "tests/support/http_stub.h"
#include "tests/support/wire_setup.h"
#include "tests/support/worker_case.h"

#include <criterion/criterion.h>
#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct worker_case wc;

static int count_code(const struct seen *d, int n, const char *code)
{
    int k = 0;

    for (int i = 0; i < n; i++)
        k += strcmp(d[i].code, code) == 0;
    return k;
}

static const struct seen *find_id(const struct seen *r, int n, const char *id)
{
    for (int i = 0; i < n; i++)
        if (strcmp(r[i].id, id) == 0)
            return &r[i];
    return NULL;
}

/* Every job prefix-0 .. prefix-(n-1) has a result; returns how many repeats there are. */
static int expect_all(const struct seen *r, int n_results, const char *prefix, int n)
{
    char id[64];
    int repeats = 0;

    for (int i = 0; i < n; i++) {
        int times = 0;
        snprintf(id, sizeof id, "%s-%d", prefix, i);
        for (int k = 0; k < n_results; k++)
            times += strcmp(r[k].id, id) == 0;
        cr_assert_geq(times, 1, "job %s has no result", id);
        repeats += times - 1;
    }
    return repeats;
}

static struct outgoing json(const char *text)
{
    return worker_case_value(text, strlen(text));
}

#define TRACE "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

Test(worker, poison_among_good_jobs_stops_nothing_and_each_lands_where_it_belongs)
{
    enum { HUGE_BYTES = 3 << 20, LONG = 60000 };
    static const struct header trace = {"traceparent", TRACE, sizeof TRACE - 1};
    struct outgoing o[16];
    struct seen *r, *d;
    int n = 0, n_r, n_d;
    char *huge = malloc(HUGE_BYTES), *too_long = malloc(LONG + 200), *page = malloc(1 << 20);

    memset(huge, 'x', HUGE_BYTES);
    int k = sprintf(too_long, "{\"job_id\": \"long\", \"target_lang\": \"de\", \"text\": \"");
    for (; k < LONG; k += 5)
        memcpy(too_long + k, "word ", 5);
    strcpy(too_long + k, "\"}");

    worker_case_open(&wc, (const char *const[]){"limits.max_record_bytes=2000000", NULL});
    worker_case_start(&wc);
    o[n++] = worker_case_value("", 0);
    o[n++] = worker_case_value(NULL, 0);
    o[n++] = worker_case_value("\x00\x00\x00\x00", 4);
    o[n++] = worker_case_value("\xC3\x01garbage!garbage", 17);
    o[n++] = worker_case_value(huge, HUGE_BYTES);
    o[n++] = json("{\"job_id\": \"half");
    o[n++] = json("{\"job_id\": \"m\", \"text\": \"a\"}");
    o[n++] = json("{\"job_id\": \"l\", \"text\": \"a\", \"target_lang\": \"Klingon\"}");
    o[n++] = json("{\"job_id\": \"s\", \"text\": \"a\", \"target_lang\": \"de\", \"source_lang\": \"xx\"}");
    o[n++] = json("{\"job_id\": \"e\", \"text\": \" \\n\\u3000\", \"target_lang\": \"de\"}");
    o[n++] = json("{\"job_id\": \"x\", \"text\": \"a\", \"target_lang\": \"de\", \"deadline\": 1}");
    o[n++] = json("{\"job_id\": \"c\", \"text\": \"a\", \"target_lang\": \"de\", \"context\": \"b\"}");
    o[n++] =
        json("{\"job_id\": \"p\", \"text\": \"a\", \"target_lang\": \"de\", \"options\": {\"repetition_penalty\": 0}}");
    o[n++] = json(too_long);
    o[n] = json("{\"job_id\": \"traced\", \"text\": \"Good morning.\", \"target_lang\": \"German\"}");
    o[n].headers = &trace;
    o[n].n_headers = 1;
    o[n].key = "key";
    o[n].key_size = 3;
    worker_case_send(&wc, o, n + 1);
    worker_case_jobs(&wc, "good", 31);
    worker_case_jobs(&wc, "good", 1); /* a job id twice: translated twice, both to the same text */
    worker_case_until(&wc, worker_case_has_finished, n + 33, "all jobs at their ends");
    worker_case_until(&wc, worker_case_is_ready, 0, "ready");
    cr_assert_eq(worker_case_get(&wc, "/ready", NULL, 0), 200);
    cr_assert_eq(worker_case_get(&wc, "/live", NULL, 0), 200);
    cr_assert_eq(worker_case_get(&wc, "/metrics", page, 1 << 20), 200);
    cr_assert(strstr(page, "translate_worker_jobs_total{outcome=\"result\"} 33\n"), "%s", page);
    cr_assert(strstr(page, "translate_worker_dead_letters_total{code=\"UNDECODABLE\"}"));
    cr_assert_eq(worker_case_get(&wc, "/status", page, 1 << 20), 200);
    cr_assert(strstr(page, "\"committed\""));
    cr_assert_eq(worker_case_get(&wc, "/", page, 1 << 20), 200);
    cr_assert(strstr(page, "<!doctype html>"));
    worker_case_stop(&wc);
    cr_assert_eq(wc.rc, ERR_OK, "%s", wc.e.msg);

    n_r = worker_case_read(&wc, false, 34, 5000, &r);
    n_d = worker_case_read(&wc, true, n - 1, 5000, &d);
    cr_assert_eq(n_r, 34);
    cr_assert_eq(n_d, n - 1);
    cr_assert_eq(expect_all(r, n_r, "good", 31), 1);
    cr_assert_geq(count_code(d, n_d, "UNDECODABLE"), 4);
    cr_assert_eq(count_code(d, n_d, "MISSING_FIELD"), 1);
    cr_assert_eq(count_code(d, n_d, "UNKNOWN_LANGUAGE"), 2);
    cr_assert_eq(count_code(d, n_d, "EMPTY_TEXT"), 1);
    cr_assert_eq(count_code(d, n_d, "DEADLINE_PASSED"), 0);
    cr_assert_eq(count_code(r, n_r, "DEADLINE_PASSED"), 1);
    cr_assert_eq(count_code(d, n_d, "UNSUPPORTED"), 1);
    cr_assert_eq(count_code(d, n_d, "INVALID_FIELD"), 1);
    cr_assert_geq(count_code(d, n_d, "TEXT_TOO_LONG"), 1);
    int nulls = 0, empties = 0, huges = 0;
    for (int i = 0; i < n_d; i++) {
        cr_assert_str_eq(d[i].topic, wc.cfg.kafka.request_topic);
        cr_assert_geq(d[i].offset, 0);
        nulls += d[i].value_size == SIZE_MAX;
        cr_assert_lt(llabs(clock_wall_ms() - d[i].timestamp_ms), 60000, "a dead letter has the time of its writing");
        empties += d[i].value_size == 0;
        huges += d[i].value_size == HUGE_BYTES;
    }
    cr_assert_eq(nulls, 1, "null stays null");
    cr_assert_eq(empties, 1);
    cr_assert_eq(huges, 1, "the original bytes");
    const struct seen *traced = find_id(r, n_r, "traced");
    cr_assert_not_null(traced);
    cr_assert_eq(memcmp(traced->trace, TRACE, 36), 0);
    cr_assert_neq(memcmp(traced->trace, TRACE, 52), 0);
    cr_assert_eq(worker_case_committed(&wc, 0) + worker_case_committed(&wc, 1), n + 33, "all is committed");
    free(r);
    free(d);
    free(huge);
    free(too_long);
    free(page);
    worker_case_close(&wc);
}

Test(worker, stop_under_load_loses_nothing_and_repeats_nothing)
{
    enum { N = 600 };
    struct seen *r;
    int n_r;

    worker_case_open(&wc, NULL);
    wc.fake.step_ns = 2 * NS_PER_MS;
    worker_case_jobs(&wc, "job", N);
    worker_case_start(&wc);
    worker_case_until(&wc, worker_case_has_results, 60, "60 results");
    int64_t begin = clock_mono_ns();
    worker_case_stop(&wc);
    cr_assert_eq(wc.rc, ERR_OK, "%s", wc.e.msg);
    cr_assert_lt(clock_mono_ns() - begin, 10 * NS_PER_S);
    n_r = worker_case_read(&wc, false, 0, 0, &r);
    cr_assert_lt(n_r, N, "it stopped in the middle");
    for (int p = 0; p < 2; p++)
        cr_assert_leq(worker_case_committed(&wc, p), n_r, "nothing is committed that was not published");
    free(r);
    worker_case_start(&wc);
    worker_case_until(&wc, worker_case_has_results, N - n_r, "the rest");
    worker_case_stop(&wc);
    n_r = worker_case_read(&wc, false, N, 5000, &r);
    cr_assert_eq(expect_all(r, n_r, "job", N), n_r - N);
    cr_assert_eq(worker_case_committed(&wc, 0) + worker_case_committed(&wc, 1), N);
    cr_assert_leq(n_r - N, wc.cfg.delivery.max_in_flight_jobs);
    free(r);
    worker_case_close(&wc);
}

static bool has_committed(struct worker_case *c, int n)
{
    return worker_case_committed(c, 0) + worker_case_committed(c, 1) >= n;
}

Test(worker, device_failure_has_its_own_error_and_commits_nothing_unpublished)
{
    enum { N = 100 };
    struct seen *r;
    int n_r;

    worker_case_open(&wc, NULL);
    wc.fake.fail_after_steps = 40;
    worker_case_jobs(&wc, "job", N);
    worker_case_start(&wc);
    worker_case_wait(&wc);
    cr_assert_eq(wc.rc, ERR_DEVICE, "%s", wc.e.msg);
    n_r = worker_case_read(&wc, false, 0, 0, &r);
    int64_t committed = 0;
    for (int p = 0; p < 2; p++)
        if (worker_case_committed(&wc, p) > 0)
            committed += worker_case_committed(&wc, p);
    cr_assert_leq(committed, n_r);
    free(r);
    wc.fake.fail_after_steps = 0;
    worker_case_start(&wc);
    /* what was finished ahead of the committed offset is not done again, so there is no count to wait for */
    worker_case_until(&wc, has_committed, N, "the rest by a new worker");
    worker_case_stop(&wc);
    cr_assert_eq(wc.rc, ERR_OK, "%s", wc.e.msg);
    n_r = worker_case_read(&wc, false, N, 5000, &r);
    expect_all(r, n_r, "job", N);
    free(r);
    worker_case_close(&wc);
}

Test(worker, stops_loudly_when_everything_is_undecodable)
{
    enum { N = 400 };
    struct outgoing o[N];
    struct seen *d;

    worker_case_open(&wc, (const char *const[]){"dead_letter.max_run=50", NULL});
    for (int i = 0; i < N; i++) {
        o[i] = json("not a job");
        o[i].partition = i % 2;
    }
    worker_case_send(&wc, o, N);
    worker_case_start(&wc);
    worker_case_wait(&wc);
    cr_assert_eq(wc.rc, ERR_POISON, "%s", wc.e.msg);
    cr_assert(strstr(wc.e.msg, "dead_letter.max_run"));
    int n_d = worker_case_read(&wc, true, 50, 2000, &d);
    cr_assert_eq(n_d, 50, "not one more than allowed: %d", n_d);
    cr_assert_leq(worker_case_committed(&wc, 0) + worker_case_committed(&wc, 1), 50);
    free(d);
    worker_case_close(&wc);
}

Test(worker, result_too_large_becomes_a_dead_letter_in_one_attempt)
{
    struct seen *r, *d;

    worker_case_open(&wc, NULL);
    worker_case_start(&wc);
    worker_case_until(&wc, worker_case_is_ready, 0, "ready");
    worker_case_jobs(&wc, "before", 2);
    worker_case_until(&wc, worker_case_has_results, 2, "two results");
    struct outgoing big = json("{\"job_id\": \"big\", \"text\": \"Good day.\", \"target_lang\": \"de\"}");
    worker_case_send(&wc, &big, 1);
    worker_case_until(&wc, worker_case_has_results, 3, "it is fine as such");
    /* the request's own, then the result's: refused with its batch, and again alone */
    rd_kafka_mock_push_request_errors(embedded_cluster(wc.broker), 0 /* Produce */, 3, RD_KAFKA_RESP_ERR_NO_ERROR,
                                      RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE);
    worker_case_send(&wc, &big, 1);
    worker_case_until(&wc, worker_case_has_finished, 4, "the refused one's end");
    worker_case_jobs(&wc, "after", 2);
    worker_case_until(&wc, worker_case_has_results, 5, "those after it");
    worker_case_stop(&wc);
    cr_assert_eq(wc.rc, ERR_OK, "%s", wc.e.msg);
    int n_d = worker_case_read(&wc, true, 1, 2000, &d), n_r = worker_case_read(&wc, false, 5, 2000, &r);
    cr_assert_eq(n_d, 1);
    cr_assert_str_eq(d[0].code, "RESULT_TOO_LARGE");
    cr_assert_eq(n_r, 5);
    cr_assert_eq(worker_case_committed(&wc, 0) + worker_case_committed(&wc, 1), 6);
    free(r);
    free(d);
    worker_case_close(&wc);
}

Test(worker, dead_letter_too_large_goes_without_its_value_and_says_where_that_is)
{
    struct outgoing poison = json("no job at all");
    struct seen *d;

    worker_case_open(&wc, NULL);
    worker_case_start(&wc);
    worker_case_until(&wc, worker_case_is_ready, 0, "ready");
    rd_kafka_mock_push_request_errors(embedded_cluster(wc.broker), 0 /* Produce */, 3, RD_KAFKA_RESP_ERR_NO_ERROR,
                                      RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE);
    worker_case_send(&wc, &poison, 1);
    worker_case_until(&wc, worker_case_has_finished, 1, "the dead letter");
    worker_case_stop(&wc);
    cr_assert_eq(wc.rc, ERR_OK, "%s", wc.e.msg);
    cr_assert_eq(worker_case_read(&wc, true, 1, 2000, &d), 1);
    cr_assert_eq(d[0].value_size, SIZE_MAX);
    cr_assert(d[0].omitted);
    cr_assert_str_eq(d[0].code, "UNDECODABLE", "the reason is the first one");
    free(d);
    worker_case_close(&wc);
}

Test(worker, dead_letter_that_is_called_invalid_stops_it_with_nothing_committed)
{
    struct outgoing poison = json("no job at all");

    worker_case_open(&wc, NULL);
    worker_case_start(&wc);
    worker_case_until(&wc, worker_case_is_ready, 0, "ready");
    rd_kafka_mock_push_request_errors(embedded_cluster(wc.broker), 0 /* Produce */, 3, RD_KAFKA_RESP_ERR_NO_ERROR,
                                      RD_KAFKA_RESP_ERR_INVALID_RECORD, RD_KAFKA_RESP_ERR_INVALID_RECORD);
    worker_case_send(&wc, &poison, 1);
    worker_case_wait(&wc);
    cr_assert_eq(wc.rc, ERR_KAFKA);
    cr_assert_not_null(strstr(wc.e.msg, "dead letter is refused"), "%s", wc.e.msg);
    cr_assert_leq(worker_case_committed(&wc, 0) + worker_case_committed(&wc, 1), 0);
    worker_case_close(&wc);
}

static bool is_unready(struct worker_case *c, int n)
{
    return !worker_case_is_ready(c, n);
}

Test(worker, topic_that_may_not_be_written_is_waited_for_and_nothing_is_committed_or_lost)
{
    struct seen *r, *d;

    worker_case_open(&wc, NULL);
    worker_case_start(&wc);
    worker_case_until(&wc, worker_case_is_ready, 0, "ready");
    worker_case_jobs(&wc, "before", 2);
    worker_case_until(&wc, worker_case_has_results, 2, "while it is allowed");
    /* the request's own produce, then six refusals, with a growing wait after each */
    rd_kafka_mock_push_request_errors(embedded_cluster(wc.broker), 0 /* Produce */, 7, RD_KAFKA_RESP_ERR_NO_ERROR,
                                      RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
                                      RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
                                      RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
                                      RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
                                      RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
                                      RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED);
    worker_case_jobs(&wc, "job", 1);
    worker_case_until(&wc, is_unready, 0, "not ready while it is refused");
    cr_assert_eq(worker_case_committed(&wc, 0), 1, "the refused one's offset is not committed");
    cr_assert_eq(worker_case_get(&wc, "/live", NULL, 0), 200);
    worker_case_until(&wc, worker_case_has_results, 3, "the job, once it is allowed");
    worker_case_until(&wc, worker_case_is_ready, 0, "ready again");
    cr_assert_geq(stats_read(&wc.w->stats.publish_retries), 6);
    worker_case_stop(&wc);
    cr_assert_eq(wc.rc, ERR_OK, "%s", wc.e.msg);
    int n_r = worker_case_read(&wc, false, 3, 2000, &r);
    cr_assert_eq(n_r, 3);
    cr_assert_eq(expect_all(r, n_r, "job", 1), 0);
    cr_assert_eq(worker_case_read(&wc, true, 0, 0, &d), 0);
    cr_assert_eq(worker_case_committed(&wc, 0) + worker_case_committed(&wc, 1), 3);
    free(r);
    free(d);
    worker_case_close(&wc);
}

static bool has_partitions(struct worker_case *c, int n)
{
    struct consumer_stats s = {.partitions = 0};

    pthread_mutex_lock(&c->w->view_lock);
    if (c->w->consumer)
        consumer_get_stats(c->w->consumer, &s);
    pthread_mutex_unlock(&c->w->view_lock);
    return s.partitions == n;
}

Test(worker, second_worker_takes_over_partitions_and_nothing_is_lost)
{
    enum { N = 1200 };
    struct worker_case other;
    struct seen *r;

    worker_case_open(&wc, NULL);
    wc.fake.step_ns = 8 * NS_PER_MS; /* some hundred jobs a second, longer than the rebalance */
    worker_case_jobs(&wc, "job", N);
    worker_case_start(&wc);
    worker_case_until(&wc, worker_case_has_results, 20, "the first results");
    other = wc;
    worker_case_start(&other);
    worker_case_until(&other, has_partitions, 1, "a partition of its own");
    worker_case_until(&wc, has_partitions, 1, "and one left");
    worker_case_until(&other, worker_case_has_results, 1, "work by the second");
    worker_case_stop(&wc);
    cr_assert_eq(wc.rc, ERR_OK, "%s", wc.e.msg);
    worker_case_until(&other, has_partitions, 2, "both partitions");
    for (int p = 0; p < 2; p++) /* the second works until the group has committed all */
        for (int i = 0; i < 1000 && worker_case_committed(&wc, p) < N / 2; i++)
            nanosleep(&(struct timespec){0, 20 * NS_PER_MS}, NULL);
    worker_case_stop(&other);
    cr_assert_eq(other.rc, ERR_OK, "%s", other.e.msg);
    cr_assert_eq(worker_case_committed(&wc, 0) + worker_case_committed(&wc, 1), N);
    int n_r = worker_case_read(&wc, false, N, 5000, &r);
    /* This cluster refuses commits for as long as a rebalance lasts, so repeats have no narrower bound here. */
    cr_assert_lt(expect_all(r, n_r, "job", N), N);
    free(r);
    worker_case_close(&wc);
}

Test(worker, broker_that_goes_away_is_waited_for_and_nothing_is_lost)
{
    enum { N = 200 };
    struct seen *r, *d;

    worker_case_open(&wc, NULL);
    wc.fake.step_ns = 3 * NS_PER_MS;
    worker_case_jobs(&wc, "job", N);
    wc.cfg.delivery.publish_timeout_ms = 1000;
    worker_case_start(&wc);
    worker_case_until(&wc, worker_case_has_results, 20, "twenty results");
    rd_kafka_mock_broker_set_down(embedded_cluster(wc.broker), 1);
    worker_case_until(&wc, is_unready, 0, "not ready while no broker answers");
    nanosleep(&(struct timespec){2, 0}, NULL); /* longer than one publish attempt lasts */
    rd_kafka_mock_broker_set_up(embedded_cluster(wc.broker), 1);
    worker_case_until(&wc, worker_case_has_results, N, "all of them");
    worker_case_until(&wc, worker_case_is_ready, 0, "ready again");
    worker_case_stop(&wc);
    cr_assert_eq(wc.rc, ERR_OK, "%s", wc.e.msg);
    int n_r = worker_case_read(&wc, false, N, 5000, &r);
    expect_all(r, n_r, "job", N);
    cr_assert_eq(worker_case_read(&wc, true, 0, 0, &d), 0, "a broker that is away is no reason for a dead letter");
    free(r);
    free(d);
    worker_case_close(&wc);
}

Test(worker, drain_of_no_time_is_a_clean_stop_when_nothing_is_in_flight)
{
    worker_case_open(&wc, (const char *const[]){"delivery.drain_timeout_ms=0", NULL});
    worker_case_jobs(&wc, "job", 5);
    worker_case_start(&wc);
    worker_case_until(&wc, has_committed, 5, "5 committed");
    worker_case_stop(&wc);
    cr_assert_eq(wc.rc, ERR_OK, "%s", wc.e.msg);
    worker_case_close(&wc);
}

Test(worker, drain_is_bounded_and_what_is_left_is_read_again)
{
    enum { N = 20 };
    struct seen *r;

    worker_case_open(&wc, (const char *const[]){"delivery.drain_timeout_ms=300", NULL});
    wc.fake.step_ns = 700 * NS_PER_MS;
    wc.fake.eos_one_in = 0;
    worker_case_start(&wc);
    wc.w->health.stall_limit_ns = 200 * NS_PER_MS;
    worker_case_until(&wc, worker_case_is_ready, 0, "ready");
    worker_case_jobs(&wc, "slow", N);
    worker_case_until(&wc, is_unready, 0, "not ready while requests wait and no token comes");
    cr_assert_eq(worker_case_get(&wc, "/live", NULL, 0), 200);
    int64_t begin = clock_mono_ns();
    worker_case_stop(&wc);
    cr_assert_eq(wc.rc, ERR_TIMEOUT, "%s", wc.e.msg);
    cr_assert_lt(clock_mono_ns() - begin, 3 * NS_PER_S);
    cr_assert_leq(worker_case_committed(&wc, 0), 0);
    cr_assert_leq(worker_case_committed(&wc, 1), 0);
    wc.fake.step_ns = 0;
    wc.fake.eos_one_in = 5;
    worker_case_start(&wc);
    worker_case_until(&wc, worker_case_has_results, N, "all by the next worker");
    worker_case_stop(&wc);
    int n_r = worker_case_read(&wc, false, N, 5000, &r);
    cr_assert_eq(expect_all(r, n_r, "slow", N), 0);
    free(r);
    worker_case_close(&wc);
}

/* One job that expires ms from now, by its field, or by its header. */
static void send_late(const char *id, int64_t ms, bool by_header)
{
    char text[200], field[64] = "", at[24];
    struct header h = {"translate-deadline", at, (size_t)sprintf(at, "%lld", (long long)(clock_wall_ms() + ms))};

    if (!by_header)
        snprintf(field, sizeof field, ", \"deadline\": %s", at);
    snprintf(text, sizeof text, "{\"job_id\": \"%s\", \"text\": \"It takes a while.\", \"target_lang\": \"de\"%s}", id,
             field);
    struct outgoing o = json(text);
    o.headers = by_header ? &h : NULL;
    o.n_headers = by_header;
    worker_case_send(&wc, &o, 1);
}

static void expect_expired(const struct seen *r, const char *id)
{
    cr_assert_not_null(r, "%s", id);
    cr_assert_str_eq(r->status, "EXPIRED");
    cr_assert_str_eq(r->finish, "deadline");
    cr_assert_str_eq(r->code, "DEADLINE_PASSED");
    cr_assert(!r->has_translation && r->output_tokens == 0, "%s: zero text", id);
}

Test(worker, deadline_ends_a_job_in_the_batch_within_a_step)
{
    struct seen *r;

    worker_case_open(&wc, NULL);
    wc.fake.step_ns = 150 * NS_PER_MS; /* over a hundred steps, were it not for the deadline */
    wc.fake.eos_one_in = 0;
    worker_case_start(&wc);
    worker_case_until(&wc, worker_case_is_ready, 0, "ready");
    int64_t begin = clock_mono_ns();
    send_late("late", 1500, false);
    worker_case_until(&wc, worker_case_has_finished, 1, "the end of it");
    cr_assert_lt(clock_mono_ns() - begin, 10000 * NS_PER_MS);
    worker_case_stop(&wc);
    cr_assert_eq(worker_case_read(&wc, false, 1, 2000, &r), 1);
    expect_expired(&r[0], "late");
    cr_assert_gt(r[0].prompt_tokens, 0, "it had been begun");
    cr_assert_eq(worker_case_committed(&wc, r[0].partition), r[0].offset + 1);
    free(r);
    worker_case_close(&wc);
}

static bool rows_are_full(struct worker_case *c, int n)
{
    struct engine_stats s;

    stats_get_engine(&c->w->stats, &s);
    return s.rows_running == n;
}

Test(worker, deadline_of_a_waiting_job_is_noticed_while_a_long_batch_runs)
{
    enum { ROWS = 8 };
    struct seen *r;

    worker_case_open(&wc, NULL);
    wc.fake.step_ns = 40 * NS_PER_MS;
    wc.fake.eos_one_in = 0; /* the longest output: over a hundred steps */
    worker_case_start(&wc);
    worker_case_until(&wc, worker_case_is_ready, 0, "ready");
    worker_case_jobs(&wc, "long", ROWS);
    worker_case_until(&wc, rows_are_full, ROWS, "all rows taken");
    send_late("field", 1000, false);
    int64_t begin = clock_mono_ns();
    send_late("header", 1000, true);
    worker_case_until(&wc, worker_case_has_finished, 2, "their ends");
    int64_t took = clock_mono_ns() - begin;
    printf("deadline of 1000 ms noticed after %lld ms\n", (long long)(took / NS_PER_MS));
    cr_assert_lt(took, 3000 * NS_PER_MS, "1,200 ms on a machine that is not busy with other things");
    cr_assert(rows_are_full(&wc, ROWS), "the batch runs on");
    worker_case_until(&wc, worker_case_has_finished, ROWS + 2, "the long ones");
    worker_case_stop(&wc);
    int n_r = worker_case_read(&wc, false, ROWS + 2, 5000, &r);
    cr_assert_eq(n_r, ROWS + 2);
    expect_expired(find_id(r, n_r, "field"), "field");
    expect_expired(find_id(r, n_r, "header"), "header");
    cr_assert_eq(expect_all(r, n_r, "long", ROWS), 0);
    free(r);
    worker_case_close(&wc);
}

Test(worker, deadlines_that_are_over_expire_and_the_clock_of_a_record_does_not)
{
    static const int64_t hour = 3600000;
    const int64_t stamps[] = {clock_wall_ms() - hour, clock_wall_ms() + hour, 4291747200000 /* 2106 */, 0};
    static const char *const over[] = {"-1", "0", "1", "-9223372036854775808"};
    struct outgoing o;
    char text[200];
    struct seen *r;

    worker_case_open(&wc, NULL);
    worker_case_start(&wc);
    for (int i = 0; i < 4; i++) {
        snprintf(text, sizeof text,
                 "{\"job_id\": \"over-%d\", \"text\": \"x\", \"target_lang\": \"de\", \"deadline\": %s}", i, over[i]);
        o = json(text);
        worker_case_send(&wc, &o, 1);
        snprintf(text, sizeof text,
                 "{\"job_id\": \"fine-%d\", \"text\": \"x\", \"target_lang\": \"de\", \"deadline\": %lld}", i,
                 (long long)(clock_wall_ms() + hour));
        worker_case_send_at(&wc, text, stamps[i]);
    }
    worker_case_until(&wc, worker_case_has_finished, 8, "all");
    cr_assert_eq(stats_read(&wc.w->stats.jobs_expired), 4);
    cr_assert_eq(stats_read(&wc.w->stats.skewed_clocks), 2, "an hour ahead, and 2106");
    worker_case_stop(&wc);
    int n_r = worker_case_read(&wc, false, 8, 5000, &r);
    cr_assert_eq(n_r, 8);
    for (int i = 0; i < 4; i++) {
        snprintf(text, sizeof text, "over-%d", i);
        expect_expired(find_id(r, n_r, text), text);
    }
    cr_assert_eq(expect_all(r, n_r, "fine", 4), 0);
    free(r);
    worker_case_close(&wc);
}

/* n jobs of so many keys, "KEY-NUMBER"; every 50th is no job, every 40th has expired. */
static void send_keyed(int n, int keys)
{
    struct outgoing *o = calloc((size_t)n, sizeof *o);
    char(*text)[200] = calloc((size_t)n, sizeof *text), (*key)[16] = calloc((size_t)n, sizeof *key);

    for (int i = 0; i < n; i++) {
        snprintf(key[i], sizeof key[i], "k%d", i % keys);
        snprintf(text[i], sizeof text[i],
                 "{\"job_id\": \"%s-%d\", \"text\": \"Sentence %d of many.\", \"target_lang\": \"%s\"%s}", key[i], i, i,
                 i % 50 == 49 ? "tlh" : "de", i % 40 == 39 ? ", \"deadline\": 1" : "");
        o[i] = json(text[i]);
        o[i].key = key[i];
        o[i].key_size = strlen(key[i]);
    }
    worker_case_send(&wc, o, n);
    free(key);
    free(text);
    free(o);
}

/* How many results come after one of a later job of the same key. */
static int count_overtaken(const struct seen *r, int n)
{
    int last[64], overtaken = 0, key, number;

    for (int i = 0; i < 64; i++)
        last[i] = -1;
    for (int i = 0; i < n; i++) {
        cr_assert_eq(sscanf(r[i].id, "k%d-%d", &key, &number), 2);
        overtaken += number < last[key];
        last[key] = number;
    }
    return overtaken;
}

static void keyed_run(const char *how, int n, int keys, int *overtaken)
{
    struct seen *r, *d;

    worker_case_open(&wc, (const char *const[]){how, NULL});
    wc.fake.step_ns = NS_PER_MS;
    send_keyed(n, keys);
    worker_case_start(&wc);
    worker_case_until(&wc, worker_case_has_finished, n, "all");
    worker_case_stop(&wc);
    cr_assert_eq(wc.rc, ERR_OK, "%s", wc.e.msg);
    cr_assert_eq(worker_case_committed(&wc, 0) + worker_case_committed(&wc, 1), n);
    int n_d = worker_case_read(&wc, true, n / 50, 5000, &d), n_r = worker_case_read(&wc, false, n - n_d, 5000, &r);
    cr_assert_eq(n_d, n / 50);
    cr_assert_eq(n_r, n - n_d);
    *overtaken = count_overtaken(r, n_r);
    free(r);
    free(d);
    worker_case_close(&wc);
}

Test(worker, results_of_a_key_keep_the_order_of_its_jobs_where_that_is_asked)
{
    int overtaken;

    keyed_run("delivery.order=none", 400, 7, &overtaken);
    cr_assert_gt(overtaken, 10, "the test can tell: without an order jobs overtake each other");
    keyed_run("delivery.order=key", 400, 7, &overtaken);
    cr_assert_eq(overtaken, 0);
}

Test(worker, shadow_translates_and_leaves_no_trace)
{
    enum { N = 40 };
    struct seen *r;

    worker_case_open(&wc, NULL);
    wc.cfg.delivery.mode = DELIVERY_SHADOW;
    wc.cfg.shadow_count = N;
    worker_case_jobs(&wc, "job", N - 1);
    struct outgoing poison = json("no job at all");
    worker_case_send(&wc, &poison, 1);
    worker_case_start(&wc);
    worker_case_wait(&wc); /* it stops by itself */
    cr_assert_eq(wc.rc, ERR_OK, "%s", wc.e.msg);
    cr_assert_leq(worker_case_committed(&wc, 0), 0);
    cr_assert_leq(worker_case_committed(&wc, 1), 0);
    cr_assert_eq(worker_case_read(&wc, false, 0, 0, &r), 0);
    cr_assert_eq(worker_case_read(&wc, true, 0, 0, &r), 0);
    worker_case_close(&wc);
}

Test(worker, registry_that_is_away_holds_its_own_records_only)
{
    struct outgoing framed = worker_case_value("\x00\x00\x00\x00\x2A\x02\x61", 7);
    struct seen *d;

    worker_case_open(&wc, (const char *const[]){"wire.registry_url=http://127.0.0.1:9", "wire.registry_timeout_ms=500",
                                                NULL});
    framed.partition = 0;
    worker_case_send(&wc, &framed, 1);
    worker_case_start(&wc);
    worker_case_jobs(&wc, "job", 20);
    worker_case_until(&wc, worker_case_has_results, 20, "the others");
    worker_case_until(&wc, is_unready, 0, "not ready");
    worker_case_stop(&wc);
    cr_assert_eq(wc.rc, ERR_OK, "%s", wc.e.msg);
    cr_assert_eq(worker_case_committed(&wc, 0), 0, "it is the first of its partition: a note about the others");
    cr_assert_eq(worker_case_committed(&wc, 1), 10);
    cr_assert_eq(worker_case_read(&wc, true, 0, 0, &d), 0);
    free(d);
    worker_case_close(&wc);
}

/* One Avro job with registry framing, by our own schema. */
static void send_framed(int32_t schema_id, const char *id)
{
    struct wire_setup w;
    struct text out;

    wire_setup_open(&w);
    w.job = (struct job){.job_id = {id, strlen(id)}, .text = {"a text", 6}, .target_lang = {"de", 2}};
    cr_assert_eq(codec_encode_request(w.codec, &w.job, ENCODING_REGISTRY, schema_id, &w.arena, &out, &w.e), ERR_OK,
                 "%s", w.e.msg);
    struct outgoing o = worker_case_value(out.s, out.n);
    worker_case_send(&wc, &o, 1);
    wire_setup_close(&w);
}

/* It takes the question and does not answer, then answers 503, then is well: the jobs have waited, and nothing else has. */
Test(worker, registry_that_hangs_or_fails_costs_readiness_and_no_job)
{
    struct http_stub *registry = http_stub_open();
    char url[128], schema[8192] = "";
    struct seen *d;
    FILE *f = fopen("schemas/translation_request.avsc", "r");

    cr_assert(f && fread(schema, 1, sizeof schema - 1, f) > 0);
    fclose(f);
    snprintf(url, sizeof url, "wire.registry_url=%s", http_stub_url(registry));
    worker_case_open(&wc,
                     (const char *const[]){url, "wire.registry_timeout_ms=300", "wire.result_encoding=json", NULL});
    worker_case_start(&wc);
    worker_case_until(&wc, worker_case_is_ready, 0, "ready");
    http_stub_hold(registry, true);
    send_framed(7, "framed-0");
    worker_case_jobs(&wc, "job", 20);
    worker_case_until(&wc, worker_case_has_results, 20, "the others");
    worker_case_until(&wc, is_unready, 0, "not ready");
    http_stub_answer(registry, 503, "", 0);
    http_stub_hold(registry, false);
    send_framed(8, "framed-1");
    worker_case_jobs(&wc, "more", 20);
    worker_case_until(&wc, worker_case_has_results, 40, "the others again");
    worker_case_until(&wc, is_unready, 0, "still not ready");
    http_stub_answer_schema(registry, schema, "");
    worker_case_until(&wc, worker_case_has_results, 42, "those that waited");
    worker_case_until(&wc, worker_case_is_ready, 0, "ready again");
    worker_case_stop(&wc);
    cr_assert_eq(wc.rc, ERR_OK, "%s", wc.e.msg);
    cr_assert_eq(worker_case_committed(&wc, 0) + worker_case_committed(&wc, 1), 42);
    cr_assert_eq(worker_case_read(&wc, true, 0, 0, &d), 0);
    free(d);
    worker_case_close(&wc);
    http_stub_close(registry);
}

Test(worker, broker_that_is_not_there_at_start_is_waited_for_and_a_stop_honoured)
{
    worker_case_open(&wc, NULL);
    snprintf(wc.bootstrap, sizeof wc.bootstrap, "127.0.0.1:9");
    worker_case_start(&wc);
    cr_assert_eq(worker_case_get(&wc, "/live", NULL, 0), 200);
    cr_assert_eq(worker_case_get(&wc, "/ready", NULL, 0), 503);
    int64_t begin = clock_mono_ns();
    worker_case_stop(&wc);
    cr_assert_eq(wc.rc, ERR_OK, "%s", wc.e.msg);
    cr_assert_lt(clock_mono_ns() - begin, 5 * NS_PER_S);
    worker_case_close(&wc);
}

/* ---- bounds, when nothing can be published ---- */

static void get_stats(struct worker_case *c, struct consumer_stats *s)
{
    memset(s, 0, sizeof *s);
    pthread_mutex_lock(&c->w->view_lock);
    if (c->w->consumer)
        consumer_get_stats(c->w->consumer, s);
    pthread_mutex_unlock(&c->w->view_lock);
}

static bool has_read(struct worker_case *c, int n)
{
    struct consumer_stats s;

    get_stats(c, &s);
    return s.records >= n;
}

static void refuse_produce(struct worker_case *c, bool refused)
{
    rd_kafka_mock_cluster_t *mock = embedded_cluster(c->broker);

    if (!refused)
        rd_kafka_mock_clear_request_errors(mock, 0 /* Produce */);
    for (int i = 0; refused && i < 2000; i++)
        rd_kafka_mock_push_request_errors(mock, 0, 1, RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED);
}

Test(worker, bytes_of_jobs_whose_dead_letters_are_refused_stay_within_the_window)
{
    enum { N = 20, BYTES = 300000, WINDOW = 2 << 20 };
    struct outgoing o[N];
    struct consumer_stats s;
    struct seen *d;
    char *value = malloc(BYTES);
    unsigned x = 1;

    for (int i = 0; i < BYTES; i++)
        value[i] = (char)(((x = x * 1664525u + 1013904223u) >> 24) | 1); /* no encoding that we know */
    value[0] = 'x';
    worker_case_open(&wc, (const char *const[]){"delivery.max_in_flight_mb=2", "limits.max_record_bytes=1000000",
                                                "limits.max_text_bytes=1000000", NULL});
    for (int i = 0; i < N; i++) {
        o[i] = worker_case_value(value, BYTES);
        o[i].partition = i % 2;
    }
    worker_case_send(&wc, o, N);
    refuse_produce(&wc, true);
    worker_case_start(&wc);
    worker_case_until(&wc, has_read, WINDOW / BYTES + 1, "a full window");
    worker_case_until(&wc, is_unready, 0, "not ready");
    nanosleep(&(struct timespec){1, 0}, NULL); /* nothing more may come, which has no event */
    get_stats(&wc, &s);
    cr_assert_leq(s.in_flight_bytes, WINDOW + BYTES + 1000);
    cr_assert_eq(s.records, WINDOW / BYTES + 1, "%lld records were read", (long long)s.records);
    cr_assert_leq(worker_case_committed(&wc, 0), 0, "begun, and nothing finished");
    cr_assert_leq(worker_case_committed(&wc, 1), 0);
    refuse_produce(&wc, false);
    worker_case_until(&wc, worker_case_has_finished, N, "all of them, once it is allowed");
    worker_case_stop(&wc);
    cr_assert_eq(wc.rc, ERR_OK, "%s", wc.e.msg);
    int n_d = worker_case_read(&wc, true, N, 5000, &d);
    cr_assert_eq(n_d, N);
    cr_assert_eq(count_code(d, n_d, "UNDECODABLE"), N);
    free(d);
    free(value);
    worker_case_close(&wc);
}

Test(worker, retries_without_end_stop_the_intake_at_the_window)
{
    enum { N = 600, WINDOW = 64 };
    struct consumer_stats s;
    struct seen *r;

    worker_case_open(&wc, (const char *const[]){"delivery.max_in_flight_jobs=64", NULL});
    worker_case_jobs(&wc, "job", N);
    refuse_produce(&wc, true);
    worker_case_start(&wc);
    worker_case_until(&wc, has_read, WINDOW, "a full window");
    worker_case_until(&wc, is_unready, 0, "not ready");
    nanosleep(&(struct timespec){1, 0}, NULL);
    get_stats(&wc, &s);
    cr_assert_eq(s.records, WINDOW);
    cr_assert_eq(s.in_flight_jobs, WINDOW);
    cr_assert_leq(worker_case_committed(&wc, 0), 0, "begun, and nothing finished");
    cr_assert_leq(worker_case_committed(&wc, 1), 0);
    refuse_produce(&wc, false);
    worker_case_until(&wc, worker_case_has_results, N, "all of them, once it is allowed");
    worker_case_stop(&wc);
    int n_r = worker_case_read(&wc, false, N, 5000, &r);
    expect_all(r, n_r, "job", N);
    free(r);
    worker_case_close(&wc);
}

static bool has_commit_errors(struct worker_case *c, int n)
{
    struct consumer_stats s;

    get_stats(c, &s);
    return s.commit_errors >= n;
}

static bool has_no_lag(struct worker_case *c, int n)
{
    struct consumer_stats s;

    get_stats(c, &s);
    return s.lag == n;
}

Test(worker, failing_commits_make_no_dead_letters_and_end_no_thread)
{
    enum { N = 50 };
    struct seen *d;

    worker_case_open(&wc, NULL);
    worker_case_start(&wc);
    worker_case_until(&wc, worker_case_is_ready, 0, "ready");
    for (int i = 0; i < 40; i++)
        rd_kafka_mock_push_request_errors(embedded_cluster(wc.broker), 8 /* OffsetCommit */, 1,
                                          RD_KAFKA_RESP_ERR_INVALID_COMMIT_OFFSET_SIZE);
    worker_case_jobs(&wc, "job", N);
    worker_case_until(&wc, has_commit_errors, 5, "commits fail");
    worker_case_until(&wc, worker_case_has_results, N, "results all the same");
    cr_assert_eq(worker_case_get(&wc, "/live", NULL, 0), 200);
    rd_kafka_mock_clear_request_errors(embedded_cluster(wc.broker), 8);
    worker_case_until(&wc, has_no_lag, 0, "committed in the end");
    worker_case_stop(&wc);
    cr_assert_eq(wc.rc, ERR_OK, "%s", wc.e.msg);
    cr_assert_eq(worker_case_read(&wc, true, 0, 0, &d), 0);
    cr_assert_eq(worker_case_committed(&wc, 0) + worker_case_committed(&wc, 1), N);
    free(d);
    worker_case_close(&wc);
}

Test(worker, stop_while_no_broker_answers_is_bounded)
{
    for (int round = 0; round < 3; round++) {
        worker_case_open(&wc, (const char *const[]){"delivery.drain_timeout_ms=1000", NULL});
        wc.fake.step_ns = 5 * NS_PER_MS;
        worker_case_jobs(&wc, "job", 100);
        worker_case_start(&wc);
        worker_case_until(&wc, worker_case_has_results, 5 + 20 * round, "under way");
        rd_kafka_mock_broker_set_down(embedded_cluster(wc.broker), 1);
        int64_t begin = clock_mono_ns();
        worker_case_stop(&wc);
        cr_assert_lt(clock_mono_ns() - begin, 15 * NS_PER_S, "drain, closing, and nothing else");
        cr_assert(wc.rc == ERR_OK || wc.rc == ERR_TIMEOUT, "%s", wc.e.msg);
        rd_kafka_mock_broker_set_up(embedded_cluster(wc.broker), 1);
        worker_case_close(&wc);
    }
}

Test(worker, no_record_is_read_after_a_stop)
{
    struct consumer_stats at_100_ms, later;

    worker_case_open(&wc, (const char *const[]){"delivery.max_in_flight_jobs=40", NULL});
    wc.fake.step_ns = 20 * NS_PER_MS;
    worker_case_jobs(&wc, "job", 1000);
    worker_case_start(&wc);
    worker_case_until(&wc, worker_case_has_results, 10, "under load");
    worker_stop(wc.w);
    nanosleep(&(struct timespec){0, 100 * NS_PER_MS}, NULL); /* what the stop may take to be noticed */
    get_stats(&wc, &at_100_ms);
    cr_assert_gt(at_100_ms.in_flight_jobs, 0, "it drains");
    nanosleep(&(struct timespec){0, 100 * NS_PER_MS}, NULL); /* results come, so there is room */
    get_stats(&wc, &later);
    if (later.records > 0) /* else it has ended already */
        cr_assert_eq(later.records, at_100_ms.records);
    worker_case_wait(&wc);
    cr_assert_eq(wc.rc, ERR_OK, "%s", wc.e.msg);
    worker_case_close(&wc);
}
