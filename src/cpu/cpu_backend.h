/* cpu_backend.h -- the reference backend: plain, exact, synchronous (a step is done when step() returns).
 * Defaults of its choice: 64 rows, 256 prompt tokens a step, KV min(1 GiB, a quarter of the memory). */
#ifndef CPU_CPU_BACKEND_H
#define CPU_CPU_BACKEND_H

#include "engine/backend.h"

extern const struct backend_ops backend_cpu_ops;

#endif
