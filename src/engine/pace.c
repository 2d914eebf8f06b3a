#include "engine/pace.h"

/* Share of the newest step in a mean: some ten steps later little is left of what was before. */
static const double NEWEST = 0.2;

static void mean_in(double *mean, double value)
{
    *mean = *mean == 0 ? value : *mean + NEWEST * (value - *mean);
}

int pace_budget(const struct pace *p, int most, bool is_beside)
{
    if (p->limit <= 0 || !is_beside)
        return most;
    if (p->per_token <= 0)
        return most < PACE_FIRST ? most : PACE_FIRST;
    const double tokens = (p->limit - p->decode) / p->per_token;
    if (tokens >= most)
        return most;
    return tokens > PACE_LEAST ? (int)tokens : most < PACE_LEAST ? most : PACE_LEAST;
}

void pace_learn(struct pace *p, int prompt_tokens, bool is_beside, double seconds)
{
    if (p->limit <= 0 || seconds <= 0)
        return;
    if (prompt_tokens == 0) {
        mean_in(&p->decode, seconds);
        return;
    }
    const double theirs = is_beside ? seconds - p->decode : seconds;
    /* the step may have been faster than the mean of those without prompts: then its prompts cost next to nothing */
    mean_in(&p->per_token, (theirs > seconds / 16 ? theirs : seconds / 16) / prompt_tokens);
}
