/* eos.h -- end-of-sequence ids: a number, a list or nothing, in config.json and in generation_config.json. */
#ifndef MODEL_EOS_H
#define MODEL_EOS_H

#include "model/model.h"

#include <jansson.h>

/* Adds eos_token_id of o to the set eos[0..*n); each must be below vocab.  eod_token_id is not read: where it is
 * written it is often the configuration class's default, an ordinary token. */
MUST_CHECK enum err_code eos_read(int eos[MODEL_MAX_EOS], int *n, const json_t *o, int vocab, const char *where,
                                  struct err *e);
/* Adds one id unless it is there; false = full. */
MUST_CHECK bool eos_add(int eos[MODEL_MAX_EOS], int *n, int id);

#endif
