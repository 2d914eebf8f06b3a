#include "engine/repetition.h"

#include <string.h>

/* A unit of p tokens repeated over L tokens makes L - p equal pairs at distance p. */
static int pairs_needed(int unit)
{
    int tokens = unit * REPETITION_MIN_UNITS;

    return (tokens > REPETITION_MIN_TOKENS ? tokens : REPETITION_MIN_TOKENS) - unit;
}

void repetition_reset(struct repetition *s)
{
    memset(s, 0, sizeof *s);
}

/* Both loops run over neighbours in memory, oldest first, so that the compiler makes vectors of them. */
bool repetition_push(struct repetition *s, const int32_t *ids, int n)
{
    const int32_t token = ids[n - 1];
    int32_t longest = 0;
    int skip = n - 1 < REPETITION_MAX_UNIT ? REPETITION_MAX_UNIT - (n - 1) : 0; /* distances past the beginning */
    const int32_t *before = ids + (n - 1 - (REPETITION_MAX_UNIT - skip));

    for (int i = skip; i < REPETITION_MAX_UNIT; i++) {
        int32_t run = before[i - skip] == token ? s->run[i] + 1 : 0;
        s->run[i] = run;
        longest = run > longest ? run : longest;
    }
    if (longest < REPETITION_MIN_TOKENS - REPETITION_MIN_TOKENS / REPETITION_MIN_UNITS)
        return false; /* the least that any unit needs */
    for (int unit = 1; unit <= REPETITION_MAX_UNIT; unit++)
        if (s->run[REPETITION_MAX_UNIT - unit] >= pairs_needed(unit))
            return true;
    return false;
}

bool repetition_is_endless(const int32_t *ids, int n)
{
    for (int unit = 1; unit <= REPETITION_MAX_UNIT; unit++) {
        int pairs = 0;
        while (pairs < pairs_needed(unit) && n - 1 - pairs - unit >= 0 &&
               ids[n - 1 - pairs] == ids[n - 1 - pairs - unit])
            pairs++;
        if (pairs == pairs_needed(unit))
            return true;
    }
    return false;
}

bool repetition_is_inside(const int32_t *ids, int n)
{
    struct repetition s;

    repetition_reset(&s);
    for (int i = 1; i <= n; i++)
        if (repetition_push(&s, ids, i))
            return true;
    return false;
}
