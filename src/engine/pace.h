/* pace.h -- how many prompt tokens a step may feed, so that the rows which decode beside them wait no longer than a limit.
 * A step is taken to cost what decoding alone costs, and so much for each prompt token; both are running means of what the
 * steps really took.
 * Limits: the budget never falls below PACE_LEAST tokens, so prompts go on even where decoding alone takes longer than the
 * limit: it is then exceeded by their share. */
#ifndef ENGINE_PACE_H
#define ENGINE_PACE_H

#include <stdbool.h>

enum { PACE_LEAST = 16, PACE_FIRST = 128 /* as long as nothing was measured */ };

struct pace {
    double limit;     /* seconds; 0: none */
    double decode;    /* seconds of a step that only decodes; 0: not yet known */
    double per_token; /* seconds of a prompt token; 0: not yet known */
};

/* Of at most `most` tokens; is_beside: rows decode in the same step. */
int pace_budget(const struct pace *p, int most, bool is_beside);
/* A step took so long. */
void pace_learn(struct pace *p, int prompt_tokens, bool is_beside, double seconds);

#endif
