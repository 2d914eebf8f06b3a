#include "worker/task.h"

#include "base/clock.h"
#include "base/hash.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Between the memory of one task and the next: not a power of two, or the first lines of all tasks would share a few sets
 * of the caches. */
enum { IDS_STRIDE = TASK_OWN_IDS + 16, BLOCK_STRIDE = TASK_OWN_BYTES + 64 };

enum { HUGE_BYTES = 2 << 20 }; /* a huge page */

enum { LINE = 64, RESULT_LINES = 12 }; /* a cache line's bytes; lines of a usual result */

struct task_pool {
    struct queue *free;
    struct task *tasks;
    size_t n;
    int32_t *ids; /* [n, IDS_STRIDE] */
    char *blocks; /* [n, BLOCK_STRIDE], of the arenas */
};

void task_list_add(struct task_list *l, struct task *t)
{
    t->next = NULL;
    if (l->last)
        l->last->next = t;
    else
        l->first = t;
    l->last = t;
    l->n++;
}

struct task *task_list_pop(struct task_list *l)
{
    struct task *t = l->first;

    if (!t)
        return NULL;
    l->first = t->next;
    if (!l->first)
        l->last = NULL;
    l->n--;
    t->next = NULL;
    return t;
}

void task_delay_init(struct task_delay *d)
{
    *d = (struct task_delay){.next_due_ns = INT64_MAX};
}

void task_delay_add(struct task_delay *d, struct task *t, int64_t now_ns, int backoff_ms, int max_ms)
{
    int doublings = t->tries < 20 ? t->tries : 20;
    int64_t ms = (int64_t)backoff_ms << doublings;

    if (ms > max_ms)
        ms = max_ms;
    t->tries++;
    uint64_t dice = hash_mix((uint64_t)(uintptr_t)t, (uint64_t)now_ns);
    int64_t ns = ms * NS_PER_MS * 3 / 4 + (int64_t)(dice % 1024) * ms * (NS_PER_MS / 2) / 1024;
    t->due_ns = now_ns + ns;
    t->next = d->first;
    d->first = t;
    d->n++;
    if (t->due_ns < d->next_due_ns)
        d->next_due_ns = t->due_ns;
}

struct task *task_delay_pop(struct task_delay *d, int64_t now_ns)
{
    struct task **found = NULL, *t;
    int64_t next = INT64_MAX;

    if (now_ns < d->next_due_ns || !d->first)
        return NULL;
    for (struct task **at = &d->first; *at; at = &(*at)->next) {
        if (!found && (*at)->due_ns <= now_ns)
            found = at;
        else if ((*at)->due_ns < next)
            next = (*at)->due_ns;
    }
    d->next_due_ns = next;
    if (!found)
        return NULL;
    t = *found;
    *found = t->next;
    t->next = NULL;
    d->n--;
    return t;
}

static enum err_code open_tasks(struct task_pool *p, size_t arena_limit, struct err *e)
{
    for (size_t i = 0; i < p->n; i++) {
        struct task *t = &p->tasks[i], *give = t;
        arena_init_in(&t->arena, p->blocks + i * BLOCK_STRIDE, BLOCK_STRIDE, arena_limit);
        t->own_ids = p->ids + i * IDS_STRIDE;
        if (queue_push(p->free, &give) != ERR_OK)
            return err_set(e, ERR_BUSY, ERR_STOP, "task pool: the queue is smaller than the pool");
    }
    return ERR_OK;
}

/* In huge pages where the kernel has them: thousands of tasks are more pages than the processor keeps addresses of.
 * Zeroed; free() gives it back. */
static void *place(size_t n, size_t size)
{
    size_t bytes = (n * size + HUGE_BYTES - 1) & ~(size_t)(HUGE_BYTES - 1);
    void *at;

    if (bytes < n * size || bytes <= HUGE_BYTES)
        return calloc(n, size);
    if (!(at = aligned_alloc(HUGE_BYTES, bytes)))
        return NULL;
    if (madvise(at, bytes, MADV_HUGEPAGE) != 0)
        errno = 0; /* a kernel without: usual pages do */
    memset(at, 0, bytes);
    return at;
}

enum err_code task_pool_open(struct task_pool **out, size_t tasks, size_t arena_limit, struct err *e)
{
    enum err_code rc;
    struct task_pool *p = calloc(1, sizeof *p);

    *out = NULL;
    if (!p)
        return err_set(e, ERR_NOMEM, ERR_STOP, "task pool: no memory");
    p->n = tasks;
    if ((rc = queue_open(&p->free, tasks, e)) != ERR_OK)
        goto out;
    p->tasks = place(tasks, sizeof p->tasks[0]);
    p->ids = place(tasks, IDS_STRIDE * sizeof p->ids[0]);
    p->blocks = place(tasks, BLOCK_STRIDE);
    if (!p->tasks || !p->ids || !p->blocks) {
        rc = err_set(e, ERR_NOMEM, ERR_STOP, "no memory for %zu tasks", tasks);
        goto out;
    }
    if ((rc = open_tasks(p, arena_limit, e)) != ERR_OK)
        goto out;
    *out = p;
    p = NULL;
out:
    task_pool_close(p);
    return rc;
}

void task_pool_close(struct task_pool *p)
{
    if (!p)
        return;
    for (size_t i = 0; p->tasks && i < p->n; i++) {
        free(p->tasks[i].large_ids);
        arena_free(&p->tasks[i].arena);
    }
    free(p->tasks);
    free(p->ids);
    free(p->blocks);
    queue_free(p->free);
    free(p);
}

struct task *task_pool_take(struct task_pool *p, int64_t deadline_ns)
{
    return queue_pop_newest(p->free, deadline_ns);
}

/* The texts of the two errors are some four in ten of a task's bytes, and nearly always empty. */
static void clear(struct task *t)
{
    char *from = (char *)t, *request_text = t->request.error.msg, *text = t->error.msg;
    char *after_request_text = request_text + sizeof t->request.error.msg, *after_text = text + sizeof t->error.msg;

    memset(from, 0, (size_t)(request_text - from) + 1);
    memset(after_request_text, 0, (size_t)(text - after_request_text) + 1);
    memset(after_text, 0, (size_t)((char *)(t + 1) - after_text));
}

static void clean(struct task *t)
{
    struct arena arena = t->arena;
    int32_t *ids = t->own_ids;

    free(t->large_ids);
    clear(t);
    arena_reset(&arena);
    t->arena = arena;
    t->own_ids = ids;
}

void task_pool_give(struct task_pool *p, struct task *t)
{
    task_pool_give_all(p, &t, 1);
}

void task_pool_give_all(struct task_pool *p, struct task **tasks, int n)
{
    for (int i = 0; i < n; i++)
        clean(tasks[i]);
    if (n > 0 && queue_push_all(p->free, tasks, (size_t)n) != ERR_OK)
        abort(); /* given twice: there are as many slots as tasks */
}

void task_fetch(const struct task *t)
{
    const void *const lines[] = {&t->record,
                                 &t->job.metadata,
                                 &t->request.sampling,
                                 &t->request.output,
                                 &t->request.error,
                                 &t->request.sum_logprob,
                                 &t->request.finished_ns,
                                 &t->started_ns,
                                 &t->attempts,
                                 &t->lane,
                                 &t->out.value,
                                 &t->sent_ns};

    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        __builtin_prefetch(lines[i]);
}

void task_fetch_record(const struct task *t)
{
    record_ask_for(t->record);
}

void task_fetch_result(const struct task *t)
{
    task_fetch_record(t);
    __builtin_prefetch(t->request.output);
    __builtin_prefetch(t->job.job_id.s);
    for (uintptr_t i = 0, at = (uintptr_t)t->arena.at; i < RESULT_LINES; i++)
        __builtin_prefetch((const void *)(at + i * LINE), 1); /* also past the end: no access */
}

enum err_code task_take_ids(struct task *t, size_t n, int32_t **ids, struct err *e)
{
    *ids = t->own_ids;
    if (n <= TASK_OWN_IDS)
        return ERR_OK;
    free(t->large_ids);
    *ids = t->large_ids = malloc(n * sizeof **ids);
    if (!*ids)
        return err_set(e, ERR_NOMEM, ERR_RETRY, "no memory for %zu token ids", n);
    return ERR_OK;
}

int task_pool_in_use(struct task_pool *p)
{
    return (int)(p->n - queue_depth(p->free));
}

struct task *task_pool_next_held(struct task_pool *p)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->tasks[i].record)
            return &p->tasks[i];
    return NULL;
}

static void set_error(struct task *t, enum err_code code, const char *fmt, va_list ap)
{
    char text[sizeof t->error.msg];

    vsnprintf(text, sizeof text, fmt, ap);
    err_set(&t->error, code, ERR_SKIP, "%s", text);
}

void task_kill(struct task *t, enum err_code code, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    set_error(t, code, fmt, ap);
    va_end(ap);
    t->outcome = OUTCOME_DEAD_LETTER;
}

void task_expire(struct task *t, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    set_error(t, ERR_DEADLINE_PASSED, fmt, ap);
    va_end(ap);
    t->request.finish = FINISH_DEADLINE;
    t->outcome = OUTCOME_RESULT;
}
