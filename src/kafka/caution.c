#include "kafka/caution.h"

void caution_init(struct caution *c)
{
    *c = (struct caution){.suspect = -1, .base = -1};
}

static int one_more(int n)
{
    return n < COMMIT_NOTE_MAX_COUNT ? n + 1 : n;
}

/* What was in work at a death may be finished by now, unpublished and so not noted: nobody knows how many lie before the
 * one that did it. */
static int window_of(const struct caution *c, const struct caution_rule *r)
{
    int64_t n = r->window;

    for (int i = CAUTION_DEATHS; i < c->deaths && n < r->most; i++)
        n *= 2;
    return n < r->most ? (int)n : r->most;
}

bool caution_found(struct caution *c, const struct caution_rule *r, const struct commit_note *n, int64_t committed)
{
    caution_init(c);
    if (r->max_crashes == 0)
        return false;
    c->base = committed;
    c->deaths = n->deaths;
    c->crashes = n->crashes;
    c->suspect = n->suspect;
    if (n->in_work && c->suspect >= 0)
        c->crashes = one_more(c->crashes);
    else if (n->in_work)
        c->deaths = one_more(c->deaths);
    c->careful = c->suspect >= 0 || c->deaths >= CAUTION_DEATHS;
    c->left = c->careful ? window_of(c, r) : 0;
    c->changes += n->in_work; /* counted once: the next note says so */
    return n->in_work;
}

void caution_begin(struct caution *c)
{
    if (c->in_work)
        return;
    c->in_work = true;
    c->changes++;
}

void caution_suspect(struct caution *c, int64_t offset)
{
    if (c->in_work && c->suspect == offset)
        return;
    if (c->suspect != offset)
        c->crashes = 0;
    c->in_work = c->named = true;
    c->suspect = offset;
    c->changes++;
}

void caution_rest(struct caution *c)
{
    if (!c->in_work)
        return;
    c->in_work = false;
    c->changes++;
}

void caution_pass(struct caution *c, int64_t frontier)
{
    int deaths = c->deaths;

    caution_over(c);
    c->deaths = deaths;
    c->base = frontier;
}

void caution_over(struct caution *c)
{
    c->careful = false;
    c->deaths = c->crashes = c->left = 0;
    c->suspect = -1;
    c->changes++;
}

void caution_excuse(struct caution *c)
{
    if (c->crashes == 0 && c->deaths > 0)
        caution_over(c);
}

bool caution_is_saved(const struct caution *c)
{
    return c->saved == c->changes;
}

bool caution_condemns(const struct caution *c, const struct caution_rule *r, int64_t offset)
{
    return r->max_crashes > 0 && c->suspect == offset && c->crashes >= r->max_crashes;
}

void caution_write(const struct caution *c, struct commit_note *n, int64_t offset)
{
    bool has_suspect = c->suspect >= offset;

    n->in_work = c->in_work;
    n->deaths = c->careful || offset == c->base ? c->deaths : 0;
    n->suspect = has_suspect ? c->suspect : -1;
    n->crashes = has_suspect ? c->crashes : 0;
}
