#include "kafka/watch.h"

#include "base/clock.h"

#include <stdatomic.h>

void watch_turn(struct watch *w, struct assignment *mine, int64_t now_ns)
{
    const struct partition *p = assignment_find(mine, w->alone);

    if (!p || !p->caution.careful)
        w->alone = -1;
    else if (p->put_off || ledger_in_flight(p->ledger) > 0)
        w->until_ns = now_ns + WATCH_ALONE_MS * NS_PER_MS;
    else if (now_ns >= w->until_ns)
        w->alone = -1; /* its broker may be away: nobody waits for that */
}

bool watch_is_busy(const struct watch *w, struct assignment *mine)
{
    const struct partition *p = assignment_find(mine, w->alone);

    return p && p->caution.careful && ledger_in_flight(p->ledger) > 0;
}

void watch_rest(struct assignment *mine, const struct partition *but)
{
    for (int i = 0; i < assignment_count(mine); i++) {
        struct partition *p = assignment_at(mine, i);

        if (p != but)
            caution_rest(&p->caution);
    }
}

/* One commit for all: with the first goes each that has something to read, too. */
static void begin_with(struct partition *first, struct assignment *mine)
{
    caution_begin(&first->caution);
    for (int i = 0; i < assignment_count(mine); i++) {
        struct partition *p = assignment_at(mine, i);

        int64_t frontier = ledger_frontier(p->ledger);

        if (p->known && !p->caution.careful && frontier >= 0 && atomic_load(&p->end) > frontier)
            caution_begin(&p->caution);
    }
}

enum intake_verdict watch_admit(struct watch *w, struct assignment *mine, struct partition *p,
                                const struct caution_rule *r, int64_t offset, int64_t jobs, bool refused)
{
    if (r->max_crashes == 0)
        return INTAKE_TAKE;
    if (w->alone >= 0 && w->alone != p->id)
        return INTAKE_LATER;
    ledger_begin(p->ledger, offset);
    if (p->caution.careful) {
        w->alone = p->id;
        if (jobs > 0)
            return INTAKE_WAIT;
        watch_rest(mine, p);
        caution_suspect(&p->caution, offset);
    } else if (!p->caution.in_work) {
        begin_with(p, mine);
    }
    if (refused && !p->caution.careful && !p->caution.named)
        return INTAKE_TAKE;
    if (caution_is_saved(&p->caution))
        return INTAKE_TAKE;
    return p->lost_ns ? INTAKE_LATER : INTAKE_WAIT; /* nothing is committed for one that is lost */
}

int watch_condemned(struct assignment *mine, struct partition *p, const struct caution_rule *r, int64_t offset)
{
    p->caution.left -= p->caution.careful;
    if (!caution_condemns(&p->caution, r, offset))
        return 0;
    p->caution.deaths = 0; /* explained; what is left of the window is run alone all the same */
    for (int i = 0; i < assignment_count(mine); i++)
        if (assignment_at(mine, i) != p)
            caution_excuse(&assignment_at(mine, i)->caution);
    return p->caution.crashes;
}
