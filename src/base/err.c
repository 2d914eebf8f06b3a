#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const names[ERR_CODES] = {
    [ERR_OK] = "OK",
    [ERR_NOMEM] = "NO_MEMORY",
    [ERR_IO] = "IO",
    [ERR_CONFIG] = "CONFIG",
    [ERR_MODEL] = "MODEL",
    [ERR_UNSUPPORTED] = "UNSUPPORTED",
    [ERR_KAFKA] = "KAFKA",
    [ERR_REGISTRY] = "REGISTRY",
    [ERR_DEVICE] = "DEVICE",
    [ERR_BUSY] = "BUSY",
    [ERR_TIMEOUT] = "TIMEOUT",
    [ERR_CLOSED] = "CLOSED",
    [ERR_USAGE] = "USAGE",
    [ERR_FENCED] = "FENCED",
    [ERR_POISON] = "POISON",
    [ERR_UNDECODABLE] = "UNDECODABLE",
    [ERR_UNKNOWN_SCHEMA] = "UNKNOWN_SCHEMA",
    [ERR_MISSING_FIELD] = "MISSING_FIELD",
    [ERR_INVALID_FIELD] = "INVALID_FIELD",
    [ERR_INVALID_UTF8] = "INVALID_UTF8",
    [ERR_UNKNOWN_LANGUAGE] = "UNKNOWN_LANGUAGE",
    [ERR_EMPTY_TEXT] = "EMPTY_TEXT",
    [ERR_TEXT_TOO_LONG] = "TEXT_TOO_LONG",
    [ERR_DEADLINE_PASSED] = "DEADLINE_PASSED",
    [ERR_NUMERICAL] = "NUMERICAL",
    [ERR_RESULT_TOO_LARGE] = "RESULT_TOO_LARGE",
    [ERR_RESULT_REFUSED] = "RESULT_REFUSED",
    [ERR_RETRIES_EXHAUSTED] = "RETRIES_EXHAUSTED",
    [ERR_CRASHED] = "CRASHED",
};

/* A cut message must not end in half a character: drop a lead byte whose tail is missing. */
static void trim_utf8(char *s, size_t cap)
{
    size_t n = strlen(s), i = n;

    if (n + 1 < cap)
        return;
    while (i > 0 && n - i < 4 && ((unsigned char)s[i - 1] & 0xC0) == 0x80)
        i--;
    if (i == 0)
        return;
    unsigned char lead = (unsigned char)s[i - 1];
    size_t want = lead < 0x80 ? 1 : lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (n - (i - 1) < want)
        s[i - 1] = '\0';
}

/* What was found in a hostile file may hold newlines: an error stays one line. */
static void one_line(char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7F)
            *s = '?';
}

enum err_code err_set(struct err *e, enum err_code code, enum err_act act, const char *fmt, ...)
{
    va_list ap;

    if (!e)
        return code;
    e->code = code;
    e->act = act;
    va_start(ap, fmt);
    vsnprintf(e->msg, sizeof e->msg, fmt, ap);
    va_end(ap);
    trim_utf8(e->msg, sizeof e->msg);
    one_line(e->msg);
    return code;
}

enum err_code err_prefix(struct err *e, const char *fmt, ...)
{
    char old[sizeof e->msg];
    va_list ap;

    if (!e)
        return ERR_OK;
    memcpy(old, e->msg, sizeof old);
    va_start(ap, fmt);
    vsnprintf(e->msg, sizeof e->msg, fmt, ap);
    va_end(ap);
    size_t n = strlen(e->msg);
    snprintf(e->msg + n, sizeof e->msg - n, ": %s", old);
    trim_utf8(e->msg, sizeof e->msg);
    return e->code;
}

const char *err_name(enum err_code code)
{
    return (unsigned)code < ERR_CODES && names[code] ? names[code] : "UNKNOWN";
}
