#include "cuda/norm.h"
#include "tests/gpu/gpu_test.h"
#include "tests/ref/ref.h"

#include <math.h>

static bf16 *random_bf16(struct gpu_test_run *t, float *plain, size_t n)
{
    bf16 *v = gpu_host(t, n * sizeof *v);

    for (size_t i = 0; i < n; i++)
        plain[i] = ref_from_bf16(v[i] = ref_to_bf16(gpu_normal(t)));
    return v;
}

static void check_packed(struct gpu_test_run *t, const char *what, const bf16 *card, int cap, int first, int rows,
                         int hidden, const float *want)
{
    const size_t n = (size_t)((hidden + 63) / 64 * 64) * (size_t)cap;
    bf16 *got = gpu_host(t, n * sizeof *got);
    double wrong = 0, norm = 0;

    gpu_download(t, got, card, n * sizeof *got);
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < hidden; i++) {
            const double g = ref_from_bf16(got[ref_act_at(first + r, i, cap)]),
                         w = want[(size_t)r * (size_t)hidden + (size_t)i];
            wrong += (g - w) * (g - w);
            norm += w * w;
        }
    (void)gpu_expect(t, sqrt(wrong / norm) < 4e-3, "%s, %d rows of %d: relative error %.3g", what, rows, hidden,
                     sqrt(wrong / norm));
}

/* splits 0: whole sums in bf16. */
static void check_residual(struct gpu_test_run *t, int hidden, int rows, int splits, bool picked)
{
    const int cap = 80, ld = (hidden + 127) / 128 * 128, first = picked ? 3 : 0, some = picked ? rows / 2 + 1 : rows;
    const bool is_rounded = splits == 0;
    const size_t n = (size_t)rows * (size_t)hidden,
                 parts = (size_t)(is_rounded ? 1 : splits) * (size_t)rows * (size_t)ld;
    float *x = gpu_host(t, n * 4), *part = gpu_host(t, parts * 4);
    float *w = gpu_host(t, (size_t)hidden * 4), *want = gpu_host(t, n * 4);
    int *pick = gpu_host(t, (size_t)some * sizeof *pick);
    struct err e = {0};

    for (size_t i = 0; i < n; i++)
        x[i] = gpu_normal(t);
    bf16 *rounded = gpu_host(t, parts * sizeof *rounded);
    for (size_t i = 0; i < parts; i++) {
        part[i] = gpu_normal(t);
        rounded[i] = ref_to_bf16(part[i]);
        if (is_rounded)
            part[i] = ref_from_bf16(rounded[i]);
    }
    for (int r = 0; r < some; r++)
        pick[r] = rows - 1 - r;
    const bf16 *cw = gpu_upload(t, random_bf16(t, w, (size_t)hidden), (size_t)hidden * 2);
    float *cx = gpu_upload(t, x, n * 4);
    bf16 *y = gpu_poisoned(t, (size_t)((hidden + 63) / 64 * 64) * (size_t)cap * 2);
    const struct norm norm = {cw, 1e-5f, hidden};

    const int *card_pick = picked ? gpu_upload(t, pick, (size_t)some * 4) : NULL;
    (void)gpu_ok(t,
                 is_rounded ? residual_norm_rounded(cx, gpu_upload(t, rounded, parts * 2), ld, y, cap, first, card_pick,
                                                    some, &norm, &t->gpu, &e)
                            : residual_norm(cx, gpu_upload(t, part, parts * 4), splits, rows, ld, y, cap, first,
                                            card_pick, some, &norm, &t->gpu, &e),
                 &e);
    for (int i = 0; i < some; i++) {
        const int r = picked ? pick[i] : i;
        float *row = x + (size_t)r * (size_t)hidden;
        for (int c = 0; c < hidden; c++)
            for (int s = 0; s < (is_rounded ? 1 : splits); s++)
                row[c] += part[((size_t)s * (size_t)rows + (size_t)r) * (size_t)ld + (size_t)c];
        ref_norm(want + (size_t)i * (size_t)hidden, row, w, hidden, 1e-5f);
    }
    check_packed(t, "residual", y, cap, first, some, hidden, want);
    float *got = gpu_host(t, n * 4);
    double wrong = 0;
    gpu_download(t, got, cx, n * 4);
    for (size_t i = 0; i < n; i++)
        wrong = fmax(wrong, fabs((double)got[i] - x[i]));
    (void)gpu_expect(t, wrong < 1e-4, "residual stream is off by %.3g", wrong);
}

static void residuals(struct gpu_test_run *t)
{
    static const int hidden[] = {8, 128, 192, 384, 2048, 4096, 8200};

    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++) {
        check_residual(t, hidden[i], 1, 1, false);
        check_residual(t, hidden[i], 37, 4, false);
        check_residual(t, hidden[i], 9, 6, true);
        check_residual(t, hidden[i], 37, 0, false);
        check_residual(t, hidden[i], 9, 0, true);
    }
}

static void embeddings(struct gpu_test_run *t)
{
    enum { VOCAB = 300, HIDDEN = 192, ROWS = 5, CAP = 8 };
    static const int tokens[ROWS] = {0, 299, 128, -1, 127};
    float *table = gpu_host(t, VOCAB * HIDDEN * 4), *w = gpu_host(t, HIDDEN * 4),
          *want = gpu_host(t, ROWS * HIDDEN * 4);
    struct matrix a;
    struct err e = {0};

    matrix_shape(&a, VOCAB, HIDDEN, &t->gpu);
    a.w = gpu_poisoned(t, matrix_bytes(&a));
    (void)gpu_ok(t,
                 matrix_pack(&a, gpu_upload(t, random_bf16(t, table, VOCAB * HIDDEN), VOCAB * HIDDEN * 2), 0, VOCAB, 0,
                             8, &t->gpu, &e),
                 &e);
    const struct norm norm = {gpu_upload(t, random_bf16(t, w, HIDDEN), HIDDEN * 2), 1e-5f, HIDDEN};
    bf16 *y = gpu_poisoned(t, HIDDEN * CAP * 2);
    float *x = gpu_poisoned(t, ROWS * HIDDEN * 4), *got = gpu_host(t, ROWS * HIDDEN * 4);
    (void)gpu_ok(t, embed_norm(x, y, CAP, &a, gpu_upload(t, tokens, sizeof tokens), ROWS, &norm, &t->gpu, &e), &e);
    gpu_download(t, got, x, ROWS * HIDDEN * 4);
    for (int r = 0; r < ROWS; r++) {
        for (int i = 0; i < HIDDEN; i++) {
            const float v = tokens[r] < 0 ? 0 : table[tokens[r] * HIDDEN + i];
            (void)gpu_expect(t, got[r * HIDDEN + i] == v, "token %d, element %d: %g, should be %g", tokens[r], i,
                             (double)got[r * HIDDEN + i], (double)v);
        }
        ref_norm(want + r * HIDDEN, got + r * HIDDEN, w, HIDDEN, 1e-5f);
    }
    check_packed(t, "embedding", y, CAP, 0, ROWS, HIDDEN, want);
}

const struct gpu_test norm_tests[] = {{"norm/residual_matches_the_reference", residuals},
                                      {"norm/embedding_reads_packed_rows", embeddings},
                                      {NULL, NULL}};
