#include "wire/json_writer.h"

#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { DECIMALS = 9 };
#define SCALE     1e9  /* 10^DECIMALS */
#define FIXED_MAX 1e6  /* below it a value times SCALE has 15 digits, and those a double keeps */
#define FIXED_MIN 1e-4 /* below it %g takes an exponent */

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

bool json_put_text(struct json_writer *w, struct text t)
{
    size_t begin = 0, k;
    char out[8];

    if (utf8_valid(t.s, t.n) != t.n)
        return false;
    json_put(w, "\"", 1);
    for (size_t i = 0; i < t.n; i++) {
        if ((k = escape(out, (unsigned char)t.s[i])) == 0)
            continue;
        json_put(w, t.s + begin, i - begin);
        json_put(w, out, k);
        begin = i + 1;
    }
    if (t.n > begin)
        json_put(w, t.s + begin, t.n - begin);
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

/* A value of at most DECIMALS decimals and 15 digits, as nearly all of ours are: no rounding is needed. */
static bool put_fixed(struct json_writer *w, double v)
{
    double size = fabs(v);
    char out[32], *end = out + sizeof out, *s;

    if (!(size >= FIXED_MIN && size < FIXED_MAX))
        return false;
    uint64_t scaled = (uint64_t)(size * SCALE + 0.5), whole = scaled / (uint64_t)SCALE;
    if ((double)scaled / SCALE != size)
        return false;
    s = digits(end, scaled % (uint64_t)SCALE, DECIMALS);
    while (end[-1] == '0' && end - s > 1)
        end--;
    *--s = '.';
    s = digits(s, whole, 1);
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
