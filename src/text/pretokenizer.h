/* pretokenizer.h -- cuts a text into the pieces that are merged each for itself: a sequence of Splits (isolated:
 * matches and the gaps between them all become pieces), each on the pieces of the one before.
 * Patterns of the published models have matchers of their own (scanner.h), others go through PCRE2.
 * Thread: struct pretokenizer is const after open; a matcher belongs to one thread. */
#ifndef TEXT_PRETOKENIZER_H
#define TEXT_PRETOKENIZER_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct pretokenizer;
struct matcher; /* PCRE2's match data, stack and limits of one thread */

/* v: the "pre_tokenizer" of tokenizer.json.  scanners false: PCRE2 for every pattern (for tests). */
MUST_CHECK enum err_code pretokenizer_open(struct pretokenizer **out, const json_t *v, bool scanners, const char *where,
                                           struct err *e);
void pretokenizer_close(struct pretokenizer *p);

MUST_CHECK enum err_code matcher_open(struct matcher **out, struct err *e);
void matcher_close(struct matcher *m);

/* Calls piece(ctx, s, n) for each piece of text[0..len), valid UTF-8, in order, until it returns false.
 * ERR_UNSUPPORTED (act ERR_SKIP) when a pattern needs too many steps for this text. */
MUST_CHECK enum err_code pretokenizer_split(const struct pretokenizer *p, struct matcher *m, const char *text,
                                            size_t len, bool (*piece)(void *ctx, const char *s, size_t n), void *ctx,
                                            struct err *e);

/* Where a piece ends depends on nothing before it, and behind it on the few characters next to its end alone: so for the
 * patterns that have matchers of their own. */
bool pretokenizer_is_local(const struct pretokenizer *p);

#endif
