/* tokenizer_parts.h -- what a tokenizer is made of; for tokenizer.c, encoder.c and decoder.c alone. */
#ifndef TEXT_TOKENIZER_PARTS_H
#define TEXT_TOKENIZER_PARTS_H

#include "text/bpe.h"
#include "text/pretokenizer.h"
#include "text/vocab.h"

#include <stdbool.h>

struct tokenizer {
    struct vocab *vocab;
    struct bpe *bpe;
    struct pretokenizer *pretokenizer;
    bool nfc; /* the normalizer; without it, text is taken as it is */
};

#endif
