/* bench-device -- `translate-worker bench --shape ...` alone, for a machine that has a card and no Kafka. */
#include "cli/bench_device.h"
#include "cli/cli.h"
#include "cpu/cpu_backend.h"

#include <stdio.h>

int cli_fail(const struct err *e)
{
    fprintf(stderr, "bench-device: %s\n", e->msg);
    return EXIT_FAILED;
}

int main(int argc, char **argv)
{
    backend_register(&backend_cpu_ops);
    return bench_device(argc, argv);
}
