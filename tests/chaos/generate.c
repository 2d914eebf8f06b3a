/* generate: numbered jobs at a steady rate until SIGTERM, in two threads.
 *
 *   plain producer (idempotent)      keys 0 ..                  log "a N" acknowledged, "u N" unsure
 *   transactional producer           the last TX_KEYS keys      log "a N" committed, "x N" aborted, "u N" unsure
 *
 * Numbers are drawn from one counter.  The log is written when the answer comes: what is not in it was never
 * acknowledged.  "unsure": the producer gave up, the record may be on the topic. */
#include "tests/chaos/chaos.h"
#include "tests/chaos/job.h"
#include "tests/chaos/kafka.h"

#include "base/clock.h"
#include "base/hash.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    MOST_KEYS = 1024,
    TX_KEYS = 4,
    TX_JOBS = 3,
    TX_EVERY_MS = 250,
    TX_CALL_MS = 20000,
    MOST_OUT = 20000, /* written and unanswered; more, and the generator waits */
    FLUSH_MS = 130000,
    JOBS_A_SCHEMA = 200, /* then the next one has another schema id, which no worker knows */
};

struct generator {
    const struct chaos_options *o;
    FILE *log;
    pthread_mutex_t lock; /* of the log, and of the sequences */
    _Atomic int64_t next, out, acknowledged;
    int64_t sequence[MOST_KEYS];
};

static void note(struct generator *g, char what, int64_t number)
{
    pthread_mutex_lock(&g->lock);
    fprintf(g->log, "%c %" PRId64 "\n", what, number);
    pthread_mutex_unlock(&g->lock);
    if (what == 'a')
        atomic_fetch_add(&g->acknowledged, 1);
}

static enum job_kind kind_of(const struct generator *g, int64_t number, uint64_t h)
{
    if (g->o->crash_one_in > 0 && number % g->o->crash_one_in == g->o->crash_one_in / 2)
        return JOB_CRASH;
    h %= 1000;
    return h < 5 ? JOB_BAD : h < 9 ? JOB_GARBAGE : h < 30 ? JOB_LONG : h < 50 ? JOB_LATE : JOB_PLAIN_TEXT;
}

static struct numbered draw(struct generator *g, int first_key, int keys)
{
    struct numbered j = {.number = atomic_fetch_add(&g->next, 1)};
    uint64_t h = hash_mix(g->o->seed, (uint64_t)j.number);

    j.key = first_key + (int)((h >> 20) % (uint64_t)keys);
    j.kind = kind_of(g, j.number, h);
    j.sequence = g->sequence[j.key]++; /* keys belong to one thread each */
    return j;
}

/* One in eight of those that have an Avro form. */
static bool is_avro(const struct chaos_options *o, const struct numbered *j)
{
    return o->avro && j->kind != JOB_GARBAGE && j->kind != JOB_LATE &&
           hash_mix(o->seed, (uint64_t)j->number ^ 0xA5A5) % 8 == 0;
}

static bool put(rd_kafka_t *rk, const struct chaos_options *o, const struct numbered *j)
{
    char key[32], value[1024];
    size_t n;

    if (is_avro(o, j)) {
        n = job_write_avro(j, (int32_t)(j->number / JOBS_A_SCHEMA), key, sizeof key, value, sizeof value);
    } else {
        job_write(j, key, sizeof key, value, sizeof value);
        n = strlen(value);
    }
    return rd_kafka_producev(rk, RD_KAFKA_V_TOPIC(o->requests), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                             RD_KAFKA_V_KEY(key, strlen(key)), RD_KAFKA_V_VALUE(value, n),
                             RD_KAFKA_V_OPAQUE((void *)(intptr_t)j->number),
                             RD_KAFKA_V_END) == RD_KAFKA_RESP_ERR_NO_ERROR;
}

/* ---- plain ---- */

static void on_report(rd_kafka_t *rk, const rd_kafka_message_t *m, void *opaque)
{
    struct generator *g = opaque;

    (void)rk;
    note(g, m->err ? 'u' : 'a', (int64_t)(intptr_t)m->_private);
    atomic_fetch_sub(&g->out, 1);
}

static rd_kafka_t *open_plain(struct generator *g)
{
    static const char *const settings[] = {
        "enable.idempotence", "true",   "acks",      "all", "partitioner", "murmur2_random",
        "message.timeout.ms", "120000", "linger.ms", "2",   NULL};
    rd_kafka_conf_t *conf = kafka_conf(g->o->bootstrap, settings);

    rd_kafka_conf_set_dr_msg_cb(conf, on_report);
    rd_kafka_conf_set_opaque(conf, g);
    return kafka_new(RD_KAFKA_PRODUCER, conf);
}

/* An idempotent producer that has met a fatal error (a broker that came back may cause one) fails for ever. */
static rd_kafka_t *renew_if_fatal(struct generator *g, rd_kafka_t *rk)
{
    char why[256];

    if (!rd_kafka_fatal_error(rk, why, sizeof why))
        return rk;
    printf("the producer is built anew: %s\n", why);
    rd_kafka_purge(rk, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
    rd_kafka_flush(rk, 5000);
    rd_kafka_destroy(rk);
    return open_plain(g);
}

static void write_plain(struct generator *g)
{
    int64_t start = clock_mono_ns(), written = 0;
    int keys = g->o->keys - TX_KEYS;
    rd_kafka_t *rk = open_plain(g);

    while (!chaos_term) {
        int64_t due = (clock_mono_ns() - start) * g->o->rate / NS_PER_S;
        if (due > written + g->o->rate) /* it stood still: no burst afterwards */
            start += (due - written) * NS_PER_S / g->o->rate;
        for (; written < due && atomic_load(&g->out) < MOST_OUT; written++) {
            struct numbered j = draw(g, 0, keys);
            atomic_fetch_add(&g->out, 1);
            if (!put(rk, g->o, &j)) {
                atomic_fetch_sub(&g->out, 1);
                note(g, 'u', j.number);
            }
        }
        rd_kafka_poll(rk, 10);
        rk = renew_if_fatal(g, rk);
    }
    rd_kafka_flush(rk, FLUSH_MS);
    rd_kafka_destroy(rk);
}

/* ---- transactional ---- */

static rd_kafka_t *open_transactional(struct generator *g)
{
    char id[64];
    const char *const settings[] = {"transactional.id",
                                    id,
                                    "partitioner",
                                    "murmur2_random",
                                    "linger.ms",
                                    "2",
                                    "message.timeout.ms",
                                    "20000",
                                    "transaction.timeout.ms",
                                    "20000",
                                    NULL};

    snprintf(id, sizeof id, "chaos-generator-%" PRIu64, g->o->seed);
    return kafka_new(RD_KAFKA_PRODUCER, kafka_conf(g->o->bootstrap, settings));
}

/* rd_kafka_init_, _commit_ or _abort_transaction(): retried while the library says that this may help. */
typedef rd_kafka_error_t *transaction_call(rd_kafka_t *rk, int timeout_ms);

static bool is_well(rd_kafka_error_t *error)
{
    if (!error)
        return true;
    rd_kafka_error_destroy(error);
    return false;
}

static bool try_until(rd_kafka_t *rk, transaction_call *call, int64_t limit_ns)
{
    rd_kafka_error_t *error;

    while ((error = call(rk, 2000)) && rd_kafka_error_is_retriable(error) && clock_mono_ns() < limit_ns)
        rd_kafka_error_destroy(error);
    return is_well(error);
}

/* One transaction; what is logged is what is known of it.  false: the producer has to be built anew. */
static bool transact(struct generator *g, rd_kafka_t *rk)
{
    struct numbered jobs[TX_JOBS];
    int64_t limit = clock_mono_ns() + TX_CALL_MS * NS_PER_MS;
    bool written = true, commit, done;

    if (!is_well(rd_kafka_begin_transaction(rk)))
        return false;
    for (int i = 0; i < TX_JOBS; i++) {
        jobs[i] = draw(g, g->o->keys - TX_KEYS, TX_KEYS);
        written = put(rk, g->o, &jobs[i]) && written;
    }
    commit = written && hash_mix(g->o->seed, (uint64_t)jobs[0].number) % 3 != 0;
    if (commit)
        done = try_until(rk, rd_kafka_commit_transaction, limit);
    else
        done = rd_kafka_flush(rk, 2000) == RD_KAFKA_RESP_ERR_NO_ERROR && /* so that there is something to abort */
               try_until(rk, rd_kafka_abort_transaction, limit);
    for (int i = 0; i < TX_JOBS; i++)
        note(g, !done ? 'u' : commit ? 'a' : 'x', jobs[i].number);
    return done;
}

static void *write_transactional(void *arg)
{
    struct generator *g = arg;
    rd_kafka_t *rk = NULL;

    while (!chaos_term) {
        if (!rk) {
            rk = open_transactional(g);
            if (!try_until(rk, rd_kafka_init_transactions, clock_mono_ns() + TX_CALL_MS * NS_PER_MS)) {
                rd_kafka_destroy(rk);
                rk = NULL;
                continue;
            }
        }
        if (!transact(g, rk)) {
            rd_kafka_destroy(rk);
            rk = NULL;
            continue;
        }
        rd_kafka_poll(rk, TX_EVERY_MS);
    }
    if (rk)
        rd_kafka_destroy(rk);
    return NULL;
}

int chaos_generate(const struct chaos_options *o)
{
    struct generator g = {.o = o, .log = fopen(o->log, "w")};
    pthread_t thread;

    if (!g.log || o->keys <= TX_KEYS || o->keys > MOST_KEYS) {
        fprintf(stderr, "chaos generate: cannot write %s, or not %d to %d keys\n", o->log, TX_KEYS + 1, MOST_KEYS);
        return 1;
    }
    pthread_mutex_init(&g.lock, NULL);
    bool both = o->transactions && pthread_create(&thread, NULL, write_transactional, &g) == 0;
    write_plain(&g);
    if (both)
        pthread_join(thread, NULL);
    printf("written=%" PRId64 " acknowledged=%" PRId64 "\n", atomic_load(&g.next), atomic_load(&g.acknowledged));
    return fclose(g.log) == 0 ? 0 : 1;
}
