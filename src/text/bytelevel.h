/* bytelevel.h -- the alphabet in which byte-level BPE files write bytes: printable Latin-1 characters stand for
 * themselves, the 68 other bytes for U+0100 and following, in order ("Ġ" is a space). */
#ifndef TEXT_BYTELEVEL_H
#define TEXT_BYTELEVEL_H

#include <stddef.h>

/* Bytes that s[0..n) (UTF-8) stands for, written to out (at most n of them); -1 when a character is not in the
 * alphabet, and out is then undefined. */
long bytelevel_decode(const char *s, size_t n, unsigned char *out);

#endif
