#include "kafka/ledger.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>

/* A ring of what was taken, in order of offset.  head is the first that is not finished, unless the ring is empty;
 * a finished entry is kept as ~offset (negative), so that one word holds both. */
struct ledger {
    int64_t *entries;
    size_t window, head, count; /* count: entries from head on, finished ones among them */
    size_t in_flight;
    int64_t frontier; /* -1 = nothing finished yet */
    int64_t newest;   /* highest offset taken or passed, -1 = none */
    int64_t reached;  /* see ledger_reach(), -1 = nothing to do */
};

enum err_code ledger_open(struct ledger **out, size_t window, struct err *e)
{
    struct ledger *l = calloc(1, sizeof *l);

    *out = NULL;
    if (window == 0)
        window = 1;
    if (l)
        l->entries = calloc(window, sizeof *l->entries);
    if (!l || !l->entries) {
        free(l);
        return err_set(e, ERR_NOMEM, ERR_STOP, "ledger: no memory for %zu offsets", window);
    }
    l->window = window;
    l->frontier = l->newest = l->reached = -1;
    *out = l;
    return ERR_OK;
}

void ledger_close(struct ledger *l)
{
    if (!l)
        return;
    free(l->entries);
    free(l);
}

static int64_t *entry(const struct ledger *l, size_t i)
{
    size_t at = l->head + i;

    return &l->entries[at < l->window ? at : at - l->window];
}

static int64_t offset_of(int64_t entry_value)
{
    return entry_value < 0 ? ~entry_value : entry_value;
}

size_t ledger_room(const struct ledger *l)
{
    return l->window - l->count;
}

enum err_code ledger_take(struct ledger *l, int64_t offset, struct err *e)
{
    if (offset < 0 || offset <= l->newest)
        return err_set(e, ERR_KAFKA, ERR_SKIP, "ledger: offset %lld follows %lld", (long long)offset,
                       (long long)l->newest);
    if (l->count == l->window)
        return err_set(e, ERR_BUSY, ERR_RETRY, "ledger: full, %zu offsets from %lld on", l->count,
                       (long long)ledger_oldest(l));
    if (l->count == 0)
        l->head = 0; /* an idle ring stays in its first pages */
    *entry(l, l->count++) = offset;
    l->in_flight++;
    l->newest = offset;
    return ERR_OK;
}

/* Index of offset, or count.  Without gaps the first guess is right; with gaps the index can only be smaller. */
static size_t find(const struct ledger *l, int64_t offset)
{
    size_t low = 0, high;

    if (l->count == 0 || offset < offset_of(*entry(l, 0)))
        return l->count;
    int64_t guess = offset - offset_of(*entry(l, 0));
    high = guess < (int64_t)l->count ? (size_t)guess : l->count - 1;
    if (offset_of(*entry(l, high)) == offset)
        return high;
    while (low < high) {
        size_t mid = low + (high - low) / 2;

        if (offset_of(*entry(l, mid)) < offset)
            low = mid + 1;
        else
            high = mid;
    }
    return offset_of(*entry(l, low)) == offset ? low : l->count;
}

static void pass_reached(struct ledger *l)
{
    if (l->count == 0 && l->reached > l->frontier)
        l->frontier = l->reached;
}

enum err_code ledger_finish(struct ledger *l, int64_t offset, struct err *e)
{
    size_t i = find(l, offset);

    if (i == l->count || *entry(l, i) < 0)
        return err_set(e, ERR_BUSY, ERR_SKIP, "ledger: offset %lld is not in flight", (long long)offset);
    *entry(l, i) = ~offset;
    l->in_flight--;
    while (l->count > 0 && *entry(l, 0) < 0) {
        l->frontier = ~*entry(l, 0) + 1;
        l->head = l->head + 1 < l->window ? l->head + 1 : 0;
        l->count--;
    }
    pass_reached(l);
    return ERR_OK;
}

void ledger_reach(struct ledger *l, int64_t offset)
{
    if (offset <= l->newest)
        return;
    l->reached = offset;
    l->newest = offset - 1; /* nothing below it will be taken any more */
    pass_reached(l);
}

int64_t ledger_frontier(const struct ledger *l)
{
    return l->frontier;
}

size_t ledger_in_flight(const struct ledger *l)
{
    return l->in_flight;
}

int64_t ledger_oldest(const struct ledger *l)
{
    return l->count > 0 ? *entry(l, 0) : -1;
}
