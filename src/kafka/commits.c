#include "kafka/commits.h"

#include "base/clock.h"
#include "base/log.h"
#include "kafka/client.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>

enum {
    COMMIT_LOST_MS = 60000, /* a commit without an answer for so long is forgotten */
    RETRY_MIN_MS = 100,
    RETRY_MAX_MS = 5000,
    REBALANCE_TRIES = 3 /* of a commit that a rebalance in progress refuses, while we hold that rebalance up */
};

struct commits {
    rd_kafka_t *rk;
    rd_kafka_queue_t *queue; /* of the answers */
    struct offsets *offsets;
    struct confirm *confirm;
    struct assignment *mine;
    int interval_ms;
    struct err failure; /* code ERR_OK = none */

    bool wanted;  /* something was finished since the last commit */
    uintptr_t id; /* of the newest commit */
    bool is_out;  /* it has no answer yet */
    int64_t sent_ns, due_ns;
    int failures;      /* in a row */
    bool in_rebalance; /* the last one failed because the group is being dealt out anew */
    bool is_hopeless;  /* this membership is over: only the next assignment helps */
    uint32_t newest;   /* partitions of later assignments do not belong to that commit */

    _Atomic int64_t n_done, n_failed;
};

enum err_code commits_open(struct commits **out, rd_kafka_t *rk, struct offsets *o, struct confirm *cf,
                           struct assignment *mine, int interval_ms, int wake_fd, struct err *e)
{
    struct commits *m = calloc(1, sizeof *m);

    *out = m;
    if (!m)
        return err_set(e, ERR_NOMEM, ERR_STOP, "commits: out of memory");
    m->rk = rk;
    m->offsets = o;
    m->confirm = cf;
    m->mine = mine;
    m->interval_ms = interval_ms;
    m->queue = rd_kafka_queue_new(rk);
    client_wake_from(m->queue, wake_fd);
    return ERR_OK;
}

void commits_let_go(struct commits *m)
{
    if (m)
        client_let_go(&m->queue);
}

void commits_close(struct commits *m)
{
    commits_let_go(m);
    free(m);
}

void commits_want(struct commits *m)
{
    m->wanted = true;
}

bool commits_wanted(const struct commits *m)
{
    return m->wanted;
}

static void pause_until(int64_t until_ns)
{
    int64_t left = until_ns - clock_mono_ns();

    if (left > 0)
        poll(NULL, 0, (int)((left + NS_PER_MS - 1) / NS_PER_MS));
}

static int64_t retry_ms(const struct commits *m)
{
    int64_t ms = RETRY_MIN_MS;

    for (int i = 1; i < m->failures && ms < RETRY_MAX_MS; i++)
        ms *= 2;
    return ms < RETRY_MAX_MS ? ms : RETRY_MAX_MS;
}

static void failed(struct commits *m, rd_kafka_resp_err_t rc)
{
    m->failures++;
    m->is_hopeless = rc == RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION || rc == RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID;
    m->in_rebalance = rc == RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS;
    m->wanted = true;
    m->due_ns = clock_mono_ns() + retry_ms(m) * NS_PER_MS;
    atomic_fetch_add(&m->n_failed, 1);
    log_event(LOG_WARN, "commit_failed", "error=%s failures=%d", rd_kafka_err2name(rc), m->failures);
    if (rc == RD_KAFKA_RESP_ERR_OFFSET_METADATA_TOO_LARGE) {
        log_event(LOG_WARN, "notes_left_out",
                  "text=\"offset.metadata.max.bytes of this broker is below 4096: a restart repeats more, and jobs "
                  "that end the "
                  "process are not looked for\"");
        offsets_leave_notes_out(m->offsets);
    }
    if (client_act(rc) == ERR_STOP && m->failure.code == ERR_OK)
        client_err(&m->failure, rc, "commit");
}

static void on_answer(struct commits *m, rd_kafka_event_t *ev)
{
    rd_kafka_resp_err_t rc = rd_kafka_event_error(ev);
    const rd_kafka_topic_partition_list_t *list = rd_kafka_event_topic_partition_list(ev);

    if ((uintptr_t)rd_kafka_event_opaque(ev) != m->id || !m->is_out)
        return; /* given up long ago */
    m->is_out = false;
    for (int i = 0; list && !rc && i < list->cnt; i++)
        rc = list->elems[i].err;
    if (rc) {
        failed(m, rc);
        return;
    }
    if (list)
        offsets_stored(m->mine, list, m->newest);
    m->failures = 0;
    m->in_rebalance = m->is_hopeless = false;
    atomic_fetch_add(&m->n_done, 1);
}

void commits_serve(struct commits *m, int timeout_ms)
{
    rd_kafka_event_t *ev;

    while ((ev = rd_kafka_queue_poll(m->queue, timeout_ms))) {
        if (rd_kafka_event_type(ev) == RD_KAFKA_EVENT_OFFSET_COMMIT)
            on_answer(m, ev);
        rd_kafka_event_destroy(ev);
        timeout_ms = 0;
    }
    if (m->is_out && clock_mono_ns() - m->sent_ns > COMMIT_LOST_MS * NS_PER_MS) {
        m->is_out = false;
        failed(m, RD_KAFKA_RESP_ERR__TIMED_OUT);
    }
}

/* Sends the offsets, if there is anything new. */
static void start(struct commits *m)
{
    rd_kafka_topic_partition_list_t *list;
    rd_kafka_resp_err_t rc;

    confirm_ask(m->confirm);
    list = offsets_make(m->offsets, m->mine);
    m->wanted = false;
    if (!list)
        return;
    m->id++;
    m->newest = assignment_newest(m->mine);
    m->sent_ns = clock_mono_ns();
    m->due_ns = m->sent_ns + m->interval_ms * NS_PER_MS;
    rc = rd_kafka_commit_queue(m->rk, list, m->queue, NULL, (void *)m->id);
    rd_kafka_topic_partition_list_destroy(list);
    m->is_out = rc == RD_KAFKA_RESP_ERR_NO_ERROR;
    if (rc)
        failed(m, rc);
}

void commits_if_due(struct commits *m, bool hurry)
{
    if (m->wanted && !m->is_out && ((hurry && m->failures == 0) || clock_mono_ns() >= m->due_ns))
        start(m);
}

void commits_all(struct commits *m, int64_t until_ns)
{
    int64_t left;

    for (;;) {
        while (m->is_out && (left = until_ns - clock_mono_ns()) > 0)
            commits_serve(m, (int)(left / NS_PER_MS) + 1);
        if (m->is_out || m->failure.code != ERR_OK || m->is_hopeless)
            return;
        if (m->in_rebalance && m->failures >= REBALANCE_TRIES)
            return;            /* it goes on once we let go, and the group waits for that */
        if (m->failures > 0) { /* nothing else is served here, so the pause may be a plain one */
            if (m->due_ns >= until_ns)
                return;
            pause_until(m->due_ns);
        }
        if (!offsets_have_news(m->mine))
            return;
        start(m);
    }
}

void commits_hurry(struct commits *m)
{
    m->due_ns = 0;
}

int64_t commits_due_ns(const struct commits *m)
{
    return m->wanted && !m->is_out ? m->due_ns : INT64_MAX;
}

bool commits_refused(const struct commits *m)
{
    return m->failures > 0;
}

void commits_joined(struct commits *m)
{
    m->is_hopeless = false;
}

enum err_code commits_failure(const struct commits *m, struct err *e)
{
    if (m->failure.code != ERR_OK)
        *e = m->failure;
    return m->failure.code;
}

int64_t commits_done(const struct commits *m)
{
    return atomic_load(&m->n_done);
}

int64_t commits_failed(const struct commits *m)
{
    return atomic_load(&m->n_failed);
}
