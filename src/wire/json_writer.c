#include "wire/json_writer.h"

#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define FIXED_MAX 1e6  /* from here on the rest of the digits is not worth a table */
#define FIXED_MIN 1e-4 /* below it %g takes an exponent */

enum { DIGITS = 15 }; /* of a real */

void json_put(struct json_writer *w, const char *s, size_t n)
{
    if (w->n < w->cap)
        memcpy(w->buf + w->n, s, n < w->cap - w->n ? n : w->cap - w->n);
    w->n += n;
}

/* What stands for the bytes that may not stand for themselves; 0: the byte may. */
static size_t escape(char out[8], unsigned char c)
{
    static const char hex[] = "0123456789ABCDEF";
    char letter = 0;

    switch (c) {
    case '"':
    case '\\': letter = (char)c; break;
    case '\b': letter = 'b'; break;
    case '\f': letter = 'f'; break;
    case '\n': letter = 'n'; break;
    case '\r': letter = 'r'; break;
    case '\t': letter = 't'; break;
    default: break;
    }
    if (!letter && c >= 0x20)
        return 0;
    out[0] = '\\';
    out[1] = letter;
    if (letter)
        return 2;
    out[1] = 'u';
    out[2] = out[3] = '0';
    out[4] = hex[c >> 4];
    out[5] = hex[c & 15];
    return 6;
}

/* Do eight bytes stand for themselves: ASCII, no control character, no quote, no backslash? */
static bool is_plain(uint64_t w)
{
    const uint64_t ones = 0x0101010101010101, tops = ones * 0x80;
    uint64_t quote = w ^ ones * '"', backslash = w ^ ones * '\\';

    return !((w | (w - ones * 0x20) | (quote - ones) | (backslash - ones)) & tops);
}

/* The characters of s that begin with a byte over ASCII, up to the first that does not.  0: not valid UTF-8. */
static size_t wide_run(const char *s, size_t n)
{
    size_t i = 0;

    while (i < n && (unsigned char)s[i] >= 0x80) {
        int len = utf8_next(s + i, n - i, NULL);
        if (len == 0)
            return 0;
        i += (size_t)len;
    }
    return i;
}

bool json_put_text(struct json_writer *w, struct text t)
{
    size_t before = w->n, k;
    char out[8];
    uint64_t word;

    json_put(w, "\"", 1);
    for (size_t i = 0; i < t.n; i += k) {
        if (t.n - i >= sizeof word && w->n + sizeof word <= w->cap) {
            memcpy(&word, t.s + i, sizeof word);
            k = sizeof word;
            if (is_plain(word)) {
                memcpy(w->buf + w->n, &word, sizeof word);
                w->n += k;
                continue;
            }
        }
        unsigned char c = (unsigned char)t.s[i];
        if (c >= 0x80) {
            if ((k = wide_run(t.s + i, t.n - i)) == 0) {
                w->n = before;
                return false;
            }
            json_put(w, t.s + i, k);
        } else {
            size_t escaped = escape(out, c);
            k = 1;
            json_put(w, escaped ? out : t.s + i, escaped ? escaped : 1);
        }
    }
    json_put(w, "\"", 1);
    return true;
}

/* Writes the digits of v before end, at least so many; returns where they begin. */
static char *digits(char *end, uint64_t v, int least)
{
    for (; v > 0 || least > 0; v /= 10, least--)
        *--end = (char)('0' + v % 10);
    return end;
}

void json_put_int(struct json_writer *w, int64_t v)
{
    char out[24], *end = out + sizeof out, *s = digits(end, v < 0 ? 0 - (uint64_t)v : (uint64_t)v, 1);

    if (v < 0)
        *--s = '-';
    json_put(w, s, (size_t)(end - s));
}

static const uint64_t tens[] = {1,
                                10,
                                100,
                                1000,
                                10000,
                                100000,
                                1000000,
                                10000000,
                                100000000,
                                1000000000,
                                10000000000,
                                100000000000,
                                1000000000000,
                                10000000000000,
                                100000000000000,
                                1000000000000000,
                                10000000000000000,
                                100000000000000000,
                                1000000000000000000};

/* How many decimals make DIGITS digits of size, in the range of put_fixed().  A size next to a power of ten may get one
 * too few or too many: all its digits there are 0 or 9, and rounded it is that power both ways. */
static int decimals(double size)
{
    static const double from[] = {1e5, 1e4, 1e3, 1e2, 1e1, 1, 1e-1, 1e-2, 1e-3};
    int n = 0;

    while (n < 9 && size < from[n])
        n++;
    return DIGITS - 6 + n;
}

/* size * 10^n, rounded to even as printf() does it, and exactly: 53 bits times 60 are fewer than 128. */
static uint64_t scale(double size, int n)
{
    uint64_t bits;

    memcpy(&bits, &size, sizeof bits);
    int shift = 1075 - (int)(bits >> 52); /* 33 to 66 */
    unsigned __int128 product = (unsigned __int128)(bits << 12 >> 12 | 1ull << 52) * tens[n];
    unsigned __int128 half = (unsigned __int128)1 << (shift - 1), rest = product & (2 * half - 1);
    uint64_t whole = (uint64_t)(product >> shift);
    return whole + (rest > half || (rest == half && whole % 2 == 1));
}

/* Without an exponent, as nearly all values of ours are. */
static bool put_fixed(struct json_writer *w, double v)
{
    double size = fabs(v);
    char out[32], *end = out + sizeof out, *s;

    if (!(size >= FIXED_MIN && size < FIXED_MAX))
        return false;
    int n = decimals(size);
    uint64_t scaled = scale(size, n);
    for (int zeros = 8; zeros > 0; zeros /= 2) { /* off at the end; one decimal stays */
        if (zeros < n && scaled % tens[zeros] == 0) {
            scaled /= tens[zeros];
            n -= zeros;
        }
    }
    s = digits(end, scaled % tens[n], n);
    *--s = '.';
    s = digits(s, scaled / tens[n], 1);
    if (v < 0)
        *--s = '-';
    json_put(w, s, (size_t)(end - s));
    return true;
}

void json_put_real(struct json_writer *w, double v)
{
    char out[40], *e;

    if (put_fixed(w, v))
        return;
    if (v == 0) {
        json_put(w, signbit(v) ? "-0.0" : "0.0", signbit(v) ? 4 : 3);
        return;
    }
    size_t n = (size_t)snprintf(out, sizeof out - 2, "%.15g", v);
    char *point = memchr(out, ',', n); /* of some locales */
    if (point)
        *point = '.';
    if (!memchr(out, '.', n) && !memchr(out, 'e', n)) {
        out[n++] = '.';
        out[n++] = '0';
    }
    if ((e = memchr(out, 'e', n))) { /* 1e+07 and 1e-07 become 1e7 and 1e-7 */
        char *from = e + 1, *to = e + 1;
        if (*from == '-')
            to++;
        from++;
        while (*from == '0' && from + 1 < out + n)
            from++;
        size_t rest = (size_t)(out + n - from);
        memmove(to, from, rest);
        n = (size_t)(to - out) + rest;
    }
    json_put(w, out, n);
}
