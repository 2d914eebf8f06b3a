#include "text/bytelevel.h"

#include <stdbool.h>
#include <stdint.h>

#include "base/utf8.h"

static bool stands_for_itself(uint32_t c)
{
    return (c >= '!' && c <= '~') || (c >= 0xA1 && c <= 0xAC) || (c >= 0xAE && c <= 0xFF);
}

/* The byte of code point c, or -1. */
static int byte_of(uint32_t c)
{
    if (stands_for_itself(c))
        return (int)c;
    if (c < 0x100 || c >= 0x100 + 68)
        return -1;
    c -= 0x100; /* the c-th byte that does not stand for itself: 00-20, 7F-A0, AD */
    return c <= 0x20 ? (int)c : c <= 0x42 ? (int)(0x7F + c - 0x21) : 0xAD;
}

long bytelevel_decode(const char *s, size_t n, unsigned char *out)
{
    long m = 0;

    for (size_t i = 0; i < n;) {
        uint32_t c;
        int len = utf8_next(s + i, n - i, &c);
        int b = len ? byte_of(c) : -1;
        if (b < 0)
            return -1;
        out[m++] = (unsigned char)b;
        i += (size_t)len;
    }
    return m;
}
