#include "tests/support/tally.h"

#include "base/clock.h"

#include <criterion/criterion.h>
#include <string.h>

enum { WAIT_MS = 20000, TURN_MS = 20 };

void tally_join(struct tally *t, const struct kafka_case *kc)
{
    memset(t, 0, sizeof *t);
    t->first = -1;
    member_join(&t->m, kc);
}

enum err_code tally_turn(struct tally *t)
{
    enum err_code rc = consumer_turn(t->m.c, TURN_MS, &t->e);
    struct record *r;

    while ((r = queue_pop(t->m.records, 0))) {
        int n = kafka_case_number(r);

        if (t->first < 0)
            t->first = r->at.offset;
        if (n >= 0 && n < TALLY_JOBS)
            t->seen[n]++;
        if (n == 0 && t->hold && !t->held)
            t->held = r;
        else
            member_finish(&t->m, r);
    }
    consumer_get_stats(t->m.c, &t->m.s);
    return rc;
}

int tally_count(const struct tally *t, int first, int n)
{
    int have = 0;

    for (int i = first; i < first + n; i++)
        have += t->seen[i] > 0;
    return have;
}

bool tally_see(struct tally *t, int first, int n)
{
    int64_t until = clock_mono_ns() + WAIT_MS * NS_PER_MS;

    while (tally_count(t, first, n) < n) {
        cr_assert_lt(clock_mono_ns(), until, "%d of %d jobs came", tally_count(t, first, n), n);
        if (tally_turn(t) != ERR_OK)
            return false;
    }
    return true;
}

enum err_code tally_turn_until_stopped(struct tally *t)
{
    int64_t until = clock_mono_ns() + WAIT_MS * NS_PER_MS;
    enum err_code rc = ERR_OK;

    while (rc == ERR_OK && clock_mono_ns() < until)
        rc = tally_turn(t);
    return rc;
}

void tally_turn_until_committed(struct tally *t, const struct kafka_case *kc, int partition, int64_t offset)
{
    int64_t until = clock_mono_ns() + WAIT_MS * NS_PER_MS;

    while (kafka_case_committed(kc, partition) != offset && clock_mono_ns() < until)
        cr_assert_eq(tally_turn(t), ERR_OK, "%s", t->e.msg);
    cr_assert_eq(kafka_case_committed(kc, partition), offset);
}
