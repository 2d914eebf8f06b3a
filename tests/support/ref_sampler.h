/* ref_sampler.h -- the distribution that a token is drawn from, by full sorts in double: the specification. */
#ifndef TESTS_SUPPORT_REF_SAMPLER_H
#define TESTS_SUPPORT_REF_SAMPLER_H

#include "engine/backend.h"

/* out[0..n): probabilities.  seen[i]: id i stands in the prompt or the output. */
void ref_distribution(double *out, const float *logits, int n, const struct sampling *s, const bool *seen);

#endif
