/* Arbitrary text through small tokenizers of both families' patterns, and one of PCRE2's: valid text comes back from
 * its ids as it was, invalid text as its repaired form. */
#include "text/normalizer.h"
#include "text/tokenizer.h"

#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const splits[] = {
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|"
    "\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"},"
    "\"behavior\":\"Isolated\",\"invert\":false},",
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\p{N}{1,3}\"},\"behavior\":\"Isolated\",\"invert\":false},"
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[!\\\"#$%&'()*+,\\\\-./:;<=>?@\\\\[\\\\\\\\\\\\]^_`{|}~][A-Za-z]+|"
    "[^\\\\r\\\\n\\\\p{L}\\\\p{P}\\\\p{S}]?[\\\\p{L}\\\\p{M}]+| ?[\\\\p{P}\\\\p{S}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|"
    "\\\\s+(?!\\\\S)|\\\\s+\"},\"behavior\":\"Isolated\",\"invert\":false},",
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\s+\"},\"behavior\":\"Isolated\",\"invert\":false},",
};

static struct tokenizer *tokenizer_with(const char *split)
{
    struct tokenizer *t = NULL;
    char *json = NULL;
    struct err e;
    size_t n;
    FILE *f = open_memstream(&json, &n);

    if (!f)
        abort();
    fprintf(f, "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[%s", split);
    fputs("{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]},\"decoder\":{\"type\":"
          "\"ByteLevel\"},\"added_tokens\":[{\"id\":300,\"content\":\"<|x|>\",\"special\":true}],\"model\":{\"type\":"
          "\"BPE\","
          "\"vocab\":{",
          f);
    for (int b = 0; b < 256; b++) {
        int itself = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        int nth = b <= 0x20 ? b : b <= 0xA0 ? b - 0x7F + 0x21 : 0x43;
        fprintf(f, "\"\\u%04x\":%d,", itself ? b : 0x100 + nth, b);
    }
    fputs("\"aa\":256,\"ab\":257,\"aaaa\":258,\"\\u00e4\\u00b8\":259},\"merges\":[\"a b\",\"a a\",\"aa aa\","
          "\"\\u00e4 \\u00b8\"]}}",
          f);
    fclose(f);
    if (tokenizer_parse(&t, json, n, "fuzz.json", &e) != ERR_OK) {
        fprintf(stderr, "%s\n", e.msg);
        abort();
    }
    free(json);
    return t;
}

static void check(const struct tokenizer *t, struct encoder *enc, const char *text, size_t len)
{
    int32_t *ids = malloc((3 * len + 1) * sizeof *ids);
    char *want = malloc(3 * len + 1), *out = malloc(3 * len + 64);
    size_t n, m = 0, want_len;
    struct decoder d;
    struct err e;

    if (!ids || !want || !out)
        abort();
    want_len = utf8_repair(text, len, want);
    if (utf8_valid(want, want_len) != want_len)
        abort();
    if (encoder_encode(enc, text, len, ids, 3 * len + 1, &n, &e) != ERR_OK)
        abort();
    decoder_init(&d, t);
    for (size_t i = 0; i < n; i++)
        m += (size_t)decoder_push(&d, ids[i], out + m, 3 * len + 64 - m);
    m += (size_t)decoder_finish(&d, out + m, 3 * len + 64 - m);
    if (m != want_len || memcmp(out, want, m) != 0)
        abort();
    free(ids);
    free(want);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tokenizer *t[sizeof splits / sizeof *splits];
    static struct encoder *enc[sizeof splits / sizeof *splits];
    struct err e;

    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
        if (!t[i]) {
            t[i] = tokenizer_with(splits[i]);
            if (encoder_open(&enc[i], t[i], &e) != ERR_OK)
                abort();
        }
        check(t[i], enc[i], (const char *)data, size);
    }
    return 0;
}
