/* sampler.h -- from a row of logits to one token, exactly: the specification that other backends are held to.
 * Order:  repetition penalty over the ids seen (prompt and output, each once: a negative logit times it, else divided
 *         by it), temperature, top-k (equal logits: lowest id first), top-p (the fewest most likely tokens whose
 *         probabilities reach top_p), then a draw that walks the kept tokens by id up to u times their sum.
 *         A temperature below SAMPLER_GREEDY is greedy: the largest logit after the penalty, lowest id first.
 *         Parameters are as sampling_check() lets them through.
 * Thread: a sampler is one thread's; it holds scratch for the vocabulary. */
#ifndef CPU_SAMPLER_H
#define CPU_SAMPLER_H

#include "base/err.h"
#include "cpu/kernels.h"
#include "engine/backend.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SAMPLER_GREEDY 1e-6f

struct sampler;

MUST_CHECK enum err_code sampler_open(struct sampler **out, const struct kernels *k, int vocab, struct err *e);
void sampler_close(struct sampler *s); /* NULL is fine */
size_t sampler_bytes(int vocab);

/* Draws from logits[0..n), n <= vocab, with u in [0, 1).  seen: a bit an id.  *logprob is under the softmax of the
 * logits as they are.  false: a logit is not finite. */
MUST_CHECK bool sampler_draw(struct sampler *s, const float *logits, int n, const struct sampling *p,
                             const uint64_t *seen, double u, int32_t *token, float *logprob);

/* The probabilities [n] behind sampler_draw(). */
MUST_CHECK bool sampler_distribution(struct sampler *s, const float *logits, int n, const struct sampling *p,
                                     const uint64_t *seen, float *out);

#endif
