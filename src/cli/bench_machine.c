/* What this machine can do: matrix products by OpenBLAS, copies by memcpy. */
#include "cli/bench_machine.h"

#include "base/clock.h"
#include "cpu/kernels.h"
#include "cpu/pool.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PEAK = 1024, COPY_PIECE = 1 << 20, TRIES = 25 };
#define COPY_BYTES ((size_t)256 << 20)

struct bench_blas {
    void *library;
    void (*sgemm)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float *a, int lda,
                  const float *b, int ldb, float beta, float *c, int ldc);
    void (*set_threads)(int n);
};

struct bench_blas *bench_blas_open(void)
{
    static const char *const names[] = {"libopenblas.so.0", "libopenblas.so"};
    struct bench_blas *b = calloc(1, sizeof *b);

    if (!b)
        return NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !b->library; i++)
        b->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (b->library) {
        *(void **)&b->sgemm = dlsym(b->library, "cblas_sgemm");
        *(void **)&b->set_threads = dlsym(b->library, "openblas_set_num_threads");
    }
    if (b->sgemm && b->set_threads)
        return b;
    bench_blas_close(b);
    return NULL;
}

void bench_blas_close(struct bench_blas *b)
{
    if (!b)
        return;
    if (b->library)
        (void)dlclose(b->library); /* nothing to do where it fails */
    free(b);
}

void bench_blas_product(struct bench_blas *b, int threads, float *out, const float *x, int rows, const float *w,
                        int cols, int k)
{
    enum { ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112 };

    b->set_threads(threads);
    b->sgemm(ROW_MAJOR, PLAIN, TRANSPOSED, rows, cols, k, 1, x, k, w, k, 0, out, cols);
}

static float *numbers(size_t n)
{
    float *x = aligned_alloc(64, (n * sizeof *x + 63) / 64 * 64);

    for (size_t i = 0; x && i < n; i++)
        x[i] = (float)(i * 2654435761u % 1000) * 0.001f - 0.5f;
    return x;
}

/* --- own products, with or without threads --- */

struct own {
    const struct kernels *k;
    float *out, *scratch;
    const float *x;
    const void *w;
    enum dtype type;
    int rows, cols, depth, chunk;
};

static void own_task(void *arg, int task, int thread)
{
    const struct own *o = arg;
    int c = task * o->chunk, n = o->cols - c < o->chunk ? o->cols - c : o->chunk;
    size_t size = o->type == DTYPE_F32 ? 4 : 2;

    o->k->product(o->out + c, (size_t)o->cols, o->x, (size_t)o->depth, o->rows,
                  (const char *)o->w + (size_t)c * (size_t)o->depth * size, o->type, n, o->depth, false,
                  o->scratch + (size_t)thread * KERNEL_COLS * (size_t)o->depth);
}

static void own_product(struct pool *p, struct own *o)
{
    pool_run(p, own_task, o, (o->cols + o->chunk - 1) / o->chunk);
}

/* --- copies --- */

struct copy {
    char *to;
    const char *from;
};

static void copy_task(void *arg, int task, int thread)
{
    const struct copy *c = arg;

    (void)thread;
    memcpy(c->to + (size_t)task * COPY_PIECE, c->from + (size_t)task * COPY_PIECE, COPY_PIECE);
}

static enum err_code measure_copy(double *rate, struct pool *p, struct err *e)
{
    struct copy c = {.to = malloc(COPY_BYTES), .from = calloc(1, COPY_BYTES)};
    char *from = (char *)c.from;

    *rate = 0;
    if (!c.to || !from) {
        free(c.to);
        free(from);
        return err_set(e, ERR_NOMEM, ERR_STOP, "bench: no memory to measure copies");
    }
    memset(c.to, 1, COPY_BYTES);
    memset(from, 1, COPY_BYTES);
    for (int i = 0; i < TRIES; i++) {
        int64_t start = clock_mono_ns();

        pool_run(p, copy_task, &c, (int)(COPY_BYTES / COPY_PIECE));
        *rate = fmax(*rate, 2.0 * COPY_BYTES / ((double)(clock_mono_ns() - start) * 1e-9));
    }
    free(c.to);
    free(from);
    return ERR_OK;
}

/* --- the peak --- */

static enum err_code measure_peak(double *rate, struct bench_blas *blas, struct pool *p, struct err *e)
{
    int threads = pool_threads(p);
    float *x = numbers(PEAK * PEAK), *w = numbers(PEAK * PEAK), *out = numbers(PEAK * PEAK);
    float *scratch = numbers((size_t)threads * KERNEL_COLS * PEAK);
    struct own o = {.k = kernels_best(),
                    .out = out,
                    .x = x,
                    .w = w,
                    .scratch = scratch,
                    .type = DTYPE_F32,
                    .rows = PEAK,
                    .cols = PEAK,
                    .depth = PEAK,
                    .chunk = 2 * KERNEL_COLS};
    enum err_code rc = ERR_OK;

    *rate = 0;
    if (!x || !w || !out || !scratch)
        rc = err_set(e, ERR_NOMEM, ERR_STOP, "bench: no memory to measure products");
    for (int i = 0; rc == ERR_OK && i < TRIES; i++) {
        int64_t start = clock_mono_ns();

        if (blas)
            bench_blas_product(blas, threads, out, x, PEAK, w, PEAK, PEAK);
        else
            own_product(p, &o);
        *rate = fmax(*rate, 2.0 * PEAK * PEAK * PEAK / ((double)(clock_mono_ns() - start) * 1e-9));
    }
    free(x);
    free(w);
    free(out);
    free(scratch);
    return rc;
}

enum err_code bench_machine_measure(struct bench_machine *m, struct bench_blas *blas, int threads,
                                    struct bench_report *r, struct err *e)
{
    struct pool *p;
    enum err_code rc = pool_open(&p, threads, e);

    if (rc != ERR_OK)
        return rc;
    m->threads = pool_threads(p);
    if ((rc = measure_peak(&m->flops, blas, p, e)) == ERR_OK && (rc = measure_copy(&m->copy, p, e)) == ERR_OK)
        bench_row(r, "machine",
                  json_pack("{s:s, s:f, s:f, s:i}", "peak_by", blas ? "OpenBLAS" : "own products", "peak_gflops",
                            m->flops / 1e9, "copy_gbytes_per_s", m->copy / 1e9, "threads", m->threads),
                  "machine   %d threads: %s sgemm %.0f GFLOP/s, copy %.1f GB/s read and written", m->threads,
                  blas ? "OpenBLAS" : "(no OpenBLAS here) own", m->flops / 1e9, m->copy / 1e9);
    pool_close(p);
    return rc;
}

/* --- ours beside sgemm --- */

static double time_one(struct bench_blas *blas, struct pool *p, struct own *o, const float *wide)
{
    double best = INFINITY, flops = 2.0 * o->rows * o->cols * o->depth;
    int repeat = 1 + (int)(2e8 / flops);

    for (int i = 0; i < TRIES; i++) {
        int64_t start = clock_mono_ns();

        for (int k = 0; k < repeat; k++)
            if (wide)
                bench_blas_product(blas, 1, o->out, o->x, o->rows, wide, o->cols, o->depth);
            else
                own_product(p, o);
        best = fmin(best, (double)(clock_mono_ns() - start) * 1e-9 / repeat);
    }
    return flops / best;
}

static enum err_code compare_shape(struct bench_blas *blas, struct pool *p, int rows, int cols, int k,
                                   struct bench_report *r, struct err *e)
{
    size_t n = (size_t)cols * (size_t)k;
    float *x = numbers((size_t)rows * (size_t)k), *wide = numbers(n), *out = numbers((size_t)rows * (size_t)cols);
    float *scratch = numbers(KERNEL_COLS * (size_t)k);
    uint16_t *w = malloc(n * sizeof *w);
    struct own o = {.k = kernels_best(),
                    .out = out,
                    .x = x,
                    .w = w,
                    .scratch = scratch,
                    .type = DTYPE_BF16,
                    .rows = rows,
                    .cols = cols,
                    .depth = k,
                    .chunk = 4 * KERNEL_COLS};
    enum err_code rc = ERR_OK;

    if (x && wide && out && scratch && w) {
        double ours, theirs;

        for (size_t i = 0; i < n; i++) {
            uint32_t bits;
            memcpy(&bits, &wide[i], sizeof bits);
            w[i] = (uint16_t)(bits >> 16);
        }
        ours = time_one(NULL, p, &o, NULL);
        theirs = blas ? time_one(blas, p, &o, wide) : 0;
        bench_row(r, "products",
                  json_pack("{s:i, s:i, s:i, s:f, s:f}", "rows", rows, "cols", cols, "k", k, "own_bf16_gflops",
                            ours / 1e9, "sgemm_gflops", theirs / 1e9),
                  "products  %4d x %5d x %5d, one thread: own from bf16 %6.1f GFLOP/s, sgemm from f32 %6.1f", rows,
                  cols, k, ours / 1e9, theirs / 1e9);
    } else {
        rc = err_set(e, ERR_NOMEM, ERR_STOP, "bench: no memory for products");
    }
    free(x);
    free(wide);
    free(out);
    free(scratch);
    free(w);
    return rc;
}

enum err_code bench_products(const struct dims *d, struct bench_blas *blas, struct bench_report *r, struct err *e)
{
    static const int rows[] = {1, 8, 32, 256};
    struct pool *p;
    enum err_code rc = pool_open(&p, 1, e);

    for (int i = 0; rc == ERR_OK && i < 4; i++) {
        rc = compare_shape(blas, p, rows[i], d->inter, d->hidden, r, e);
        if (rc == ERR_OK)
            rc = compare_shape(blas, p, rows[i], d->hidden, d->inter, r, e);
    }
    pool_close(p);
    return rc;
}
