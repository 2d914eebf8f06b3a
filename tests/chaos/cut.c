#include "tests/chaos/cut.h"

#include "tests/chaos/kafka.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { ASK_MS = 5000 };

static FILE *open_in(const char *dir, const char *name, const char *mode)
{
    char path[4096];

    snprintf(path, sizeof path, "%s/%s", dir, name);
    return fopen(path, mode);
}

/* ---- the runner's side ---- */

/* Where the checker's reader is, 0 = unknown. */
static int64_t read_to(const char *dir, int partition)
{
    FILE *f = open_in(dir, "requests-read", "r");
    int64_t x = 0;

    for (int i = 0; f && i <= partition; i++)
        if (fscanf(f, "%" SCNd64, &x) != 1)
            x = 0;
    if (f)
        fclose(f);
    return x;
}

/* What the group has committed, 0 = nothing; -1: nobody says. */
static int64_t committed(rd_kafka_t *rk, const char *topic, int partition)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    int64_t offset = -1;

    rd_kafka_topic_partition_list_add(list, topic, partition);
    if (rd_kafka_committed(rk, list, ASK_MS) == RD_KAFKA_RESP_ERR_NO_ERROR && !list->elems[0].err)
        offset = list->elems[0].offset >= 0 ? list->elems[0].offset : 0;
    rd_kafka_topic_partition_list_destroy(list);
    return offset;
}

static bool announce(const char *dir, int partition, int64_t from, int64_t to)
{
    FILE *f = open_in(dir, "cuts", "a");
    bool written = f && fprintf(f, "%d %" PRId64 " %" PRId64 "\n", partition, from, to) > 0;

    return f && fclose(f) == 0 && written;
}

int64_t cut_log(const struct chaos_options *o, struct cut_history *h, int partition, int percent)
{
    const char *const settings[] = {"group.id", o->group, "enable.auto.commit", "false", NULL};
    rd_kafka_t *rk = kafka_new(RD_KAFKA_CONSUMER, kafka_conf(o->bootstrap, settings));
    int64_t done = committed(rk, o->requests, partition), from = done > h->to[partition] ? done : h->to[partition];
    int64_t read = read_to(o->dir, partition), to = read > from ? from + (read - from) * percent / 100 : from, n = -1;

    if (done >= 0 && to > 0 && read >= to && announce(o->dir, partition, from, to)) {
        h->to[partition] = to; /* whatever the answer is: it may have happened */
        n = kafka_delete_records(rk, o->requests, partition, to, ASK_MS) ? to - from : -1;
    }
    rd_kafka_destroy(rk);
    return n;
}

/* ---- the checker's side ---- */

void cut_tell_read(const char *dir, const int64_t *position, int partitions)
{
    char path[4096], fresh[4096];
    FILE *f = open_in(dir, "requests-read.new", "w");

    for (int i = 0; f && i < partitions; i++)
        fprintf(f, "%" PRId64 "\n", position[i]);
    if (!f || fclose(f) != 0)
        return; /* the old one stays, and less is cut */
    snprintf(path, sizeof path, "%s/requests-read", dir);
    snprintf(fresh, sizeof fresh, "%s/requests-read.new", dir);
    (void)rename(fresh, path); /* likewise */
}

void cut_learn(const char *dir, int *seen, struct verdict *v)
{
    FILE *f = open_in(dir, "cuts", "r");
    int64_t from, to;
    int partition;

    for (int i = 0; f && fscanf(f, "%d %" SCNd64 " %" SCNd64, &partition, &from, &to) == 3; i++)
        if (i >= *seen) {
            verdict_cut(v, partition, from, to);
            *seen = i + 1;
        }
    if (f)
        fclose(f);
}
