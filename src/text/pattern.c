#include "text/pattern.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

#define WHITE_SPACE                                                                                                    \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"

enum { MAX_REPEAT = 1000 };

struct translation {
    const char *s, *end;
    char *out;
    size_t cap, n;
    const char *refused;
};

static void put(struct translation *t, const char *s, size_t n)
{
    if (t->refused)
        return;
    if (t->n + n + 1 > t->cap) {
        t->refused = "a pattern this long";
        return;
    }
    memcpy(t->out + t->n, s, n);
    t->n += n;
    t->out[t->n] = '\0';
}

/* Copies the next n bytes. */
static void take(struct translation *t, size_t n)
{
    put(t, t->s, n);
    t->s += n;
}

static void refuse(struct translation *t, const char *what)
{
    if (!t->refused)
        t->refused = what;
}

/* \p{L} and \P{Lu}, general categories alone. */
static void property(struct translation *t)
{
    static const char *const names[] = {"L",  "Ll", "Lm", "Lo", "Lt", "Lu", "M",  "Mc", "Me", "Mn", "N",  "Nd", "Nl",
                                        "No", "P",  "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S",  "Sc", "Sk", "Sm",
                                        "So", "Z",  "Zl", "Zp", "Zs", "C",  "Cc", "Cf", "Cn", "Co", "Cs"};
    const char *close = memchr(t->s, '}', (size_t)(t->end - t->s));

    if (t->end - t->s < 3 || t->s[2] != '{' || !close) {
        refuse(t, "\\p without braces");
        return;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == (size_t)(close - t->s - 3) && memcmp(names[i], t->s + 3, strlen(names[i])) == 0) {
            take(t, (size_t)(close - t->s + 1));
            return;
        }
    refuse(t, "\\p of anything but a general category");
}

static void escape(struct translation *t, bool in_class)
{
    char c = t->end - t->s > 1 ? t->s[1] : '\0';

    if (c == 's') {
        put(t, in_class ? WHITE_SPACE : "[" WHITE_SPACE "]", strlen(WHITE_SPACE) + (in_class ? 0 : 2));
        t->s += 2;
    } else if (c == 'S' && !in_class) {
        put(t, "[^" WHITE_SPACE "]", strlen(WHITE_SPACE) + 3);
        t->s += 2;
    } else if (c == 'p' || c == 'P') {
        property(t);
    } else if (c && (strchr("rntd", c) || ispunct((unsigned char)c))) {
        take(t, 2);
    } else {
        refuse(t, "an escape other than \\r \\n \\t \\s \\S \\d \\p \\P and escaped punctuation");
    }
}

static void character(struct translation *t)
{
    int len = utf8_next(t->s, (size_t)(t->end - t->s), NULL);

    if (len == 0 || *t->s == '\0')
        refuse(t, "invalid UTF-8 or NUL");
    else
        take(t, (size_t)len);
}

static void class(struct translation *t)
{
    take(t, 1);
    if (t->s < t->end && *t->s == '^')
        take(t, 1);
    if (t->s < t->end && *t->s == ']')
        refuse(t, "] as the first of a class");
    while (!t->refused && t->s < t->end && *t->s != ']') {
        if (*t->s == '\\')
            escape(t, true);
        else if (*t->s == '[')
            refuse(t, "a class within a class");
        else if (*t->s == '&' && t->end - t->s > 1 && t->s[1] == '&')
            refuse(t, "&& in a class");
        else
            character(t);
    }
    if (t->s >= t->end)
        refuse(t, "a class without its end");
    else
        take(t, 1);
}

static void group(struct translation *t)
{
    static const char *const kinds[] = {"(?:", "(?i:", "(?=", "(?!"};

    if (t->end - t->s < 2 || t->s[1] != '?') {
        put(t, "(?:", 3); /* captures are not used */
        t->s++;
        return;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t n = strlen(kinds[i]);
        if ((size_t)(t->end - t->s) >= n && memcmp(t->s, kinds[i], n) == 0) {
            take(t, n);
            return;
        }
    }
    refuse(t, "a group other than (, (?:, (?i:, (?= and (?!");
}

/* {m}, {m,}, {m,n}; not possessive or lazy, where the dialects part. */
static void repeat(struct translation *t)
{
    const char *p = t->s + 1;
    long bound[2] = {-1, -1};
    int k = 0;

    while (p < t->end && *p != '}') {
        if (*p == ',' && k == 0 && bound[0] >= 0)
            k = 1;
        else if (*p >= '0' && *p <= '9' && bound[k] <= MAX_REPEAT)
            bound[k] = (bound[k] < 0 ? 0 : bound[k] * 10) + (*p - '0');
        else
            break;
        p++;
    }
    if (p >= t->end || *p != '}' || bound[0] < 0 || bound[0] > MAX_REPEAT || bound[1] > MAX_REPEAT)
        refuse(t, "braces other than {m}, {m,} and {m,n} up to 1000");
    else if (p + 1 < t->end && strchr("+?*{", p[1]))
        refuse(t, "a repeat of a repeat");
    else
        take(t, (size_t)(p + 1 - t->s));
}

const char *pattern_translate(const char *s, size_t n, char *out, size_t cap)
{
    struct translation t = {.s = s, .end = s + n, .out = out, .cap = cap};

    while (!t.refused && t.s < t.end) {
        switch (*t.s) {
        case '\\': escape(&t, false); break;
        case '[': class(&t); break;
        case '(': group(&t); break;
        case '{': repeat(&t); break;
        case '.':
        case '^':
        case '$': refuse(&t, "one of . ^ $"); break;
        default: character(&t);
        }
    }
    return t.refused;
}
