#include "kafka/intake.h"

#include "base/clock.h"
#include "base/log.h"
#include "kafka/client.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

struct intake {
    rd_kafka_t *rk;
    rd_kafka_queue_t *queue;
    const char *topic;
    struct assignment *mine;
    size_t window;
    intake_admit *admit;
    void *ctx;
    bool any_put_off, any_unheard; /* there may be one */
    size_t n_taken;                /* since the last look, */
    int64_t look_ns;               /* and when the next one is */
};

enum { LOOK_MS = 100, ASK_MS = 50, SUPPLY_LOOKS = 2 /* what is taken in so many looks is to be there */ };

enum err_code intake_open(struct intake **out, rd_kafka_t *rk, const char *topic, struct assignment *mine,
                          size_t ledger_window, intake_admit *admit, void *ctx, struct err *e)
{
    struct intake *in = calloc(1, sizeof *in);

    *out = in;
    if (!in)
        return err_set(e, ERR_NOMEM, ERR_STOP, "intake: out of memory");
    in->rk = rk;
    in->topic = topic;
    in->mine = mine;
    in->window = ledger_window;
    in->admit = admit;
    in->ctx = ctx;
    in->queue = rd_kafka_queue_new(rk);
    return ERR_OK;
}

void intake_close(struct intake *in)
{
    if (!in)
        return;
    for (int i = 0; i < assignment_count(in->mine); i++) {
        struct partition *p = assignment_at(in->mine, i);

        if (p->put_off)
            rd_kafka_message_destroy(p->put_off);
        p->put_off = NULL;
    }
    client_let_go(&in->queue);
    free(in);
}

rd_kafka_queue_t *intake_queue(const struct intake *in)
{
    return in->queue;
}

/* ---- put off ---- */

static void tell_pause(struct intake *in, int32_t id, bool pause)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);

    rd_kafka_topic_partition_list_add(list, in->topic, id);
    if (pause)
        rd_kafka_pause_partitions(in->rk, list);
    else
        rd_kafka_resume_partitions(in->rk, list);
    rd_kafka_topic_partition_list_destroy(list);
}

static void pause_behind(struct intake *in, struct partition *p)
{
    p->paused = true;
    tell_pause(in, p->id, true);
}

static void put_off(struct intake *in, struct partition *p, rd_kafka_message_t *m)
{
    if (p->put_off) { /* cannot be: nothing comes from a paused partition */
        log_event(LOG_ERROR, "record_astray", "partition=%d offset=%lld", p->id, (long long)m->offset);
        rd_kafka_message_destroy(m);
        return;
    }
    p->put_off = m;
    in->any_put_off = true;
}

/* The library goes on behind what was put off. */
static rd_kafka_message_t *resume(struct intake *in, struct partition *p)
{
    rd_kafka_message_t *m = p->put_off;

    p->put_off = NULL;
    if (p->paused)
        tell_pause(in, p->id, false);
    p->paused = false;
    return m;
}

static bool fits(const struct partition *p, const rd_kafka_message_t *m)
{
    if (m->err)
        return p->known || m->err != RD_KAFKA_RESP_ERR__PARTITION_EOF;
    return p->known && ledger_room(p->ledger) > 0 && ledger_fits(p->ledger, m->offset);
}

static enum intake_verdict verdict_of(struct intake *in, struct partition *p, const rd_kafka_message_t *m)
{
    if (!fits(p, m))
        return INTAKE_LATER;
    if (m->err || ledger_is_seeded(p->ledger, m->offset))
        return INTAKE_TAKE;
    return in->admit(in->ctx, p, m->offset);
}

/* The one that waits at the head, if there is one. */
static struct partition *head(struct intake *in)
{
    for (int i = 0; in->any_put_off && i < assignment_count(in->mine); i++)
        if (assignment_at(in->mine, i)->put_off && !assignment_at(in->mine, i)->paused)
            return assignment_at(in->mine, i);
    return NULL;
}

/* A pause costs the library what it had fetched: there should be room for more than this one record. */
static bool has_way(const struct intake *in, const struct partition *p)
{
    return p->put_off && (!p->paused || ledger_room(p->ledger) >= (in->window + 1) / 2);
}

static enum intake_verdict ask_put_off(struct intake *in, struct partition *p)
{
    enum intake_verdict v = verdict_of(in, p, p->put_off);

    if (v == INTAKE_LATER && !p->paused)
        pause_behind(in, p);
    return v;
}

/* Sets *m where one is to be taken. */
static enum intake_verdict next_put_off(struct intake *in, struct partition **p, rd_kafka_message_t **m)
{
    enum intake_verdict v = INTAKE_LATER;

    *p = head(in);
    if (*p)
        v = ask_put_off(in, *p);
    for (int i = 0; v == INTAKE_LATER && in->any_put_off && i < assignment_count(in->mine); i++) {
        *p = assignment_at(in->mine, i);
        if (has_way(in, *p))
            v = ask_put_off(in, *p);
    }
    *m = v == INTAKE_TAKE ? resume(in, *p) : NULL;
    return v;
}

/* ---- partitions ---- */

enum err_code intake_take(struct intake *in, int32_t id, struct err *e)
{
    rd_kafka_queue_t *q;

    intake_drop(in, id);
    q = rd_kafka_queue_get_partition(in->rk, in->topic, id);
    if (!q)
        return err_set(e, ERR_KAFKA, ERR_STOP, "partition %d: no queue", id);
    rd_kafka_queue_forward(q, in->queue);
    in->any_unheard = true;
    return assignment_add(in->mine, id, q, e);
}

void intake_drop(struct intake *in, int32_t id)
{
    struct partition *p = assignment_find(in->mine, id);

    if (p)
        intake_again(in, p);
    assignment_drop(in->mine, id);
}

void intake_again(struct intake *in, struct partition *p)
{
    rd_kafka_message_t *m = resume(in, p);

    if (m)
        rd_kafka_message_destroy(m);
    p->heard = false;
    in->any_unheard = true;
}

/* The library parts a queue from ours when it stops fetching, which it may do some time after an assignment has ended
 * and the next begun: so until something comes (the end of the log at least) its way is shown again. */
static void lead_unheard(struct intake *in)
{
    bool any = false;

    for (int i = 0; in->any_unheard && i < assignment_count(in->mine); i++) {
        const struct partition *p = assignment_at(in->mine, i);

        if (!p->heard)
            rd_kafka_queue_forward(p->queue, in->queue);
        any |= !p->heard;
    }
    in->any_unheard = any;
}

/* ---- reading ---- */

rd_kafka_message_t *intake_next(struct intake *in, struct partition **p)
{
    rd_kafka_message_t *m;

    if (next_put_off(in, p, &m) != INTAKE_LATER)
        return m;
    lead_unheard(in);
    while ((m = rd_kafka_consume_queue(in->queue, 0))) {
        *p = assignment_find(in->mine, m->partition);
        if (!*p) { /* cannot be: the library withholds what was not read before an assignment ended */
            log_event(LOG_WARN, "record_astray", "partition=%d offset=%lld", m->partition, (long long)m->offset);
            rd_kafka_message_destroy(m);
            continue;
        }
        (*p)->heard = true;
        enum intake_verdict v = verdict_of(in, *p, m);
        in->n_taken++;
        if (v == INTAKE_TAKE)
            return m;
        put_off(in, *p, m);
        if (v == INTAKE_WAIT)
            return NULL;
        pause_behind(in, *p);
    }
    return NULL;
}

/* ---- supply ---- */

/* Is there more in the log than in the queue? */
static bool is_behind(const struct intake *in, size_t queued)
{
    int64_t behind = 0;

    for (int i = 0; i < assignment_count(in->mine); i++) {
        const struct partition *p = assignment_at(in->mine, i);
        int64_t position = atomic_load(&p->position), end = atomic_load(&p->end);

        if (!p->paused && position >= 0 && end > position)
            behind += end - position;
    }
    return behind > (int64_t)queued;
}

/* Any question wakes the brokers' threads, which then look at the queue again. */
static void wake_fetchers(const struct intake *in)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(assignment_count(in->mine));

    for (int i = 0; i < assignment_count(in->mine); i++)
        rd_kafka_topic_partition_list_add(list, in->topic, assignment_at(in->mine, i)->id)->offset =
            RD_KAFKA_OFFSET_END;
    rd_kafka_offsets_for_times(in->rk, list, ASK_MS);
    rd_kafka_topic_partition_list_destroy(list);
}

void intake_keep_fetching(struct intake *in)
{
    int64_t now;
    size_t taken;

    if (rd_kafka_version() >= 0x02030000 || (now = clock_mono_ns()) < in->look_ns)
        return;
    taken = in->n_taken;
    in->n_taken = 0;
    in->look_ns = now + LOOK_MS * NS_PER_MS;
    size_t queued = rd_kafka_queue_length(in->queue);
    if (queued <= SUPPLY_LOOKS * taken && is_behind(in, queued))
        wake_fetchers(in);
}
