/* pattern.h -- a split pattern of tokenizer.json (written for Oniguruma) in PCRE2's words.
 * The two agree on what is let through here; \s is spelled out, since PCRE2's also has U+180E. */
#ifndef TEXT_PATTERN_H
#define TEXT_PATTERN_H

#include <stddef.h>

/* Writes at most cap bytes, with a NUL at the end, to out.  NULL, or what is not supported ("look-behind"). */
const char *pattern_translate(const char *s, size_t n, char *out, size_t cap);

#endif
