#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tests/support/tokenizers.h"

/* n bytes with each maximal invalid part replaced: the text at once. */
static size_t repair(const char *raw, size_t n, char *out)
{
    size_t m = 0;

    for (size_t i = 0; i < n;) {
        size_t good = (size_t)utf8_next(raw + i, n - i, NULL);
        memcpy(out + m, good ? raw + i : "\xEF\xBF\xBD", good ? good : 3);
        m += good ? good : 3;
        i += good ? good : (size_t)utf8_invalid(raw + i, n - i);
    }
    return m;
}

static void check_whole(const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        int len = utf8_next(s + i, n - i, NULL);
        cr_assert_gt(len, 0, "half a character came out");
        i += (size_t)len;
    }
}

/* Bytes in any order, many of them beginnings and rests of characters. */
Test(decoder, pieces_of_any_bytes_are_the_text_at_once)
{
    static const char *const parts[] = {"é",    "中",   "😀", "\xE4",     "\xB8", "\xF0\x9F", "\x98",
                                        "\x80", "\xFF", "a", "\xED\xA0", "\xC2", "\xF4\x90", "👨‍👩‍👧"};
    char *json = tokenizer_json("", "", false, NULL), raw[1024], want[3 * 1024], got[3 * 1024];
    struct tokenizer *t = tokenizer_must_parse(json);
    uint64_t seed = 9;

    for (int round = 0; round < 10000; round++) {
        size_t n = 0, want_len, m = 0;
        struct decoder d;
        int k;
        for (int i = (int)(next_random(&seed) % 20); i >= 0; i--) {
            const char *p = parts[next_random(&seed) % (sizeof parts / sizeof *parts)];
            size_t len = 1 + next_random(&seed) % strlen(p); /* whole, or cut */
            memcpy(raw + n, p, len);
            n += len;
        }
        want_len = repair(raw, n, want);
        decoder_init(&d, t);
        for (size_t i = 0; i < n; i++) {
            k = decoder_push(&d, (unsigned char)raw[i], got + m, sizeof got - m);
            cr_assert_geq(k, 0);
            check_whole(got + m, (size_t)k);
            m += (size_t)k;
        }
        k = decoder_finish(&d, got + m, sizeof got - m);
        cr_assert_geq(k, 0);
        check_whole(got + m, (size_t)k);
        m += (size_t)k;
        cr_assert(m == want_len && memcmp(got, want, m) == 0, "round %d", round);
    }
    tokenizer_close(t);
    free(json);
}

/* The demo model's tokens in any order, their bytes cut anywhere. */
Test(decoder, pieces_of_any_tokens_are_the_text_at_once)
{
    struct tokenizer *t = tokenizer_must_open(DEMO_TOKENIZER);
    size_t most = 3 * tokenizer_max_token_bytes(t) + 3;
    char *raw = malloc(64 * most), *want = malloc(3 * 64 * most), *got = malloc(64 * most);
    uint64_t seed = 21;

    cr_assert(raw && want && got);
    for (int round = 0; round < 10000; round++) {
        size_t n = 0, m = 0, want_len;
        struct decoder d;
        int k, count = (int)(next_random(&seed) % 40);
        decoder_init(&d, t);
        while (count-- > 0) {
            /* every other one of the first 600 ids, where the single bytes are */
            int id = (int)(next_random(&seed) % (next_random(&seed) % 2 ? 600 : (unsigned)tokenizer_size(t)));
            const unsigned char *s;
            k = decoder_push(&d, id, got + m, 64 * most - m);
            cr_assert_geq(k, 0);
            check_whole(got + m, (size_t)k);
            m += (size_t)k;
            s = tokenizer_token_bytes(t, id, &want_len);
            if (s && !tokenizer_is_special(t, id)) {
                memcpy(raw + n, s, want_len);
                n += want_len;
            }
        }
        k = decoder_finish(&d, got + m, 64 * most - m);
        cr_assert_geq(k, 0);
        m += (size_t)k;
        want_len = repair(raw, n, want);
        cr_assert(m == want_len && memcmp(got, want, m) == 0, "round %d", round);
    }
    free(raw);
    free(want);
    free(got);
    tokenizer_close(t);
}

Test(decoder, holds_back_until_a_character_is_whole)
{
    char *json = tokenizer_json("", "", false, NULL), out[16];
    struct tokenizer *t = tokenizer_must_parse(json);
    struct decoder d;

    decoder_init(&d, t);
    cr_expect_eq(decoder_push(&d, 0xF0, out, sizeof out), 0);
    cr_expect_eq(decoder_push(&d, 0x9F, out, sizeof out), 0);
    cr_expect_eq(decoder_push(&d, 1000, out, sizeof out), 0); /* a special token in between */
    cr_expect_eq(decoder_push(&d, 0x98, out, sizeof out), 0);
    cr_expect_eq(decoder_push(&d, 0x80, out, sizeof out), 4);
    cr_expect_arr_eq(out, "\xF0\x9F\x98\x80", 4);
    cr_expect_eq(decoder_push(&d, 0xE4, out, sizeof out), 0);
    cr_expect_eq(decoder_push(&d, 'a', out, sizeof out), 4);
    cr_expect_arr_eq(out,
                     "\xEF\xBF\xBD"
                     "a",
                     4);
    cr_expect_eq(decoder_push(&d, 0xE4, out, sizeof out), 0);
    cr_expect_eq(decoder_finish(&d, out, sizeof out), 3);
    cr_expect_arr_eq(out, "\xEF\xBF\xBD", 3);
    cr_expect_eq(decoder_finish(&d, out, sizeof out), 0);
    tokenizer_close(t);
    free(json);
}

Test(decoder, consumes_nothing_without_room)
{
    char *json = tokenizer_json("\"abc\":256", "", false, NULL), out[16];
    struct tokenizer *t = tokenizer_must_parse(json);
    struct decoder d;

    decoder_init(&d, t);
    cr_expect_eq(decoder_push(&d, 0xE4, out, 0), 0);
    cr_expect_eq(decoder_push(&d, 256, out, 5), -1);
    cr_expect_eq(decoder_push(&d, 256, out, 6), 6);
    cr_expect_arr_eq(out,
                     "\xEF\xBF\xBD"
                     "abc",
                     6);
    cr_expect_eq(decoder_push(&d, 0xE4, out, 0), 0);
    cr_expect_eq(decoder_finish(&d, out, 2), -1);
    cr_expect_eq(decoder_finish(&d, out, 3), 3);
    tokenizer_close(t);
    free(json);
}

Test(decoder, leaves_out_ids_that_are_no_tokens)
{
    char *json = tokenizer_json("", "", false, NULL), out[16];
    struct tokenizer *t = tokenizer_must_parse(json);
    struct decoder d;

    decoder_init(&d, t);
    cr_expect_eq(tokenizer_size(t), 1001);
    cr_expect_eq(decoder_push(&d, -1, out, sizeof out), 0);
    cr_expect_eq(decoder_push(&d, 500, out, sizeof out), 0); /* a hole */
    cr_expect_eq(decoder_push(&d, 1001, out, sizeof out), 0);
    cr_expect_eq(decoder_push(&d, INT32_MAX, out, sizeof out), 0);
    tokenizer_close(t);
    free(json);
}
