#include "tests/support/member.h"

#include "base/clock.h"

#include <criterion/criterion.h>

enum { WAIT_MS = 20000 };

void member_join(struct member *m, const struct kafka_case *kc)
{
    struct err e;

    cr_assert_eq(queue_open(&m->records, (size_t)kc->d.max_in_flight_jobs, &e), ERR_OK);
    cr_assert_eq(consumer_open(&m->c, &kc->k, kc->bootstrap, &kc->d, m->records, &e), ERR_OK, "%s", e.msg);
}

void member_turn(struct member *m, int ms)
{
    struct err e;

    cr_assert_eq(consumer_turn(m->c, ms, &e), ERR_OK, "%s", e.msg);
    consumer_get_stats(m->c, &m->s);
}

void member_leave(struct member *m)
{
    struct record *r;

    while ((r = queue_pop(m->records, 0)))
        consumer_release(m->c, r);
    consumer_close(m->c, 5000);
    queue_free(m->records);
}

struct record *member_next(struct member *m)
{
    int64_t until = clock_mono_ns() + WAIT_MS * NS_PER_MS;
    struct record *r;

    while (!(r = queue_pop(m->records, 0)) && clock_mono_ns() < until)
        member_turn(m, 50);
    cr_assert_not_null(r, "no record came");
    return r;
}

void member_hold(struct member *m, struct record **held, int n)
{
    for (int i = 0; i < n; i++)
        held[i] = member_next(m);
}

bool member_finish(struct member *m, struct record *r)
{
    const bool ours = consumer_owns(m->c, &r->at);

    if (ours)
        consumer_finish(m->c, &r->at);
    else
        consumer_drop_late(m->c, &r->at);
    consumer_release(m->c, r);
    return ours;
}
