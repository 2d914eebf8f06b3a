#include "engine/repetition.h"

#include <limits.h>

/* A unit of p tokens repeated over L tokens makes L - p equal pairs at distance p. */
static int pairs_needed(int unit)
{
    int tokens = unit * REPETITION_MIN_UNITS;

    return (tokens > REPETITION_MIN_TOKENS ? tokens : REPETITION_MIN_TOKENS) - unit;
}

/* How many more equal pairs at this distance the end of ids needs; 0: the rule applies. */
static int pairs_missing(const int32_t *ids, int n, int unit)
{
    int missing = pairs_needed(unit);

    for (int i = n - 1; missing > 0 && i >= unit && ids[i] == ids[i - unit]; i--)
        missing--;
    return missing;
}

/* The least that any unit misses; 0: the rule applies. */
static int least_missing(const int32_t *ids, int n)
{
    int least = INT_MAX;

    for (int unit = 1; unit <= REPETITION_MAX_UNIT && least > 0; unit++) {
        int missing = pairs_missing(ids, n, unit);
        least = missing < least ? missing : least;
    }
    return least;
}

void repetition_reset(struct repetition *s)
{
    s->next = REPETITION_MIN_TOKENS;
}

bool repetition_push(struct repetition *s, const int32_t *ids, int n)
{
    if (n < s->next)
        return false;
    const int missing = least_missing(ids, n);
    s->next = n + missing;
    return missing == 0;
}

bool repetition_is_endless(const int32_t *ids, int n)
{
    return least_missing(ids, n) == 0;
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
