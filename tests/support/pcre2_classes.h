/* pcre2_classes.h -- what PCRE2 says of every code point, and all matches of a pattern, to compare with. */
#ifndef SUPPORT_PCRE2_CLASSES_H
#define SUPPORT_PCRE2_CLASSES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct regex;

/* Fails the test when the pattern does not compile.  UTF and UCP. */
struct regex *regex_must_compile(const char *pattern);
/* The first match in s[pos..end), the text being s[begin..end), valid UTF-8. */
bool regex_next(struct regex *r, const char *s, size_t begin, size_t pos, size_t end, size_t *from, size_t *to);
void regex_free(struct regex *r);

/* For each of the 0x110000 code points, whether it matches the pattern of one character; free() it. */
bool *regex_members(const char *pattern);

#endif
