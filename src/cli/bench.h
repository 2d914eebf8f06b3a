/* bench.h -- the parts of `translate-worker bench`: what the machine can do, what the backend and the tokenizer do,
 * and the rows of its report. */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include "base/err.h"
#include "engine/backend.h"

#include <jansson.h>
#include <stdbool.h>

/* --- the report: a line for people at once, or one JSON object at the end --- */

struct bench_report {
    json_t *root; /* NULL: lines */
};

/* Adds a row to a section and prints its line; row is taken over.  Values are numbers in the unit that their name ends
 * in: _per_s, _ms, _gflops, _gbytes_per_s, _share (of 1). */
void bench_row(struct bench_report *r, const char *section, json_t *row, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* --- the machine --- */

struct bench_machine {
    double flops; /* a second: OpenBLAS sgemm, 1024 cubed, all threads; best of some */
    double copy;  /* bytes read and written a second: memcpy of 256 MiB, all threads; best of some */
    int threads;
};

/* The sgemm of OpenBLAS, found at run time; NULL where it is not installed.  out[rows, cols] = x[rows, k] w[cols, k]^T. */
struct bench_blas;
struct bench_blas *bench_blas_open(void);
void bench_blas_close(struct bench_blas *b); /* NULL is fine */
void bench_blas_product(struct bench_blas *b, int threads, float *out, const float *x, int rows, const float *w,
                        int cols, int k);

/* Without OpenBLAS the backend's own products are the peak, and the row says so. */
MUST_CHECK enum err_code bench_machine_measure(struct bench_machine *m, struct bench_blas *blas, int threads,
                                               struct bench_report *r, struct err *e);
/* Our products against sgemm on the model's shapes, one thread. */
MUST_CHECK enum err_code bench_products(const struct dims *d, struct bench_blas *blas, struct bench_report *r,
                                        struct err *e);

/* --- a backend --- */

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

/* --- the tokenizer --- */

MUST_CHECK enum err_code bench_tokenizer(const char *model_dir, struct bench_report *r, struct err *e);

#endif
