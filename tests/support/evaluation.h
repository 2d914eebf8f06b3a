/* evaluation.h -- tests/golden/demo/evaluation.json: prompts and the reference implementation's greedy outputs. */
#ifndef TESTS_SUPPORT_EVALUATION_H
#define TESTS_SUPPORT_EVALUATION_H

#include <stdint.h>

#define DEMO_EVALUATION "tests/golden/demo/evaluation.json"

struct evaluation_case {
    int32_t *prompt, *output; /* output: without the end token */
    int n_prompt, n_output;
};

struct evaluation {
    struct evaluation_case *cases;
    int n;
};

/* Ends the test program with a message where the file is not as expected. */
struct evaluation evaluation_load(const char *path);
void evaluation_free(struct evaluation *v);

#endif
