/* charclass.h -- what kind of character a code point is, as split patterns ask it.
 * From utf8proc's tables (its Unicode version counts), plus what Unicode 15.1 and 16.0 added, so that an older
 * library gives the same pieces.
 * Owns:   a table of the basic plane, in the struct.
 * Thread: const after charclass_init(). */
#ifndef TEXT_CHARCLASS_H
#define TEXT_CHARCLASS_H

#include <stddef.h>
#include <stdint.h>

enum {
    CH_L = 1,        /* \p{L} letters */
    CH_M = 2,        /* \p{M} marks */
    CH_N = 4,        /* \p{N} numbers */
    CH_P = 8,        /* \p{P} punctuation */
    CH_S = 16,       /* \p{S} symbols */
    CH_SPACE = 32,   /* White_Space: \s; U+200B and U+180E are not */
    CH_NEWLINE = 64, /* CR and LF alone */
    CH_CJK = 128     /* U+4E00-9FA5 ideographs, U+3040-309F hiragana, U+30A0-30FF katakana */
};

struct charclass {
    uint8_t bmp[0x10000]; /* a set of CH_ by code point */
};

void charclass_init(struct charclass *cc);
unsigned charclass_of(uint32_t cp); /* slow: from the library */

static inline unsigned charclass_get(const struct charclass *cc, uint32_t cp)
{
    return cp < 0x10000 ? cc->bmp[cp] : charclass_of(cp);
}

/* Class of the character at s, which is valid UTF-8; *len gets its bytes. */
static inline unsigned charclass_at(const struct charclass *cc, const unsigned char *s, size_t *len)
{
    uint32_t c = s[0];

    if (c < 0x80) {
        *len = 1;
        return cc->bmp[c];
    }
    if (c < 0xE0) {
        *len = 2;
        return cc->bmp[(c & 0x1F) << 6 | (s[1] & 0x3Fu)];
    }
    if (c < 0xF0) {
        *len = 3;
        return cc->bmp[(c & 0x0F) << 12 | (s[1] & 0x3Fu) << 6 | (s[2] & 0x3Fu)];
    }
    *len = 4;
    return charclass_of((c & 0x07) << 18 | (s[1] & 0x3Fu) << 12 | (s[2] & 0x3Fu) << 6 | (s[3] & 0x3Fu));
}

#endif
