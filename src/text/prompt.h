/* prompt.h -- the token ids a model is asked with: chat template, instruction, source text.
 *
 *   1.8B family   [BOS] [User] instruction TEXT [Assistant]        answer ends with [place holder 2]
 *   7B family     [BOS] instruction TEXT [extra_0]                 answer ends with [eos]
 *
 * The family (which chat tokens) comes from the checkpoint's template and vocabulary, never from its name; the
 * generation (which instruction) from configuration or the name, since no file of a checkpoint tells it.
 * Instruction and text are encoded as one text, without looking for special tokens in it.
 * The instruction is the Chinese one when Chinese is on either side.  Where the source language is not given, the
 * target decides, unless the text clearly is Chinese: Han characters, no kana, no Hangul, and at most three letters
 * of other scripts for each Han character (looked at: the first 4,096 bytes).
 * Thread: const after open. */
#ifndef TEXT_PROMPT_H
#define TEXT_PROMPT_H

#include "base/err.h"
#include "text/language.h"
#include "text/tokenizer.h"

#include <stdbool.h>
#include <stdint.h>

enum prompt_generation { PROMPT_AUTO, PROMPT_MT, PROMPT_MT15, PROMPT_MT2 };

struct prompt;

/* dir: the checkpoint (chat_template.jinja, else tokenizer_config.json's chat_template; its hash must be a known
 * one unless force, when the special tokens alone tell the family).  name: the model's name, for PROMPT_AUTO
 * ("MT2", "MT1.5", "MT-7B" in it, case-blind; else MT1.5). */
MUST_CHECK enum err_code prompt_open(struct prompt **out, const struct tokenizer *t, const char *dir, const char *name,
                                     enum prompt_generation g, bool force, struct err *e);
void prompt_close(struct prompt *p);
/* "auto", "mt", "mt1.5", "mt2" */
bool prompt_generation_parse(const char *name, enum prompt_generation *out);

/* Ids of the plain translation prompt.  from NULL = not given.  *n_prefix gets how many leading ids are the same
 * for any text into that language (never more: the instruction's last piece, which may grow into the text, is not
 * among them).  A prompt longer than cap: ERR_TEXT_TOO_LONG. */
MUST_CHECK enum err_code prompt_build(const struct prompt *p, struct encoder *enc, const struct language *from,
                                      const struct language *to, const char *text, size_t len, int32_t *ids, size_t cap,
                                      size_t *n, size_t *n_prefix, struct err *e);

/* The id that ends an answer by the template, for the union with the model's. */
int prompt_eos(const struct prompt *p);
const char *prompt_describe(const struct prompt *p); /* "family 1.8b, prompts mt1.5" for logs */

/* true when text clearly is Chinese, as above. */
bool prompt_text_is_chinese(const char *text, size_t len);

#endif
