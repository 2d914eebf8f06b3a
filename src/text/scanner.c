#include "text/scanner.h"

#include <string.h>

static size_t run(const struct charclass *cc, const unsigned char *s, size_t i, size_t end, unsigned classes)
{
    size_t len;

    while (i < end && (charclass_at(cc, s + i, &len) & classes))
        i += len;
    return i;
}

static size_t run_outside(const struct charclass *cc, const unsigned char *s, size_t i, size_t end, unsigned classes)
{
    size_t len;

    while (i < end && !(charclass_at(cc, s + i, &len) & classes))
        i += len;
    return i;
}

/* Class of the character at i, 0 at the end. */
static unsigned peek(const struct charclass *cc, const unsigned char *s, size_t i, size_t end)
{
    size_t len;

    return i < end ? charclass_at(cc, s + i, &len) : 0;
}

/* \s*[\r\n]+|\s+(?!\S)|\s+  where a white space character is at i: up to the run's last line break, else all of
 * the run but the space that belongs to the word after it. */
static size_t spaces(const struct charclass *cc, const unsigned char *s, size_t i, size_t end)
{
    size_t j = i, last = i, line_end = 0, len;
    unsigned c;

    while (j < end && ((c = charclass_at(cc, s + j, &len)) & CH_SPACE)) {
        last = j;
        j += len;
        if (c & CH_NEWLINE)
            line_end = j;
    }
    if (line_end)
        return line_end;
    return j == end || last == i ? j : last;
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d) at i, where the apostrophe is: bytes that match, or 0.  Without case, the long s
 * (U+017F) is an s. */
static size_t contraction(const unsigned char *s, size_t i, size_t end)
{
    unsigned char a = i + 1 < end ? s[i + 1] | 0x20 : 0, b = i + 2 < end ? s[i + 2] | 0x20 : 0;

    if (i + 2 < end && s[i + 1] == 0xC5 && s[i + 2] == 0xBF)
        return 3;
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l'))
        return 3;
    return 0;
}

static const char words_pattern[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
    "\\s+(?!\\S)|\\s+";

/* Of the 7B family: a match begins wherever one is looked for. */
static bool words(const struct charclass *cc, const unsigned char *s, size_t pos, size_t end, size_t *from, size_t *to)
{
    size_t len, n;
    unsigned c, next;

    if (pos >= end)
        return false;
    *from = pos;
    c = charclass_at(cc, s + pos, &len);
    if (c & CH_L) {
        *to = run(cc, s, pos + len, end, CH_L);
        return true;
    }
    if (s[pos] == '\'' && (n = contraction(s, pos, end))) {
        *to = pos + n;
        return true;
    }
    next = peek(cc, s, pos + len, end);
    if ((next & CH_L) && !(c & (CH_N | CH_NEWLINE)))
        *to = run(cc, s, pos + len, end, CH_L);
    else if (c & CH_N)
        *to = pos + len;
    else if (!(c & CH_SPACE) || (s[pos] == ' ' && pos + 1 < end && !(next & (CH_SPACE | CH_L | CH_N))))
        *to = run(cc, s, run_outside(cc, s, pos + len, end, CH_SPACE | CH_L | CH_N), end, CH_NEWLINE);
    else
        *to = spaces(cc, s, pos, end);
    return true;
}

static const char number_pattern[] = "\\p{N}{1,3}";

static bool numbers(const struct charclass *cc, const unsigned char *s, size_t pos, size_t end, size_t *from,
                    size_t *to)
{
    size_t i = run_outside(cc, s, pos, end, CH_N), len;

    *from = i;
    for (int k = 0; k < 3 && i < end && (charclass_at(cc, s + i, &len) & CH_N); k++)
        i += len;
    *to = i;
    return i > *from;
}

static const char cjk_pattern[] = "[一-龥぀-ゟ゠-ヿ]+";

static bool cjk(const struct charclass *cc, const unsigned char *s, size_t pos, size_t end, size_t *from, size_t *to)
{
    *from = run_outside(cc, s, pos, end, CH_CJK);
    *to = run(cc, s, *from, end, CH_CJK);
    return *to > *from;
}

/* Files write the line breaks of this one as escapes or as they are. */
static const char marks_pattern[] =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
    "?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
static const char marks_pattern_raw[] =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
    "?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+";

static bool is_ascii_letter(unsigned char c)
{
    return (unsigned char)((c | 0x20) - 'a') < 26;
}

/* End of the match of marks_pattern that begins at i, or 0. */
static size_t marks_at(const struct charclass *cc, const unsigned char *s, size_t i, size_t end, size_t *len)
{
    unsigned c = charclass_at(cc, s + i, len), next;
    size_t j = i + *len;

    if (c & (CH_L | CH_M))
        return run(cc, s, j, end, CH_L | CH_M);
    if (s[i] < 0x80 && (c & (CH_P | CH_S)) && j < end && is_ascii_letter(s[j])) {
        while (j < end && is_ascii_letter(s[j]))
            j++;
        return j;
    }
    next = peek(cc, s, j, end);
    if ((next & (CH_L | CH_M)) && !(c & (CH_P | CH_S | CH_NEWLINE)))
        return run(cc, s, j, end, CH_L | CH_M);
    if ((c & (CH_P | CH_S)) || (s[i] == ' ' && (next & (CH_P | CH_S))))
        return run(cc, s, run(cc, s, j, end, CH_P | CH_S), end, CH_NEWLINE);
    return c & CH_SPACE ? spaces(cc, s, i, end) : 0;
}

/* Of the 1.8B family, after numbers and cjk: control characters, say, are matched by nothing. */
static bool marks(const struct charclass *cc, const unsigned char *s, size_t pos, size_t end, size_t *from, size_t *to)
{
    size_t len;

    for (size_t i = pos; i < end; i += len) {
        size_t stop = marks_at(cc, s, i, end, &len);
        if (stop) {
            *from = i;
            *to = stop;
            return true;
        }
    }
    return false;
}

static const struct {
    const char *pattern;
    scanner_next *next;
} known[] = {
    {words_pattern, words}, {number_pattern, numbers},  {cjk_pattern, cjk},
    {marks_pattern, marks}, {marks_pattern_raw, marks},
};

scanner_next *scanner_find(const char *pattern, size_t n)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i].pattern) == n && memcmp(known[i].pattern, pattern, n) == 0)
            return known[i].next;
    return NULL;
}

const char *scanner_pattern(size_t i)
{
    return i < sizeof known / sizeof *known ? known[i].pattern : NULL;
}
