/* repetition.h -- does an output end in a loop that no translation has?
 *
 * The rule: its last tokens are one unit of 1 to 64 tokens, repeated back to back at least 8 times and over at least
 * 96 tokens.  So a unit of 1 token must come 96 times, of 5 tokens 20 times, of 12 or more 8 times.
 * What it lets pass: "ha ha ha ha" and other reduplication (a handful of units), table rows and list items (the unit's
 * text changes, so the tokens do), rules and leaders of dots or dashes (vocabularies hold long runs of them as single
 * tokens: 95 such tokens are several lines).  A source that itself holds such a loop may be translated as one: the
 * engine does not judge the output of a prompt in which the rule applies somewhere. */
#ifndef ENGINE_REPETITION_H
#define ENGINE_REPETITION_H

#include <stdbool.h>
#include <stdint.h>

enum { REPETITION_MAX_UNIT = 64, REPETITION_MIN_TOKENS = 96, REPETITION_MIN_UNITS = 8 };

/* Each token adds at most one to the equal pairs of a unit, so a look at the end of an output also says how many more tokens
 * it takes at least until the rule can apply; until then nothing is compared.  An output of fewer than 96 tokens is never
 * looked at, one without a loop every 80 or so. */
struct repetition {
    int next; /* tokens, before which the rule does not apply */
};

void repetition_reset(struct repetition *s);
/* ids[n - 1] is new, ids[0..n-1) were pushed before.  true: the rule applies now. */
bool repetition_push(struct repetition *s, const int32_t *ids, int n);

bool repetition_is_endless(const int32_t *ids, int n); /* the rule on the end of ids, from nothing */
bool repetition_is_inside(const int32_t *ids, int n);  /* on any beginning of ids */

#endif
