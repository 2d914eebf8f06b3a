/* cpu_model.h -- a checkpoint opened on the CPU backend, for tests: what fails ends the test. */
#ifndef TESTS_SUPPORT_CPU_MODEL_H
#define TESTS_SUPPORT_CPU_MODEL_H

#include "engine/backend.h"

#define DEMO_MODEL "ops/demo/model"

struct cpu_model {
    struct model *m;
    struct backend *b;
    const struct backend_ops *ops;
    struct backend_info info;
};

struct cpu_model cpu_model_open(const char *dir, const struct backend_options *o);
void cpu_model_close(struct cpu_model *c);

#endif
