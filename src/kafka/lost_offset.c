#include "kafka/lost_offset.h"

#include "base/clock.h"
#include "base/log.h"
#include "kafka/client.h"

#include <stdatomic.h>
#include <string.h>

enum { ASK_MS = 500, ASK_EVERY_MS = 1000 };

void lost_offset_note(struct partition *p)
{
    if (!p->lost_ns)
        p->lost_ns = clock_mono_ns();
}

int lost_offset_count(struct assignment *mine)
{
    int n = 0;

    for (int i = 0; i < assignment_count(mine); i++)
        n += assignment_at(mine, i)->lost_ns != 0;
    return n;
}

int64_t lost_offset_wanted(const struct partition *p)
{
    int64_t position = atomic_load(&p->position);

    if (position < 0)
        position = p->begun;
    return position >= 0 ? position : atomic_load(&p->committed);
}

int64_t lost_offset_cut(const struct partition *p)
{
    int64_t want = lost_offset_wanted(p), low = atomic_load(&p->low);

    return want >= 0 && want < low ? low - want : 0;
}

int64_t lost_offset_first(const struct kafka_config *k)
{
    if (strcmp(k->offset_reset, "earliest") == 0)
        return RD_KAFKA_OFFSET_BEGINNING;
    return strcmp(k->offset_reset, "latest") == 0 ? RD_KAFKA_OFFSET_END : RD_KAFKA_OFFSET_INVALID;
}

enum err_code lost_offset_none(const struct kafka_config *k, const struct partition *p, struct err *e)
{
    return err_set(e, ERR_KAFKA, ERR_STOP,
                   "%s, partition %d: the group has no committed offset and kafka.offset_reset is \"error\"",
                   k->request_topic, p->id);
}

static bool is_due(const struct partition *p, int64_t now)
{
    return p->lost_ns && p->known && !p->revoked && now >= p->lost_ask_ns;
}

bool lost_offset_is_due(struct assignment *mine)
{
    int64_t now = clock_mono_ns();

    for (int i = 0; i < assignment_count(mine); i++)
        if (is_due(assignment_at(mine, i), now))
            return true;
    return false;
}

/* The first offset or the end of each, as kind says; false: somebody does not answer. */
static bool ask(rd_kafka_t *rk, const struct kafka_config *k, struct assignment *mine, int64_t kind, int64_t now)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(4);
    rd_kafka_resp_err_t rc = RD_KAFKA_RESP_ERR_NO_ERROR;

    for (int i = 0; i < assignment_count(mine); i++)
        if (is_due(assignment_at(mine, i), now)) /* the timestamps -2 and -1 of the protocol: earliest, latest */
            rd_kafka_topic_partition_list_add(list, k->request_topic, assignment_at(mine, i)->id)->offset = kind;
    if (list->cnt > 0)
        rc = rd_kafka_offsets_for_times(rk, list, ASK_MS);
    for (int i = 0; !rc && i < list->cnt; i++) {
        const rd_kafka_topic_partition_t *tp = &list->elems[i];
        struct partition *p = assignment_find(mine, tp->partition);

        if (!p || tp->err || tp->offset < 0)
            rc = tp->err ? tp->err : RD_KAFKA_RESP_ERR__NO_OFFSET;
        else
            atomic_store(kind == RD_KAFKA_OFFSET_END ? &p->end : &p->low, tp->offset);
    }
    rd_kafka_topic_partition_list_destroy(list);
    if (rc)
        log_event(LOG_WARN, "log_unknown", "error=%s", rd_kafka_err2name(rc));
    return !rc;
}

static void begin_at(struct partition *p, int64_t offset, const char *why)
{
    p->start = offset;
    log_event(LOG_WARN, "offset_reset", "partition=%d offset=%lld start=%lld reason=%s", p->id,
              (long long)lost_offset_wanted(p), (long long)offset, why);
}

static enum err_code decide_without(struct partition *p, const struct kafka_config *k, int64_t low, int64_t end,
                                    struct err *e)
{
    switch (lost_offset_first(k)) {
    case RD_KAFKA_OFFSET_BEGINNING: begin_at(p, low, "no_offset"); return ERR_OK;
    case RD_KAFKA_OFFSET_END: begin_at(p, end, "no_offset"); return ERR_OK;
    default: return lost_offset_none(k, p, e);
    }
}

/* What retention has deleted nobody can translate any more. */
static enum err_code decide_before(struct partition *p, const struct kafka_config *k, int64_t low, struct err *e)
{
    if (lost_offset_first(k) == RD_KAFKA_OFFSET_INVALID)
        return err_set(e, ERR_KAFKA, ERR_STOP,
                       "%s, partition %d: offset %lld is before the first one left, %lld, and kafka.offset_reset is "
                       "\"error\"",
                       k->request_topic, p->id, (long long)lost_offset_wanted(p), (long long)low);
    p->start = low;
    log_event(LOG_WARN, "log_cut", "partition=%d read_to=%lld start=%lld", p->id, (long long)lost_offset_wanted(p),
              (long long)low);
    return ERR_OK;
}

static enum err_code decide_after(struct partition *p, const struct kafka_config *k, int64_t low, int64_t end,
                                  struct err *e)
{
    int64_t now = clock_mono_ns();

    if (!p->past_end_ns) {
        p->past_end_ns = now;
        p->least_end = end;
        log_event(LOG_ERROR, "offset_past_end", "partition=%d offset=%lld end=%lld wait_ms=%d", p->id,
                  (long long)lost_offset_wanted(p), (long long)end, k->offset_wait_ms);
    }
    if (end < p->least_end)
        p->least_end = end;
    if (now - p->past_end_ns < k->offset_wait_ms * NS_PER_MS)
        return ERR_OK;
    if (strcmp(k->offset_past_end, "earliest") == 0) {
        begin_at(p, low, "past_end");
        return ERR_OK;
    }
    if (strcmp(k->offset_past_end, "latest") == 0) {
        begin_at(p, p->least_end, "past_end"); /* what came while we waited is new */
        return ERR_OK;
    }
    return err_set(
        e, ERR_KAFKA, ERR_STOP,
        "%s, partition %d: offset %lld is past the end of the log, %lld, for %d ms: records were lost or the "
        "topic was made anew; reset the group's offset, or set kafka.offset_past_end to earliest or latest",
        k->request_topic, p->id, (long long)lost_offset_wanted(p), (long long)end, k->offset_wait_ms);
}

static enum err_code decide(struct partition *p, const struct kafka_config *k, struct err *e)
{
    int64_t want = lost_offset_wanted(p), low = atomic_load(&p->low), end = atomic_load(&p->end);

    if (p->gone) {
        p->ask_group = true;
        p->start = want; /* stands for: where the group is */
        return ERR_OK;
    }
    if (want < 0)
        return decide_without(p, k, low, end, e);
    if (want < low)
        return decide_before(p, k, low, e);
    if (want > end)
        return decide_after(p, k, low, end, e);
    /* The same log again, or another one that has grown past our offset: only the group knows, for its offsets went with
     * the topic that they were of.  Not where a rule began it and nothing was read since: what the library tells then is of
     * the time before. */
    p->ask_group = p->begun < 0 || atomic_load(&p->position) >= 0;
    begin_at(p, want, "came_back");
    return ERR_OK;
}

bool lost_offset_serve(rd_kafka_t *rk, const struct kafka_config *k, struct assignment *mine, struct err *e)
{
    int64_t now = clock_mono_ns();
    bool any = false, known;

    e->code = ERR_OK;
    if (!lost_offset_is_due(mine))
        return false;
    known = ask(rk, k, mine, RD_KAFKA_OFFSET_BEGINNING, now) && ask(rk, k, mine, RD_KAFKA_OFFSET_END, now);
    for (int i = 0; i < assignment_count(mine); i++) {
        struct partition *p = assignment_at(mine, i);

        if (!is_due(p, now))
            continue;
        p->lost_ask_ns = now + ASK_EVERY_MS * NS_PER_MS;
        if (known && e->code == ERR_OK && decide(p, k, e) == ERR_OK)
            any |= p->start >= 0;
    }
    return any;
}
