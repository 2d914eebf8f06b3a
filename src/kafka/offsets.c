#include "kafka/offsets.h"

#include "base/clock.h"
#include "base/log.h"
#include "kafka/client.h"
#include "kafka/commit_note.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { AGAIN_MS = 100 };

struct offsets {
    const char *topic;
    struct commit_note note;
    char text[COMMIT_NOTE_MAX_BYTES + 1];
    bool no_notes;
    struct caution_rule caution;
    _Atomic int64_t ignored, deaths;
};

enum err_code offsets_open(struct offsets **out, const char *topic, struct err *e)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return err_set(e, ERR_NOMEM, ERR_STOP, "offsets: out of memory");
    (*out)->topic = topic;
    return ERR_OK;
}

void offsets_close(struct offsets *o)
{
    free(o);
}

void offsets_set_caution(struct offsets *o, const struct caution_rule *r)
{
    o->caution = *r;
}

const struct caution_rule *offsets_caution(const struct offsets *o)
{
    return &o->caution;
}

/* ---- reading ---- */

static const struct commit_note *read_note(struct offsets *o, const rd_kafka_topic_partition_t *tp)
{
    char q[400];
    struct err e;

    if (commit_note_decode(&o->note, tp->metadata, tp->metadata ? tp->metadata_size : 0, tp->offset, &e) == ERR_OK)
        return &o->note;
    atomic_fetch_add(&o->ignored, 1);
    log_event(LOG_WARN, "note_ignored", "partition=%d offset=%lld text=%s", tp->partition, (long long)tp->offset,
              log_quote(q, sizeof q, e.msg));
    return &o->note; /* empty then */
}

static void look_for_deaths(struct offsets *o, struct partition *p, const struct commit_note *n, int64_t offset)
{
    struct caution *c = &p->caution;
    bool died = caution_found(c, &o->caution, n, offset);

    if (died || c->careful)
        log_event(LOG_WARN, died ? "owner_died" : "careful",
                  "partition=%d offset=%lld deaths=%d suspect=%lld crashes=%d max_crashes=%d careful=%d", p->id,
                  (long long)offset, c->deaths, (long long)c->suspect, c->crashes, o->caution.max_crashes, c->careful);
    atomic_fetch_add(&o->deaths, died);
}

static enum err_code learn(struct offsets *o, struct partition *p, const rd_kafka_topic_partition_t *tp, struct err *e)
{
    enum err_code rc;

    if (tp->offset >= 0) {
        const struct commit_note *n = read_note(o, tp);

        if ((rc = ledger_seed(p->ledger, tp->offset, n, e)) != ERR_OK)
            return rc;
        if (n->n_runs > 0)
            log_event(LOG_INFO, "note_read", "partition=%d offset=%lld runs=%zu", p->id, (long long)tp->offset,
                      n->n_runs);
        look_for_deaths(o, p, n, tp->offset);
        atomic_store(&p->committed, tp->offset);
        atomic_store(&p->frontier, tp->offset);
    }
    p->known = true;
    return ERR_OK;
}

static rd_kafka_topic_partition_list_t *unknown(const struct offsets *o, struct assignment *mine)
{
    rd_kafka_topic_partition_list_t *list = NULL;

    for (int i = 0; i < assignment_count(mine); i++) {
        const struct partition *p = assignment_at(mine, i);

        if (p->known || p->revoked)
            continue;
        if (!list)
            list = rd_kafka_topic_partition_list_new(assignment_count(mine));
        rd_kafka_topic_partition_list_add(list, o->topic, p->id);
    }
    return list;
}

/* The first error, the call's own or a partition's.  *answered: the call went well, so that each partition without an
 * error is told of. */
static rd_kafka_resp_err_t ask(rd_kafka_t *rk, rd_kafka_topic_partition_list_t *list, int timeout_ms, bool *answered)
{
    rd_kafka_resp_err_t rc = rd_kafka_committed(rk, list, timeout_ms);

    *answered = !rc;
    for (int i = 0; !rc && i < list->cnt; i++)
        rc = list->elems[i].err;
    return rc;
}

static rd_kafka_resp_err_t ask_until(rd_kafka_t *rk, rd_kafka_topic_partition_list_t *list, int timeout_ms,
                                     bool *answered)
{
    int64_t until = clock_mono_ns() + timeout_ms * NS_PER_MS;
    rd_kafka_resp_err_t rc;

    for (;;) {
        int64_t left = (until - clock_mono_ns()) / NS_PER_MS;

        rc = ask(rk, list, left > 1 ? (int)left : 1, answered);
        if (!rc || client_act(rc) == ERR_STOP || clock_mono_ns() + AGAIN_MS * NS_PER_MS >= until)
            return rc;
        poll(NULL, 0, AGAIN_MS); /* nothing tells when a coordinator has loaded */
    }
}

bool offsets_read(struct offsets *o, rd_kafka_t *rk, struct assignment *mine, int timeout_ms, struct err *e)
{
    rd_kafka_topic_partition_list_t *list = unknown(o, mine);
    rd_kafka_resp_err_t rc;
    bool all = true, answered;

    e->code = ERR_OK;
    if (!list)
        return true;
    if ((rc = ask_until(rk, list, timeout_ms, &answered))) {
        log_event(LOG_WARN, "committed_unknown", "partitions=%d error=%s", list->cnt, rd_kafka_err2name(rc));
        if (client_act(rc) == ERR_STOP)
            client_err(e, rc, "the group's offsets");
        all = false;
    }
    for (int i = 0; answered && i < list->cnt; i++) {
        struct partition *p = assignment_find(mine, list->elems[i].partition);

        if (p && !list->elems[i].err && learn(o, p, &list->elems[i], e) != ERR_OK)
            all = false;
    }
    rd_kafka_topic_partition_list_destroy(list);
    return all;
}

/* ---- commits ---- */

bool offsets_has_news(const struct partition *p)
{
    return p->known && !p->lost_ns && (ledger_changes(p->ledger) != p->saved || !caution_is_saved(&p->caution));
}

bool offsets_have_news(struct assignment *mine)
{
    for (int i = 0; i < assignment_count(mine); i++)
        if (offsets_has_news(assignment_at(mine, i)))
            return true;
    return false;
}

static void put_note(struct offsets *o, rd_kafka_topic_partition_t *tp)
{
    size_t size = 0;
    char q[400];
    struct err e;

    if (o->no_notes)
        return;
    if (commit_note_encode(&o->note, tp->offset, o->text, &size, &e) != ERR_OK) /* cannot be: see ledger_fits() */
        log_event(LOG_ERROR, "note_lost", "partition=%d text=%s", tp->partition, log_quote(q, sizeof q, e.msg));
    if (size == 0)
        return;
    tp->metadata = strdup(o->text); /* the library frees it with the list */
    tp->metadata_size = tp->metadata ? size : 0;
}

rd_kafka_topic_partition_list_t *offsets_make(struct offsets *o, struct assignment *mine)
{
    rd_kafka_topic_partition_list_t *list = NULL;

    for (int i = 0; i < assignment_count(mine); i++) {
        struct partition *p = assignment_at(mine, i);
        int64_t offset;

        if (!offsets_has_news(p))
            continue;
        if ((offset = ledger_note(p->ledger, &o->note)) < 0)
            continue;
        caution_write(&p->caution, &o->note, offset);
        if (!list)
            list = rd_kafka_topic_partition_list_new(assignment_count(mine));
        rd_kafka_topic_partition_t *tp = rd_kafka_topic_partition_list_add(list, o->topic, p->id);
        tp->offset = offset;
        put_note(o, tp);
        p->sent = ledger_changes(p->ledger);
        p->caution.sent = p->caution.changes;
    }
    return list;
}

void offsets_leave_notes_out(struct offsets *o)
{
    o->no_notes = true;
    o->caution.max_crashes = 0;
}

void offsets_stored(struct assignment *mine, const rd_kafka_topic_partition_list_t *list, uint32_t newest)
{
    for (int i = 0; i < list->cnt; i++) {
        struct partition *p = assignment_find(mine, list->elems[i].partition);

        if (!p || p->assignment > newest)
            continue;
        atomic_store(&p->committed, list->elems[i].offset);
        p->saved = p->sent;
        p->caution.saved = p->caution.sent;
    }
}

/* ---- after a transaction of unknown outcome ---- */

static rd_kafka_topic_partition_list_t *list_of(const struct offsets *o, struct assignment *mine,
                                                const struct source *sources, size_t n)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(4);

    for (size_t i = 0; i < n; i++)
        if (assignment_owns(mine, &sources[i]) &&
            !rd_kafka_topic_partition_list_find(list, o->topic, sources[i].partition))
            rd_kafka_topic_partition_list_add(list, o->topic, sources[i].partition);
    return list;
}

enum err_code offsets_judge(struct offsets *o, rd_kafka_t *rk, struct assignment *mine, const struct source *sources,
                            size_t n, enum offsets_verdict *verdicts, int timeout_ms, struct err *e)
{
    rd_kafka_topic_partition_list_t *list = list_of(o, mine, sources, n);
    bool answered;
    rd_kafka_resp_err_t rc = list->cnt > 0 ? ask_until(rk, list, timeout_ms, &answered) : RD_KAFKA_RESP_ERR_NO_ERROR;

    for (size_t i = 0; i < n; i++)
        verdicts[i] = assignment_owns(mine, &sources[i]) ? OFFSETS_OPEN : OFFSETS_GONE;
    for (int k = 0; !rc && k < list->cnt; k++) {
        const rd_kafka_topic_partition_t *tp = &list->elems[k];

        if (tp->offset < 0)
            continue;
        read_note(o, tp);
        for (size_t i = 0; i < n; i++)
            if (sources[i].partition == tp->partition && verdicts[i] == OFFSETS_OPEN &&
                (sources[i].offset < tp->offset || commit_note_has(&o->note, sources[i].offset)))
                verdicts[i] = OFFSETS_COVERED;
    }
    rd_kafka_topic_partition_list_destroy(list);
    if (rc)
        return client_err(e, rc, "the group's offsets");
    return ERR_OK;
}

int64_t offsets_deaths_found(const struct offsets *o)
{
    return atomic_load(&o->deaths);
}

int64_t offsets_notes_ignored(const struct offsets *o)
{
    return atomic_load(&o->ignored);
}
