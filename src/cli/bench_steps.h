/* bench_steps.h -- steps of a backend, timed; and the time that they need at the least. */
#ifndef CLI_BENCH_STEPS_H
#define CLI_BENCH_STEPS_H

#include "base/err.h"
#include "cli/bench_machine.h"
#include "engine/backend.h"

/* What bounds n tokens of one step: the time that operations and bytes need at the machine's rates. */
struct bench_bound {
    double flops, bytes, seconds;
    const char *by; /* "flops" or "bytes" */
};
struct bench_bound bench_bound(const struct dims *d, size_t weight_bytes, size_t kv_token_bytes,
                               const struct bench_machine *m, int rows, int tokens_a_row, double context,
                               int heads_out);

struct bench_steps {
    double step_seconds; /* median */
    double context;      /* mean positions of a row in the measured steps */
};

/* rows prompts of n_prompt tokens, then `steps` decode steps of all rows, no end token: every output has this length. */
MUST_CHECK enum err_code bench_decode(const struct backend_ops *ops, struct backend *b, int vocab, int rows,
                                      int n_prompt, int steps, const struct sampling *s, struct bench_steps *out,
                                      struct err *e);
/* Prompts of n_prompt tokens fed one after the other, a step each. */
MUST_CHECK enum err_code bench_prompt(const struct backend_ops *ops, struct backend *b, int vocab, int n_prompt,
                                      int prompts, struct bench_steps *out, struct err *e);

#endif
