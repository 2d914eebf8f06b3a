/* pool.h -- a few threads that share out the tasks of one step.
 * Owns:   options.threads - 1 threads named "cpu-N"; the caller is the first of them.
 * Thread: pool_run() from one thread at a time.
 * Waits:  idle threads spin for some ten microseconds, then sleep.  No task waits for another. */
#ifndef CPU_POOL_H
#define CPU_POOL_H

#include "base/err.h"

struct pool;

/* task: 0..n-1, each exactly once, in any order; thread: 0..pool_threads()-1, for scratch. */
typedef void pool_fn(void *arg, int task, int thread);

enum { POOL_MAX_THREADS = 256, POOL_MAX_TASKS = (1 << 20) - 1 };

/* threads 0 = one a core that this process may use. */
MUST_CHECK enum err_code pool_open(struct pool **out, int threads, struct err *e);
void pool_close(struct pool *p); /* NULL is fine */
int pool_threads(const struct pool *p);

/* Returns when all n tasks (at most POOL_MAX_TASKS) are done. */
void pool_run(struct pool *p, pool_fn *fn, void *arg, int n);

#endif
