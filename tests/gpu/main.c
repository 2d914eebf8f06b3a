/* test-gpu [PREFIX...] -- runs the tests whose names begin with one of the prefixes, all without any.
 * Ends with "N passed, N failed"; where no card is, one line says so and nothing fails.  test-gpu --card only asks whether
 * there is one: exit code 1 where not. */
#include "tests/gpu/gpu_test.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_ALLOCATIONS = 8192, MOST_LINES = 6 };

static struct {
    void *card[MOST_ALLOCATIONS], *host[MOST_ALLOCATIONS];
    int n_card, n_host;
} taken; /* by the running test: freed behind it */

bool gpu_expect(struct gpu_test_run *t, bool ok, const char *fmt, ...)
{
    va_list ap;

    if (ok)
        return true;
    if (t->failures++ < MOST_LINES) {
        printf("    ");
        va_start(ap, fmt);
        vprintf(fmt, ap);
        va_end(ap);
        printf("\n");
    }
    return false;
}

bool gpu_ok(struct gpu_test_run *t, enum err_code rc, const struct err *e)
{
    return gpu_expect(t, rc == ERR_OK, "%s: %s", err_name(rc), e->msg);
}

uint32_t gpu_random(struct gpu_test_run *t)
{
    t->random = t->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(t->random >> 32);
}

float gpu_normal(struct gpu_test_run *t)
{
    float s = 0;

    for (int i = 0; i < 12; i++)
        s += (float)(gpu_random(t) >> 8) / (1 << 24);
    return s - 6;
}

static void *card_memory(size_t bytes)
{
    void *p = NULL;

    if (taken.n_card == MOST_ALLOCATIONS || cudaMalloc(&p, bytes ? bytes : 1) != cudaSuccess) {
        printf("no memory on the card for %zu bytes\n", bytes);
        exit(1);
    }
    taken.card[taken.n_card++] = p;
    return p;
}

void *gpu_poisoned(struct gpu_test_run *t, size_t bytes)
{
    void *p = card_memory(bytes);

    (void)gpu_expect(t, cudaMemset(p, 0xff, bytes) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess,
                     "cannot fill memory");
    return p;
}

void *gpu_upload(struct gpu_test_run *t, const void *from, size_t bytes)
{
    void *p = card_memory(bytes);

    (void)gpu_expect(t,
                     cudaMemcpy(p, from, bytes, cudaMemcpyHostToDevice) == cudaSuccess &&
                         cudaDeviceSynchronize() == cudaSuccess,
                     "cannot upload");
    return p;
}

void gpu_download(struct gpu_test_run *t, void *to, const void *from, size_t bytes)
{
    cudaError_t rc = cudaStreamSynchronize(t->gpu.stream);

    if (rc == cudaSuccess)
        rc = cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost);
    (void)gpu_expect(t, rc == cudaSuccess, "cannot download: %s", cudaGetErrorString(rc));
}

void *gpu_host(struct gpu_test_run *t, size_t bytes)
{
    void *p = calloc(1, bytes ? bytes : 1);

    (void)t;
    if (!p || taken.n_host == MOST_ALLOCATIONS)
        abort();
    taken.host[taken.n_host++] = p;
    return p;
}

static void free_taken(void)
{
    while (taken.n_card > 0)
        (void)cudaFree(taken.card[--taken.n_card]); /* a broken card was reported by the test */
    while (taken.n_host > 0)
        free(taken.host[--taken.n_host]);
}

static bool is_chosen(const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strncmp(name, argv[i], strlen(argv[i])) == 0)
            return true;
    return argc < 2;
}

static double seconds(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    const struct gpu_test *const lists[] = {product_tests, norm_tests, attention_tests, sample_tests, backend_tests};
    struct gpu_test_run t = {.random = 1};
    struct err e = {0};
    int passed = 0, failed = 0;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (gpu_open(&t.gpu, 0, &e) != ERR_OK) {
        printf("test-gpu: skipped, %s\n", e.msg);
        return argc == 2 && strcmp(argv[1], "--card") == 0;
    }
    if (argc == 2 && strcmp(argv[1], "--card") == 0)
        return 0;
    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++)
        for (const struct gpu_test *test = lists[l]; test->name; test++) {
            if (!is_chosen(test->name, argc, argv))
                continue;
            const double start = seconds();
            t.failures = 0;
            t.random = 1;
            test->run(&t);
            free_taken();
            printf("%s %s (%.2f s)%s\n", t.failures ? "FAIL" : "ok  ", test->name, seconds() - start,
                   t.failures > MOST_LINES ? " and more" : "");
            *(t.failures ? &failed : &passed) += 1;
        }
    gpu_close(&t.gpu);
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
