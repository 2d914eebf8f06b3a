/* gpu_test.h -- tests on a card: a small runner, since the machine that has one may have nothing else.
 * A test is a claim; each failure prints a line, and the first ones of a test are enough. */
#ifndef TESTS_GPU_GPU_TEST_H
#define TESTS_GPU_GPU_TEST_H

#include "cuda/gpu.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gpu_test_run {
    struct gpu gpu;
    int failures; /* of the running test */
    uint64_t random;
};

struct gpu_test {
    const char *name; /* module/claim */
    void (*run)(struct gpu_test_run *t);
};

/* The lists of the files; NULL name ends each. */
extern const struct gpu_test product_tests[], norm_tests[], attention_tests[], sample_tests[], backend_tests[];

/* Counts a failure and prints it when ok is false; returns ok. */
bool gpu_expect(struct gpu_test_run *t, bool ok, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
bool gpu_ok(struct gpu_test_run *t, enum err_code rc, const struct err *e);

uint32_t gpu_random(struct gpu_test_run *t); /* 32 bits */
float gpu_normal(struct gpu_test_run *t);    /* about normal, deviation 1 */

/* On the card, every bit set: not a number in bf16 and f32.  Freed at the end of the test. */
void *gpu_poisoned(struct gpu_test_run *t, size_t bytes);
void *gpu_upload(struct gpu_test_run *t, const void *from, size_t bytes);
void gpu_download(struct gpu_test_run *t, void *to, const void *from, size_t bytes);
void *gpu_host(struct gpu_test_run *t, size_t bytes); /* zeroed; freed at the end of the test */

#endif
