/* vocab.h -- the tokens of a tokenizer.json: id to bytes, bytes to id, and the added tokens.
 * Owns:   the tokens' bytes.
 * Thread: const after open. */
#ifndef TEXT_VOCAB_H
#define TEXT_VOCAB_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { VOCAB_MAX_IDS = 1 << 21, VOCAB_MAX_TOKEN_BYTES = 4096 };

struct vocab_token {
    uint32_t offset; /* in bytes */
    uint16_t len;
    bool is_present; /* false: a hole between ids */
    bool is_added;   /* of "added_tokens": never looked for in text */
    bool is_special; /* added, and dropped when decoding */
    bool is_bytes;   /* written in the byte alphabet, so that text can become it */
};

struct vocab {
    int size; /* ids are 0 .. size - 1 */
    struct vocab_token *token;
    unsigned char *bytes;
    size_t n_bytes, cap_bytes;
    uint16_t max_len; /* of all tokens */
    uint32_t *slots;  /* open addressing: id + 1 of is_bytes tokens by hash, 0 = free */
    uint32_t mask;
};

/* tokens: "model.vocab", added: "added_tokens" (may be NULL). */
MUST_CHECK enum err_code vocab_open(struct vocab **out, const json_t *tokens, const json_t *added, const char *where,
                                    struct err *e);
void vocab_close(struct vocab *v);

/* Id of the ordinary token that is exactly these bytes, or -1. */
int vocab_find(const struct vocab *v, const unsigned char *s, size_t n);
/* Id of the added token that is spelled so, or -1. */
int vocab_find_added(const struct vocab *v, const char *spelling);
/* What id decodes to; NULL for ids that do not exist. */
const unsigned char *vocab_bytes(const struct vocab *v, int id, size_t *len);

#endif
