/* tokenizer_bench.h -- how fast a tokenizer encodes on one core, for the bench command. */
#ifndef TEXT_TOKENIZER_BENCH_H
#define TEXT_TOKENIZER_BENCH_H

#include "base/err.h"
#include "text/tokenizer.h"

#include <stdio.h>

/* Makes up a few megabytes of Latin and of Chinese text out of the vocabulary (words as frequent as Zipf's law has
 * them, one in eight put together from two tokens), encodes it line by line and prints a line for each kind: MB/s.
 * A kind that the vocabulary has no words of is left out. */
MUST_CHECK enum err_code tokenizer_bench(const struct tokenizer *t, FILE *out, struct err *e);

#endif
