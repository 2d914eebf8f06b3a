/* check: reads requests, results and dead letters with read_committed all the while, watches the committed offsets, and
 * judges at the end.
 *
 *   observer thread   committed offsets, then the ends of results and dead letters --sample--> ring
 *   main thread       reads; a sample is judged once every position has reached its ends: by then all that was visible
 *                     when the offset was committed has been read
 *
 * SIGUSR1: no job will be written any more.  Then it waits until everything has an outcome and the lag is 0, or until
 * drain_s have brought nothing, prints figures and findings, and exits 0 (clean) or 1. */
#include "tests/chaos/chaos.h"
#include "tests/chaos/cut.h"
#include "tests/chaos/job.h"
#include "tests/chaos/kafka.h"
#include "tests/chaos/verdict.h"

#include "base/clock.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SAMPLE_MS = 100,
    ASK_MS = 3000,
    RING = 4096,
    QUIET_MS = 3000, /* after all is done: repeats that come late */
    TOPICS = 3,
};

enum topic { REQUESTS, RESULTS, DEAD };

struct ends {
    int64_t at[TOPICS][VERDICT_PARTITIONS]; /* of REQUESTS: what the group has committed, -1 = nothing */
};

struct checker {
    const struct chaos_options *o;
    const char *topic[TOPICS];
    int partitions[TOPICS];
    int64_t position[TOPICS][VERDICT_PARTITIONS];
    struct verdict *verdict;
    int cuts; /* that the verdict knows */

    pthread_mutex_t lock;
    struct ends *ring;
    int first, n;
    _Atomic bool closing;
    _Atomic int64_t samples, misses;
};

/* ---- the observer ---- */

static bool ask_committed(struct checker *c, rd_kafka_t *rk, struct ends *out)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(c->partitions[REQUESTS]);
    bool all;

    for (int i = 0; i < c->partitions[REQUESTS]; i++)
        rd_kafka_topic_partition_list_add(list, c->topic[REQUESTS], i);
    all = rd_kafka_committed(rk, list, ASK_MS) == RD_KAFKA_RESP_ERR_NO_ERROR;
    for (int i = 0; all && i < list->cnt; i++) {
        all = list->elems[i].err == RD_KAFKA_RESP_ERR_NO_ERROR;
        out->at[REQUESTS][i] = list->elems[i].offset >= 0 ? list->elems[i].offset : -1;
    }
    rd_kafka_topic_partition_list_destroy(list);
    return all;
}

/* uncommitted: its handle reads uncommitted, so the end is that of the log, not of what is decided. */
static bool ask_ends(struct checker *c, rd_kafka_t *uncommitted, enum topic t, int64_t *out)
{
    int64_t low;

    for (int i = 0; i < c->partitions[t]; i++)
        if (rd_kafka_query_watermark_offsets(uncommitted, c->topic[t], i, &low, &out[i], ASK_MS))
            return false;
    return true;
}

static void push(struct checker *c, const struct ends *s)
{
    pthread_mutex_lock(&c->lock);
    if (c->n < RING) {
        c->ring[(c->first + c->n++) % RING] = *s;
    }
    pthread_mutex_unlock(&c->lock);
}

static rd_kafka_t *open_observer(const struct checker *c, const char *isolation)
{
    const char *const settings[] = {"group.id", c->o->group, "isolation.level", isolation, "enable.auto.commit",
                                    "false",    NULL};

    return kafka_new(RD_KAFKA_CONSUMER, kafka_conf(c->o->bootstrap, settings));
}

static void *observe(void *arg)
{
    struct checker *c = arg;
    rd_kafka_t *committed = open_observer(c, "read_committed"), *uncommitted = open_observer(c, "read_uncommitted");

    while (!atomic_load(&c->closing)) {
        struct ends s;
        if (ask_committed(c, committed, &s) && ask_ends(c, uncommitted, RESULTS, s.at[RESULTS]) &&
            ask_ends(c, uncommitted, DEAD, s.at[DEAD])) {
            push(c, &s);
            atomic_fetch_add(&c->samples, 1);
        } else {
            atomic_fetch_add(&c->misses, 1); /* brokers are away */
        }
        rd_kafka_poll(committed, SAMPLE_MS);
    }
    rd_kafka_destroy(committed);
    rd_kafka_destroy(uncommitted);
    return NULL;
}

/* ---- the readers ---- */

static rd_kafka_t *open_reader(struct checker *c)
{
    static const char *const settings[] = {"group.id",
                                           "chaos-checker",
                                           "isolation.level",
                                           "read_committed",
                                           "enable.auto.commit",
                                           "false",
                                           "enable.partition.eof",
                                           "true",
                                           "auto.offset.reset",
                                           "earliest",
                                           "fetch.wait.max.ms",
                                           "50",
                                           NULL};
    rd_kafka_t *rk = kafka_new(RD_KAFKA_CONSUMER, kafka_conf(c->o->bootstrap, settings));
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(16);

    rd_kafka_poll_set_consumer(rk);
    for (int t = 0; t < TOPICS; t++) {
        c->partitions[t] = kafka_partitions(rk, c->topic[t], 20000);
        if (c->partitions[t] < 1 || c->partitions[t] > VERDICT_PARTITIONS) {
            fprintf(stderr, "chaos check: topic %s has %d partitions\n", c->topic[t], c->partitions[t]);
            exit(1);
        }
        for (int i = 0; i < c->partitions[t]; i++)
            rd_kafka_topic_partition_list_add(list, c->topic[t], i)->offset = 0;
    }
    rd_kafka_assign(rk, list);
    rd_kafka_topic_partition_list_destroy(list);
    return rk;
}

static int64_t header_text(const rd_kafka_headers_t *h, const char *name)
{
    const void *value;
    char z[32];
    size_t n;

    if (!h || rd_kafka_header_get_last(h, name, &value, &n) || !value || n >= sizeof z)
        return -1;
    memcpy(z, value, n);
    z[n] = '\0';
    return strtoll(z, NULL, 10);
}

static int64_t header_number(const rd_kafka_headers_t *h, const char *name)
{
    const void *value;
    int64_t x = 0;
    size_t n;

    if (!h || rd_kafka_header_get_last(h, name, &value, &n) || !value || n > 8)
        return -1;
    for (size_t i = 0; i < n; i++)
        x = x << 8 | ((const unsigned char *)value)[i];
    return x;
}

static bool header_is(const rd_kafka_headers_t *h, const char *name, const char *text)
{
    const void *value;
    size_t n;

    return h && !rd_kafka_header_get_last(h, name, &value, &n) && value && n == strlen(text) &&
           memcmp(value, text, n) == 0;
}

static void on_record(struct checker *c, enum topic t, const rd_kafka_message_t *m)
{
    rd_kafka_headers_t *h = NULL;
    struct numbered j;
    uint64_t hash;

    (void)rd_kafka_message_headers(m, &h); /* none: h stays NULL */
    if (t == REQUESTS)
        verdict_request(c->verdict, m->partition, m->offset, job_read(&j, m->payload, m->len) ? &j : NULL);
    else if (t == RESULTS && job_read_result(&j, &hash, m->payload, m->len))
        verdict_result(c->verdict, &j, hash, (int)header_text(h, "translate-source-partition"),
                       header_text(h, "translate-source-offset"));
    else if (t == DEAD && job_read(&j, m->payload, m->len))
        verdict_dead_letter(c->verdict, &j, header_is(h, "kafka_dlt-exception-fqcn", "CRASHED"),
                            (int)header_number(h, "kafka_dlt-original-partition"),
                            header_number(h, "kafka_dlt-original-offset"));
    else
        verdict_garbled(c->verdict, c->topic[t], m->partition, m->offset);
}

static void on_message(struct checker *c, const rd_kafka_message_t *m)
{
    int64_t *position;
    int t = 0;

    if (!m->rkt || m->partition < 0)
        return;
    while (t < TOPICS && strcmp(rd_kafka_topic_name(m->rkt), c->topic[t]) != 0)
        t++;
    position = &c->position[t][m->partition];
    if (m->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
        if (m->offset > *position)
            *position = m->offset;
    } else if (!m->err && m->offset >= *position) { /* else: the library began anew after a leader's change */
        on_record(c, (enum topic)t, m);
        *position = m->offset + 1;
    }
}

static bool has_reached(const struct checker *c, const struct ends *s)
{
    for (int t = 0; t < TOPICS; t++)
        for (int i = 0; i < c->partitions[t]; i++)
            if (c->position[t][i] < s->at[t][i])
                return false;
    return true;
}

static void judge_samples(struct checker *c)
{
    pthread_mutex_lock(&c->lock);
    cut_learn(c->o->dir, &c->cuts, c->verdict); /* a commit that passes a cut is younger than its line */
    while (c->n > 0 && has_reached(c, &c->ring[c->first])) {
        const struct ends *s = &c->ring[c->first];
        for (int i = 0; i < c->partitions[REQUESTS]; i++) {
            verdict_committed_raw(c->verdict, i, s->at[REQUESTS][i]);
            verdict_committed(c->verdict, i, s->at[REQUESTS][i]);
        }
        c->first = (c->first + 1) % RING;
        c->n--;
    }
    pthread_mutex_unlock(&c->lock);
}

/* Reads for some time, and judges what can be judged. */
static void turn(struct checker *c, rd_kafka_t *rk, int ms)
{
    int64_t until = clock_mono_ns() + ms * NS_PER_MS;

    do {
        rd_kafka_message_t *m = rd_kafka_consumer_poll(rk, 50);
        if (m) {
            on_message(c, m);
            rd_kafka_message_destroy(m);
        }
    } while (clock_mono_ns() < until);
    judge_samples(c);
    cut_tell_read(c->o->dir, c->position[REQUESTS], c->partitions[REQUESTS]);
}

/* ---- the end ---- */

static bool read_log(struct checker *c)
{
    FILE *f = fopen(c->o->log, "r");
    int64_t number;
    char what;

    if (!f)
        return false;
    while (fscanf(f, " %c %" SCNd64, &what, &number) == 2)
        switch (what) {
        case 'a': verdict_acknowledged(c->verdict, number); break;
        case 'x': verdict_aborted(c->verdict, number); break;
        default: verdict_unsure(c->verdict, number); break;
        }
    fclose(f);
    return true;
}

static int64_t lag_of(const struct checker *c, const struct ends *e, const int64_t *end)
{
    int64_t lag = 0;

    for (int i = 0; i < c->partitions[REQUESTS]; i++)
        lag += end[i] - (e->at[REQUESTS][i] > 0 ? e->at[REQUESTS][i] : 0);
    return lag;
}

/* Until all is done, or nothing was done for drain_s; *now and end are the last figures of the group.  Jobs that kill
 * their worker, one after the other, each cost a session timeout, so the whole may take long. */
static void drain(struct checker *c, rd_kafka_t *reader, rd_kafka_t *committed, rd_kafka_t *uncommitted,
                  struct ends *now, int64_t *end)
{
    int64_t start = clock_mono_ns(), moved = start, unsettled = INT64_MAX;

    for (;;) {
        turn(c, reader, 200);
        if (verdict_unsettled(c->verdict) < unsettled) {
            unsettled = verdict_unsettled(c->verdict);
            moved = clock_mono_ns();
        }
        bool known = ask_ends(c, uncommitted, REQUESTS, end) && ask_committed(c, committed, now);
        if (known && verdict_is_settled(c->verdict) && lag_of(c, now, end) == 0)
            break;
        if (clock_mono_ns() - moved >= c->o->drain_s * NS_PER_S ||
            clock_mono_ns() - start >= CHAOS_DRAIN_MOST * c->o->drain_s * NS_PER_S)
            return;
    }
    turn(c, reader, QUIET_MS);
}

static int64_t allowed_repeats(const struct chaos_options *o)
{
    char path[4096];
    int64_t n = o->max_repeats;
    FILE *f;

    if (n >= 0)
        return n;
    snprintf(path, sizeof path, "%s/allowed-repeats", o->dir);
    f = fopen(path, "r");
    if (!f || fscanf(f, "%" SCNd64, &n) != 1)
        n = 0;
    if (f)
        fclose(f);
    return n;
}

static bool judge(struct checker *c, const struct ends *now, const int64_t *end)
{
    struct verdict_rules rules = {.exactly_once = c->o->exactly_once,
                                  .order_by_key = c->o->order_by_key,
                                  .max_repeats = allowed_repeats(c->o)};
    struct verdict_figures f;
    bool clean;

    for (int i = 0; i < c->partitions[REQUESTS]; i++)
        verdict_end(c->verdict, i, now->at[REQUESTS][i], end[i]);
    verdict_unproven(c->verdict, c->n);
    clean = verdict_judge(c->verdict, &rules, &f);
    printf("jobs=%" PRId64 " written_twice=%" PRId64 " acknowledged=%" PRId64 " unsure=%" PRId64 " aborted=%" PRId64
           " results=%" PRId64 " dead_letters=%" PRId64 " crashed=%" PRId64 " cut_jobs=%" PRId64 " repeats=%" PRId64
           " allowed_repeats=%" PRId64 " commits_seen=%" PRId64 " samples=%" PRId64 " missed_samples=%" PRId64,
           f.requests, f.written_twice, f.acknowledged, f.unsure, f.aborted, f.results, f.dead_letters, f.crashed,
           f.cut, f.repeats, rules.max_repeats, f.commits_seen, atomic_load(&c->samples), atomic_load(&c->misses));
    for (int i = 0; i < FINDINGS; i++)
        printf(" %s=%" PRId64, finding_name((enum finding)i), f.found[i]);
    printf(" verdict=%s\n", clean ? "clean" : "FAULTY");
    return clean;
}

int chaos_check(const struct chaos_options *o)
{
    struct checker c = {.o = o, .topic = {o->requests, o->results, o->dead}, .verdict = verdict_open(stdout)};
    rd_kafka_t *reader = open_reader(&c), *committed = open_observer(&c, "read_committed"),
               *uncommitted = open_observer(&c, "read_uncommitted");
    int64_t end[VERDICT_PARTITIONS] = {0};
    struct ends now = {0};
    pthread_t thread;

    pthread_mutex_init(&c.lock, NULL);
    c.ring = calloc(RING, sizeof *c.ring);
    if (!c.ring || !c.verdict || pthread_create(&thread, NULL, observe, &c) != 0) {
        fprintf(stderr, "chaos check: no memory\n");
        return 1;
    }
    while (!chaos_usr1)
        turn(&c, reader, 100);
    if (!read_log(&c)) {
        fprintf(stderr, "chaos check: cannot read %s\n", o->log);
        return 1;
    }
    drain(&c, reader, committed, uncommitted, &now, end);
    atomic_store(&c.closing, true);
    pthread_join(thread, NULL);
    turn(&c, reader, 500);
    bool clean = judge(&c, &now, end);
    rd_kafka_destroy(committed);
    rd_kafka_destroy(uncommitted);
    rd_kafka_consumer_close(reader);
    rd_kafka_destroy(reader);
    verdict_close(c.verdict);
    free(c.ring);
    return clean ? 0 : 1;
}
