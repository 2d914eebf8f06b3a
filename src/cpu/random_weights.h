/* random_weights.h -- weights for a shape that has none: normal with deviation 0.02 in bf16, norms 1.
 * Owns:   one allocation that the copy of the model points into; the shape's model must outlive it. */
#ifndef CPU_RANDOM_WEIGHTS_H
#define CPU_RANDOM_WEIGHTS_H

#include "base/err.h"
#include "cpu/pool.h"
#include "model/model.h"

struct random_weights;

MUST_CHECK enum err_code random_weights_open(struct random_weights **out, const struct model *shape, struct pool *p,
                                             struct err *e);
void random_weights_close(struct random_weights *w); /* NULL is fine */
const struct model *random_weights_model(const struct random_weights *w);

#endif
