/* Tokenizer speed on one core: text as in messages (words of a few hundred, some numbers and rare words), and a line
 * without a space. */
#include "cli/bench_tokenizer.h"

#include "base/clock.h"
#include "engine/random.h"
#include "text/tokenizer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_BYTES = 4 << 20, LINE_BYTES = 1 << 20, TRIES = 3 };

static const char *const words[] = {
    "the",      "of",        "and",     "to",       "a",       "in",        "for",     "is",       "on",       "that",
    "by",       "this",      "with",    "you",      "it",      "not",       "or",      "be",       "are",      "from",
    "at",       "as",        "your",    "all",      "have",    "new",       "more",    "an",       "was",      "we",
    "will",     "can",       "file",    "cannot",   "open",    "directory", "setting", "server",   "network",  "user",
    "password", "message",   "window",  "language", "version", "package",   "install", "remove",   "position", "search",
    "between",  "character", "invalid", "argument", "option",  "expected",  "memory",  "document", "internal", "error",
};

/* Sentences of Latin text: one word in eight is made up of syllables, one in twenty a number. */
static size_t write_text(char *out, size_t cap)
{
    static const char *const syllables[] = {"ka",   "lor", "en",  "mi", "stra", "be",
                                            "tion", "ul",  "gra", "po", "wer",  "is"};
    size_t n = 0;

    for (uint64_t i = 0; n + 64 < cap; i++) {
        uint32_t r[4];

        random_block(3, i, 2, r);
        if (r[0] % 20 == 0) {
            n += (size_t)snprintf(out + n, cap - n, "%u", r[1] % 100000);
        } else if (r[0] % 8 == 1) {
            for (uint32_t k = 0; k < 2 + r[1] % 3; k++)
                n += (size_t)snprintf(out + n, cap - n, "%s", syllables[(r[2] >> (8 * k)) % 12]);
        } else {
            n += (size_t)snprintf(out + n, cap - n, "%s", words[r[1] % (sizeof words / sizeof *words)]);
        }
        n += (size_t)snprintf(out + n, cap - n, "%s", r[3] % 12 == 0 ? ".\n" : " ");
    }
    return n;
}

static enum err_code measure(struct encoder *enc, const char *text, size_t n, int32_t *ids, size_t *tokens,
                             double *seconds, struct err *e)
{
    enum err_code rc = ERR_OK;

    *seconds = INFINITY;
    for (int i = 0; rc == ERR_OK && i < TRIES; i++) {
        int64_t start = clock_mono_ns();
        size_t all = 0, piece = n < LINE_BYTES ? n : 4096; /* jobs have texts of some kilobytes at most */

        if (n == LINE_BYTES)
            piece = n;
        for (size_t at = 0; rc == ERR_OK && at < n; at += piece) {
            size_t m;

            rc = encoder_encode(enc, text + at, n - at < piece ? n - at : piece, ids, n, &m, e);
            all += m;
        }
        *tokens = all;
        *seconds = fmin(*seconds, (double)(clock_mono_ns() - start) * 1e-9);
    }
    return rc;
}

static enum err_code measure_and_report(struct encoder *enc, const char *what, const char *text, size_t n, int32_t *ids,
                                        struct bench_report *r, struct err *e)
{
    size_t tokens = 0;
    double seconds;
    enum err_code rc = measure(enc, text, n, ids, &tokens, &seconds, e);

    if (rc == ERR_OK)
        bench_row(r, "tokenizer",
                  json_pack("{s:s, s:f, s:f}", "text", what, "mbytes_per_s", (double)n / 1e6 / seconds, "tokens_per_s",
                            (double)tokens / seconds),
                  "tokenizer %-28s %6.1f MB/s, %.2f million tokens/s, one core", what, (double)n / 1e6 / seconds,
                  (double)tokens / 1e6 / seconds);
    return rc;
}

enum err_code bench_tokenizer(const char *model_dir, struct bench_report *r, struct err *e)
{
    char path[1024];
    struct tokenizer *t = NULL;
    struct encoder *enc = NULL;
    char *text = malloc(TEXT_BYTES), *line = malloc(LINE_BYTES);
    int32_t *ids = malloc(TEXT_BYTES * sizeof *ids);
    enum err_code rc;

    snprintf(path, sizeof path, "%s/tokenizer.json", model_dir);
    if (!text || !line || !ids) {
        rc = err_set(e, ERR_NOMEM, ERR_STOP, "bench: no memory for texts");
        goto out;
    }
    if ((rc = tokenizer_open(&t, path, e)) != ERR_OK || (rc = encoder_open(&enc, t, e)) != ERR_OK)
        goto out;
    for (size_t i = 0; i < LINE_BYTES; i++) {
        uint32_t bits[4];

        random_block(4, i / 16, 2, bits);
        line[i] = (char)('a' + (bits[i / 4 % 4] >> (8 * (i % 4)) & 0xff) % 26);
    }
    if ((rc = measure_and_report(enc, "made-up Latin text, 4 KiB each", text, write_text(text, TEXT_BYTES), ids, r,
                                 e)) == ERR_OK)
        rc = measure_and_report(enc, "1 MiB of letters, no space", line, LINE_BYTES, ids, r, e);
out:
    encoder_close(enc);
    tokenizer_close(t);
    free(text);
    free(line);
    free(ids);
    return rc;
}
