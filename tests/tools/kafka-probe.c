/* kafka-probe -- consumer and publisher against a real Kafka, without model and worker.
 *
 *   kafka-probe BOOTSTRAP [JOBS] [MEMBERS] [REPLICAS] [HOLD] [PAUSE_US]
 *
 * PAUSE_US is what a job takes, so that there is time for faults (ops/kafka-local/kafka.sh broker ...) meanwhile.
 * Makes topics of its own, submits JOBS numbered jobs over six partitions, and lets MEMBERS consumers share them: each
 * finishes its jobs in random order among HOLD held ones, after its result is acknowledged.  Members after the first
 * join and leave again while jobs are in flight.  Then an independent reader checks sets: every job has a result,
 * repeats are counted, the group's offsets are at the end.  Exit 0 = nothing lost. */
#include "base/clock.h"
#include "base/log.h"
#include "kafka/admin.h"
#include "kafka/consumer.h"
#include "kafka/publisher.h"
#include "kafka/reader.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PARTITIONS = 6, MOST_MEMBERS = 8, MOST_HOLD = 4096, LIMIT_S = 120 };

struct probe {
    struct kafka_config k;
    struct delivery_config d;
    const char *bootstrap;
    int jobs, hold, pause_us;
    _Atomic int published;
};

struct member {
    struct probe *pr;
    struct consumer *c;
    struct publisher *p;
    struct queue *records;
    struct record *held[MOST_HOLD];
    int have, on_their_way;
    unsigned seed;
    pthread_t consumer_thread, publisher_thread;
    _Atomic bool stop, drained;
    struct consumer_stats stats;
    int late;
};

static void die(const char *what, const struct err *e)
{
    fprintf(stderr, "kafka-probe: %s: %s\n", what, e->msg);
    exit(1);
}

static void on_report(void *ctx, void *opaque, enum err_code rc, const struct err *e)
{
    struct member *m = ctx;
    struct record *r = opaque;

    if (rc != ERR_OK) { /* sent again, like a worker's retry */
        fprintf(stderr, "kafka-probe: %s\n", e->msg);
        if (m->have < MOST_HOLD) {
            m->held[m->have++] = r;
            m->on_their_way--;
            return;
        }
    }
    m->on_their_way--;
    atomic_fetch_add(&m->pr->published, 1);
    consumer_finish(m->c, &r->at);
    consumer_release(m->c, r);
}

static void send_one(struct member *m)
{
    int i = (int)(rand_r(&m->seed) % (unsigned)m->have);
    struct record *r = m->held[i];
    struct outgoing o = {.to = PUBLISH_RESULT, .partition = -1, .opaque = r};
    struct err e;
    enum err_code rc;

    m->held[i] = m->held[--m->have];
    if (!consumer_owns(m->c, &r->at)) {
        m->late++;
        consumer_drop_late(m->c, &r->at);
        consumer_release(m->c, r);
        return;
    }
    o.key = r->key;
    o.key_size = r->key_size;
    o.value = r->value;
    o.value_size = r->value_size;
    while ((rc = publisher_send(m->p, &o, &e)) == ERR_BUSY)
        publisher_turn(m->p, 5);
    if (rc != ERR_OK)
        die("send", &e);
    m->on_their_way++;
}

static void *publisher_main(void *arg)
{
    struct member *m = arg;

    log_thread_name("publisher");
    while (!atomic_load(&m->stop) || m->have > 0 || m->on_their_way > 0) {
        struct record *r = queue_pop(m->records, clock_mono_ns() + 2 * NS_PER_MS);

        if (r)
            m->held[m->have++] = r;
        if (m->have > 0 && (!r || m->have >= m->pr->hold))
            send_one(m);
        if (m->pr->pause_us)
            usleep((useconds_t)m->pr->pause_us);
        publisher_turn(m->p, 0);
    }
    atomic_store(&m->drained, true);
    return NULL;
}

static void *consumer_main(void *arg)
{
    struct member *m = arg;
    struct err e;

    log_thread_name("consumer");
    while (!atomic_load(&m->drained)) {
        if (atomic_load(&m->stop))
            consumer_stop_intake(m->c);
        if (consumer_turn(m->c, 50, &e) != ERR_OK)
            die("consumer", &e);
    }
    for (int i = 0; i < 3; i++)
        if (consumer_turn(m->c, 0, &e) != ERR_OK)
            die("consumer", &e);
    return NULL;
}

static void member_start(struct member *m, struct probe *pr, unsigned seed)
{
    struct err e;

    memset(m, 0, sizeof *m);
    m->pr = pr;
    m->seed = seed;
    if (queue_open(&m->records, (size_t)pr->d.max_in_flight_jobs, &e) != ERR_OK ||
        publisher_open(&m->p, &pr->k, pr->bootstrap, &pr->d, on_report, m, &e) != ERR_OK ||
        consumer_open(&m->c, &pr->k, pr->bootstrap, &pr->d, m->records, &e) != ERR_OK)
        die("open", &e);
    pthread_create(&m->publisher_thread, NULL, publisher_main, m);
    pthread_create(&m->consumer_thread, NULL, consumer_main, m);
}

/* SIGTERM's way: no more intake, finish, commit, leave. */
static void member_stop(struct member *m)
{
    struct record *r;

    atomic_store(&m->stop, true);
    pthread_join(m->publisher_thread, NULL);
    pthread_join(m->consumer_thread, NULL);
    while ((r = queue_pop(m->records, 0))) /* read in the last moment: not finished, not committed */
        consumer_release(m->c, r);
    consumer_get_stats(m->c, &m->stats);
    int64_t t0 = clock_mono_ns();
    consumer_close(m->c, 8000);
    publisher_close(m->p, 5000);
    queue_free(m->records);
    printf("member: %lld records, %lld commits, %lld commit errors, %lld rebalances, %lld late, %lld lost, close %lld "
           "ms\n",
           (long long)m->stats.records, (long long)m->stats.commits, (long long)m->stats.commit_errors,
           (long long)m->stats.rebalances, (long long)m->stats.late_results + m->late,
           (long long)m->stats.lost_partitions, (long long)((clock_mono_ns() - t0) / NS_PER_MS));
}

static void count_report(void *ctx, void *opaque, enum err_code rc, const struct err *e)
{
    (void)opaque;
    if (rc != ERR_OK)
        die("submit", e);
    ++*(int *)ctx;
}

static void submit(struct probe *pr)
{
    struct publisher *p;
    struct err e;
    char key[32], value[256];
    int done = 0;
    int64_t t0 = clock_mono_ns();

    memset(value, '.', sizeof value);
    if (publisher_open(&p, &pr->k, pr->bootstrap, &pr->d, count_report, &done, &e) != ERR_OK)
        die("submit", &e);
    for (int i = 0; i < pr->jobs; i++) {
        struct outgoing o = {.to = PUBLISH_REQUEST, .partition = i % PARTITIONS, .key = key, .value = value};

        o.key_size = (size_t)snprintf(key, sizeof key, "%d", i);
        o.value_size = sizeof value;
        while (publisher_send(p, &o, &e) == ERR_BUSY)
            publisher_turn(p, 5);
    }
    publisher_close(p, 30000);
    if (done != pr->jobs)
        die("submit", &(struct err){.msg = "not all acknowledged"});
    printf("submitted %d jobs in %lld ms\n", done, (long long)((clock_mono_ns() - t0) / NS_PER_MS));
}

static int check(const struct probe *pr)
{
    unsigned char *seen = calloc((size_t)pr->jobs, 1);
    const struct record *r;
    struct reader *rd = NULL;
    struct err e;
    bool at_end = false;
    int lost = 0, repeats = 0;

    if (!seen || reader_open(&rd, &pr->k, pr->bootstrap, pr->k.result_topic, true, &e) != ERR_OK)
        die("reader", &e);
    for (;;) {
        if (reader_next(rd, &r, &at_end, 5000, &e) != ERR_OK)
            die("reader", &e);
        if (!r && at_end)
            break;
        if (!r)
            continue;
        char key[32] = "";
        memcpy(key, r->key, r->key_size < 31 ? r->key_size : 31);
        int n = atoi(key);
        repeats += seen[n] > 0;
        seen[n] = 1;
    }
    reader_close(rd);
    for (int i = 0; i < pr->jobs; i++)
        lost += !seen[i];
    free(seen);
    printf("checked: %d jobs, %d lost, %d repeats\n", pr->jobs, lost, repeats);
    return lost;
}

int main(int argc, char **argv)
{
    static struct member members[MOST_MEMBERS];
    static char names[4][64];
    struct probe pr = {.bootstrap = argc > 1 ? argv[1] : NULL};
    int members_n = argc > 3 ? atoi(argv[3]) : 1;
    struct err e;

    if (!pr.bootstrap || members_n < 1 || members_n > MOST_MEMBERS) {
        fprintf(stderr, "usage: kafka-probe BOOTSTRAP [JOBS] [MEMBERS] [REPLICAS] [HOLD] [PAUSE_US]\n");
        return 2;
    }
    pr.jobs = argc > 2 ? atoi(argv[2]) : 10000;
    pr.hold = argc > 5 ? atoi(argv[5]) : 200;
    pr.pause_us = argc > 6 ? atoi(argv[6]) : 0;
    static const char *const what[] = {"requests", "results", "dead", "group"};
    for (int i = 0; i < 4; i++)
        snprintf(names[i], sizeof names[i], "probe-%d-%s", (int)getpid(), what[i]);
    pr.k = (struct kafka_config){.bootstrap_servers = pr.bootstrap,
                                 .group_id = names[3],
                                 .instance_id = "",
                                 .client_id = "probe",
                                 .request_topic = names[0],
                                 .result_topic = names[1],
                                 .dead_letter_topic = names[2],
                                 .create_topics = true,
                                 .partitions = PARTITIONS,
                                 .replication_factor = argc > 4 ? atoi(argv[4]) : 1,
                                 .assignment_strategy = "roundrobin",
                                 .offset_reset = "earliest",
                                 .offset_past_end = "error",
                                 .offset_wait_ms = 1500,
                                 .session_timeout_ms = 10000,
                                 .max_poll_interval_ms = 60000};
    pr.d = (struct delivery_config){.max_in_flight_jobs = 2000,
                                    .max_in_flight_mb = 64,
                                    .commit_interval_ms = 200,
                                    .drain_timeout_ms = 10000,
                                    .revoke_timeout_ms = 5000,
                                    .publish_timeout_ms = 30000};
    if (admin_create_topics(&pr.k, pr.bootstrap, 15000, &e) != ERR_OK)
        die("create topics", &e);
    submit(&pr);
    int64_t t0 = clock_mono_ns(), until = t0 + LIMIT_S * NS_PER_S;
    int running = 1, next_join = pr.jobs / 10;
    bool leaving = false;
    member_start(&members[0], &pr, 1);
    while (clock_mono_ns() < until) {
        struct consumer_stats s;
        struct timespec t = {0, 10 * NS_PER_MS};

        consumer_get_stats(members[0].c, &s);
        int done = atomic_load(&pr.published);
        if (done >= pr.jobs && running == 1 && s.lag == 0 && s.in_flight_jobs == 0 && s.partitions == PARTITIONS)
            break;
        if (!leaving && running < members_n && done >= next_join) {
            member_start(&members[running], &pr, (unsigned)running + 1);
            running++;
            next_join += pr.jobs / 10;
        }
        leaving |= running == members_n && done >= pr.jobs * 7 / 10;
        if (leaving && running > 1 && done >= pr.jobs * 7 / 10)
            member_stop(&members[--running]);
        nanosleep(&t, NULL);
    }
    printf("worked off in %lld ms\n", (long long)((clock_mono_ns() - t0) / NS_PER_MS));
    struct consumer_partition parts[PARTITIONS];
    int64_t committed = 0;
    struct timespec t = {0, 600 * NS_PER_MS}; /* past the commit interval */
    nanosleep(&t, NULL);
    for (int i = 0, n = consumer_get_partitions(members[0].c, parts, PARTITIONS); i < n; i++)
        committed += parts[i].committed;
    member_stop(&members[0]);
    int lost = check(&pr);
    printf("committed %lld of %d\n", (long long)committed, pr.jobs);
    return lost || committed != pr.jobs;
}
