#include "text/pretokenizer.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/json.h"
#include "text/charclass.h"
#include "text/pattern.h"
#include "text/scanner.h"

enum { MAX_SPLITS = 16, MAX_PATTERN_BYTES = 4096 };

struct split {
    scanner_next *scan; /* or: */
    pcre2_code *re;
};

struct pretokenizer {
    struct charclass classes;
    int n;
    struct split splits[MAX_SPLITS];
};

struct matcher {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

static const char gpt2_pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static enum err_code compile(struct pretokenizer *p, const char *pattern, size_t n, const char *where, struct err *e)
{
    char translated[4 * MAX_PATTERN_BYTES];
    const char *refused =
        n > MAX_PATTERN_BYTES ? "a pattern this long" : pattern_translate(pattern, n, translated, sizeof translated);
    PCRE2_UCHAR text[128];
    PCRE2_SIZE at;
    uint32_t empty = 1;
    int code;

    if (refused)
        return err_set(e, ERR_UNSUPPORTED, ERR_STOP, "%s: pre_tokenizer: Split: Regex: %s is not supported", where,
                       refused);
    p->splits[p->n].re = pcre2_compile((PCRE2_SPTR)translated, PCRE2_ZERO_TERMINATED,
                                       PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &code, &at, NULL);
    if (!p->splits[p->n].re) {
        pcre2_get_error_message(code, text, sizeof text);
        return err_set(e, ERR_MODEL, ERR_STOP, "%s: pre_tokenizer: Split: Regex: %s", where, (const char *)text);
    }
    if (pcre2_pattern_info(p->splits[p->n++].re, PCRE2_INFO_MATCHEMPTY, &empty) != 0 || empty)
        return err_set(e, ERR_UNSUPPORTED, ERR_STOP,
                       "%s: pre_tokenizer: Split: Regex: a pattern that matches nothing is not supported", where);
    /* where the library has no JIT, its interpreter does the same */
    (void)pcre2_jit_compile(p->splits[p->n - 1].re, PCRE2_JIT_COMPLETE);
    return ERR_OK;
}

static enum err_code add_pattern(struct pretokenizer *p, const char *pattern, size_t n, bool scanners,
                                 const char *where, struct err *e)
{
    scanner_next *scan = scanners ? scanner_find(pattern, n) : NULL;

    if (p->n == MAX_SPLITS)
        return err_set(e, ERR_UNSUPPORTED, ERR_STOP, "%s: pre_tokenizer: more than %d steps", where, MAX_SPLITS);
    if (!scan)
        return compile(p, pattern, n, where, e);
    p->splits[p->n++].scan = scan;
    return ERR_OK;
}

static enum err_code add_split(struct pretokenizer *p, const json_t *v, bool scanners, const char *where, struct err *e)
{
    const json_t *pattern = json_object_get(v, "pattern"), *regex = json_object_get(pattern, "Regex");
    const char *behavior = json_string_value(json_object_get(v, "behavior"));

    if (!json_is_string(regex) || json_object_size(pattern) != 1)
        return err_set(e, ERR_UNSUPPORTED, ERR_STOP, "%s: pre_tokenizer: Split: only a pattern of kind Regex", where);
    if (!behavior || strcmp(behavior, "Isolated") != 0)
        return err_set(e, ERR_UNSUPPORTED, ERR_STOP,
                       "%s: pre_tokenizer: Split: behavior %.40s is not supported, only Isolated", where,
                       behavior ? behavior : "(missing)");
    if (json_is_true(json_object_get(v, "invert")))
        return err_set(e, ERR_UNSUPPORTED, ERR_STOP, "%s: pre_tokenizer: Split: invert is not supported", where);
    return add_pattern(p, json_string_value(regex), json_string_length(regex), scanners, where, e);
}

static enum err_code add_byte_level(struct pretokenizer *p, const json_t *v, bool scanners, const char *where,
                                    struct err *e)
{
    const json_t *use_regex = json_object_get(v, "use_regex"), *space = json_object_get(v, "add_prefix_space");

    if (!json_is_false(space))
        return err_set(e, ERR_UNSUPPORTED, ERR_STOP,
                       "%s: pre_tokenizer: ByteLevel: add_prefix_space is not supported, only false", where);
    if (json_is_false(use_regex))
        return ERR_OK;
    return add_pattern(p, gpt2_pattern, strlen(gpt2_pattern), scanners, where, e); /* absent is true */
}

static enum err_code add_step(struct pretokenizer *p, const json_t *v, bool scanners, bool last, const char *where,
                              struct err *e)
{
    const char *type = json_string_value(json_object_get(v, "type"));

    if (type && strcmp(type, "Split") == 0 && !last)
        return add_split(p, v, scanners, where, e);
    if (type && strcmp(type, "ByteLevel") == 0 && last)
        return add_byte_level(p, v, scanners, where, e);
    return err_set(e, ERR_UNSUPPORTED, ERR_STOP,
                   "%s: pre_tokenizer: %.40s is not supported here, only Split steps and ByteLevel after them", where,
                   type ? type : json_kind(v));
}

enum err_code pretokenizer_open(struct pretokenizer **out, const json_t *v, bool scanners, const char *where,
                                struct err *e)
{
    const char *type = json_string_value(json_object_get(v, "type"));
    const json_t *steps = type && strcmp(type, "Sequence") == 0 ? json_object_get(v, "pretokenizers") : NULL;
    size_t n = steps ? json_array_size(steps) : 1;
    struct pretokenizer *p = calloc(1, sizeof *p);
    enum err_code rc = ERR_OK;

    *out = NULL;
    if (!p)
        return err_set(e, ERR_NOMEM, ERR_STOP, "%s: out of memory", where);
    if (n == 0)
        rc = err_set(e, ERR_UNSUPPORTED, ERR_STOP, "%s: pre_tokenizer: a Sequence without steps", where);
    for (size_t i = 0; i < n && rc == ERR_OK; i++)
        rc = add_step(p, steps ? json_array_get(steps, i) : v, scanners, i + 1 == n, where, e);
    if (rc == ERR_OK) {
        charclass_init(&p->classes);
        *out = p;
        p = NULL;
    }
    pretokenizer_close(p);
    return rc;
}

void pretokenizer_close(struct pretokenizer *p)
{
    if (!p)
        return;
    for (int i = 0; i < p->n; i++)
        pcre2_code_free(p->splits[i].re);
    free(p);
}

bool pretokenizer_is_local(const struct pretokenizer *p)
{
    for (int i = 0; i < p->n; i++)
        if (!p->splits[i].scan)
            return false;
    return true;
}

enum err_code matcher_open(struct matcher **out, struct err *e)
{
    struct matcher *m = calloc(1, sizeof *m);

    *out = NULL;
    if (!m)
        return err_set(e, ERR_NOMEM, ERR_STOP, "pre-tokenizer: out of memory");
    m->data = pcre2_match_data_create(1, NULL);
    m->context = pcre2_match_context_create(NULL);
    m->stack = pcre2_jit_stack_create(32 << 10, 1 << 20, NULL); /* NULL where there is no JIT */
    if (!m->data || !m->context) {
        matcher_close(m);
        return err_set(e, ERR_NOMEM, ERR_STOP, "pre-tokenizer: out of memory");
    }
    pcre2_set_heap_limit(m->context, 64 << 10); /* KiB */
    if (m->stack)
        pcre2_jit_stack_assign(m->context, NULL, m->stack);
    *out = m;
    return ERR_OK;
}

void matcher_close(struct matcher *m)
{
    if (!m)
        return;
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->context);
    pcre2_jit_stack_free(m->stack);
    free(m);
}

struct walk {
    const struct pretokenizer *p;
    struct matcher *m;
    const char *text;
    bool (*piece)(void *ctx, const char *s, size_t n);
    void *ctx;
    struct err *e;
    enum err_code rc;
};

/* As a scanner does: the first match at or after pos, the text being text[begin..end). */
static bool match(struct walk *w, const pcre2_code *re, size_t begin, size_t pos, size_t end, size_t *from, size_t *to)
{
    PCRE2_SPTR subject = (PCRE2_SPTR)w->text + begin;
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(w->m->data);
    int n;

    /* a pattern walks over a run of spaces a few times, no more; what is quadratic gives up */
    pcre2_set_match_limit(w->m->context, (uint32_t)(end - begin > 1 << 25 ? UINT32_MAX : 10000 + 64 * (end - begin)));
    n = pcre2_match(re, subject, end - begin, pos - begin, PCRE2_NO_UTF_CHECK, w->m->data, w->m->context);
    if (n == PCRE2_ERROR_JIT_STACKLIMIT)
        n = pcre2_match(re, subject, end - begin, pos - begin, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, w->m->data,
                        w->m->context);
    if (n > 0 && at[1] > at[0]) {
        *from = begin + at[0];
        *to = begin + at[1];
        return true;
    }
    if (n < 0 && n != PCRE2_ERROR_NOMATCH)
        w->rc = err_set(w->e, ERR_UNSUPPORTED, ERR_SKIP,
                        "text: the tokenizer's split pattern needs too many steps for it (PCRE2 error %d)", n);
    return false;
}

/* false = stop: the caller of pretokenizer_split() had enough, or w->rc is an error. */
static bool walk(struct walk *w, int level, size_t begin, size_t end)
{
    const struct split *s = &w->p->splits[level];
    const unsigned char *text = (const unsigned char *)w->text;
    size_t pos = begin, from, to;

    if (level == w->p->n)
        return w->piece(w->ctx, w->text + begin, end - begin);
    while (pos < end) {
        bool found = s->scan ? s->scan(&w->p->classes, text, pos, end, &from, &to)
                             : match(w, s->re, begin, pos, end, &from, &to);
        if (w->rc != ERR_OK)
            return false;
        if (!found)
            return walk(w, level + 1, pos, end);
        if (from > pos && !walk(w, level + 1, pos, from))
            return false;
        if (!walk(w, level + 1, from, to))
            return false;
        pos = to;
    }
    return true;
}

enum err_code pretokenizer_split(const struct pretokenizer *p, struct matcher *m, const char *text, size_t len,
                                 bool (*piece)(void *ctx, const char *s, size_t n), void *ctx, struct err *e)
{
    struct walk w = {.p = p, .m = m, .text = text, .piece = piece, .ctx = ctx, .e = e};

    if (len)
        (void)walk(&w, 0, 0, len);
    return w.rc;
}
