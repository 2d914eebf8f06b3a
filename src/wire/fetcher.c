#include "wire/fetcher.h"

#include "base/clock.h"
#include "base/log.h"
#include "wire/registry.h"

#include <pthread.h>
#include <stdlib.h>

/* IDLE --start--> ASKED --the thread--> ANSWERED --take--> IDLE */
enum state { IDLE, ASKED, ANSWERED };

struct fetcher {
    struct registry *registry; /* the thread's alone */
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock; /* of what follows; not held during an exchange */
    pthread_cond_t changed;
    enum state state;
    bool closing;
    struct fetched answer; /* id: set by start; the rest: by the thread */
};

static void *run(void *arg)
{
    struct fetcher *f = arg;
    struct fetched a;

    log_thread_name("registry");
    pthread_mutex_lock(&f->lock);
    for (;;) {
        while (f->state != ASKED && !f->closing)
            pthread_cond_wait(&f->changed, &f->lock);
        if (f->closing)
            break;
        a = (struct fetched){.id = f->answer.id};
        pthread_mutex_unlock(&f->lock);
        a.rc = registry_fetch(f->registry, a.id, &a.text, &a.n, &a.why);
        pthread_mutex_lock(&f->lock);
        f->answer = a;
        f->state = ANSWERED;
        pthread_cond_broadcast(&f->changed);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

static void init_lock(struct fetcher *f)
{
    pthread_condattr_t attr;

    pthread_mutex_init(&f->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&f->changed, &attr);
    pthread_condattr_destroy(&attr);
}

enum err_code fetcher_open(struct fetcher **out, const char *url, int timeout_ms, struct err *e)
{
    struct fetcher *f = calloc(1, sizeof *f);
    enum err_code rc;

    *out = NULL;
    if (!f)
        return err_set(e, ERR_NOMEM, ERR_STOP, "registry: out of memory");
    init_lock(f);
    if ((rc = registry_open(&f->registry, url, timeout_ms, e)) != ERR_OK)
        goto out;
    if (pthread_create(&f->thread, NULL, run, f) != 0) {
        rc = err_set(e, ERR_NOMEM, ERR_STOP, "registry: no thread");
        goto out;
    }
    f->has_thread = true;
    *out = f;
    f = NULL; /* moved to the caller */
out:
    fetcher_close(f);
    return rc;
}

void fetcher_close(struct fetcher *f)
{
    if (!f)
        return;
    if (f->has_thread) {
        pthread_mutex_lock(&f->lock);
        f->closing = true;
        pthread_cond_broadcast(&f->changed);
        pthread_mutex_unlock(&f->lock);
        registry_cancel(f->registry);
        pthread_join(f->thread, NULL);
    }
    registry_close(f->registry);
    free(f->answer.text);
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

bool fetcher_start(struct fetcher *f, int32_t id)
{
    pthread_mutex_lock(&f->lock);
    bool idle = f->state == IDLE;
    if (idle) {
        f->answer = (struct fetched){.id = id};
        f->state = ASKED;
        pthread_cond_broadcast(&f->changed);
    }
    pthread_mutex_unlock(&f->lock);
    return idle;
}

bool fetcher_take(struct fetcher *f, int wait_ms, struct fetched *out)
{
    int64_t until = clock_mono_ns() + wait_ms * NS_PER_MS;
    struct timespec t = {.tv_sec = until / NS_PER_S, .tv_nsec = until % NS_PER_S};
    bool answered;

    pthread_mutex_lock(&f->lock);
    while (f->state == ASKED && wait_ms > 0)
        if (pthread_cond_timedwait(&f->changed, &f->lock, &t) != 0)
            break;
    answered = f->state == ANSWERED;
    if (answered) {
        *out = f->answer;
        f->answer = (struct fetched){0};
        f->state = IDLE;
    }
    pthread_mutex_unlock(&f->lock);
    return answered;
}
