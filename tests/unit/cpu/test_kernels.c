#include "cpu/kernels.h"
#include "tests/support/ref_kernels.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROWS = 33, MAX_COLS = 37, MAX_K = 400, STRIDE_EXTRA = 5 };

static uint64_t state;

static float number(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(state >> 32) * (1.0f / 2147483648.0f);
}

static void fill(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = number();
}

/* outputs and what lies behind them: anything that is left shows */
static void poison(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = NAN;
}

/* w as type t in *data, and exactly what it holds in w */
static void narrow(void *data, float *w, size_t n, enum dtype t)
{
    for (size_t i = 0; i < n; i++)
        if (t == DTYPE_BF16)
            ((uint16_t *)data)[i] = ref_to_bf16(w[i], &w[i]);
        else if (t == DTYPE_F16)
            ((uint16_t *)data)[i] = ref_to_f16(w[i], &w[i]);
        else
            ((float *)data)[i] = w[i];
}

static void check_product(const struct kernels *set, int rows, int cols, int k, enum dtype t, bool add)
{
    size_t stride = (size_t)k + STRIDE_EXTRA, out_stride = (size_t)cols + STRIDE_EXTRA;
    float *x = malloc((size_t)rows * stride * sizeof *x), *w = malloc((size_t)cols * (size_t)k * sizeof *w);
    float *out = malloc((size_t)rows * out_stride * sizeof *out), *scratch = malloc(KERNEL_COLS * (size_t)k * 4);
    void *data = malloc((size_t)cols * (size_t)k * 4); /* exactly sized: reading past it is seen by the sanitizer */
    double *ref = malloc((size_t)rows * (size_t)cols * sizeof *ref);

    poison(x, (size_t)rows * stride);
    for (int r = 0; r < rows; r++)
        fill(x + (size_t)r * stride, (size_t)k);
    fill(w, (size_t)cols * (size_t)k);
    narrow(data, w, (size_t)cols * (size_t)k, t);
    if (t != DTYPE_F32)
        data = realloc(data, (size_t)cols * (size_t)k * 2);
    poison(out, (size_t)rows * out_stride);
    for (int r = 0; add && r < rows; r++)
        for (int c = 0; c < cols; c++)
            out[(size_t)r * out_stride + (size_t)c] = 3;
    set->product(out, out_stride, x, stride, rows, data, t, cols, k, add, scratch);
    ref_product(ref, x, stride, rows, w, cols, k);
    for (int r = 0; r < rows; r++)
        for (size_t c = 0; c < out_stride; c++) {
            double got = out[(size_t)r * out_stride + c];
            if (c < (size_t)cols)
                cr_assert(fabs(got - ref[(size_t)r * (size_t)cols + c] - 3 * add) <= 2e-6 * sqrt(k) + 1e-6,
                          "%s rows %d cols %d k %d type %d: [%d, %zu] is %g, not %g", set->name, rows, cols, k, t, r, c,
                          got, ref[(size_t)r * (size_t)cols + c] + 3 * add);
            else
                cr_assert(isnan(got), "wrote behind column %d", cols);
        }
    free(x);
    free(w);
    free(out);
    free(scratch);
    free(data);
    free(ref);
}

Test(kernels, product_meets_the_reference_on_odd_shapes)
{
    static const int all_rows[] = {1, 2, 3, 4, 5, 6, 7, 13, 33}, all_cols[] = {1, 3, 4, 5, 16, 17, 37};
    static const int all_k[] = {1, 7, 16, 17, 63, 400};
    const struct kernels *set;

    for (int i = 0; (set = kernels_at(i)); i++)
        for (size_t r = 0; r < sizeof all_rows / sizeof *all_rows; r++)
            for (size_t c = 0; c < sizeof all_cols / sizeof *all_cols; c++)
                for (size_t k = 0; k < sizeof all_k / sizeof *all_k; k++)
                    for (int t = DTYPE_BF16; t <= DTYPE_F32; t++)
                        check_product(set, all_rows[r], all_cols[c], all_k[k], (enum dtype)t, (r + c + k) % 2);
}

Test(kernels, product_of_a_row_and_column_has_the_same_bits_in_any_company)
{
    enum { ROWS = 33, COLS = 37, K = 391 };
    static float x[ROWS * K], w[COLS * K], out[ROWS * COLS], scratch[KERNEL_COLS * K];
    static uint16_t data[COLS * K];
    const struct kernels *set;

    fill(x, ROWS * K);
    fill(w, COLS * K);
    narrow(data, w, COLS * K, DTYPE_BF16);
    for (int i = 0; (set = kernels_at(i)); i++) {
        set->product(out, COLS, x, K, ROWS, data, DTYPE_BF16, COLS, K, false, scratch);
        for (int rows = 1; rows <= 9; rows++)
            for (int r = 0; r + rows <= ROWS; r += rows)
                for (int c = 0; c < COLS; c++) {
                    float part[9], wide[9];

                    set->product(part, 1, x + r * K, K, rows, data + c * K, DTYPE_BF16, 1, K, false, scratch);
                    set->product(wide, 1, x + r * K, K, rows, w + c * K, DTYPE_F32, 1, K, false, scratch);
                    for (int j = 0; j < rows; j++) {
                        cr_assert(memcmp(&part[j], &out[(r + j) * COLS + c], 4) == 0, "%s: %d rows", set->name, rows);
                        cr_assert(memcmp(&wide[j], &out[(r + j) * COLS + c], 4) == 0, "%s: %d f32", set->name, rows);
                    }
                }
    }
}

Test(kernels, widen_is_exact_for_every_finite_16_bit_number)
{
    static uint16_t all[1 << 16];
    static float out[1 << 16];
    const struct kernels *set;
    float exact;

    for (int i = 0; i < 1 << 16; i++)
        all[i] = (uint16_t)i;
    for (int s = 0; (set = kernels_at(s)); s++) {
        set->widen(out, all, DTYPE_BF16, 65533);
        for (int i = 0; i < 65533; i++)
            if (isfinite(out[i]))
                cr_assert(ref_to_bf16(out[i], &exact) == i && exact == out[i], "%s bf16 %04x", set->name, i);
        set->widen(out, all, DTYPE_F16, 65533);
        for (int i = 0; i < 65533; i++)
            if ((i & 0x7c00) != 0x7c00)
                cr_assert(ref_to_f16(out[i], &exact) == i && exact == out[i], "%s f16 %04x is %g", set->name, i,
                          out[i]);
            else
                cr_assert(!isfinite(out[i]), "%s f16 %04x", set->name, i);
    }
}

Test(kernels, weigh_meets_the_reference_and_goes_on_across_blocks)
{
    enum { ROWS = 5, N = 37, D = 80, STRIDE = N + 3 };
    static float p[ROWS * STRIDE], v[N * D], out[ROWS * D], cut[ROWS * D];
    static double ref[ROWS * D];
    const struct kernels *set;

    fill(p, ROWS * STRIDE);
    fill(v, N * D);
    for (int i = 0; (set = kernels_at(i)); i++)
        for (int rows = 1; rows <= ROWS; rows++) {
            memset(out, 0, sizeof out);
            memset(cut, 0, sizeof cut);
            set->weigh(out, D, p, STRIDE, rows, v, N, D);
            for (int from = 0; from < N; from += 16)
                set->weigh(cut, D, p + from, STRIDE, rows, v + from * D, N - from < 16 ? N - from : 16, D);
            ref_weigh(ref, p, STRIDE, rows, v, N, D);
            cr_assert(memcmp(out, cut, sizeof out) == 0, "%s: cut into blocks, other bits", set->name);
            for (int j = 0; j < rows * D; j++)
                cr_assert(fabs(out[j] - ref[j]) < 1e-5, "%s: %g, not %g", set->name, out[j], ref[j]);
        }
}

Test(kernels, softmax_meets_the_reference_whatever_lies_behind_the_row)
{
    enum { N = 75 };
    float s[N + KERNEL_MAX_LANES], raw[N];
    double ref[N], sum;
    const struct kernels *set;

    for (int i = 0; (set = kernels_at(i)); i++)
        for (int n = 1; n <= N; n++) {
            for (int j = 0; j < n; j++)
                raw[j] = s[j] = 60 * number();
            poison(s + n, (size_t)(N + KERNEL_MAX_LANES - n));
            sum = ref_softmax(ref, raw, n, 0.7);
            cr_assert(fabs(set->softmax(s, n, 0.7f) / sum - 1) < 2e-6, "%s: sum of %d", set->name, n);
            for (int j = 0; j < n; j++)
                cr_assert(fabs(s[j] - ref[j]) <= 1e-5 * ref[j] + 1e-30, "%s: %g, not %g", set->name, s[j], ref[j]);
        }
}

Test(kernels, softmax_gives_nothing_to_what_is_infinitely_less_likely_and_keeps_not_a_number)
{
    const struct kernels *set;

    for (int i = 0; (set = kernels_at(i)); i++) {
        float s[KERNEL_MAX_LANES] = {1, -INFINITY, -FLT_MAX, 1}, bad[KERNEL_MAX_LANES] = {1, NAN, 2};

        cr_assert(set->softmax(s, 4, 1) == 2.0f && s[1] == 0 && s[2] == 0, "%s", set->name);
        cr_assert(isnan(set->softmax(bad, 3, 1)), "%s", set->name);
    }
}

Test(kernels, rmsnorm_rotate_and_swiglu_meet_the_reference)
{
    enum { N = 192 };
    float x[N], w[N], y[N], angles[2][N / 2];
    double ref[N];
    const struct kernels *set;

    for (int i = 0; (set = kernels_at(i)); i++) {
        for (int n = 1; n <= N; n++) {
            fill(x, (size_t)n);
            fill(w, (size_t)n);
            poison(y, N);
            set->rmsnorm(y, x, w, n, 1e-5f);
            ref_rmsnorm(ref, x, w, n, 1e-5);
            for (int j = 0; j < N; j++)
                cr_assert(j < n ? fabs(y[j] - ref[j]) < 2e-6 : isnan(y[j]), "%s: rmsnorm of %d", set->name, n);
            memcpy(y, x, (size_t)n * sizeof *y);
            set->swiglu(y, N, w, N, 1, n);
            for (int j = 0; j < N; j++)
                cr_assert(j < n ? fabs(y[j] - ref_swiglu(x[j], w[j])) < 1e-6 : isnan(y[j]), "%s: swiglu", set->name);
        }
        for (int d = 16; d <= N; d += 16) {
            fill(x, N);
            fill(angles[0], N);
            ref_rotate(ref, x, angles[0], angles[1], d);
            memcpy(y, x, sizeof y);
            set->rotate(y, angles[0], angles[1], d);
            for (int j = 0; j < N; j++)
                cr_assert(fabs(y[j] - (j < d ? ref[j] : x[j])) < 1e-6, "%s: rotate of %d", set->name, d);
        }
    }
}

Test(kernels, swiglu_has_no_overflow_at_either_end)
{
    const struct kernels *set;

    for (int i = 0; (set = kernels_at(i)); i++) {
        float gate[4] = {-1e4f, 1e4f, -100, NAN}, up[4] = {2, 2, 1e30f, 1};

        set->swiglu(gate, 4, up, 4, 1, 4);
        cr_assert(fabsf(gate[0]) < 1e-30f && gate[1] == 2e4f && isfinite(gate[2]) && isnan(gate[3]), "%s", set->name);
    }
}

Test(kernels, log_sum_meets_the_reference_and_finds_what_is_not_finite)
{
    enum { N = 61 };
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    float x[N], max, sum;
    double e[N];
    const struct kernels *set;

    for (int i = 0; (set = kernels_at(i)); i++)
        for (int n = 1; n <= N; n++) {
            double most = -INFINITY;

            for (int j = 0; j < n; j++)
                most = fmax(most, x[j] = 20 * number());
            cr_assert(set->log_sum(x, n, &max, &sum));
            cr_assert(max == (float)most && fabs(sum / ref_softmax(e, x, n, 1) - 1) < 2e-6, "%s: %d", set->name, n);
            for (int b = 0; b < 3; b++) {
                float keep = x[n / 2];

                x[n / 2] = bad[b];
                cr_assert_not(set->log_sum(x, n, &max, &sum), "%s: %g among %d", set->name, bad[b], n);
                x[n / 2] = keep;
            }
        }
}
