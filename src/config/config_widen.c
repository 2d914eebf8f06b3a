#include "config/config_widen.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static size_t string_length(const char *p)
{
    size_t n = 1;

    while (p[n] && p[n] != '"')
        n += p[n] == '\\' && p[n + 1] ? 2 : 1;
    return n + (p[n] == '"');
}

static size_t comment_length(const char *p)
{
    const char *end;

    if (p[0] == '#' || p[1] == '/')
        return strcspn(p, "\n");
    end = strstr(p + 2, "*/");
    return end ? (size_t)(end + 2 - p) : strlen(p);
}

static bool is_comment(const char *p)
{
    return *p == '#' || (*p == '/' && (p[1] == '/' || p[1] == '*'));
}

/* p begins with a digit or a point.  *wide: an integer without L that does not fit an int. */
static size_t number_length(const char *p, bool *wide)
{
    bool hex = p[0] == '0' && (p[1] == 'x' || p[1] == 'X');
    size_t n = hex ? 2 + strspn(p + 2, "0123456789abcdefABCDEF") : strspn(p, "0123456789");

    *wide = false;
    if (!hex && (p[n] == '.' || p[n] == 'e' || p[n] == 'E'))
        return n + strspn(p + n, "0123456789.eE+-");
    if (p[n] == 'L' || n == 0)
        return n + (n == 0);
    errno = 0;
    *wide = strtoull(p, NULL, hex ? 16 : 10) > INT_MAX || errno;
    return n;
}

/* What goes over as it is: one string, comment, name, number or other character. */
static size_t token_length(const char *p, bool *wide)
{
    size_t n = 1;

    *wide = false;
    if (*p == '"')
        return string_length(p);
    if (is_comment(p))
        return comment_length(p);
    if (isdigit((unsigned char)*p) || *p == '.')
        return number_length(p, wide);
    if (isalpha((unsigned char)*p) || *p == '*' || *p == '_')
        while (isalnum((unsigned char)p[n]) || (p[n] && strchr("-_*", p[n])))
            n++;
    return n;
}

char *config_widen(const char *text)
{
    char *copy = malloc(2 * strlen(text) + 1), *out = copy;
    bool wide;

    if (!copy)
        return NULL;
    for (size_t n; *text; text += n) {
        n = token_length(text, &wide);
        memcpy(out, text, n);
        out += n;
        if (wide)
            *out++ = 'L';
    }
    *out = '\0';
    return copy;
}
