#include "kafka/confirm.h"

#include "base/clock.h"
#include "base/log.h"
#include "kafka/lost_offset.h"

#include <stdatomic.h>
#include <stdlib.h>

struct confirm {
    rd_kafka_t *rk;
    const char *topic;
    struct assignment *mine;
    int fresh_ms;
    int64_t asked_ns;
};

enum err_code confirm_open(struct confirm **out, rd_kafka_t *rk, const char *topic, struct assignment *mine,
                           int fresh_ms, struct err *e)
{
    struct confirm *cf = calloc(1, sizeof *cf);

    *out = cf;
    if (!cf)
        return err_set(e, ERR_NOMEM, ERR_STOP, "confirm: out of memory");
    *cf = (struct confirm){.rk = rk, .topic = topic, .mine = mine, .fresh_ms = fresh_ms, .asked_ns = clock_mono_ns()};
    return ERR_OK;
}

void confirm_close(struct confirm *cf)
{
    free(cf);
}

/* What the group should know of; NULL: nothing. */
static rd_kafka_topic_partition_list_t *stored(const struct confirm *cf)
{
    rd_kafka_topic_partition_list_t *list = NULL;

    for (int i = 0; i < assignment_count(cf->mine); i++) {
        const struct partition *p = assignment_at(cf->mine, i);

        if (p->gone || atomic_load(&p->committed) < 0)
            continue;
        if (!list)
            list = rd_kafka_topic_partition_list_new(assignment_count(cf->mine));
        rd_kafka_topic_partition_list_add(list, cf->topic, p->id);
    }
    return list;
}

static void note_gone(struct confirm *cf, const rd_kafka_topic_partition_list_t *list)
{
    for (int i = 0; i < list->cnt; i++) {
        struct partition *p = assignment_find(cf->mine, list->elems[i].partition);

        if (!p || list->elems[i].err || list->elems[i].offset >= 0)
            continue;
        log_event(LOG_WARN, "group_offset_gone", "partition=%d offset=%lld", p->id,
                  (long long)atomic_load(&p->committed));
        p->gone = true;
        p->lost_ask_ns = 0;
        lost_offset_note(p);
    }
}

void confirm_ask(struct confirm *cf)
{
    rd_kafka_topic_partition_list_t *list = stored(cf);

    cf->asked_ns = clock_mono_ns();
    if (!list)
        return;
    if (!rd_kafka_committed(cf->rk, list, CONFIRM_MS))
        note_gone(cf, list);
    rd_kafka_topic_partition_list_destroy(list);
}

static void ask_if_older(struct confirm *cf, int ms)
{
    if (clock_mono_ns() - cf->asked_ns >= ms * NS_PER_MS)
        confirm_ask(cf);
}

void confirm_fresh(struct confirm *cf)
{
    ask_if_older(cf, cf->fresh_ms);
}

void confirm_ahead(struct confirm *cf, bool will_want)
{
    ask_if_older(cf, will_want ? cf->fresh_ms / 2 : CONFIRM_EVERY_MS);
}
