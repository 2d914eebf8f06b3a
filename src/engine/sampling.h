/* sampling.h -- which sampling values make sense. */
#ifndef ENGINE_SAMPLING_H
#define ENGINE_SAMPLING_H

#include "base/err.h"
#include "engine/backend.h"

/* ERR_INVALID_FIELD, act ERR_SKIP, names the value and what is allowed: temperature 0 to 100, top_p above 0 to 1,
 * top_k from 0, repetition_penalty 0.01 to 100.  Not a number is never allowed. */
MUST_CHECK enum err_code sampling_check(const struct sampling *s, struct err *e);

#endif
