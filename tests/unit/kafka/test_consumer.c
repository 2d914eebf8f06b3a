#include "base/clock.h"
#include "tests/support/kafka_case.h"

#include <criterion/criterion.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { WAIT_MS = 20000 };

/* One member of the group, driven by hand from the test's thread. */
struct member {
    struct consumer *c;
    struct queue *records;
    struct consumer_stats s;
};

static void join(struct member *m, const struct kafka_case *kc)
{
    struct err e;

    cr_assert_eq(queue_open(&m->records, (size_t)kc->d.max_in_flight_jobs, &e), ERR_OK);
    cr_assert_eq(consumer_open(&m->c, &kc->k, kc->bootstrap, &kc->d, m->records, &e), ERR_OK, "%s", e.msg);
}

static void turn(struct member *m, int ms)
{
    struct err e;

    cr_assert_eq(consumer_turn(m->c, ms, &e), ERR_OK, "%s", e.msg);
    consumer_get_stats(m->c, &m->s);
}

static void leave(struct member *m)
{
    struct record *r;

    while ((r = queue_pop(m->records, 0)))
        consumer_release(m->c, r);
    consumer_close(m->c, 5000);
    queue_free(m->records);
}

static struct record *next(struct member *m)
{
    int64_t until = clock_mono_ns() + WAIT_MS * NS_PER_MS;
    struct record *r;

    while (!(r = queue_pop(m->records, 0)) && clock_mono_ns() < until)
        turn(m, 50);
    cr_assert_not_null(r, "no record came");
    return r;
}

static void finish(struct member *m, struct record *r)
{
    consumer_finish(m->c, &r->at);
    consumer_release(m->c, r);
}

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
            struct record *r = have == 0 ? next(m) : queue_pop(m->records, 0);
            if (!r)
                break;
            held[have++] = r;
            read++;
        }
        int i = (int)(next_random(seed) % (unsigned)have);
        seen[kafka_case_number(held[i])]++;
        finish(m, held[i]);
        held[i] = held[--have];
        if (have % 64 == 0)
            turn(m, 0);
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
    join(&m, &kc);
    work(&m, 4000, seen, &seed);
    leave(&m); /* commits the frontier; what lay in the queue is read again */
    join(&m, &kc);
    work(&m, 6000, seen, &seed);
    for (int i = 0; i < 200 && (m.s.lag != 0 || m.s.in_flight_jobs > 0); i++)
        turn(&m, 20);
    cr_assert_eq(m.s.lag, 0, "lag %lld", (long long)m.s.lag);
    leave(&m);
    for (int i = 0; i < JOBS; i++)
        cr_assert_eq(seen[i], 1, "job %d seen %d times", i, seen[i]);
    for (int p = 0; p < 6; p++)
        committed += kafka_case_committed(&kc, p);
    cr_assert_eq(committed, JOBS);
    kafka_case_close(&kc);
}
