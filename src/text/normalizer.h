/* normalizer.h -- what happens to a text before it is cut: invalid UTF-8 repaired, NFC where tokenizer.json asks
 * for it.  Buffers grow as needed and belong to one thread. */
#ifndef TEXT_NORMALIZER_H
#define TEXT_NORMALIZER_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct text_buffer {
    char *at;
    size_t cap;
};

/* Room for n bytes; what was in it is lost.  false = no memory. */
bool text_buffer_reserve(struct text_buffer *b, size_t n);
void text_buffer_free(struct text_buffer *b);

/* Copies s[0..n) to out, which has room for 3 n bytes, with one U+FFFD for each maximal invalid part; its length. */
size_t utf8_repair(const char *s, size_t n, char *out);

/* *text and *len, valid UTF-8, become their NFC, in b or where they are.  A run of more than 1,024 combining marks is
 * ERR_INVALID_FIELD (act ERR_SKIP): sorting them is quadratic. */
MUST_CHECK enum err_code normalizer_nfc(struct text_buffer *b, const char **text, size_t *len, struct err *e);

#endif
