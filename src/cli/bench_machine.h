/* bench_machine.h -- what this machine can do: the rates that the rest of `translate-worker bench` is held against. */
#ifndef CLI_BENCH_MACHINE_H
#define CLI_BENCH_MACHINE_H

#include "base/err.h"
#include "cli/bench_report.h"
#include "engine/backend.h"

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

#endif
