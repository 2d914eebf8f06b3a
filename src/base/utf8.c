#include "base/utf8.h"

#include <string.h>

int utf8_next(const char *s, size_t n, uint32_t *cp)
{
    const unsigned char *p = (const unsigned char *)s;
    uint32_t c, min;
    int len;

    if (n == 0)
        return 0;
    if (p[0] < 0x80) {
        if (cp)
            *cp = p[0];
        return 1;
    }
    if (p[0] < 0xC2 || p[0] > 0xF4)
        return 0;
    len = p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : 4;
    min = len == 2 ? 0x80 : len == 3 ? 0x800 : 0x10000;
    if ((size_t)len > n)
        return 0;
    c = p[0] & (0x7Fu >> len);
    for (int i = 1; i < len; i++) {
        if ((p[i] & 0xC0) != 0x80)
            return 0;
        c = c << 6 | (p[i] & 0x3Fu);
    }
    if (c < min || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF))
        return 0;
    if (cp)
        *cp = c;
    return len;
}

size_t utf8_valid(const char *s, size_t n)
{
    size_t i = 0;

    while (i < n) {
        uint64_t w;
        if (n - i >= sizeof w) { /* eight ASCII bytes at once */
            memcpy(&w, s + i, sizeof w);
            if (!(w & 0x8080808080808080u)) {
                i += sizeof w;
                continue;
            }
        }
        int len = utf8_next(s + i, n - i, NULL);
        if (len == 0)
            return i;
        i += (size_t)len;
    }
    return n;
}

int utf8_invalid(const char *s, size_t n)
{
    const unsigned char *p = (const unsigned char *)s;
    int want = p[0] < 0xC2 || p[0] > 0xF4 ? 1 : p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : 4, i = 2;
    unsigned char lo = p[0] == 0xE0 ? 0xA0 : p[0] == 0xF0 ? 0x90 : 0x80;
    unsigned char hi = p[0] == 0xED ? 0x9F : p[0] == 0xF4 ? 0x8F : 0xBF;

    if (want < 3 || n < 2 || p[1] < lo || p[1] > hi)
        return 1;
    while (i < want - 1 && (size_t)i < n && (p[i] & 0xC0) == 0x80)
        i++;
    return i;
}

int utf8_incomplete_tail(const char *s, size_t n)
{
    for (int back = 1; back <= 3 && (size_t)back <= n; back++) {
        unsigned char c = (unsigned char)s[n - (size_t)back];
        if ((c & 0xC0) == 0x80)
            continue;
        int want = c < 0xC2 || c > 0xF4 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
        if (want <= back)
            return 0;
        /* E0, ED, F0, F4 narrow their second byte: a tail that can become nothing valid is not incomplete */
        if (back >= 2) {
            unsigned char d = (unsigned char)s[n - (size_t)back + 1];
            if ((c == 0xE0 && d < 0xA0) || (c == 0xED && d > 0x9F) || (c == 0xF0 && d < 0x90) ||
                (c == 0xF4 && d > 0x8F))
                return 0;
        }
        return back;
    }
    return 0;
}
