#include "text/normalizer.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "base/utf8.h"

enum { MAX_MARKS = 1024 };

bool text_buffer_reserve(struct text_buffer *b, size_t n)
{
    if (n <= b->cap)
        return true;
    text_buffer_free(b);
    b->at = malloc(n);
    b->cap = b->at ? n : 0;
    return b->at != NULL;
}

void text_buffer_free(struct text_buffer *b)
{
    free(b->at);
    *b = (struct text_buffer){NULL, 0};
}

size_t utf8_repair(const char *s, size_t n, char *out)
{
    static const char replacement[3] = {'\xEF', '\xBF', '\xBD'}; /* U+FFFD */
    size_t m = 0;

    while (n) {
        size_t good = utf8_valid(s, n);
        memcpy(out + m, s, good);
        m += good;
        s += good;
        n -= good;
        if (n == 0)
            break;
        memcpy(out + m, replacement, sizeof replacement);
        m += sizeof replacement;
        good = (size_t)utf8_invalid(s, n);
        s += good;
        n -= good;
    }
    return m;
}

/* true when nothing in the text can change: all of it below the first combining mark, U+0300. */
static bool is_plain(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] >= 0xCC)
            return false;
    return true;
}

static bool has_too_many_marks(const char *s, size_t n)
{
    int len, marks = 0;
    uint32_t cp;

    for (size_t i = 0; i < n; i += (size_t)len) {
        len = utf8_next(s + i, n - i, &cp);
        marks = utf8proc_get_property((utf8proc_int32_t)cp)->combining_class ? marks + 1 : 0;
        if (marks > MAX_MARKS)
            return true;
    }
    return false;
}

enum err_code normalizer_nfc(struct text_buffer *b, const char **text, size_t *len, struct err *e)
{
    const utf8proc_option_t options = UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    const utf8proc_uint8_t *s = (const utf8proc_uint8_t *)*text;
    utf8proc_ssize_t n = (utf8proc_ssize_t)*len, need;

    if (is_plain(*text, *len))
        return ERR_OK;
    if (has_too_many_marks(*text, *len))
        return err_set(e, ERR_INVALID_FIELD, ERR_SKIP, "text: more than %d combining marks in a row", MAX_MARKS);
    /* it says how much it needs, and works in code points; the bytes come out in the same place */
    need = utf8proc_decompose(s, n, (utf8proc_int32_t *)(void *)b->at, (utf8proc_ssize_t)(b->cap / 4), options);
    if (need >= (utf8proc_ssize_t)(b->cap / 4)) {
        if (!text_buffer_reserve(b, ((size_t)need + 1) * 4))
            return err_set(e, ERR_NOMEM, ERR_RETRY, "encoder: out of memory for a text of %zu bytes", *len);
        need = utf8proc_decompose(s, n, (utf8proc_int32_t *)(void *)b->at, need, options);
    }
    need = need < 0 ? need : utf8proc_reencode((utf8proc_int32_t *)(void *)b->at, need, options);
    if (need < 0)
        return err_set(e, ERR_INVALID_UTF8, ERR_SKIP, "text: cannot be normalized: %s", utf8proc_errmsg(need));
    *text = b->at;
    *len = (size_t)need;
    return ERR_OK;
}
