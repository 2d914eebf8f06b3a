#include "tests/support/cpu_model.h"

#include "cpu/cpu_backend.h"

#include <stdio.h>
#include <stdlib.h>

struct cpu_model cpu_model_open(const char *dir, const struct backend_options *o)
{
    struct cpu_model c = {.ops = &backend_cpu_ops};
    struct err e = {0};

    if (model_open(&c.m, dir, &e) != ERR_OK || c.ops->open(&c.b, c.m, o, &e) != ERR_OK) {
        fprintf(stderr, "%s: %s\n", dir, e.msg);
        abort();
    }
    c.ops->info(c.b, &c.info);
    return c;
}

void cpu_model_close(struct cpu_model *c)
{
    c->ops->close(c->b);
    model_close(c->m);
}
