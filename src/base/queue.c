#include "base/queue.h"

#include "base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct queue {
    pthread_mutex_t lock;
    pthread_cond_t filled; /* on the monotonic clock */
    size_t capacity, head, count;
    int wake_fd;
    bool closed;
    void *slots[];
};

enum err_code queue_open(struct queue **out, size_t capacity, struct err *e)
{
    pthread_condattr_t attr;
    struct queue *q;

    *out = NULL;
    if (capacity == 0)
        capacity = 1;
    q = calloc(1, sizeof *q + capacity * sizeof q->slots[0]);
    if (!q)
        return err_set(e, ERR_NOMEM, ERR_STOP, "queue: no memory for %zu slots", capacity);
    q->capacity = capacity;
    q->wake_fd = -1;
    pthread_mutex_init(&q->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&q->filled, &attr);
    pthread_condattr_destroy(&attr);
    *out = q;
    return ERR_OK;
}

void queue_free(struct queue *q)
{
    if (!q)
        return;
    pthread_cond_destroy(&q->filled);
    pthread_mutex_destroy(&q->lock);
    free(q);
}

static void wake(int fd)
{
    uint64_t one = 1;

    if (fd >= 0 && write(fd, &one, sizeof one) < 0 && errno != EAGAIN)
        return; /* the counter is at its maximum or the owner is gone: it is awake, or never will be */
}

enum err_code queue_push(struct queue *q, void *item_ptr)
{
    return queue_push_all(q, item_ptr, 1);
}

/* With the lock held. */
static void append(struct queue *q, const void *items, size_t n)
{
    const size_t end = (q->head + q->count) % q->capacity;
    const size_t whole = n < q->capacity - end ? n : q->capacity - end; /* up to the end of the slots */

    memcpy(q->slots + end, items, whole * sizeof q->slots[0]);
    memcpy(q->slots, (const char *)items + whole * sizeof q->slots[0], (n - whole) * sizeof q->slots[0]);
    q->count += n;
}

enum err_code queue_push_all(struct queue *q, void *items, size_t n)
{
    int fd;

    if (n == 0)
        return ERR_OK;
    pthread_mutex_lock(&q->lock);
    if (q->closed || n > q->capacity - q->count) {
        enum err_code rc = q->closed ? ERR_CLOSED : ERR_BUSY;
        pthread_mutex_unlock(&q->lock);
        return rc;
    }
    fd = q->count == 0 ? q->wake_fd : -1; /* else it was told when the queue filled, and has not popped all since */
    append(q, items, n);
    memset(items, 0, n * sizeof q->slots[0]);
    if (n == 1)
        pthread_cond_signal(&q->filled);
    else
        pthread_cond_broadcast(&q->filled);
    pthread_mutex_unlock(&q->lock);
    wake(fd);
    return ERR_OK;
}

/* With the lock held: until something is there, it is closed, or time is up. */
static void wait_filled(struct queue *q, int64_t deadline_ns)
{
    while (q->count == 0 && !q->closed && deadline_ns > 0) {
        if (deadline_ns == INT64_MAX) {
            pthread_cond_wait(&q->filled, &q->lock);
        } else {
            struct timespec t = {deadline_ns / NS_PER_S, deadline_ns % NS_PER_S};
            if (pthread_cond_timedwait(&q->filled, &q->lock, &t) == ETIMEDOUT)
                break;
        }
    }
}

void *queue_pop(struct queue *q, int64_t deadline_ns)
{
    void *item = NULL;

    (void)queue_pop_all(q, &item, 1, deadline_ns); /* NULL stays where there is none */
    return item;
}

/* With the lock held. */
static void remove_oldest(struct queue *q, void *items, size_t n)
{
    const size_t whole = n < q->capacity - q->head ? n : q->capacity - q->head; /* up to the end of the slots */

    memcpy(items, q->slots + q->head, whole * sizeof q->slots[0]);
    memcpy((char *)items + whole * sizeof q->slots[0], q->slots, (n - whole) * sizeof q->slots[0]);
    q->head = (q->head + n) % q->capacity;
    q->count -= n;
}

size_t queue_pop_all(struct queue *q, void *items, size_t cap, int64_t deadline_ns)
{
    pthread_mutex_lock(&q->lock);
    wait_filled(q, deadline_ns);
    const size_t n = q->count < cap ? q->count : cap;
    remove_oldest(q, items, n);
    pthread_mutex_unlock(&q->lock);
    return n;
}

void *queue_pop_newest(struct queue *q, int64_t deadline_ns)
{
    void *item = NULL;

    pthread_mutex_lock(&q->lock);
    wait_filled(q, deadline_ns);
    if (q->count > 0)
        item = q->slots[(q->head + --q->count) % q->capacity];
    pthread_mutex_unlock(&q->lock);
    return item;
}

void queue_close(struct queue *q)
{
    int fd;

    pthread_mutex_lock(&q->lock);
    q->closed = true;
    fd = q->wake_fd;
    pthread_cond_broadcast(&q->filled);
    pthread_mutex_unlock(&q->lock);
    wake(fd);
}

bool queue_is_done(struct queue *q)
{
    pthread_mutex_lock(&q->lock);
    bool done = q->closed && q->count == 0;
    pthread_mutex_unlock(&q->lock);
    return done;
}

size_t queue_depth(struct queue *q)
{
    pthread_mutex_lock(&q->lock);
    size_t n = q->count;
    pthread_mutex_unlock(&q->lock);
    return n;
}

void queue_set_wake_fd(struct queue *q, int eventfd)
{
    pthread_mutex_lock(&q->lock);
    q->wake_fd = eventfd;
    pthread_mutex_unlock(&q->lock);
}
