#include "text/pretokenizer.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tests/support/pcre2_classes.h"
#include "tests/support/tokenizers.h"
#include "text/charclass.h"

#define BYTE_LEVEL "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}"
#define SPLIT(regex)                                                                                                   \
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" regex "\"},\"behavior\":\"Isolated\",\"invert\":false}"

static struct pretokenizer *must_open(const json_t *v, bool scanners)
{
    struct pretokenizer *p;
    struct err e;

    cr_assert_eq(pretokenizer_open(&p, v, scanners, "test.json", &e), ERR_OK, "%s", e.msg);
    return p;
}

struct cut {
    char text[4096]; /* pieces with | between them */
    size_t n;
};

static bool note(void *ctx, const char *s, size_t n)
{
    struct cut *c = ctx;

    cr_assert(n > 0 && c->n + n + 1 < sizeof c->text);
    memcpy(c->text + c->n, s, n);
    c->n += n;
    c->text[c->n++] = '|';
    return true;
}

static void cut(const struct pretokenizer *p, struct matcher *m, const char *text, size_t len, struct cut *c)
{
    struct err e;

    c->n = 0;
    cr_assert_eq(pretokenizer_split(p, m, text, len, note, c, &e), ERR_OK, "%s", e.msg);
    c->text[c->n] = '\0';
}

static void expect_cut(const char *json, const char *text, const char *want)
{
    json_t *v = json_loads(json, 0, NULL);
    struct pretokenizer *p;
    struct matcher *m;
    struct cut c;

    cr_assert_not_null(v, "%s", json);
    p = must_open(v, true);
    cr_assert_eq(matcher_open(&m, NULL), ERR_OK);
    cut(p, m, text, strlen(text), &c);
    cr_expect_str_eq(c.text, want);
    matcher_close(m);
    pretokenizer_close(p);
    json_decref(v);
}

Test(pretokenizer, isolates_matches_and_gaps)
{
    expect_cut(BYTE_LEVEL, "a b", "a b|");
    expect_cut(BYTE_LEVEL, "", "");
    expect_cut("{\"type\":\"Sequence\",\"pretokenizers\":[" SPLIT("b+") "," BYTE_LEVEL "]}", "abbcb", "a|bb|c|b|");
    expect_cut("{\"type\":\"Sequence\",\"pretokenizers\":[" SPLIT("b+") "," SPLIT("[ab]") "," BYTE_LEVEL "]}", "abbcb",
               "a|b|b|c|b|");
}

/* For a look-ahead, the piece that the step before made is the whole text. */
Test(pretokenizer, looks_ahead_within_a_piece_alone)
{
    expect_cut("{\"type\":\"Sequence\",\"pretokenizers\":[" SPLIT("\\\\d+") "," SPLIT("\\\\s+(?!\\\\S)") "," BYTE_LEVEL
                                                                                                         "]}",
               "foo  12", "foo|  |12|");
    expect_cut("{\"type\":\"Sequence\",\"pretokenizers\":[" SPLIT("\\\\s+(?!\\\\S)") "," BYTE_LEVEL "]}", "foo  12",
               "foo| | 12|");
}

Test(pretokenizer, byte_level_brings_gpt2s_pattern_when_asked)
{
    expect_cut("{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true}", "It's  12ab, ok\n",
               "It|'s| | 12|ab|,| ok|\n|");
    expect_cut("{\"type\":\"ByteLevel\",\"add_prefix_space\":false}", "a b", "a| b|");
}

/* The published models' steps, through the hand-made matchers and through PCRE2. */
Test(pretokenizer, cuts_alike_with_and_without_scanners)
{
    static const char *const files[] = {DEMO_TOKENIZER, REFERENCE "tokenizers/hunyuan-7b/tokenizer.json"};
    bool *unknown = regex_members("\\p{Cn}");

    for (size_t f = 0; f < 2; f++) {
        if (f && !reference_has("tokenizers"))
            continue;
        json_t *root = json_must_load(files[f]);
        struct pretokenizer *fast = must_open(json_object_get(root, "pre_tokenizer"), true);
        struct pretokenizer *plain = must_open(json_object_get(root, "pre_tokenizer"), false);
        struct matcher *m;
        struct cut a, b;
        char text[4 * 80];
        uint64_t seed = 5;
        cr_assert_eq(matcher_open(&m, NULL), ERR_OK);
        for (int i = 0; i < 20000; i++) {
            size_t n = random_text(&seed, 80, text);
            bool skip = false;
            uint32_t c;
            for (size_t k = 0; k < n;
                 k += (size_t)utf8_next(text + k, n - k, &c), skip |= unknown[c] && charclass_of(c))
                ;
            if (skip) /* PCRE2 may be of an older Unicode */
                continue;
            cut(fast, m, text, n, &a);
            cut(plain, m, text, n, &b);
            cr_assert(a.n == b.n && memcmp(a.text, b.text, a.n) == 0, "text %d:\n%s\n%s", i, a.text, b.text);
        }
        matcher_close(m);
        pretokenizer_close(fast);
        pretokenizer_close(plain);
        json_decref(root);
    }
    free(unknown);
}

Test(pretokenizer, gives_up_on_a_pattern_that_runs_away)
{
    json_t *v = json_loads("{\"type\":\"Sequence\",\"pretokenizers\":[" SPLIT("(a+a+)+b") "," BYTE_LEVEL "]}", 0, NULL);
    struct pretokenizer *p = must_open(v, true);
    char text[2000];
    struct matcher *m;
    struct cut c = {.n = 0};
    struct err e;

    memset(text, 'a', sizeof text);
    memcpy(text + sizeof text - 2, "cb", 2);
    cr_assert_eq(matcher_open(&m, NULL), ERR_OK);
    cr_expect_eq(pretokenizer_split(p, m, text, sizeof text, note, &c, &e), ERR_UNSUPPORTED);
    cr_expect_eq(e.act, ERR_SKIP);
    matcher_close(m);
    pretokenizer_close(p);
    json_decref(v);
}

Test(pretokenizer, refuses_by_name_what_it_does_not_do)
{
    static const char *const cases[][2] = {
        {"{\"type\":\"Whitespace\"}", "Whitespace"},
        {"{\"type\":\"Sequence\",\"pretokenizers\":[]}", "Sequence"},
        {"{\"type\":\"Sequence\",\"pretokenizers\":[" SPLIT("a") "]}", "Split"},
        {"{\"type\":\"Sequence\",\"pretokenizers\":[" BYTE_LEVEL "," BYTE_LEVEL "]}", "ByteLevel"},
        {"{\"type\":\"Sequence\",\"pretokenizers\":[" SPLIT("a*") "," BYTE_LEVEL "]}", "matches nothing"},
        {"{\"type\":\"Sequence\",\"pretokenizers\":[" SPLIT("(?<=a)b") "," BYTE_LEVEL "]}", "Regex"},
        {"{\"type\":\"Sequence\",\"pretokenizers\":[" SPLIT("(a") "," BYTE_LEVEL "]}", "Regex"},
        {"{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},\"behavior\":"
         "\"Isolated\",\"invert\":false}," BYTE_LEVEL "]}",
         "Regex"},
        {"{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":"
         "\"Removed\",\"invert\":false}," BYTE_LEVEL "]}",
         "Removed"},
        {"{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":"
         "\"Isolated\",\"invert\":true}," BYTE_LEVEL "]}",
         "invert"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *v = json_loads(cases[i][0], 0, NULL);
        struct pretokenizer *p;
        struct err e;
        cr_assert_not_null(v, "%s", cases[i][0]);
        cr_expect_neq(pretokenizer_open(&p, v, true, "test.json", &e), ERR_OK, "%s", cases[i][0]);
        cr_expect_null(p);
        cr_expect(strstr(e.msg, cases[i][1]), "%s: %s", cases[i][0], e.msg);
        json_decref(v);
    }
}
