#include "tests/support/tokenizers.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool reference_has(const char *name)
{
    char path[512];

    snprintf(path, sizeof path, REFERENCE "%s", name);
    if (access(path, R_OK) == 0)
        return true;
    fprintf(stderr, "skipped: " REFERENCE "%s is not here, its cases are not run\n", name);
    return false;
}

struct tokenizer *tokenizer_must_open(const char *path)
{
    struct tokenizer *t;
    struct err e;

    cr_assert_eq(tokenizer_open(&t, path, &e), ERR_OK, "%s", e.msg);
    return t;
}

struct tokenizer *tokenizer_must_parse(const char *json)
{
    struct tokenizer *t;
    struct err e;

    cr_assert_eq(tokenizer_parse(&t, json, strlen(json), "test.json", &e), ERR_OK, "%s", e.msg);
    return t;
}

struct encoder *encoder_must_open(const struct tokenizer *t)
{
    struct encoder *enc;
    struct err e;

    cr_assert_eq(encoder_open(&enc, t, &e), ERR_OK, "%s", e.msg);
    return enc;
}

json_t *json_must_load(const char *path)
{
    json_error_t je;
    json_t *v = json_load_file(path, JSON_ALLOW_NUL, &je);

    cr_assert_not_null(v, "%s: %s", path, je.text);
    return v;
}

int32_t *must_encode(struct encoder *enc, const char *text, size_t len, size_t *n)
{
    int32_t *ids = malloc((3 * len + 1) * sizeof *ids);
    struct err e;

    cr_assert_not_null(ids);
    cr_assert_eq(encoder_encode(enc, text, len, ids, 3 * len + 1, n, &e), ERR_OK, "%s", e.msg);
    return ids;
}

char *must_decode(const struct tokenizer *t, const int32_t *ids, size_t n, size_t *len)
{
    size_t most = 3 * tokenizer_max_token_bytes(t) + 3, cap = (n + 1) * most, m = 0;
    char *out = malloc(cap);
    struct decoder d;

    cr_assert_not_null(out);
    decoder_init(&d, t);
    for (size_t i = 0; i < n; i++) {
        int k = decoder_push(&d, ids[i], out + m, cap - m);
        cr_assert_geq(k, 0);
        m += (size_t)k;
    }
    m += (size_t)decoder_finish(&d, out + m, cap - m);
    *len = m;
    return out;
}

bool ids_equal(const int32_t *ids, size_t n, const json_t *expected)
{
    if (json_array_size(expected) != n)
        return false;
    for (size_t i = 0; i < n; i++)
        if (json_integer_value(json_array_get(expected, i)) != ids[i])
            return false;
    return true;
}

char *unhex(const char *hex, size_t *len)
{
    char *out = malloc(strlen(hex) / 2 + 1);
    unsigned byte;

    cr_assert_not_null(out);
    for (*len = 0; sscanf(hex + 2 * *len, "%2x", &byte) == 1; ++*len)
        out[*len] = (char)byte;
    return out;
}

/* Byte b in the byte alphabet, as JSON. */
static void put_symbol(FILE *f, int b)
{
    bool itself = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    int nth = b <= 0x20 ? b : b <= 0xA0 ? b - 0x7F + 0x21 : 0x43;

    fprintf(f, "\\u%04x", itself ? b : 0x100 + nth);
}

char *tokenizer_json(const char *tokens, const char *merges, bool ignore_merges, const char *pre_tokenizer)
{
    char *json = NULL;
    size_t n;
    FILE *f = open_memstream(&json, &n);

    cr_assert_not_null(f);
    fputs("{\"added_tokens\":[{\"id\":1000,\"content\":\"<|eos|>\",\"special\":true}],\"normalizer\":null,", f);
    fprintf(f, "\"pre_tokenizer\":%s,",
            pre_tokenizer ? pre_tokenizer : "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}");
    fputs("\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":{", f);
    for (int b = 0; b < 256; b++) {
        fputs(b ? ",\"" : "\"", f);
        put_symbol(f, b);
        fprintf(f, "\":%d", b);
    }
    fprintf(f, "%s%s},\"merges\":[%s],\"ignore_merges\":%s}}", *tokens ? "," : "", tokens, merges,
            ignore_merges ? "true" : "false");
    cr_assert_eq(fclose(f), 0);
    return json;
}

uint32_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)(*state >> 32);
}

static size_t put_utf8(char *out, uint32_t c)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)((n == 2 ? 0xC0 : n == 3 ? 0xE0 : 0xF0) | c);
    return n;
}

size_t random_text(uint64_t *state, size_t max_chars, char *out)
{
    static const uint32_t ranges[][2] = {
        {'a', 'z'},       {'a', 'z'},         {'A', 'Z'},         {'0', '9'},         {' ', ' '},
        {' ', '~'},       {0, 0x1F},          {'\t', '\r'},       {'\n', '\n'},       {'\r', '\r'},
        {'\'', '\''},     {0x80, 0x24F},      {0x300, 0x36F},     {0x370, 0x5FF},     {0x600, 0x6FF},
        {0x900, 0xDFF},   {0xE00, 0xFFF},     {0x1100, 0x11FF},   {0x1680, 0x180F},   {0x2000, 0x206F},
        {0x2070, 0x2BFF}, {0x3000, 0x30FF},   {0x4E00, 0x9FFF},   {0x4E00, 0x9FFF},   {0xAC00, 0xD7A3},
        {0xE000, 0xFFFF}, {0x10000, 0x1FFFF}, {0x1F300, 0x1F6FF}, {0x20000, 0x2A6DF}, {0x85, 0x85},
        {0xA0, 0xA0},     {0x17F, 0x17F},     {0x20, 0x10FFFF},
    };
    size_t n = next_random(state) % (max_chars + 1), m = 0;

    for (size_t i = 0; i < n;) {
        const uint32_t *r = ranges[next_random(state) % (sizeof ranges / sizeof *ranges)];
        size_t run = 1 + next_random(state) % 6;
        for (; run && i < n; run--) {
            uint32_t c = r[0] + next_random(state) % (r[1] - r[0] + 1);
            if (c >= 0xD800 && c <= 0xDFFF)
                continue;
            m += put_utf8(out + m, c);
            i++;
        }
    }
    return m;
}
