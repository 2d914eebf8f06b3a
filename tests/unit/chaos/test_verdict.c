#include "tests/chaos/verdict.h"

#include <criterion/criterion.h>

enum { JOBS = 100, PARTITIONS = 2 };

static struct numbered job(int64_t number)
{
    return (struct numbered){.number = number, .key = (int)(number % 5), .sequence = number / 5};
}

static int place(int64_t number)
{
    return (int)(number % PARTITIONS);
}

static int64_t offset_of(int64_t number)
{
    return number / PARTITIONS * 3; /* with gaps, as markers leave them */
}

/* JOBS jobs on the topic, all acknowledged. */
static struct verdict *written(void)
{
    struct verdict *v = verdict_open(NULL);

    cr_assert(v);
    for (int64_t i = 0; i < JOBS; i++) {
        struct numbered j = job(i);
        verdict_request(v, place(i), offset_of(i), &j);
        verdict_acknowledged(v, i);
    }
    return v;
}

static void answer(struct verdict *v, int64_t number)
{
    struct numbered j = job(number);

    verdict_result(v, &j, 7, place(number), offset_of(number));
}

static void answer_all(struct verdict *v)
{
    for (int64_t i = 0; i < JOBS; i++)
        answer(v, i);
}

/* Judges; what is found must be n of kind f and nothing else. */
static void expect_only(struct verdict *v, struct verdict_rules r, enum finding f, int64_t n)
{
    struct verdict_figures out;

    cr_expect_not(verdict_judge(v, &r, &out));
    for (int i = 0; i < FINDINGS; i++)
        cr_expect_eq(out.found[i], i == (int)f ? n : 0, "%s: %lld", finding_name((enum finding)i),
                     (long long)out.found[i]);
    verdict_close(v);
}

Test(verdict, of_a_run_without_faults_is_clean)
{
    struct verdict_rules r = {.exactly_once = true, .order_by_key = true};
    struct verdict *v = written();
    struct verdict_figures out;

    cr_expect_not(verdict_is_settled(v));
    for (int64_t i = 0; i < JOBS; i++) {
        answer(v, i);
        verdict_committed_raw(v, place(i), offset_of(i) + 1);
        verdict_committed(v, place(i), offset_of(i) + 1);
    }
    cr_expect(verdict_is_settled(v));
    for (int p = 0; p < PARTITIONS; p++)
        verdict_end(v, p, offset_of(JOBS - 1) + 1, offset_of(JOBS - 1) + 1);
    verdict_end(v, PARTITIONS, -1, 0); /* an empty partition, never committed */
    cr_expect(verdict_judge(v, &r, &out));
    cr_expect_eq(out.requests, JOBS);
    cr_expect_eq(out.results, JOBS);
    cr_expect_eq(out.repeats, 0);
    verdict_close(v);
}

Test(verdict, finds_a_lost_job)
{
    struct verdict *v = written();

    for (int64_t i = 0; i < JOBS; i++)
        if (i != 41)
            answer(v, i);
    cr_expect_not(verdict_is_settled(v));
    expect_only(v, (struct verdict_rules){0}, FOUND_LOST, 1);
}

Test(verdict, finds_an_acknowledged_job_that_is_not_on_the_topic)
{
    struct verdict *v = written();

    answer_all(v);
    verdict_acknowledged(v, JOBS);
    expect_only(v, (struct verdict_rules){0}, FOUND_UNWRITTEN, 1);
}

Test(verdict, finds_a_repeat_under_exactly_once)
{
    struct verdict *v = written();

    answer_all(v);
    answer(v, 17);
    expect_only(v, (struct verdict_rules){.exactly_once = true}, FOUND_TWICE, 1);
}

Test(verdict, allows_repeats_under_at_least_once_up_to_their_limit)
{
    struct verdict *v = written();
    struct verdict_figures out;

    answer_all(v);
    for (int64_t i = 0; i < 10; i++)
        answer(v, i);
    cr_expect(verdict_judge(v, &(struct verdict_rules){.max_repeats = 10}, &out));
    cr_expect_eq(out.repeats, 10);
    verdict_close(v);

    v = written();
    answer_all(v);
    for (int64_t i = 0; i < 10; i++)
        answer(v, i);
    expect_only(v, (struct verdict_rules){.max_repeats = 9}, FOUND_REPEATS, 10);
}

Test(verdict, finds_a_job_that_is_result_and_dead_letter)
{
    struct numbered crash = {.number = JOBS, .kind = JOB_CRASH};
    struct verdict *v = written();

    answer_all(v);
    verdict_request(v, 0, 1000, &crash);
    verdict_result(v, &crash, 7, 0, 1000);
    verdict_dead_letter(v, &crash, true, 0, 1000);
    expect_only(v, (struct verdict_rules){.max_repeats = 1}, FOUND_BOTH, 1);
}

Test(verdict, finds_an_outcome_of_an_aborted_job)
{
    struct numbered j = job(JOBS);
    struct verdict *v = written();

    answer_all(v);
    verdict_aborted(v, JOBS);
    verdict_result(v, &j, 7, 0, 1000);
    expect_only(v, (struct verdict_rules){0}, FOUND_STRANGER, 1);
}

Test(verdict, finds_a_result_that_names_another_source)
{
    struct verdict *v = written();
    struct numbered j = job(3);

    for (int64_t i = 0; i < JOBS; i++)
        if (i != 3)
            answer(v, i);
    verdict_result(v, &j, 7, place(3), offset_of(3) + 3);
    expect_only(v, (struct verdict_rules){0}, FOUND_GARBLED, 1);
}

Test(verdict, finds_a_result_that_nobody_can_read)
{
    struct verdict *v = written();

    answer_all(v);
    verdict_garbled(v, "results", 0, 5);
    expect_only(v, (struct verdict_rules){0}, FOUND_GARBLED, 1);
}

Test(verdict, finds_wrong_outcomes)
{
    struct numbered bad = {.number = JOBS, .kind = JOB_BAD}, plain = {.number = JOBS + 1, .kind = JOB_PLAIN_TEXT};
    struct verdict *v = written();

    answer_all(v);
    verdict_request(v, 0, 1000, &bad);
    verdict_request(v, 0, 1001, &plain);
    verdict_result(v, &bad, 7, 0, 1000);
    verdict_dead_letter(v, &plain, false, 0, 1001);
    expect_only(v, (struct verdict_rules){0}, FOUND_WRONG_OUTCOME, 2);
}

/* A job that ends its workers may be set aside as such, and nothing else may. */
Test(verdict, finds_an_innocent_job_set_aside_for_crashes)
{
    struct numbered crash = {.number = JOBS, .kind = JOB_CRASH}, bad = {.number = JOBS + 1, .kind = JOB_BAD};
    struct numbered late = {.number = JOBS + 2, .kind = JOB_LATE}, other = {.number = JOBS + 3, .kind = JOB_CRASH};
    struct verdict *v = written();

    answer_all(v);
    verdict_request(v, 0, 1000, &crash);
    verdict_request(v, 0, 1001, &bad);
    verdict_request(v, 0, 1002, &late);
    verdict_request(v, 0, 1003, &other);
    verdict_dead_letter(v, &crash, true, 0, 1000);
    verdict_dead_letter(v, &bad, true, 0, 1001);
    verdict_dead_letter(v, &late, true, 0, 1002);
    verdict_dead_letter(v, &other, false, 0, 1003);
    expect_only(v, (struct verdict_rules){0}, FOUND_WRONG_OUTCOME, 3);
}

Test(verdict, finds_two_results_of_one_job_that_differ)
{
    struct verdict *v = written();
    struct numbered j = job(9);

    answer_all(v);
    verdict_result(v, &j, 8, place(9), offset_of(9));
    expect_only(v, (struct verdict_rules){.max_repeats = 1}, FOUND_DIFFERENT, 1);
}

/* Job 20 after all the others, four of its key among them. */
static struct verdict *reordered(void)
{
    struct verdict *v = written();

    for (int64_t i = 0; i < JOBS; i++)
        if (i != 20)
            answer(v, i);
    answer(v, 20);
    return v;
}

Test(verdict, finds_a_reordering_within_a_key_where_order_was_asked_for)
{
    struct verdict_figures out;
    struct verdict *v = reordered();

    cr_expect(verdict_judge(v, &(struct verdict_rules){0}, &out));
    verdict_close(v);
    expect_only(reordered(), (struct verdict_rules){.order_by_key = true}, FOUND_DISORDER, 1);
    expect_only(reordered(), (struct verdict_rules){.order_by_key = true, .exactly_once = true}, FOUND_DISORDER, 1);
}

/* A repeat that comes before the first result of a later job of its key changes nothing; that job's own delay does. */
Test(verdict, finds_a_reordering_behind_a_repeat)
{
    struct verdict *v = written();

    for (int64_t i = 0; i < JOBS; i++)
        if (i != 20)
            answer(v, i);
    answer(v, 15); /* of the same key */
    answer(v, 20);
    expect_only(v, (struct verdict_rules){.order_by_key = true, .max_repeats = 1}, FOUND_DISORDER, 1);
}

Test(verdict, does_not_take_a_repeat_for_a_reordering)
{
    struct verdict_figures out;
    struct verdict *v = written();

    answer_all(v);
    answer(v, 0);
    cr_expect(verdict_judge(v, &(struct verdict_rules){.order_by_key = true, .max_repeats = 1}, &out));
    verdict_close(v);
}

Test(verdict, finds_a_commit_that_goes_back)
{
    struct verdict *v = written();

    answer_all(v);
    verdict_committed_raw(v, 0, 30);
    verdict_committed_raw(v, 1, 10);
    verdict_committed_raw(v, 0, 27);
    expect_only(v, (struct verdict_rules){0}, FOUND_COMMIT_BACK, 1);
}

Test(verdict, finds_a_commit_past_a_job_without_outcome)
{
    struct verdict *v = written();

    for (int64_t i = 0; i < JOBS; i++)
        if (i != 10)
            answer(v, i);
    verdict_committed(v, place(10), offset_of(10)); /* up to it is well */
    verdict_committed(v, place(10), offset_of(10) + 1);
    answer(v, 10);
    expect_only(v, (struct verdict_rules){0}, FOUND_COMMIT_EARLY, 1);
}

Test(verdict, finds_a_lag_that_stays)
{
    struct verdict *v = written();

    answer_all(v);
    verdict_end(v, 0, 149, 150);
    expect_only(v, (struct verdict_rules){0}, FOUND_LAG, 1);
}

Test(verdict, says_when_commits_could_not_be_judged)
{
    struct verdict *v = written();

    answer_all(v);
    verdict_unproven(v, 3);
    expect_only(v, (struct verdict_rules){0}, FOUND_UNPROVEN, 3);
}

Test(verdict, takes_an_outcome_that_is_read_before_its_request)
{
    struct verdict *v = verdict_open(NULL);
    struct numbered j = job(0);
    struct verdict_figures out;

    verdict_result(v, &j, 7, 0, 0);
    verdict_request(v, 0, 0, &j);
    verdict_acknowledged(v, 0);
    cr_expect(verdict_is_settled(v));
    cr_expect(verdict_judge(v, &(struct verdict_rules){.exactly_once = true}, &out));
    verdict_close(v);
}

Test(verdict, expects_as_many_outcomes_as_the_generator_wrote_a_job)
{
    struct verdict_rules r = {.exactly_once = true};
    struct verdict_figures out;

    for (int outcomes = 1; outcomes <= 3; outcomes++) {
        struct numbered j = job(8);
        struct verdict *v = written();
        answer_all(v);
        verdict_request(v, 0, 1000, &j);
        for (int i = 1; i < outcomes; i++)
            verdict_result(v, &j, 7, 0, 1000);
        if (outcomes != 2) {
            expect_only(v, r, outcomes < 2 ? FOUND_LOST : FOUND_TWICE, 1);
            continue;
        }
        cr_expect(verdict_judge(v, &r, &out));
        cr_expect_eq(out.written_twice, 1);
        verdict_close(v);
    }
}

/* ---- a log that is cut ---- */

/* Partition 0 has lost jobs 20, 22, ... 38 without an outcome; all others have one.  from and to: what was said of it. */
static struct verdict *cut_between(int64_t from, int64_t to)
{
    struct verdict *v = written();

    for (int64_t i = 0; i < JOBS; i++)
        if (place(i) != 0 || i < 20 || i >= 40)
            answer(v, i);
    verdict_cut(v, 0, from, to);
    return v;
}

Test(verdict, does_not_call_lost_what_was_cut_away)
{
    struct verdict_rules r = {.exactly_once = true};
    struct verdict *v = cut_between(offset_of(20), offset_of(38) + 1);
    struct verdict_figures out;

    cr_expect(verdict_is_settled(v));
    verdict_committed(v, 0, offset_of(JOBS - 1) + 1); /* past the cut */
    cr_expect(verdict_judge(v, &r, &out));
    cr_expect_eq(out.cut, 10);
    verdict_close(v);
}

Test(verdict, finds_a_job_lost_before_or_behind_a_cut)
{
    struct verdict *v = cut_between(offset_of(20) + 1, offset_of(38)); /* the first and the last are not in it */

    cr_expect_not(verdict_is_settled(v));
    expect_only(v, (struct verdict_rules){0}, FOUND_LOST, 2);
}

Test(verdict, finds_a_commit_past_a_job_that_no_cut_took)
{
    struct verdict *v = cut_between(offset_of(20) + 1, offset_of(38) + 1);

    verdict_committed(v, 0, offset_of(20) + 1);
    answer(v, 20);
    expect_only(v, (struct verdict_rules){0}, FOUND_COMMIT_EARLY, 1);
}

Test(verdict, takes_a_result_of_a_job_that_was_in_flight_when_it_was_cut_and_finds_its_repeat)
{
    struct verdict_rules r = {.exactly_once = true};
    struct verdict *v = cut_between(offset_of(20), offset_of(38) + 1);
    struct verdict_figures out;

    answer(v, 20);
    cr_expect(verdict_is_settled(v));
    cr_expect(verdict_judge(v, &r, &out));
    cr_expect_eq(out.cut, 9);
    verdict_close(v);

    v = cut_between(offset_of(20), offset_of(38) + 1);
    answer(v, 20);
    answer(v, 20);
    expect_only(v, r, FOUND_TWICE, 1);
}

Test(verdict, does_not_forgive_a_cut_in_another_partition)
{
    struct verdict *v = written();

    for (int64_t i = 0; i < JOBS; i++)
        if (i != 20)
            answer(v, i);
    verdict_cut(v, 1, 0, offset_of(JOBS));
    expect_only(v, (struct verdict_rules){0}, FOUND_LOST, 1);
}
