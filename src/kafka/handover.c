#include "kafka/handover.h"

#include "base/clock.h"
#include "kafka/wake.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum kind { NOTHING, PREPARE, JUDGE };

struct handover {
    int wake_fd; /* the consumer's */
    pthread_mutex_t lock;
    pthread_cond_t answered;

    /* under lock: the question, the asker's memory behind it, and the answer */
    enum kind kind;
    const struct source *sources;
    size_t n;
    bool *stuck;
    struct prepared *out;
    enum offsets_verdict *verdicts;
    int timeout_ms;
    enum err_code rc;
    struct err *e;
    bool has_ended, committed; /* the last transaction, and the consumer does not know yet */

    rd_kafka_topic_partition_list_t *sent; /* the consumer's copy of what was prepared, until the end */
    uint32_t sent_newest;
    _Atomic bool deaf, has_news, hurries;
    _Atomic int asker_fd;
};

void prepared_free(struct prepared *p)
{
    if (p->offsets)
        rd_kafka_topic_partition_list_destroy(p->offsets);
    if (p->group)
        rd_kafka_consumer_group_metadata_destroy(p->group);
    *p = (struct prepared){NULL, NULL};
}

enum err_code handover_open(struct handover **out, int consumer_wake_fd, struct err *e)
{
    struct handover *h = calloc(1, sizeof *h);
    pthread_condattr_t attr;

    *out = h;
    if (!h)
        return err_set(e, ERR_NOMEM, ERR_STOP, "handover: out of memory");
    h->wake_fd = consumer_wake_fd;
    h->asker_fd = -1;
    pthread_mutex_init(&h->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&h->answered, &attr);
    pthread_condattr_destroy(&attr);
    return ERR_OK;
}

void handover_close(struct handover *h)
{
    if (!h)
        return;
    if (h->sent)
        rd_kafka_topic_partition_list_destroy(h->sent);
    pthread_cond_destroy(&h->answered);
    pthread_mutex_destroy(&h->lock);
    free(h);
}

/* ---- the publisher's side ---- */

static void wake_at(int eventfd)
{
    if (eventfd >= 0)
        wake_up(eventfd);
}

/* With the lock held and the question written. */
static enum err_code wait_answer(struct handover *h, enum kind kind, int timeout_ms, struct err *e)
{
    int64_t until = clock_mono_ns() + timeout_ms * NS_PER_MS;
    struct timespec t = {until / NS_PER_S, until % NS_PER_S};

    h->kind = kind;
    h->e = e;
    h->rc = ERR_OK;
    wake_at(h->wake_fd);
    while (h->kind != NOTHING && !atomic_load(&h->deaf))
        if (pthread_cond_timedwait(&h->answered, &h->lock, &t) != 0)
            break;
    if (h->kind == NOTHING)
        return h->rc;
    h->kind = NOTHING; /* withdrawn: the consumer serves under the lock, so it has not begun */
    if (atomic_load(&h->deaf))
        return err_set(e, ERR_CLOSED, ERR_STOP, "the consumer has ended");
    return err_set(e, ERR_TIMEOUT, ERR_RETRY, "the consumer did not answer within %d ms", timeout_ms);
}

enum err_code handover_prepare(struct handover *h, const struct source *sources, size_t n, bool *stuck,
                               struct prepared *out, int timeout_ms, struct err *e)
{
    enum err_code rc;

    *out = (struct prepared){NULL, NULL};
    pthread_mutex_lock(&h->lock);
    h->sources = sources;
    h->n = n;
    h->stuck = stuck;
    h->out = out;
    rc = wait_answer(h, PREPARE, timeout_ms, e);
    pthread_mutex_unlock(&h->lock);
    return rc;
}

void handover_end(struct handover *h, bool committed)
{
    pthread_mutex_lock(&h->lock);
    h->has_ended = true;
    h->committed = committed;
    pthread_mutex_unlock(&h->lock);
    wake_at(h->wake_fd);
}

enum err_code handover_judge(struct handover *h, const struct source *sources, size_t n, enum offsets_verdict *verdicts,
                             int timeout_ms, struct err *e)
{
    enum err_code rc;

    pthread_mutex_lock(&h->lock);
    h->sources = sources;
    h->n = n;
    h->verdicts = verdicts;
    h->timeout_ms = timeout_ms;
    rc = wait_answer(h, JUDGE, 2 * timeout_ms, e);
    pthread_mutex_unlock(&h->lock);
    return rc;
}

bool handover_has_news(const struct handover *h)
{
    return atomic_load(&h->has_news);
}

bool handover_hurries(const struct handover *h)
{
    return atomic_load(&h->hurries);
}

void handover_set_asker_fd(struct handover *h, int eventfd)
{
    atomic_store(&h->asker_fd, eventfd);
}

/* ---- the consumer's side ---- */

static void unhold_all(struct assignment *mine)
{
    for (int i = 0; i < assignment_count(mine); i++)
        ledger_unhold_all(assignment_at(mine, i)->ledger);
}

static void serve_end(struct handover *h, struct assignment *mine)
{
    if (!h->has_ended)
        return;
    h->has_ended = false;
    if (h->committed && h->sent)
        offsets_stored(mine, h->sent, h->sent_newest);
    if (!h->committed)
        unhold_all(mine);
    if (h->sent)
        rd_kafka_topic_partition_list_destroy(h->sent);
    h->sent = NULL;
}

static enum err_code hold(struct handover *h, struct assignment *mine)
{
    size_t late = 0, stuck = 0;

    for (size_t i = 0; i < h->n; i++) {
        const struct source *at = &h->sources[i];
        struct partition *p = assignment_owns(mine, at) ? assignment_find(mine, at->partition) : NULL;

        h->stuck[i] = p && p->lost_ns;
        stuck += h->stuck[i];
        late += !p || (!h->stuck[i] && ledger_hold(p->ledger, at->offset, NULL) != ERR_OK);
    }
    if (late + stuck == 0)
        return ERR_OK;
    unhold_all(mine);
    return err_set(h->e, ERR_CLOSED, ERR_SKIP, "of %zu jobs %zu are no longer ours, %zu wait for their partition", h->n,
                   late, stuck);
}

static enum err_code prepare(struct handover *h, rd_kafka_t *rk, struct assignment *mine, struct offsets *o,
                             struct confirm *cf)
{
    enum err_code rc;

    confirm_fresh(cf);
    if ((rc = hold(h, mine)) != ERR_OK)
        return rc;
    h->out->offsets = offsets_make(o, mine);
    if (!h->out->offsets)
        return ERR_OK;
    h->out->group = rd_kafka_consumer_group_metadata(rk);
    if (!h->out->group) {
        prepared_free(h->out);
        unhold_all(mine);
        return err_set(h->e, ERR_KAFKA, ERR_RETRY, "the consumer has no group metadata");
    }
    h->sent = rd_kafka_topic_partition_list_copy(h->out->offsets);
    h->sent_newest = assignment_newest(mine);
    return ERR_OK;
}

void handover_serve(struct handover *h, rd_kafka_t *rk, struct assignment *mine, struct offsets *o, struct confirm *cf)
{
    pthread_mutex_lock(&h->lock);
    serve_end(h, mine);
    if (h->kind != NOTHING) {
        h->rc = h->kind == PREPARE ? prepare(h, rk, mine, o, cf)
                                   : offsets_judge(o, rk, mine, h->sources, h->n, h->verdicts, h->timeout_ms, h->e);
        h->kind = NOTHING;
        pthread_cond_signal(&h->answered);
    }
    pthread_mutex_unlock(&h->lock);
}

void handover_say(struct handover *h, bool has_news, bool hurries)
{
    atomic_store(&h->has_news, has_news && !atomic_load(&h->deaf));
    if (!atomic_exchange(&h->hurries, hurries) && hurries)
        wake_at(atomic_load(&h->asker_fd));
}

void handover_deafen(struct handover *h)
{
    pthread_mutex_lock(&h->lock);
    atomic_store(&h->deaf, true);
    atomic_store(&h->has_news, false);
    pthread_cond_signal(&h->answered);
    pthread_mutex_unlock(&h->lock);
}
