#include "tests/support/pcre2_classes.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/utf8.h"

struct regex {
    pcre2_code *code;
    pcre2_match_data *data;
};

struct regex *regex_must_compile(const char *pattern)
{
    struct regex *r = calloc(1, sizeof *r);
    PCRE2_SIZE at;
    int error;

    cr_assert_not_null(r);
    r->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &error, &at, NULL);
    cr_assert_not_null(r->code, "%s: error %d at %zu", pattern, error, at);
    (void)pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE);
    r->data = pcre2_match_data_create(1, NULL);
    cr_assert_not_null(r->data);
    return r;
}

bool regex_next(struct regex *r, const char *s, size_t begin, size_t pos, size_t end, size_t *from, size_t *to)
{
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(r->data);
    int n = pcre2_match(r->code, (PCRE2_SPTR)s + begin, end - begin, pos - begin, PCRE2_NO_UTF_CHECK, r->data, NULL);

    cr_assert(n > 0 || n == PCRE2_ERROR_NOMATCH);
    *from = n > 0 ? begin + at[0] : end;
    *to = n > 0 ? begin + at[1] : end;
    return n > 0;
}

void regex_free(struct regex *r)
{
    pcre2_code_free(r->code);
    pcre2_match_data_free(r->data);
    free(r);
}

static size_t put(char *out, uint32_t c)
{
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;

    for (size_t i = n - 1; i; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)((n == 1 ? 0 : n == 2 ? 0xC0 : n == 3 ? 0xE0 : 0xF0) | c);
    return n;
}

bool *regex_members(const char *pattern)
{
    bool *is = calloc(0x110000, sizeof *is);
    char *all = malloc(4 * 0x110000);
    struct regex *r = regex_must_compile(pattern);
    size_t n = 0, from, to;
    uint32_t c;

    cr_assert(is && all);
    for (c = 0; c < 0x110000; c++)
        if (c < 0xD800 || c > 0xDFFF)
            n += put(all + n, c);
    for (size_t pos = 0; pos < n && regex_next(r, all, 0, pos, n, &from, &to); pos = to) {
        cr_assert_eq((size_t)utf8_next(all + from, n - from, &c), to - from, "%s is no pattern of one character",
                     pattern);
        is[c] = true;
    }
    regex_free(r);
    free(all);
    return is;
}
