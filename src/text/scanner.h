/* scanner.h -- hand-made matchers for the split patterns of the published models.
 * Each does what the regular expression of that exact text does (tests compare them with PCRE2), several times
 * faster and always in linear time. */
#ifndef TEXT_SCANNER_H
#define TEXT_SCANNER_H

#include "text/charclass.h"

#include <stdbool.h>
#include <stddef.h>

/* The first match in s[pos..end) is s[*from..*to), never empty; false = none.  s is valid UTF-8, and nothing
 * outside pos..end is looked at: for look-aheads the text ends there. */
typedef bool scanner_next(const struct charclass *cc, const unsigned char *s, size_t pos, size_t end, size_t *from,
                          size_t *to);

/* The matcher of a pattern by its exact text, or NULL. */
scanner_next *scanner_find(const char *pattern, size_t n);
/* The i-th known pattern, NULL past the end: for tests. */
const char *scanner_pattern(size_t i);

#endif
