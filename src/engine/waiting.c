#include "engine/waiting.h"

#include <stddef.h>

static bool goes_before(const struct request *a, const struct request *b)
{
    if (a->priority != b->priority)
        return a->priority > b->priority;
    return a->n_prompt > b->n_prompt;
}

static struct request *merge(struct request *a, struct request *b)
{
    struct request *head = NULL, **tail = &head;

    while (a && b) {
        struct request **least = goes_before(b, a) ? &b : &a; /* stable: a where equal */
        *tail = *least;
        tail = &(*least)->next;
        *least = *tail;
    }
    *tail = a ? a : b;
    return head;
}

/* Merge sort bottom up: runs[i] holds 2^i requests or none.  No memory, unlike qsort(). */
static struct request *sorted(struct request *list)
{
    struct request *runs[32] = {NULL}, *all = NULL;
    const int n = sizeof runs / sizeof runs[0];

    while (list) {
        struct request *one = list;
        list = list->next;
        one->next = NULL;
        int i = 0;
        for (; i < n - 1 && runs[i]; i++) {
            one = merge(runs[i], one);
            runs[i] = NULL;
        }
        runs[i] = merge(runs[i], one);
    }
    for (int i = 0; i < n; i++)
        all = merge(runs[i], all);
    return all;
}

static void insert_after(struct waiting *w, struct request *place, struct request *r)
{
    r->prev = place;
    r->next = place ? place->next : w->first;
    if (r->next)
        r->next->prev = r;
    else
        w->last = r;
    if (place)
        place->next = r;
    else
        w->first = r;
}

static void append_by_age(struct waiting *w, struct request *r)
{
    r->older = w->newest;
    r->newer = NULL;
    if (w->newest)
        w->newest->newer = r;
    else
        w->oldest = r;
    w->newest = r;
}

void waiting_add(struct waiting *w, struct request *batch)
{
    struct request *next, *place = w->last;

    for (struct request *r = batch; r; r = r->next) {
        append_by_age(w, r);
        w->n++;
    }
    batch = sorted(batch);
    if (batch)
        while (place && place->priority < batch->priority)
            place = place->prev;
    for (struct request *r = batch; r; r = next) {
        next = r->next;
        struct request *after = place ? place->next : w->first;
        while (after && after->priority >= r->priority) {
            place = after;
            after = after->next;
        }
        insert_after(w, place, r);
        place = r;
    }
}

void waiting_put_back(struct waiting *w, struct request *r)
{
    struct request *prev = NULL, *next = w->put_back;

    while (next && next->order < r->order) {
        prev = next;
        next = next->next;
    }
    r->prev = prev;
    r->next = next;
    r->older = r->newer = NULL;
    if (next)
        next->prev = r;
    if (prev)
        prev->next = r;
    else
        w->put_back = r;
    w->n++;
}

void waiting_remove(struct waiting *w, struct request *r)
{
    if (r->prev)
        r->prev->next = r->next;
    else if (w->first == r)
        w->first = r->next;
    else
        w->put_back = r->next;
    if (r->next)
        r->next->prev = r->prev;
    else if (w->last == r)
        w->last = r->prev;

    if (r->older)
        r->older->newer = r->newer;
    else if (w->oldest == r)
        w->oldest = r->newer;
    if (r->newer)
        r->newer->older = r->older;
    else if (w->newest == r)
        w->newest = r->older;
    r->next = r->prev = r->older = r->newer = NULL;
    w->n--;
}
