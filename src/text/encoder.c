/* Text to ids: made valid, normalized, cut into pieces, and each piece found in the cache or merged. */
#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/utf8.h"
#include "text/normalizer.h"
#include "text/tokenizer_parts.h"

enum {
    WORDS = 1 << 14,             /* in the cache: one place a hash */
    WORD_BYTES = 22,             /* longest piece that is cached, and */
    WORD_IDS = 10,               /* its most ids: 64 bytes a word */
    KEEP_TEXT_BYTES = 1 << 20,   /* what an encoder keeps between calls, for the text */
    KEEP_SCRATCH_BYTES = 4 << 20 /* and for merging a long piece */
};

struct word {
    uint8_t len; /* 0: free */
    uint8_t n;
    unsigned char bytes[WORD_BYTES];
    int32_t ids[WORD_IDS];
};

struct encoder {
    const struct tokenizer *t;
    struct matcher *matcher;
    struct bpe_scratch scratch;
    struct word *words;
    struct text_buffer valid, normalized;
    /* of the call in progress */
    int32_t *ids;
    size_t cap, n;
    bool is_full, no_memory;
};

enum err_code encoder_open(struct encoder **out, const struct tokenizer *t, struct err *e)
{
    struct encoder *enc = calloc(1, sizeof *enc);
    enum err_code rc;

    *out = NULL;
    if (!enc)
        return err_set(e, ERR_NOMEM, ERR_STOP, "encoder: out of memory");
    enc->t = t;
    enc->words = aligned_alloc(sizeof *enc->words, WORDS * sizeof *enc->words);
    if (enc->words)
        memset(enc->words, 0, WORDS * sizeof *enc->words);
    rc = enc->words ? matcher_open(&enc->matcher, e) : err_set(e, ERR_NOMEM, ERR_STOP, "encoder: out of memory");
    if (rc == ERR_OK) {
        *out = enc;
        enc = NULL;
    }
    encoder_close(enc);
    return rc;
}

void encoder_close(struct encoder *enc)
{
    if (!enc)
        return;
    matcher_close(enc->matcher);
    bpe_scratch_free(&enc->scratch);
    text_buffer_free(&enc->valid);
    text_buffer_free(&enc->normalized);
    free(enc->words);
    free(enc);
}

static bool add_ids(struct encoder *enc, const int32_t *ids, size_t n)
{
    if (n > enc->cap - enc->n) {
        enc->is_full = true;
        return false;
    }
    memcpy(enc->ids + enc->n, ids, n * sizeof *ids);
    enc->n += n;
    return true;
}

static bool add_piece(void *ctx, const char *s, size_t n)
{
    struct encoder *enc = ctx;
    struct word *w = NULL;
    const int32_t *ids;
    long n_ids;

    if (n <= WORD_BYTES) {
        w = &enc->words[hash_bytes(s, n, 0) % WORDS];
        if (w->len == n && memcmp(w->bytes, s, n) == 0)
            return add_ids(enc, w->ids, w->n);
    }
    n_ids = bpe_encode(enc->t->bpe, &enc->scratch, (const unsigned char *)s, n, &ids);
    if (n_ids < 0) {
        enc->no_memory = true;
        return false;
    }
    if (w && n_ids <= WORD_IDS) {
        w->len = (uint8_t)n;
        w->n = (uint8_t)n_ids;
        memcpy(w->bytes, s, n);
        memcpy(w->ids, ids, (size_t)n_ids * sizeof *ids);
    }
    return add_ids(enc, ids, (size_t)n_ids);
}

/* The parts as one valid text, in place where that is so already. */
static enum err_code join(struct encoder *enc, const struct text_part *parts, size_t n_parts, struct text_part *text,
                          struct err *e)
{
    size_t n = 0;

    if (n_parts == 1 && utf8_valid(parts->text, parts->len) == parts->len) {
        *text = *parts;
        return ERR_OK;
    }
    for (size_t i = 0; i < n_parts; i++)
        n += 3 * parts[i].len; /* an invalid byte becomes three at most */
    if (!text_buffer_reserve(&enc->valid, n))
        return err_set(e, ERR_NOMEM, ERR_RETRY, "encoder: out of memory for a text of %zu bytes", n / 3);
    n = 0;
    for (size_t i = 0; i < n_parts; i++)
        n += utf8_repair(parts[i].text, parts[i].len, enc->valid.at + n);
    *text = (struct text_part){enc->valid.at, n};
    return ERR_OK;
}

static enum err_code prepare(struct encoder *enc, const struct text_part *parts, size_t n_parts, struct text_part *text,
                             struct err *e)
{
    enum err_code rc = join(enc, parts, n_parts, text, e);

    if (rc == ERR_OK && enc->t->nfc)
        rc = normalizer_nfc(&enc->normalized, &text->text, &text->len, e);
    return rc;
}

static void give_back(struct encoder *enc)
{
    if (enc->scratch.cap > KEEP_SCRATCH_BYTES)
        bpe_scratch_free(&enc->scratch);
    if (enc->valid.cap > KEEP_TEXT_BYTES)
        text_buffer_free(&enc->valid);
    if (enc->normalized.cap > KEEP_TEXT_BYTES)
        text_buffer_free(&enc->normalized);
}

static enum err_code too_long(const struct text_part *parts, size_t n_parts, size_t cap, struct err *e)
{
    size_t len = 0;

    for (size_t i = 0; i < n_parts; i++)
        len += parts[i].len;
    return err_set(e, ERR_TEXT_TOO_LONG, ERR_SKIP, "text of %zu bytes needs more than the %zu tokens that are allowed",
                   len, cap);
}

/* Before any work: more bytes than cap of the longest tokens can hold.  Bounds time and memory by cap. */
static bool is_hopeless(const struct encoder *enc, const struct text_part *parts, size_t n_parts, size_t cap)
{
    size_t most = cap > INT32_MAX / enc->t->vocab->max_len ? INT32_MAX : cap * enc->t->vocab->max_len;

    for (size_t i = 0; i < n_parts; i++) {
        if (parts[i].len > most)
            return true;
        most -= parts[i].len;
    }
    return false;
}

enum err_code encoder_encode_parts(struct encoder *enc, const struct text_part *parts, size_t n_parts, int32_t *ids,
                                   size_t cap, size_t *n, struct err *e)
{
    struct text_part text = {NULL, 0};
    enum err_code rc;

    *n = 0;
    if (is_hopeless(enc, parts, n_parts, cap))
        return too_long(parts, n_parts, cap, e);
    enc->ids = ids;
    enc->cap = cap;
    enc->n = 0;
    enc->is_full = enc->no_memory = false;
    rc = prepare(enc, parts, n_parts, &text, e);
    if (rc == ERR_OK)
        rc = pretokenizer_split(enc->t->pretokenizer, enc->matcher, text.text, text.len, add_piece, enc, e);
    if (rc == ERR_OK && enc->is_full)
        rc = too_long(parts, n_parts, cap, e);
    if (rc == ERR_OK && enc->no_memory)
        rc = err_set(e, ERR_NOMEM, ERR_RETRY, "encoder: out of memory for a text of %zu bytes", text.len);
    if (rc == ERR_OK)
        *n = enc->n;
    give_back(enc);
    return rc;
}

enum err_code encoder_encode(struct encoder *enc, const char *text, size_t len, int32_t *ids, size_t cap, size_t *n,
                             struct err *e)
{
    return encoder_encode_parts(enc, &(struct text_part){text, len}, 1, ids, cap, n, e);
}

struct caller {
    void (*piece)(void *ctx, const char *s, size_t n);
    void *ctx;
};

static bool hand_over(void *ctx, const char *s, size_t n)
{
    const struct caller *c = ctx;

    c->piece(c->ctx, s, n);
    return true;
}

enum err_code encoder_pieces(struct encoder *enc, const char *text, size_t len,
                             void (*piece)(void *ctx, const char *s, size_t n), void *ctx, struct err *e)
{
    struct caller c = {piece, ctx};
    struct text_part all = {NULL, 0};
    enum err_code rc = prepare(enc, &(struct text_part){text, len}, 1, &all, e);

    if (rc == ERR_OK)
        rc = pretokenizer_split(enc->t->pretokenizer, enc->matcher, all.text, all.len, hand_over, &c, e);
    give_back(enc);
    return rc;
}
