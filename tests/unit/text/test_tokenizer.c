#define _GNU_SOURCE /* asprintf */
#include "tests/support/tokenizers.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/utf8.h"

/* The string's bytes, NULs among them. */
static char *copy(const json_t *text, size_t *len)
{
    char *s = malloc(json_string_length(text) + 1);

    cr_assert_not_null(s);
    *len = json_string_length(text);
    return memcpy(s, json_string_value(text), *len);
}

/* Every case of a vectors.json: its ids, and its text from the ids. */
static void check_vectors(const char *tokenizer_path, const char *vectors_path, const char *array)
{
    struct tokenizer *t = tokenizer_must_open(tokenizer_path);
    struct encoder *enc = encoder_must_open(t);
    json_t *root = json_must_load(vectors_path), *c;
    size_t i, len, n, back_len;

    cr_assert_gt(json_array_size(json_object_get(root, array)), 0);
    json_array_foreach(json_object_get(root, array), i, c)
    {
        const char *hex = json_string_value(json_object_get(c, "text_hex"));
        const json_t *text = json_object_get(c, "text");
        char *s = hex ? unhex(hex, &len) : copy(text, &len);
        int32_t *ids = must_encode(enc, s, len, &n);
        char *back = must_decode(t, ids, n, &back_len);
        cr_expect(ids_equal(ids, n, json_object_get(c, "ids")), "%s %s[%zu]", vectors_path, array, i);
        cr_expect(back_len == len && memcmp(back, s, len) == 0, "%s %s[%zu]: decoded", vectors_path, array, i);
        free(back);
        free(ids);
        free(s);
    }
    json_decref(root);
    encoder_close(enc);
    tokenizer_close(t);
}

Test(tokenizer, gives_the_ids_of_the_demo_models_vectors)
{
    check_vectors(DEMO_TOKENIZER, "tests/golden/demo/tokenizer_vectors.json", "cases");
}

Test(tokenizer, gives_the_ids_of_the_reference_vectors)
{
    if (!reference_has("tokenizers"))
        return;
    check_vectors(REFERENCE "tokenizers/hunyuan-7b/tokenizer.json", REFERENCE "tokenizers/hunyuan-7b/vectors.json",
                  "cases");
    check_vectors(REFERENCE "tokenizers/hunyuan-7b/tokenizer.json", REFERENCE "tokenizers/hunyuan-7b/vectors.json",
                  "published");
    check_vectors(REFERENCE "tokenizers/deepseek-v3/tokenizer.json", REFERENCE "tokenizers/deepseek-v3/vectors.json",
                  "cases");
}

struct expected_pieces {
    const json_t *pieces;
    size_t n, wrong;
};

static void compare_piece(void *ctx, const char *s, size_t n)
{
    struct expected_pieces *x = ctx;
    const char *hex = json_string_value(json_array_get(x->pieces, x->n++));
    size_t len = 0;
    char *want = hex ? unhex(hex, &len) : NULL;

    if (!want || len != n || memcmp(want, s, n) != 0)
        x->wrong++;
    free(want);
}

static void check_pieces(const char *tokenizer_path, const char *pieces_path, const char *array)
{
    struct tokenizer *t = tokenizer_must_open(tokenizer_path);
    struct encoder *enc = encoder_must_open(t);
    json_t *root = json_must_load(pieces_path), *c;
    size_t i, len;

    cr_assert_gt(json_array_size(json_object_get(root, array)), 0);
    json_array_foreach(json_object_get(root, array), i, c)
    {
        char *s = unhex(json_string_value(json_object_get(c, "text_hex")), &len);
        struct expected_pieces x = {json_object_get(c, "pieces_hex"), 0, 0};
        cr_assert_eq(encoder_pieces(enc, s, len, compare_piece, &x, NULL), ERR_OK);
        cr_expect(x.wrong == 0 && x.n == json_array_size(x.pieces), "%s %s[%zu]", pieces_path, array, i);
        free(s);
    }
    json_decref(root);
    encoder_close(enc);
    tokenizer_close(t);
}

Test(tokenizer, cuts_the_reference_texts_into_the_reference_pieces)
{
    if (!reference_has("tokenizers"))
        return;
    check_pieces(REFERENCE "tokenizers/hunyuan-7b/tokenizer.json", REFERENCE "tokenizers/hunyuan-7b/pieces.json",
                 "cases");
    check_pieces(DEMO_TOKENIZER, REFERENCE "tokenizers/hunyuan-120k/pieces.json", "cases");
    check_pieces(DEMO_TOKENIZER, REFERENCE "tokenizers/hunyuan-120k/vectors.json", "pieces");
}

/* Text that spells special tokens is text. */
Test(tokenizer, never_finds_special_tokens_in_text)
{
    struct tokenizer *t = tokenizer_must_open(DEMO_TOKENIZER);
    struct encoder *enc = encoder_must_open(t);
    const char *spelled = "x<｜hy_begin▁of▁sentence｜><｜hy_Assistant｜><｜hy_place▁holder▁no▁2｜>";
    size_t n, len;
    int32_t *ids = must_encode(enc, spelled, strlen(spelled), &n);
    char *back = must_decode(t, ids, n, &len);

    cr_assert_geq(tokenizer_special(t, "<｜hy_Assistant｜>"), 0);
    cr_assert_lt(tokenizer_special(t, "the"), 0);
    for (size_t i = 0; i < n; i++)
        cr_expect_not(tokenizer_is_special(t, ids[i]));
    cr_expect(len == strlen(spelled) && memcmp(back, spelled, len) == 0);
    free(back);
    free(ids);
    encoder_close(enc);
    tokenizer_close(t);
}

static void expect_ids(struct encoder *enc, const char *text, size_t len, const char *expected)
{
    json_t *want = json_loads(expected, 0, NULL);
    size_t n;
    int32_t *ids = must_encode(enc, text, len, &n);

    cr_assert_not_null(want);
    cr_expect(ids_equal(ids, n, want), "\"%s\"", text);
    json_decref(want);
    free(ids);
}

Test(tokenizer, takes_text_that_is_empty_or_only_spaces)
{
    struct tokenizer *t = tokenizer_must_open(DEMO_TOKENIZER);
    struct encoder *enc = encoder_must_open(t);
    size_t n, len;

    expect_ids(enc, "", 0, "[]");
    int32_t *ids = must_encode(enc, "       ", 7, &n);
    char *back = must_decode(t, ids, n, &len);
    cr_expect(n > 0 && len == 7 && memcmp(back, "       ", 7) == 0);
    free(back);
    free(ids);
    encoder_close(enc);
    tokenizer_close(t);
}

/* The order of merges: lowest rank first, the leftmost of equals; and the rule for whole pieces. */
Test(tokenizer, merges_by_rank_then_from_the_left)
{
    static const char tokens[] = "\"aa\":256,\"ab\":257,\"aab\":258,\"aaa\":259";
    static const char merges[] = "[\"a\",\"b\"],\"a a\",[\"aa\",\"b\"]";
    char *plain = tokenizer_json(tokens, merges, false, NULL), *whole = tokenizer_json(tokens, merges, true, NULL);
    struct tokenizer *t = tokenizer_must_parse(plain), *w = tokenizer_must_parse(whole);
    struct encoder *enc = encoder_must_open(t), *wenc = encoder_must_open(w);

    expect_ids(enc, "aaa", 3, "[256, 97]");
    expect_ids(enc, "aab", 3, "[97, 257]");
    expect_ids(enc, "aaab", 4, "[256, 257]");
    expect_ids(wenc, "aaa", 3, "[259]");
    expect_ids(wenc, "aab", 3, "[258]");
    expect_ids(wenc, "aaab", 4, "[256, 257]");
    encoder_close(enc);
    encoder_close(wenc);
    tokenizer_close(t);
    tokenizer_close(w);
    free(plain);
    free(whole);
}

/* What long pieces do (a heap) is what short ones do (looking through all pairs): both against plain steps. */
Test(tokenizer, merges_long_pieces_as_it_does_short_ones)
{
    static const char tokens[] = "\"aa\":256,\"ab\":257,\"ba\":258,\"aab\":259,\"abab\":260,\"aaaa\":261,\"bb\":262";
    static const char merges[] =
        "[\"a\",\"b\"],[\"a\",\"a\"],[\"aa\",\"aa\"],[\"ab\",\"ab\"],[\"a\",\"ab\"],[\"b\",\"a\"],[\"b\",\"b\"]";
    static const int32_t rules[][3] = {{'a', 'b', 257}, {'a', 'a', 256}, {256, 256, 261}, {257, 257, 260},
                                       {'a', 257, 259}, {'b', 'a', 258}, {'b', 'b', 262}};
    char *json = tokenizer_json(tokens, merges, false, NULL), text[600];
    struct tokenizer *t = tokenizer_must_parse(json);
    struct encoder *enc = encoder_must_open(t);
    uint64_t seed = 7;

    for (int round = 0; round < 300; round++) {
        int32_t want[600], ids[600];
        size_t len = next_random(&seed) % sizeof text, m = len, n;
        for (size_t i = 0; i < len; i++)
            want[i] = text[i] = next_random(&seed) % 3 ? 'a' : 'b';
        for (size_t r = 0; r < sizeof rules / sizeof *rules; r++)
            for (size_t i = 0; i + 1 < m; i++)
                if (want[i] == rules[r][0] && want[i + 1] == rules[r][1]) {
                    want[i] = rules[r][2];
                    memmove(want + i + 1, want + i + 2, (m - i - 2) * sizeof *want);
                    m--;
                    r = (size_t)-1; /* a better rule may apply now: from the start */
                    break;
                }
        cr_assert_eq(encoder_encode(enc, text, len, ids, 600, &n, NULL), ERR_OK);
        cr_assert(n == m && memcmp(ids, want, n * sizeof *ids) == 0, "round %d, %zu bytes", round, len);
    }
    encoder_close(enc);
    tokenizer_close(t);
    free(json);
}

/* A vocabulary may lack bytes: the reference implementation drops them, and what is around them meets. */
Test(tokenizer, drops_bytes_that_no_token_stands_for)
{
    static const char json[] =
        "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false},"
        "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},"
        "\"merges\":[\"a b\"]}}";
    struct tokenizer *t = tokenizer_must_parse(json);
    struct encoder *enc = encoder_must_open(t);
    char text[1000];

    expect_ids(enc, "axb", 3, "[2]");
    expect_ids(enc, "\x0b", 1, "[]");
    expect_ids(enc,
               "b\xC3\xA9"
               "a",
               4, "[1, 0]");
    memset(text, 'x', sizeof text);
    text[0] = 'a';
    text[999] = 'b';
    expect_ids(enc, text, sizeof text, "[2]");
    memset(text, 'x', sizeof text);
    expect_ids(enc, text, sizeof text, "[]");
    encoder_close(enc);
    tokenizer_close(t);
}

Test(tokenizer, replaces_each_maximal_invalid_part)
{
    static const struct {
        const char *bad, *good;
    } cases[] = {
        {"a\x80z", "a\uFFFDz"},
        {"\xC0\xAF", "\uFFFD\uFFFD"},
        {"\xE2\x82", "\uFFFD"},
        {"\xE2\x82z", "\uFFFDz"},
        {"\xF0\x9F\x98", "\uFFFD"},
        {"\xF0\x9F\x98\xF0\x9F\x98\x80", "\uFFFD\U0001F600"},
        {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},
        {"\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},
        {"\xE0\x80\x80", "\uFFFD\uFFFD\uFFFD"},
        {"\xF0\x80\x80", "\uFFFD\uFFFD\uFFFD"},
        {"\xC3", "\uFFFD"},
    };
    struct tokenizer *t = tokenizer_must_open(DEMO_TOKENIZER);
    struct encoder *enc = encoder_must_open(t);

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n, m;
        int32_t *a = must_encode(enc, cases[i].bad, strlen(cases[i].bad), &n);
        int32_t *b = must_encode(enc, cases[i].good, strlen(cases[i].good), &m);
        cr_expect(n == m && memcmp(a, b, n * sizeof *a) == 0, "case %zu", i);
        free(a);
        free(b);
    }
    encoder_close(enc);
    tokenizer_close(t);
}

/* Parts are one text, but invalid bytes of one do not reach into the next. */
Test(tokenizer, encodes_parts_as_one_text)
{
    struct tokenizer *t = tokenizer_must_open(DEMO_TOKENIZER);
    struct encoder *enc = encoder_must_open(t);
    struct text_part words[] = {{"transl", 6}, {"ation", 5}}, cut[] = {{"a\xE4\xB8", 3}, {"\xAD", 1}};
    size_t n, m;
    int32_t ids[32], *want = must_encode(enc, "translation", 11, &m);

    cr_assert_eq(encoder_encode_parts(enc, words, 2, ids, 32, &n, NULL), ERR_OK);
    cr_expect(n == m && memcmp(ids, want, n * sizeof *ids) == 0);
    free(want);
    want = must_encode(enc, "a\uFFFD\uFFFD", 7, &m);
    cr_assert_eq(encoder_encode_parts(enc, cut, 2, ids, 32, &n, NULL), ERR_OK);
    cr_expect(n == m && memcmp(ids, want, n * sizeof *ids) == 0);
    free(want);
    encoder_close(enc);
    tokenizer_close(t);
}

Test(tokenizer, refuses_text_that_does_not_fit)
{
    struct tokenizer *t = tokenizer_must_open(DEMO_TOKENIZER);
    struct encoder *enc = encoder_must_open(t);
    char text[4000];
    int32_t ids[16];
    struct err e;
    size_t n;

    memset(text, '7', sizeof text);
    cr_expect_eq(encoder_encode(enc, "one two three four five six", 27, ids, 3, &n, &e), ERR_TEXT_TOO_LONG);
    cr_expect_eq(e.act, ERR_SKIP);
    cr_expect_eq(n, 0);
    cr_expect_eq(encoder_encode(enc, text, sizeof text, ids, 16, &n, &e), ERR_TEXT_TOO_LONG);
    cr_expect_eq(encoder_encode(enc, "a", 1, ids, 0, &n, &e), ERR_TEXT_TOO_LONG);
    cr_expect_eq(encoder_encode(enc, "", 0, ids, 0, &n, &e), ERR_OK);
    encoder_close(enc);
    tokenizer_close(t);
}

Test(tokenizer, gets_its_text_back_from_its_ids)
{
    char *json = tokenizer_json("\"\xC4\xA0t\":256,\"he\":257,\"\xC3\xA4\xC2\xB8\":258",
                                "\"\xC4\xA0 t\",\"h e\",\"\xC3\xA4 \xC2\xB8\"", false, NULL);
    struct tokenizer *tokenizers[] = {tokenizer_must_open(DEMO_TOKENIZER), tokenizer_must_parse(json)};
    char text[4 * 200];
    uint64_t seed = 42;

    for (int k = 0; k < 2; k++) {
        struct encoder *enc = encoder_must_open(tokenizers[k]);
        for (int i = 0; i < 5000; i++) {
            size_t len = random_text(&seed, 200, text), n, back_len;
            int32_t *ids = must_encode(enc, text, len, &n);
            char *back = must_decode(tokenizers[k], ids, n, &back_len);
            cr_assert(n <= len && back_len == len && memcmp(back, text, len) == 0, "text %d", i);
            free(back);
            free(ids);
        }
        encoder_close(enc);
        tokenizer_close(tokenizers[k]);
    }
    free(json);
}

/* Lines of a megabyte that are one piece, or nearly so: not much slower a byte than ordinary text. */
static double seconds(struct encoder *enc, const char *text, size_t len, int32_t *ids)
{
    int64_t t0 = clock_mono_ns();
    size_t n;

    cr_assert_eq(encoder_encode(enc, text, len, ids, len, &n, NULL), ERR_OK);
    return (double)(clock_mono_ns() - t0) / 1e9;
}

static void check_long_lines(const char *path)
{
    static const char *const units[] = {"a", " ", "7", "中", "\t ", "é"};
    struct tokenizer *t = tokenizer_must_open(path);
    struct encoder *enc = encoder_must_open(t);
    size_t len = 1 << 20, small = 1 << 13, k;
    char *text = malloc(len);
    int32_t *ids = malloc(len * sizeof *ids);

    cr_assert(text && ids);
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        double one = 0, all;
        k = strlen(units[u]);
        for (size_t i = 0; i < len; i++)
            text[i] = units[u][i % k];
        for (int i = 0; i < 8; i++)
            one += seconds(enc, text, small / k * k, ids) / 8;
        all = seconds(enc, text, len / k * k, ids);
        /* 128 times the bytes: 128 times the time, up to a logarithm and caches; were it quadratic, 16,384 times */
        cr_expect_lt(all, 128 * 40 * one, "%s, unit %zu: %g s, %g s", path, u, one, all);
    }
    free(text);
    free(ids);
    encoder_close(enc);
    tokenizer_close(t);
}

Test(tokenizer, has_no_quadratic_case_on_long_lines)
{
    check_long_lines(DEMO_TOKENIZER);
    if (reference_has("tokenizers"))
        check_long_lines(REFERENCE "tokenizers/hunyuan-7b/tokenizer.json");
}

enum { THREADS = 32, TEXTS = 200 };

struct shared_work {
    const struct tokenizer *t;
    uint64_t hash[THREADS];
};

struct one_thread {
    struct shared_work *work;
    int number;
};

static uint64_t encode_all(const struct tokenizer *t)
{
    struct encoder *enc;
    char text[4 * 100];
    int32_t ids[4 * 100];
    uint64_t seed = 5, hash = 0;
    size_t n;

    if (encoder_open(&enc, t, NULL) != ERR_OK)
        return 0;
    for (int i = 0; i < TEXTS; i++) {
        size_t len = random_text(&seed, 100, text);
        if (encoder_encode(enc, text, len, ids, 400, &n, NULL) != ERR_OK)
            n = 0;
        for (size_t k = 0; k < n; k++)
            hash = hash * 1000003 + (uint64_t)ids[k];
    }
    encoder_close(enc);
    return hash;
}

static void *encode_in_thread(void *arg)
{
    struct one_thread *x = arg;

    x->work->hash[x->number] = encode_all(x->work->t);
    return NULL;
}

Test(tokenizer, gives_the_same_ids_in_32_threads)
{
    struct shared_work w = {.t = tokenizer_must_open(DEMO_TOKENIZER)};
    struct one_thread x[THREADS];
    pthread_t id[THREADS];
    uint64_t alone = encode_all(w.t);

    for (int i = 0; i < THREADS; i++) {
        x[i] = (struct one_thread){&w, i};
        cr_assert_eq(pthread_create(&id[i], NULL, encode_in_thread, &x[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(id[i], NULL);
        cr_expect_eq(w.hash[i], alone);
    }
    tokenizer_close((struct tokenizer *)w.t);
}

/* tokenizer.json with one thing changed, and the word that the refusal must contain. */
Test(tokenizer, refuses_by_name_what_it_does_not_do)
{
    static const char *const cases[][3] = {
        {"\"normalizer\":null", "\"normalizer\":{\"type\":\"NFKC\"}", "NFKC"},
        {"\"normalizer\":null", "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Lowercase\"}]}",
         "Lowercase"},
        {"\"normalizer\":null", "\"surprise\":1", "surprise"},
        {"\"add_prefix_space\":false", "\"add_prefix_space\":true", "add_prefix_space"},
        {"{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}", "{\"type\":\"Metaspace\"}",
         "Metaspace"},
        {"{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}", "null", "pre_tokenizer: null"},
        {"\"decoder\":{\"type\":\"ByteLevel\"}", "\"decoder\":{\"type\":\"WordPiece\"}", "WordPiece"},
        {"\"decoder\":{\"type\":\"ByteLevel\"}", "\"decoder\":null", "decoder"},
        {"\"normalizer\":null", "\"post_processor\":{\"type\":\"TemplateProcessing\"}", "TemplateProcessing"},
        {"\"type\":\"BPE\"", "\"type\":\"Unigram\"", "Unigram"},
        {"\"type\":\"BPE\"", "\"type\":\"BPE\",\"unk_token\":\"a\"", "unk_token"},
        {"\"type\":\"BPE\"", "\"type\":\"BPE\",\"dropout\":0.1", "dropout"},
        {"\"type\":\"BPE\"", "\"type\":\"BPE\",\"byte_fallback\":true", "byte_fallback"},
        {"\"type\":\"BPE\"", "\"type\":\"BPE\",\"end_of_word_suffix\":\"</w>\"", "end_of_word_suffix"},
        {"\"type\":\"BPE\"", "\"type\":\"BPE\",\"novelty\":3", "novelty"},
        {"\"merges\":[]", "\"merges\":[\"a bc\"]", "bc"},
        {"\"merges\":[]", "\"merges\":[\"ab\"]", "merges[0]"},
        {"\"merges\":[]", "\"merges\":[[\"a\",\"b\"]]", "merges[0]"},
        {"\"id\":1000", "\"id\":7", "<|eos|>"},
        {"\"id\":1000", "\"id\":-1", "<|eos|>"},
        {"\"id\":1000", "\"id\":3000000000", "<|eos|>"},
    };
    char *json = tokenizer_json("", "", false, NULL);

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *at = strstr(json, cases[i][0]), *changed = NULL;
        struct tokenizer *t;
        struct err e;
        cr_assert_not_null(at, "%s", cases[i][0]);
        cr_assert_gt(asprintf(&changed, "%.*s%s%s", (int)(at - json), json, cases[i][1], at + strlen(cases[i][0])), 0);
        cr_expect_neq(tokenizer_parse(&t, changed, strlen(changed), "test.json", &e), ERR_OK, "%s", cases[i][1]);
        cr_expect_null(t);
        cr_expect(strstr(e.msg, cases[i][2]) && strstr(e.msg, "test.json"), "%s: %s", cases[i][1], e.msg);
        free(changed);
    }
    free(json);
}

Test(tokenizer, takes_nfc_where_the_file_asks_for_it)
{
    char *json = tokenizer_json("", "", false, NULL), *at = strstr(json, "\"normalizer\":null"), *nfc = NULL;
    static const char marks[] = "\xCC\x81";
    char *many = malloc(2 * 2000 + 1);
    struct tokenizer *t, *plain = tokenizer_must_parse(json);
    struct encoder *enc;
    struct err e;
    int32_t ids[1];
    size_t n;

    cr_assert_gt(asprintf(&nfc, "%.*s\"normalizer\":{\"type\":\"NFC\"}%s", (int)(at - json), json, at + 17), 0);
    t = tokenizer_must_parse(nfc);
    enc = encoder_must_open(t);
    expect_ids(enc, "e\xCC\x81", 3, "[195, 169]");
    expect_ids(enc, "plain", 5, "[112, 108, 97, 105, 110]");
    for (int i = 0; i < 2000; i++)
        memcpy(many + 2 * i, marks, 2);
    cr_expect_eq(encoder_encode(enc, many, 4000, ids, 1, &n, &e), ERR_TEXT_TOO_LONG);
    int32_t *room = malloc(4000 * sizeof *room);
    cr_expect_eq(encoder_encode(enc, many, 4000, room, 4000, &n, &e), ERR_INVALID_FIELD);
    encoder_close(enc);
    enc = encoder_must_open(plain);
    expect_ids(enc, "e\xCC\x81", 3, "[101, 204, 129]");
    encoder_close(enc);
    free(room);
    free(many);
    free(nfc);
    free(json);
    tokenizer_close(t);
    tokenizer_close(plain);
}
