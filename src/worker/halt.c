#include "worker/halt.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { RUNNING, DRAINING, FAILED, ABORTED };

enum err_code halt_open(struct halt *h, struct err *e)
{
    memset(h, 0, sizeof *h);
    atomic_init(&h->state, RUNNING);
    h->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (h->wake_fd < 0)
        return err_set(e, ERR_IO, ERR_STOP, "eventfd: %s", strerror(errno));
    pthread_mutex_init(&h->lock, NULL);
    return ERR_OK;
}

void halt_close(struct halt *h)
{
    if (h->wake_fd < 0)
        return;
    close(h->wake_fd);
    h->wake_fd = -1;
    pthread_mutex_destroy(&h->lock);
}

/* Only ever upwards; in a signal handler too: one lock-free atomic and one write. */
static void raise_to(struct halt *h, int state)
{
    int now = atomic_load(&h->state), saved = errno;
    unsigned long long one = 1;

    while (now < state && !atomic_compare_exchange_weak(&h->state, &now, state))
        ;
    if (write(h->wake_fd, &one, sizeof one) < 0)
        errno = saved; /* the counter is full: its reader is awake */
}

void halt_request(struct halt *h)
{
    raise_to(h, DRAINING);
}

static void keep_first(struct halt *h, const struct err *e)
{
    pthread_mutex_lock(&h->lock);
    if (e && h->first.code == ERR_OK)
        h->first = *e;
    pthread_mutex_unlock(&h->lock);
}

void halt_fail(struct halt *h, const struct err *e)
{
    keep_first(h, e);
    raise_to(h, FAILED);
}

void halt_abort(struct halt *h, const struct err *e)
{
    keep_first(h, e);
    raise_to(h, ABORTED);
}

bool halt_is_stopping(const struct halt *h)
{
    return atomic_load_explicit(&h->state, memory_order_relaxed) >= DRAINING;
}

bool halt_is_failed(const struct halt *h)
{
    return atomic_load_explicit(&h->state, memory_order_relaxed) >= FAILED;
}

bool halt_is_aborted(const struct halt *h)
{
    return atomic_load_explicit(&h->state, memory_order_relaxed) >= ABORTED;
}

enum err_code halt_error(struct halt *h, struct err *e)
{
    pthread_mutex_lock(&h->lock);
    if (e && h->first.code != ERR_OK)
        *e = h->first;
    enum err_code rc = h->first.code;
    pthread_mutex_unlock(&h->lock);
    return rc;
}
