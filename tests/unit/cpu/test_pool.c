#include "cpu/pool.h"

#include <criterion/criterion.h>
#include <stdatomic.h>
#include <unistd.h>

enum { MAX_TASKS = 100 };

struct counts {
    atomic_int task[MAX_TASKS];
    atomic_int bad_thread;
    int threads;
};

static void count(void *arg, int task, int thread)
{
    struct counts *c = arg;

    atomic_fetch_add(&c->task[task], 1);
    if (thread < 0 || thread >= c->threads)
        atomic_store(&c->bad_thread, 1);
}

static void count_twice(void *arg, int task, int thread)
{
    count(arg, task, thread);
    count(arg, task, thread);
}

Test(pool, runs_each_task_once_in_every_run)
{
    static const int threads[] = {1, 2, 3, 7};

    for (int t = 0; t < 4; t++) {
        struct counts c = {.threads = threads[t]};
        struct pool *p;
        int expected[MAX_TASKS] = {0};

        cr_assert(pool_open(&p, threads[t], NULL) == ERR_OK);
        cr_assert(pool_threads(p) == threads[t]);
        for (int run = 0; run < 3000; run++) {
            int n = run * 7 % (MAX_TASKS + 1), twice = run % 3 == 0;

            pool_run(p, twice ? count_twice : count, &c, n);
            for (int i = 0; i < n; i++)
                expected[i] += 1 + twice;
            for (int i = 0; i < MAX_TASKS; i++)
                cr_assert(atomic_load(&c.task[i]) == expected[i], "run %d of %d tasks, task %d", run, n, i);
        }
        cr_assert(atomic_load(&c.bad_thread) == 0);
        pool_close(p);
    }
}

/* Every thread must take one before any can go on: only threads that were woken can end it. */
struct meeting {
    atomic_int arrived;
    int n;
};

static void meet(void *arg, int task, int thread)
{
    struct meeting *m = arg;

    (void)task;
    (void)thread;
    atomic_fetch_add(&m->arrived, 1);
    while (atomic_load(&m->arrived) < m->n)
        usleep(50);
}

Test(pool, wakes_threads_that_went_to_sleep, .timeout = 30)
{
    struct pool *p;

    cr_assert(pool_open(&p, 3, NULL) == ERR_OK);
    for (int run = 0; run < 20; run++) {
        struct meeting m = {.n = 3};

        usleep(3000); /* far longer than they spin: they sleep, or the run below shows nothing but is still right */
        pool_run(p, meet, &m, 3);
        cr_assert(atomic_load(&m.arrived) == 3);
    }
    pool_close(p);
}

Test(pool, closes_without_ever_having_run)
{
    struct pool *p;

    for (int i = 0; i < 50; i++) {
        cr_assert(pool_open(&p, 4, NULL) == ERR_OK);
        pool_close(p);
    }
    pool_close(NULL);
}
