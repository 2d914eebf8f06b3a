#include "text/tokenizer_bench.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/hash.h"
#include "base/utf8.h"

enum { TEXT_BYTES = 4 << 20, LINE_WORDS = 30, ROUNDS = 3, MAX_WORD_BYTES = 64 };

struct kind {
    const char *name;
    bool (*is_word)(const unsigned char *s, size_t n);
    const char *line_end;
};

/* " word" */
static bool is_latin(const unsigned char *s, size_t n)
{
    if (n < 2 || s[0] != ' ')
        return false;
    for (size_t i = 1; i < n; i++)
        if ((unsigned char)((s[i] | 0x20) - 'a') >= 26)
            return false;
    return true;
}

static bool is_han(const unsigned char *s, size_t n)
{
    uint32_t c;

    for (size_t i = 0, len; i < n; i += len) {
        len = (size_t)utf8_next((const char *)s + i, n - i, &c);
        if (len == 0 || c < 0x4E00 || c > 0x9FA5)
            return false;
    }
    return n > 0;
}

static const struct kind kinds[] = {{"Latin", is_latin, ".\n"}, {"Chinese", is_han, "。\n"}};

/* Ids of the vocabulary's words, in its order, which is about that of their frequency. */
static size_t find_words(const struct tokenizer *t, const struct kind *k, int *words)
{
    size_t n = 0, len;

    for (int id = 0; id < tokenizer_size(t); id++) {
        const unsigned char *s = tokenizer_token_bytes(t, id, &len);
        if (s && len <= MAX_WORD_BYTES && !tokenizer_is_special(t, id) && k->is_word(s, len))
            words[n++] = id;
    }
    return n;
}

static size_t put_word(const struct tokenizer *t, int id, bool without_space, char *out)
{
    size_t len;
    const unsigned char *s = tokenizer_token_bytes(t, id, &len);
    size_t skip = without_space && s[0] == ' ';

    memcpy(out, s + skip, len - skip);
    return len - skip;
}

static size_t make_text(const struct tokenizer *t, const struct kind *k, const int *words, size_t n_words, char *text)
{
    size_t n = 0, count = 0;

    while (n + MAX_WORD_BYTES + 8 < TEXT_BYTES) {
        uint64_t r = hash_mix(count++, 1);
        double u = (double)(r >> 11) / 9007199254740992.0; /* 2^53 */
        size_t rank = (size_t)exp(u * log((double)n_words));
        n += put_word(t, words[rank < n_words ? rank : n_words - 1], r % 8 == 0, text + n);
        if (count % LINE_WORDS == 0) {
            memcpy(text + n, k->line_end, strlen(k->line_end));
            n += strlen(k->line_end);
        }
    }
    return n;
}

static enum err_code encode_lines(struct encoder *enc, const char *text, size_t n, int32_t *ids, size_t *n_ids,
                                  struct err *e)
{
    size_t m;

    *n_ids = 0;
    for (size_t i = 0, len; i < n; i += len) {
        const char *end = memchr(text + i, '\n', n - i);
        len = end ? (size_t)(end - text) + 1 - i : n - i;
        enum err_code rc = encoder_encode(enc, text + i, len, ids, TEXT_BYTES, &m, e);
        if (rc != ERR_OK)
            return rc;
        *n_ids += m;
    }
    return ERR_OK;
}

/* Processor time of this thread: other load on the machine does not count. */
static int64_t cpu_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static enum err_code measure(const struct tokenizer *t, const struct kind *k, const char *text, size_t n, int32_t *ids,
                             FILE *out, struct err *e)
{
    enum err_code rc = ERR_OK;
    int64_t best = INT64_MAX;
    size_t n_ids = 0;

    for (int i = 0; i < ROUNDS && rc == ERR_OK; i++) {
        struct encoder *enc;
        int64_t t0 = cpu_ns();
        rc = encoder_open(&enc, t, e); /* a new one each time: its cache starts empty */
        if (rc == ERR_OK)
            rc = encode_lines(enc, text, n, ids, &n_ids, e);
        encoder_close(enc);
        t0 = cpu_ns() - t0;
        best = t0 < best ? t0 : best;
    }
    if (rc == ERR_OK)
        fprintf(out, "tokenizer  %-8s %7.1f MB/s on one core  (%.1f MB, %.2f bytes a token)\n", k->name,
                (double)n * 1e3 / (double)best, (double)n / 1e6, (double)n / (double)n_ids);
    return rc;
}

enum err_code tokenizer_bench(const struct tokenizer *t, FILE *out, struct err *e)
{
    int *words = malloc((size_t)tokenizer_size(t) * sizeof *words);
    int32_t *ids = malloc(TEXT_BYTES * sizeof *ids);
    char *text = malloc(TEXT_BYTES);
    enum err_code rc = ERR_OK;

    if (!words || !ids || !text) {
        rc = err_set(e, ERR_NOMEM, ERR_STOP, "tokenizer bench: out of memory");
        goto out;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && rc == ERR_OK; i++) {
        size_t n = find_words(t, &kinds[i], words);
        if (n >= 100)
            rc = measure(t, &kinds[i], text, make_text(t, &kinds[i], words, n, text), ids, out, e);
    }
out:
    free(words);
    free(ids);
    free(text);
    return rc;
}
