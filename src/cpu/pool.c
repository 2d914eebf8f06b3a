#define _GNU_SOURCE /* sched_getaffinity, pthread_setname_np */

#include "cpu/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* The ticket says it all in one word, so that a thread that comes late can never take a task of a run that is over,
 * nor read the task function of one run for a task of another:
 *
 *   63        40 39       20 19        0
 *   [ run      ] [ tasks   ] [ next    ]      taking a task = compare-and-swap next to next + 1 */
enum { TASK_BITS = 20, SPINS = 4000 };
#define TASK_MASK ((UINT64_C(1) << TASK_BITS) - 1)

struct pool {
    _Alignas(64) _Atomic uint64_t ticket;
    _Alignas(64) atomic_int done;
    _Alignas(64) _Atomic(pool_fn *) fn;
    _Atomic(void *) arg;
    atomic_int sleepers;
    atomic_bool stop, caller_sleeps;
    pthread_mutex_t lock;
    pthread_cond_t work, finished;
    int n_threads, n_started;
    struct worker {
        struct pool *pool;
        pthread_t thread;
        int index;
    } workers[POOL_MAX_THREADS];
};

static inline void spin(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static bool has_task(uint64_t ticket)
{
    return (ticket & TASK_MASK) < ((ticket >> TASK_BITS) & TASK_MASK);
}

/* Runs tasks until the current run has none left. */
static void take_tasks(struct pool *p, int thread)
{
    uint64_t t = atomic_load_explicit(&p->ticket, memory_order_acquire);

    while (has_task(t)) {
        pool_fn *fn = atomic_load_explicit(&p->fn, memory_order_relaxed);
        void *arg = atomic_load_explicit(&p->arg, memory_order_relaxed);

        if (!atomic_compare_exchange_weak_explicit(&p->ticket, &t, t + 1, memory_order_acq_rel, memory_order_acquire))
            continue;
        fn(arg, (int)(t & TASK_MASK), thread);
        if (atomic_fetch_add_explicit(&p->done, 1, memory_order_seq_cst) + 1 == (int)((t >> TASK_BITS) & TASK_MASK) &&
            atomic_load_explicit(&p->caller_sleeps, memory_order_seq_cst)) {
            pthread_mutex_lock(&p->lock);
            pthread_cond_signal(&p->finished);
            pthread_mutex_unlock(&p->lock);
        }
        t = atomic_load_explicit(&p->ticket, memory_order_acquire);
    }
}

static void wait_for_work(struct pool *p)
{
    for (int i = 0; i < SPINS; i++) {
        if (has_task(atomic_load_explicit(&p->ticket, memory_order_acquire)))
            return;
        spin();
    }
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->sleepers, 1);
    while (!has_task(atomic_load(&p->ticket)) && !atomic_load(&p->stop))
        pthread_cond_wait(&p->work, &p->lock);
    atomic_fetch_sub(&p->sleepers, 1);
    pthread_mutex_unlock(&p->lock);
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;

    while (!atomic_load_explicit(&w->pool->stop, memory_order_relaxed)) {
        take_tasks(w->pool, w->index);
        wait_for_work(w->pool);
    }
    return NULL;
}

static void wait_until_done(struct pool *p, int n)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&p->done, memory_order_acquire) == n)
            return;
        spin();
    }
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->caller_sleeps, true);
    while (atomic_load(&p->done) != n)
        pthread_cond_wait(&p->finished, &p->lock);
    atomic_store(&p->caller_sleeps, false);
    pthread_mutex_unlock(&p->lock);
}

void pool_run(struct pool *p, pool_fn *fn, void *arg, int n)
{
    uint64_t run = (atomic_load_explicit(&p->ticket, memory_order_relaxed) >> (2 * TASK_BITS)) + 1;

    if (p->n_started == 0 || n <= 1) {
        for (int i = 0; i < n; i++)
            fn(arg, i, 0);
        return;
    }
    atomic_store_explicit(&p->done, 0, memory_order_relaxed);
    atomic_store_explicit(&p->fn, fn, memory_order_relaxed);
    atomic_store_explicit(&p->arg, arg, memory_order_relaxed);
    atomic_store(&p->ticket, run << (2 * TASK_BITS) | (uint64_t)n << TASK_BITS);
    if (atomic_load(&p->sleepers) > 0) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_broadcast(&p->work);
        pthread_mutex_unlock(&p->lock);
    }
    take_tasks(p, 0);
    wait_until_done(p, n);
}

static int cores(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1;
    return CPU_COUNT(&set);
}

enum err_code pool_open(struct pool **out, int threads, struct err *e)
{
    struct pool *p;

    *out = NULL;
    if (threads <= 0)
        threads = cores();
    if (threads > POOL_MAX_THREADS)
        threads = POOL_MAX_THREADS;
    if (!(p = aligned_alloc(64, (sizeof *p + 63) / 64 * 64)))
        return err_set(e, ERR_NOMEM, ERR_STOP, "cpu: out of memory");
    *p = (struct pool){.n_threads = threads};
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->finished, NULL);
    for (int i = 1; i < threads; i++) {
        struct worker *w = &p->workers[i];
        char name[16];

        *w = (struct worker){.pool = p, .index = i};
        if (pthread_create(&w->thread, NULL, worker_main, w) != 0) {
            pool_close(p);
            return err_set(e, ERR_DEVICE, ERR_STOP, "cpu: thread %d of %d could not be started", i + 1, threads);
        }
        snprintf(name, sizeof name, "cpu-%d", i);
        pthread_setname_np(w->thread, name);
        p->n_started++;
    }
    *out = p;
    return ERR_OK;
}

void pool_close(struct pool *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->stop, true);
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (int i = 1; i <= p->n_started; i++)
        pthread_join(p->workers[i].thread, NULL);
    pthread_cond_destroy(&p->finished);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

int pool_threads(const struct pool *p)
{
    return p->n_threads;
}
