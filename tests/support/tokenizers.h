/* tokenizers.h -- tokenizers and vectors for tests: the demo model's, reference ones where they are, small ones. */
#ifndef SUPPORT_TOKENIZERS_H
#define SUPPORT_TOKENIZERS_H

#include "text/tokenizer.h"

#include <jansson.h>
#include <stdbool.h>

#define DEMO_TOKENIZER "ops/demo/model/tokenizer.json"
#define REFERENCE      "../shared/reference/"

/* false after one line that says that NAME is absent and its cases are skipped. */
bool reference_has(const char *name);

/* These fail the test when something is wrong; close with tokenizer_close(). */
struct tokenizer *tokenizer_must_open(const char *path);
struct tokenizer *tokenizer_must_parse(const char *json);
struct encoder *encoder_must_open(const struct tokenizer *t);
json_t *json_must_load(const char *path);

/* Ids of text; free() the result. */
int32_t *must_encode(struct encoder *enc, const char *text, size_t len, size_t *n);
/* The text of ids in one go; free() the result. */
char *must_decode(const struct tokenizer *t, const int32_t *ids, size_t n, size_t *len);
bool ids_equal(const int32_t *ids, size_t n, const json_t *expected);
/* Bytes written in hex; free() the result. */
char *unhex(const char *hex, size_t *len);

/* A tokenizer.json with all 256 bytes as tokens (id = byte), the extra tokens (JSON: "\"ab\":256, ..."), merges (JSON:
 * "[\"a\",\"b\"], ...") and "ignore_merges"; the pre-tokenizer is JSON too, NULL = ByteLevel alone.  free() it. */
char *tokenizer_json(const char *tokens, const char *merges, bool ignore_merges, const char *pre_tokenizer);

/* xorshift: the same numbers everywhere. */
uint32_t next_random(uint64_t *state);
/* Random valid UTF-8 of at most max_chars characters from all kinds of scripts, spaces and oddities, to out, which
 * has room for 4 max_chars bytes; its length. */
size_t random_text(uint64_t *state, size_t max_chars, char *out);

#endif
