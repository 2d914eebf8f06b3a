#include "cuda/product.h"
#include "tests/gpu/gpu_test.h"
#include "tests/ref/ref.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A matrix and an input, both packed on the card and plain here. */
struct product_case {
    struct matrix a;
    int rows, cap;
    float *w, *x; /* [m, k], [rows, k], rounded to bf16 */
    bf16 *card_x;
};

static void make_case(struct gpu_test_run *t, struct product_case *c, int m, int k, int rows, int stride)
{
    struct err e = {0};
    const size_t wn = (size_t)m * (size_t)k;
    bf16 *w = gpu_host(t, wn * sizeof *w);

    memset(c, 0, sizeof *c);
    matrix_shape(&c->a, m, k, &t->gpu);
    c->a.w = gpu_poisoned(t, matrix_bytes(&c->a));
    (void)cudaMemset(c->a.w, 0, matrix_bytes(&c->a));
    c->rows = rows;
    c->cap = (rows + 7) / 8 * 8;
    c->w = gpu_host(t, wn * sizeof(float));
    for (size_t i = 0; i < wn; i++)
        c->w[i] = ref_from_bf16(w[i] = ref_to_bf16(gpu_normal(t)));
    (void)cudaDeviceSynchronize();
    if (stride == 8) {
        (void)gpu_ok(t, matrix_pack(&c->a, gpu_upload(t, w, wn * 2), 0, m, 0, 8, &t->gpu, &e), &e);
    } else {
        const bf16 *at = gpu_upload(t, w, wn * 2);
        (void)gpu_ok(t, matrix_pack(&c->a, at, 0, m / 2, 0, 16, &t->gpu, &e), &e);
        (void)gpu_ok(t, matrix_pack(&c->a, at + wn / 2, 0, m / 2, 8, 16, &t->gpu, &e), &e);
    }

    const size_t xn = (size_t)((k + 63) / 64 * 64) * (size_t)c->cap + 256 * 64;
    bf16 *x = gpu_host(t, xn * sizeof *x);
    c->x = gpu_host(t, (size_t)rows * (size_t)k * sizeof(float));
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < k; i++)
            c->x[(size_t)r * (size_t)k + (size_t)i] =
                ref_from_bf16(x[ref_act_at(r, i, c->cap)] = ref_to_bf16(gpu_normal(t)));
    c->card_x = gpu_upload(t, x, xn * sizeof *x);
    (void)cudaStreamSynchronize(t->gpu.stream);
}

/* Sums over the splits of a sample of the outputs (all, where they are few). */
static void check_sums(struct gpu_test_run *t, const struct product_case *c, int splits, const float *out)
{
    const size_t ld = (size_t)c->a.m_tiles * 128;
    const int64_t all = (int64_t)c->a.m * c->rows, checks = all < 20000 ? all : 20000;
    double wrong = 0, norm = 0;

    for (int64_t i = 0; i < checks; i++) {
        const int64_t at =
            checks == all ? i : (int64_t)(((uint64_t)gpu_random(t) << 20 ^ gpu_random(t)) % (uint64_t)all);
        const int m = (int)(at % c->a.m), r = (int)(at / c->a.m);
        double got = 0;
        for (int s = 0; s < splits; s++)
            got += out[((size_t)s * (size_t)c->rows + (size_t)r) * ld + (size_t)m];
        const double want = ref_dot(c->w + (size_t)m * (size_t)c->a.k, c->x + (size_t)r * (size_t)c->a.k, c->a.k);
        wrong += (got - want) * (got - want);
        norm += want * want;
    }
    const double error = sqrt(wrong / norm);
    (void)gpu_expect(t, error < 1e-5, "[%d, %d] x %d rows, %d splits: relative error %.3g", c->a.m, c->a.k, c->rows,
                     splits, error);
    for (size_t i = 0; i < (size_t)splits * (size_t)c->rows * ld; i++)
        if (!gpu_expect(t, isfinite(out[i]), "[%d, %d] x %d rows: element %zu was not written", c->a.m, c->a.k, c->rows,
                        i))
            break;
}

static float *run_sums(struct gpu_test_run *t, const struct product_case *c, int rows, int splits)
{
    const size_t n = (size_t)splits * (size_t)rows * (size_t)c->a.m_tiles * 128;
    float *card = gpu_poisoned(t, (n + 64) * sizeof(float)), *out = gpu_host(t, (n + 64) * sizeof(float));
    struct err e = {0};

    (void)gpu_ok(t, product_sums(&c->a, c->card_x, c->cap, rows, splits, card, rows, &t->gpu, &e), &e);
    gpu_download(t, out, card, (n + 64) * sizeof(float));
    for (size_t i = n; i < n + 64; i++)
        (void)gpu_expect(t, isnan(out[i]), "written behind the end, at %zu", i - n);
    return out;
}

static const int row_counts[] = {1,   2,   7,   8,   9,   16,  17,  31,  64,  65,  96,
                                 100, 128, 129, 192, 200, 256, 257, 300, 512, 700, 1030};

static void sums(struct gpu_test_run *t)
{
    static const int shapes[][2] = {{128, 64}, {100, 72}, {515, 200}, {384, 1152}, {768, 2048}};
    struct err e = {0};

    (void)gpu_ok(t, product_prepare(&t->gpu, &e), &e);
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t i = 0; i < sizeof row_counts / sizeof *row_counts; i++) {
            struct product_case c;
            const struct gpu_test_run before = *t;
            if (i % 3 != s % 3 && s != 3)
                continue;
            make_case(t, &c, shapes[s][0], shapes[s][1], row_counts[i], 8);
            check_sums(t, &c, 1, run_sums(t, &c, c.rows, 1));
            if (c.a.k_blocks > 3)
                check_sums(t, &c, 3, run_sums(t, &c, c.rows, 3));
            if (t->failures > before.failures + 3)
                return;
        }
}

/* The same on the path of cards without warpgroup products. */
static void sums_elsewhere(struct gpu_test_run *t)
{
    const bool wgmma = t->gpu.wgmma;

    t->gpu.wgmma = false;
    sums(t);
    t->gpu.wgmma = wgmma;
}

static void alone_or_together(struct gpu_test_run *t)
{
    const bool wgmma = t->gpu.wgmma;
    struct product_case c;
    struct err e = {0};

    (void)gpu_ok(t, product_prepare(&t->gpu, &e), &e);
    make_case(t, &c, 384, 1024, 1024, 8);
    for (int path = 0; path < 2; path++) {
        t->gpu.wgmma = wgmma && path == 0;
        for (int splits = 1; splits <= 4; splits += 3) {
            const size_t ld = (size_t)c.a.m_tiles * 128;
            const float *all = run_sums(t, &c, 1024, splits);
            for (size_t i = 0; i < sizeof row_counts / sizeof *row_counts && row_counts[i] <= 1024; i++) {
                const int rows = row_counts[i];
                const float *some = run_sums(t, &c, rows, splits);
                for (int s = 0; s < splits; s++)
                    (void)gpu_expect(t,
                                     memcmp(some + (size_t)s * (size_t)rows * ld, all + (size_t)s * 1024 * ld,
                                            (size_t)rows * ld * 4) == 0,
                                     "path %d, split %d of %d: %d rows differ from the same rows among 1,024", path, s,
                                     splits, rows);
            }
        }
    }
    t->gpu.wgmma = wgmma;
}

/* What a kind of output leaves, as bytes: 0 sums, 1 rounded sums, 2 gates times ups. */
static void *run_kind(struct gpu_test_run *t, const struct product_case *c, int kind, int rows, size_t *bytes)
{
    const size_t m = (size_t)c->a.m_tiles * 128, n = (size_t)rows * m;
    struct err e = {0};
    void *card, *out;
    enum err_code rc;

    *bytes = kind == 0 ? n * 4 : kind == 1 ? n * 2 : n;
    card = gpu_poisoned(t, *bytes + 64);
    out = gpu_host(t, *bytes + 64);
    if (kind == 0)
        rc = product_sums(&c->a, c->card_x, c->cap, rows, 1, card, rows, &t->gpu, &e);
    else if (kind == 1)
        rc = product_rounded(&c->a, c->card_x, c->cap, rows, card, &t->gpu, &e);
    else
        rc = product_swiglu(&c->a, c->card_x, c->cap, rows, card, rows, &t->gpu, &e);
    (void)gpu_ok(t, rc, &e);
    gpu_download(t, out, card, *bytes + 64);
    for (size_t i = *bytes; i < *bytes + 64; i++)
        (void)gpu_expect(t, ((unsigned char *)out)[i] == 0xff, "kind %d: written behind the end, at %zu", kind,
                         i - *bytes);
    return out;
}

static void all_variants(struct gpu_test_run *t)
{
    static const int variants[] = {822,  813,   812,   1622,  1612,  3221,  6421,
                                   9621, 12822, 12821, 19221, 25621, 12831, 25631};
    static const int rows[] = {5, 16, 31, 96, 128, 129, 300, 600};
    struct product_case c;
    struct err e = {0};

    (void)gpu_ok(t, product_prepare(&t->gpu, &e), &e);
    make_case(t, &c, 768, 1024, 600, 8);
    for (size_t i = 0; i < sizeof rows / sizeof *rows && t->gpu.wgmma; i++)
        for (int kind = 0; kind < 3; kind++) {
            size_t bytes;
            const void *want = run_kind(t, &c, kind, rows[i], &bytes);
            for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
                t->gpu.force = variants[v];
                const void *got = run_kind(t, &c, kind, rows[i], &bytes);
                (void)gpu_expect(t, memcmp(want, got, bytes) == 0, "kind %d, %d rows: variant %d differs", kind,
                                 rows[i], variants[v]);
                t->gpu.force = 0;
            }
        }
}

/* Rounded sums are the sums, rounded. */
static void rounded_sums(struct gpu_test_run *t)
{
    static const int rows[] = {1, 9, 40, 100, 129, 300, 1000};
    const bool wgmma = t->gpu.wgmma;
    struct err e = {0};

    (void)gpu_ok(t, product_prepare(&t->gpu, &e), &e);
    for (int path = 0; path < 2; path++) {
        t->gpu.wgmma = wgmma && path == 0;
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            struct product_case c;
            size_t bytes;
            make_case(t, &c, 515, 200, rows[i], 8);
            const float *sums = run_kind(t, &c, 0, rows[i], &bytes);
            const bf16 *rounded = run_kind(t, &c, 1, rows[i], &bytes);
            for (size_t k = 0; k < bytes / 2; k++)
                if (!gpu_expect(t, rounded[k] == ref_to_bf16(sums[k]), "path %d, %d rows: element %zu", path, rows[i],
                                k))
                    break;
        }
    }
    t->gpu.wgmma = wgmma;
}

static void check_swiglu(struct gpu_test_run *t, int inter, int k, int rows)
{
    const int cap = (rows + 7) / 8 * 8 + 8, packed = (inter + 63) / 64 * 64;
    const size_t n = (size_t)packed * (size_t)cap;
    bf16 *card = gpu_poisoned(t, n * sizeof(bf16)), *out = gpu_host(t, n * sizeof(bf16));
    struct product_case c;
    struct err e = {0};
    double wrong = 0, norm = 0;

    make_case(t, &c, 2 * inter, k, rows, 16);
    (void)gpu_ok(t, product_swiglu(&c.a, c.card_x, c.cap, rows, card, cap, &t->gpu, &e), &e);
    gpu_download(t, out, card, n * sizeof(bf16));
    for (int r = 0; r < rows; r++)
        for (int f = 0; f < inter; f++) {
            const float *x = c.x + (size_t)r * (size_t)k;
            const double gate = ref_dot(c.w + (size_t)f * (size_t)k, x, k);
            const double want = ref_silu(gate) * ref_dot(c.w + (size_t)(inter + f) * (size_t)k, x, k);
            const double got = ref_from_bf16(out[ref_act_at(r, f, cap)]);
            wrong += (got - want) * (got - want);
            norm += want * want;
        }
    (void)gpu_expect(t, sqrt(wrong / norm) < 5e-3, "inner %d, k %d, %d rows: relative error %.3g", inter, k, rows,
                     sqrt(wrong / norm));
}

static void swiglus(struct gpu_test_run *t)
{
    static const int rows[] = {1, 8, 9, 33, 64, 70, 128, 150, 256, 300};
    const bool wgmma = t->gpu.wgmma;
    struct err e = {0};

    (void)gpu_ok(t, product_prepare(&t->gpu, &e), &e);
    for (int path = 0; path < 2; path++) {
        t->gpu.wgmma = wgmma && path == 0;
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            check_swiglu(t, 96, 128, rows[i]);
            check_swiglu(t, 72, 200, rows[i]);
        }
    }
    t->gpu.wgmma = wgmma;
}

const struct gpu_test product_tests[] = {{"product/sums_match_the_reference", sums},
                                         {"product/sums_match_on_the_portable_path", sums_elsewhere},
                                         {"product/a_row_does_not_depend_on_the_others", alone_or_together},
                                         {"product/every_variant_gives_the_same_bits", all_variants},
                                         {"product/rounded_sums_are_the_sums", rounded_sums},
                                         {"product/swiglu_matches_the_reference", swiglus},
                                         {NULL, NULL}};
