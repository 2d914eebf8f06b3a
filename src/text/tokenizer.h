/* tokenizer.h -- byte-level BPE from a checkpoint's tokenizer.json, id for id as the reference implementation.
 *
 *   text -> normalizer (none | NFC) -> Splits (isolated), each on the pieces of the one before
 *        -> bytes of a piece -> merges by rank -> ids
 *
 * Text is never parsed for special tokens: a text that spells "<|eos|>" is text.  What tokenizer.json asks for and
 * is not implemented is refused by name at open; truncation and padding are ignored.
 * Thread: struct tokenizer is const after open; an encoder belongs to one thread. */
#ifndef TEXT_TOKENIZER_H
#define TEXT_TOKENIZER_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tokenizer;
/* The ids of a text's begin stay what they are whatever text follows some pieces behind them. */
bool tokenizer_is_local(const struct tokenizer *t);

struct encoder;

MUST_CHECK enum err_code tokenizer_open(struct tokenizer **out, const char *path, struct err *e);
/* where: the file's name for messages. */
MUST_CHECK enum err_code tokenizer_parse(struct tokenizer **out, const char *json, size_t n, const char *where,
                                         struct err *e);
void tokenizer_close(struct tokenizer *t);

/* Ids are 0 .. size-1, added tokens included. */
int tokenizer_size(const struct tokenizer *t);
/* Id of an added (special) token by its exact spelling, or -1. */
int tokenizer_special(const struct tokenizer *t, const char *spelling);
/* The bytes of token id, which need not be valid UTF-8; NULL for an id that does not exist. */
const unsigned char *tokenizer_token_bytes(const struct tokenizer *t, int id, size_t *len);
bool tokenizer_is_special(const struct tokenizer *t, int id);

/* Scratch, PCRE2 match data and the bounded cache of pre-tokenized words. */
MUST_CHECK enum err_code encoder_open(struct encoder **out, const struct tokenizer *t, struct err *e);
void encoder_close(struct encoder *enc);

/* Ids of text[0..len), written to ids[0..cap), *n of them: at most one a byte of the text.
 * Invalid UTF-8: each maximal invalid part becomes one U+FFFD, as the reference implementation's callers do.
 * ERR_TEXT_TOO_LONG (act ERR_SKIP) when cap is too small, or the text longer than cap of the longest tokens.
 * Linear in len up to a logarithm.  Allocates only for a text or a piece larger than what came before: what is
 * kept between calls has a bound (some MiB), and more than that is freed before the return. */
MUST_CHECK enum err_code encoder_encode(struct encoder *enc, const char *text, size_t len, int32_t *ids, size_t cap,
                                        size_t *n, struct err *e);

/* The same for the parts one after another as one text: pieces cross their borders.  Invalid UTF-8 is replaced part
 * by part, so that none reaches into the next. */
struct text_part {
    const char *text;
    size_t len;
};
MUST_CHECK enum err_code encoder_encode_parts(struct encoder *enc, const struct text_part *parts, size_t n_parts,
                                              int32_t *ids, size_t cap, size_t *n, struct err *e);

/* The pre-tokenizer's pieces alone, for tests: calls piece(ctx, bytes, len) in order. */
MUST_CHECK enum err_code encoder_pieces(struct encoder *enc, const char *text, size_t len,
                                        void (*piece)(void *ctx, const char *s, size_t n), void *ctx, struct err *e);

/* Incremental decoding: bytes come out as soon as they form whole UTF-8 characters, never half of one.
 * Special tokens are dropped, bytes that can become nothing valid come out as U+FFFD. */
struct decoder {
    const struct tokenizer *t;
    unsigned char pending[4];
    int n_pending;
};
void decoder_init(struct decoder *d, const struct tokenizer *t);
/* Appends to out[0..cap); returns how many bytes were written.  A token needs at most
 * tokenizer_max_token_bytes() * 3 + 3 of them; with less room than a call needs, nothing is consumed and -1 returned. */
int decoder_push(struct decoder *d, int id, char *out, size_t cap);
int decoder_finish(struct decoder *d, char *out, size_t cap); /* an incomplete tail becomes one U+FFFD */
size_t tokenizer_max_token_bytes(const struct tokenizer *t);

#endif
