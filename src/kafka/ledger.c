#include "kafka/ledger.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* A ring of what was taken, in order of offset; head is the first that is not finished, unless the ring is empty.  An
 * entry is offset * 4 + state, so that one word holds both. */
enum state { IN_FLIGHT, HELD, FINISHED };

struct ledger {
    int64_t *entries;
    size_t window, head, count; /* count: entries from head on, finished ones among them */
    size_t in_flight, held;     /* held ones are in flight too */
    int64_t frontier;           /* -1 = nothing finished or committed yet */
    int64_t newest;             /* highest offset taken or passed, -1 = none */
    int64_t reached;            /* see ledger_reach(), -1 = nothing to do */
    uint64_t changes;           /* without the held */
    struct note_run *seed;      /* what an earlier owner finished */
    size_t n_seed, seed_at;     /* seed_at: the first run that reaches beyond newest */
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
    free(l->seed);
    free(l);
}

enum err_code ledger_seed(struct ledger *l, int64_t committed, const struct commit_note *n, struct err *e)
{
    assert(l->newest < 0);
    free(l->seed);
    l->seed = NULL;
    l->n_seed = l->seed_at = 0;
    if (n && n->n_runs > 0) {
        l->seed = malloc(n->n_runs * sizeof *l->seed);
        if (!l->seed)
            return err_set(e, ERR_NOMEM, ERR_STOP, "ledger: no memory for a note of %zu runs", n->n_runs);
        memcpy(l->seed, n->runs, n->n_runs * sizeof *l->seed);
        l->n_seed = n->n_runs;
    }
    l->frontier = committed;
    return ERR_OK;
}

void ledger_begin(struct ledger *l, int64_t offset)
{
    if (l->frontier < 0 && l->newest < 0)
        l->frontier = offset;
}

static int64_t *entry(const struct ledger *l, size_t i)
{
    size_t at = l->head + i;

    return &l->entries[at < l->window ? at : at - l->window];
}

static int64_t offset_at(const struct ledger *l, size_t i)
{
    return *entry(l, i) >> 2;
}

static enum state state_at(const struct ledger *l, size_t i)
{
    return (enum state)(*entry(l, i) & 3);
}

static void set_state(struct ledger *l, size_t i, enum state s)
{
    *entry(l, i) = offset_at(l, i) * 4 + (int64_t)s;
}

size_t ledger_room(const struct ledger *l)
{
    return l->window - l->count;
}

static void pass_seed(struct ledger *l, int64_t newest)
{
    while (l->seed_at < l->n_seed && l->seed[l->seed_at].last <= newest)
        l->seed_at++;
}

bool ledger_is_seeded(struct ledger *l, int64_t offset)
{
    pass_seed(l, offset - 1);
    return l->seed_at < l->n_seed && l->seed[l->seed_at].first <= offset;
}

static int64_t base(const struct ledger *l)
{
    return l->frontier >= 0 ? l->frontier : l->count > 0 ? offset_at(l, 0) : -1;
}

bool ledger_fits(const struct ledger *l, int64_t offset)
{
    size_t i = l->seed_at;

    if (l->count == 0)
        return true; /* one entry, and a seed that fitted as it came */
    while (i < l->n_seed && l->seed[i].last <= offset)
        i++;
    return commit_note_fits(base(l), i < l->n_seed ? l->seed[l->n_seed - 1].last : offset,
                            l->count + 1 + (l->n_seed - i));
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
    *entry(l, l->count++) = offset * 4 + IN_FLIGHT;
    l->in_flight++;
    l->newest = offset;
    pass_seed(l, offset);
    return ERR_OK;
}

/* Index of offset, or count.  Without gaps the first guess is right; with gaps the index can only be smaller. */
static size_t find(const struct ledger *l, int64_t offset)
{
    size_t low = 0, high;

    if (l->count == 0 || offset < offset_at(l, 0))
        return l->count;
    int64_t guess = offset - offset_at(l, 0);
    high = guess < (int64_t)l->count ? (size_t)guess : l->count - 1;
    if (offset_at(l, high) == offset)
        return high;
    while (low < high) {
        size_t mid = low + (high - low) / 2;

        if (offset_at(l, mid) < offset)
            low = mid + 1;
        else
            high = mid;
    }
    return offset_at(l, low) == offset ? low : l->count;
}

/* Where the frontier is once all that was taken is finished: over what was reached, and over a run of the seed that
 * begins right there.  *i is the seed's first run that lies beyond. */
static int64_t pass_rest(const struct ledger *l, int64_t frontier, size_t *i)
{
    if (l->reached > frontier)
        frontier = l->reached;
    while (*i < l->n_seed && l->seed[*i].first <= frontier) {
        if (l->seed[*i].last >= frontier)
            frontier = l->seed[*i].last + 1;
        ++*i;
    }
    return frontier;
}

static void raise_frontier(struct ledger *l)
{
    size_t i = l->seed_at;

    while (l->count > 0 && state_at(l, 0) == FINISHED) {
        int64_t next = offset_at(l, 0) + 1;

        if (next > l->frontier) /* a seeded run may have carried it further */
            l->frontier = next;
        l->head = l->head + 1 < l->window ? l->head + 1 : 0;
        l->count--;
    }
    if (l->count == 0)
        l->frontier = pass_rest(l, l->frontier, &i);
}

enum err_code ledger_finish(struct ledger *l, int64_t offset, struct err *e)
{
    size_t i = find(l, offset);

    if (i == l->count || state_at(l, i) == FINISHED)
        return err_set(e, ERR_BUSY, ERR_SKIP, "ledger: offset %lld is not in flight", (long long)offset);
    l->held -= state_at(l, i) == HELD;
    set_state(l, i, FINISHED);
    l->in_flight--;
    l->changes++;
    raise_frontier(l);
    return ERR_OK;
}

enum err_code ledger_hold(struct ledger *l, int64_t offset, struct err *e)
{
    size_t i = find(l, offset);

    if (i == l->count || state_at(l, i) != IN_FLIGHT)
        return err_set(e, ERR_BUSY, ERR_SKIP, "ledger: offset %lld is not in flight", (long long)offset);
    set_state(l, i, HELD);
    l->held++;
    return ERR_OK;
}

void ledger_unhold_all(struct ledger *l)
{
    for (size_t i = 0; l->held > 0; i++)
        if (state_at(l, i) == HELD) {
            set_state(l, i, IN_FLIGHT);
            l->held--;
        }
}

void ledger_reach(struct ledger *l, int64_t offset)
{
    int64_t before = l->frontier;

    if (offset <= l->newest)
        return;
    l->reached = offset;
    l->newest = offset - 1; /* nothing below it will be taken any more */
    pass_seed(l, l->newest);
    raise_frontier(l);
    l->changes += l->frontier != before;
}

int64_t ledger_frontier(const struct ledger *l)
{
    return l->frontier;
}

static void add_run(struct commit_note *n, int64_t first, int64_t last)
{
    assert(n->n_runs < COMMIT_NOTE_MAX_RUNS); /* see ledger_fits() */
    n->runs[n->n_runs++] = (struct note_run){first, last};
}

int64_t ledger_note(const struct ledger *l, struct commit_note *n)
{
    size_t i = 0, seed = l->seed_at;
    int64_t offset = l->frontier, first = -1, last = -1;

    n->n_runs = 0;
    while (i < l->count && state_at(l, i) != IN_FLIGHT) {
        if (offset_at(l, i) + 1 > offset)
            offset = offset_at(l, i) + 1;
        i++;
    }
    if (i == l->count)
        offset = pass_rest(l, offset, &seed);
    else if (offset < 0)
        offset = offset_at(l, i);
    for (; i < l->count; i++) { /* records side by side are one run, whatever gap is between their offsets */
        bool done = state_at(l, i) != IN_FLIGHT;

        if (done && first < 0)
            first = offset_at(l, i);
        if (done)
            last = offset_at(l, i);
        if (first >= 0 && (!done || i + 1 == l->count)) {
            add_run(n, first, last);
            first = -1;
        }
    }
    for (; seed < l->n_seed; seed++) {
        int64_t from = l->seed[seed].first > l->newest ? l->seed[seed].first : l->newest + 1;

        if (from > offset && l->seed[seed].last >= from)
            add_run(n, from, l->seed[seed].last);
    }
    return offset;
}

uint64_t ledger_changes(const struct ledger *l)
{
    return l->changes + l->held;
}

size_t ledger_in_flight(const struct ledger *l)
{
    return l->in_flight;
}

int64_t ledger_oldest(const struct ledger *l)
{
    return l->count > 0 ? offset_at(l, 0) : -1;
}
