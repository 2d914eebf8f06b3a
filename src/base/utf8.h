/* utf8.h -- UTF-8 as RFC 3629 defines it: no surrogates, no over-long forms, nothing past U+10FFFF. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length in bytes (1 to 4) of the valid character at s, or 0 when s[0..n) begins with none.
 * *cp (may be NULL) gets the code point. */
int utf8_next(const char *s, size_t n, uint32_t *cp);

/* Offset of the first byte that is not valid, or n. */
size_t utf8_valid(const char *s, size_t n);

/* Bytes (1 to 3) of the invalid part at s[0..n), n > 0, where utf8_next() gives 0: the longest beginning of a
 * character, else one byte.  One U+FFFD stands for it, as in the Unicode standard's "maximal subparts". */
int utf8_invalid(const char *s, size_t n);

/* Bytes (0 to 3) at the end of s[0..n) that begin a character whose rest is missing, or 0. */
int utf8_incomplete_tail(const char *s, size_t n);

#endif
