/* product-bench [M K SPLITS ROWS]... -- every variant of a product: microseconds, TFLOP/s, and TB/s of weights.
 * SPLITS 0: gates times ups; -1: whole sums, rounded.  Four matrices in turn, so that weights come from memory as they do in a pass. */
#include "cuda/fill.h"
#include "cuda/product.h"

#include <stdio.h>
#include <stdlib.h>

enum { COPIES = 4, LAUNCHES = 24 };

static void fail(const struct err *e)
{
    fprintf(stderr, "product-bench: %s\n", e->msg);
    exit(1);
}

static void *take(size_t bytes)
{
    void *p = NULL;

    if (cudaMalloc(&p, bytes) != cudaSuccess)
        exit(1);
    return p;
}

static float time_variant(struct gpu *g, const struct matrix *a, const bf16 *x, int cap, int rows, int splits,
                          float *out)
{
    cudaEvent_t begin, end;
    struct err e = {0};
    float ms = 0;

    (void)cudaEventCreate(&begin);
    (void)cudaEventCreate(&end);
    for (int i = -COPIES; i < LAUNCHES; i++) {
        if (i == 0)
            (void)cudaEventRecord(begin, g->stream);
        const struct matrix *w = &a[(i + COPIES) % COPIES];
        if ((splits > 0    ? product_sums(w, x, cap, rows, splits, out, rows, g, &e)
             : splits == 0 ? product_swiglu(w, x, cap, rows, (bf16 *)out, cap, g, &e)
                           : product_rounded(w, x, cap, rows, (bf16 *)out, g, &e)) != ERR_OK)
            fail(&e);
    }
    (void)cudaEventRecord(end, g->stream);
    if (cudaEventSynchronize(end) != cudaSuccess)
        exit(1);
    (void)cudaEventElapsedTime(&ms, begin, end);
    return ms * 1e3f / LAUNCHES;
}

int main(int argc, char **argv)
{
    static const int variants[] = {0,    822,   813,   812,   1622,  1612,  3221, 6421,
                                   9621, 12822, 12821, 19221, 25621, 12831, 25631};
    struct gpu g;
    struct err e = {0};

    if (gpu_open(&g, 0, &e) != ERR_OK || product_prepare(&g, &e) != ERR_OK)
        fail(&e);
    for (int i = 1; i + 3 < argc; i += 4) {
        const int m = atoi(argv[i]), k = atoi(argv[i + 1]), splits = atoi(argv[i + 2]), rows = atoi(argv[i + 3]);
        const int cap = (rows + 7) / 8 * 8;
        struct matrix a[COPIES];
        for (int c = 0; c < COPIES; c++) {
            matrix_shape(&a[c], m, k, &g);
            a[c].w = take(matrix_bytes(&a[c]));
            if (fill_normal(a[c].w, matrix_bytes(&a[c]) / 2, (uint64_t)c, 0, 0.02f, &g, &e) != ERR_OK)
                fail(&e);
        }
        const size_t xn = (size_t)a[0].k_blocks * 64 * (size_t)cap + 256 * 64;
        bf16 *x = take(xn * 2);
        float *out = take((size_t)(splits > 0 ? splits : 1) * (size_t)(rows + 8) * (size_t)a[0].m_tiles * 128 * 4);
        if (fill_normal(x, xn, 9, 0, 1, &g, &e) != ERR_OK)
            fail(&e);
        printf("[%d, %d] splits %d, %d rows:\n", m, k, splits, rows);
        for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
            const int width = variants[v] / 100, tiles = width ? (rows + width - 1) / width : 1;
            g.force = variants[v];
            if (width && ((tiles > 1 && width < 128) || width >= rows * 4 + 8 ||
                          (variants[v] % 100 / 10 == 3 && a[0].m_tiles % 3 != 0)))
                continue;
            const double us = time_variant(&g, a, x, cap, rows, splits, out);
            printf("  %5d %8.2f us %6.0f TFLOP/s %5.2f TB/s\n", variants[v], us, 2.0 * m * k * rows / us * 1e-6,
                   (double)matrix_bytes(&a[0]) / us * 1e-6);
        }
        for (int c = 0; c < COPIES; c++)
            (void)cudaFree(a[c].w);
        (void)cudaFree(x);
        (void)cudaFree(out);
    }
    return 0;
}
