#include "wire/job.h"

#include "base/utf8.h"

const char *result_status_name(enum result_status s)
{
    switch (s) {
    case RESULT_OK: return "OK";
    case RESULT_TRUNCATED: return "TRUNCATED";
    case RESULT_EXPIRED: return "EXPIRED";
    case RESULT_FAILED: return "FAILED";
    case RESULT_STATUSES: break;
    }
    return "?";
}

/* White space of Unicode, and the characters of no width that look like nothing. */
static bool is_blank(uint32_t c)
{
    return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200B) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x2060 ||
           c == 0x3000 || c == 0xFEFF || c == 0;
}

static bool is_all_blank(struct text t)
{
    uint32_t c;
    int len;

    for (size_t i = 0; i < t.n; i += (size_t)len) {
        len = utf8_next(t.s + i, t.n - i, &c);
        if (len == 0 || !is_blank(c))
            return false;
    }
    return true;
}

enum err_code job_check(struct job *j, struct err *e)
{
    if (is_all_blank(j->text))
        return err_set(e, ERR_EMPTY_TEXT, ERR_SKIP, j->text.n ? "text: %zu bytes of white space alone" : "text: empty",
                       j->text.n);
    if (j->source_lang.n == 0)
        j->source_lang.s = NULL;
    if (j->context.n == 0)
        j->context.s = NULL;
    return ERR_OK;
}
