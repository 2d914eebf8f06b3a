/* kafka_floor -- what Kafka itself allows: the least that a worker could do, with librdkafka alone, and the clocks for both.
 *
 *   kafka_floor fill BOOTSTRAP TOPIC JOBS               so many jobs, as fast as they go
 *   kafka_floor copy BOOTSTRAP FROM TO JOBS [RESULTS]   the bare loop: consume, produce the same bytes (acks=all,
 *                                                       idempotent), commit at the end; prints records a second, and
 *                                                       on standard error its processor time in us; JOBS 0:
 *                                                       until it is killed.  RESULTS, a topic of a worker's results:
 *                                                       each record is answered with one of them, headers and all
 *   kafka_floor rate BOOTSTRAP TOPIC JOBS               waits for so many records, prints records a second between the
 *                                                       first and the last one, by the times that the broker gave them
 *                                                       (message.timestamp.type=LogAppendTime); reads none before the
 *                                                       last is there
 *   kafka_floor latency BOOTSTRAP TO FROM RATE JOBS     so many single jobs at an even rate; prints p50 and p99 from the
 *                                                       call that sends a job to the poll that returns its result, ms
 *
 * See ops/bench/kafka.sh. */
#include "base/clock.h"

#include <librdkafka/rdkafka.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { LIMIT_S = 180, BATCH = 1024 };

static void die(const char *what, const char *why)
{
    fprintf(stderr, "kafka_floor: %s: %s\n", what, why);
    exit(1);
}

/* A handle with the settings "name=value", ended by NULL, which is what the worker's own handles have. */
static rd_kafka_t *open_kafka(rd_kafka_type_t type, const char *bootstrap, const char *const *settings)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    char name[64], why[256];

    rd_kafka_conf_set(conf, "bootstrap.servers", bootstrap, NULL, 0);
    rd_kafka_conf_set(conf, "log_level", "3", NULL, 0); /* errors: standard error is for figures */
    for (; *settings; settings++) {
        const char *value = strchr(*settings, '=');
        snprintf(name, sizeof name, "%.*s", (int)(value - *settings), *settings);
        if (rd_kafka_conf_set(conf, name, value + 1, why, sizeof why) != RD_KAFKA_CONF_OK)
            die(*settings, why);
    }
    rd_kafka_t *rk = rd_kafka_new(type, conf, why, sizeof why);
    if (!rk)
        die("client", why);
    return rk;
}

static long unacknowledged;

static void on_delivery(rd_kafka_t *rk, const rd_kafka_message_t *m, void *opaque)
{
    (void)rk, (void)opaque;
    unacknowledged--;
    if (m->err)
        die("produce", rd_kafka_err2str(m->err));
}

static rd_kafka_t *open_producer(const char *bootstrap, const char *linger)
{
    const char *const settings[] = {"enable.idempotence=true",    "acks=all", "compression.codec=lz4",
                                    "partitioner=murmur2_random", linger,     NULL};
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    char name[64], why[256];

    rd_kafka_conf_set(conf, "bootstrap.servers", bootstrap, NULL, 0);
    rd_kafka_conf_set(conf, "log_level", "3", NULL, 0);
    rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    for (int i = 0; settings[i]; i++) {
        const char *value = strchr(settings[i], '=');
        snprintf(name, sizeof name, "%.*s", (int)(value - settings[i]), settings[i]);
        if (rd_kafka_conf_set(conf, name, value + 1, why, sizeof why) != RD_KAFKA_CONF_OK)
            die(settings[i], why);
    }
    rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, why, sizeof why);
    if (!rk)
        die("producer", why);
    return rk;
}

/* A record of this value and these headers (NULL: none). */
static void produce(rd_kafka_t *rk, const char *topic, const void *key, size_t n_key, const void *value, size_t n,
                    const rd_kafka_headers_t *headers)
{
    rd_kafka_headers_t *own = headers ? rd_kafka_headers_copy(headers) : NULL;
    rd_kafka_resp_err_t rc;

    while ((rc = rd_kafka_producev(rk, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                                   RD_KAFKA_V_KEY((void *)key, n_key), RD_KAFKA_V_VALUE((void *)value, n),
                                   RD_KAFKA_V_HEADERS(own), RD_KAFKA_V_END)) == RD_KAFKA_RESP_ERR__QUEUE_FULL)
        rd_kafka_poll(rk, 5);
    if (rc)
        die("produce", rd_kafka_err2str(rc));
    unacknowledged++;
    rd_kafka_poll(rk, 0);
}

static void drain(rd_kafka_t *rk)
{
    for (int64_t until = clock_mono_ns() + LIMIT_S * NS_PER_S; unacknowledged > 0;) {
        rd_kafka_poll(rk, 10);
        if (clock_mono_ns() > until)
            die("produce", "no acknowledgement");
    }
}

/* A job of the fake engine: the low byte of its seed says that it is a plain one (tests/chaos/job.h). */
static int job_text(char *out, size_t cap, long i)
{
    return snprintf(
        out, cap,
        "{\"job_id\":\"bench-%ld\",\"text\":\"The quick brown fox jumps over the lazy dog, for the %ld. time "
        "today.\",\"target_lang\":\"de\",\"options\":{\"seed\":%ld}}",
        i, i, i << 8);
}

static void send_job(rd_kafka_t *rk, const char *topic, long i)
{
    char text[400], key[32];
    int n = job_text(text, sizeof text, i), k = snprintf(key, sizeof key, "bench-%ld", i);

    produce(rk, topic, key, (size_t)k, text, (size_t)n, NULL);
}

static void fill(const char *bootstrap, const char *topic, long jobs)
{
    rd_kafka_t *rk = open_producer(bootstrap, "linger.ms=20");

    for (long i = 0; i < jobs; i++)
        send_job(rk, topic, i);
    drain(rk);
    rd_kafka_destroy(rk);
}

/* Every partition of the topic from offset on, on one queue. */
static rd_kafka_queue_t *read_topic(rd_kafka_t *rk, const char *topic, int64_t offset, rd_kafka_topic_t **t)
{
    const struct rd_kafka_metadata *md;
    rd_kafka_queue_t *q = rd_kafka_queue_new(rk);

    *t = rd_kafka_topic_new(rk, topic, NULL);
    if (rd_kafka_metadata(rk, 0, *t, &md, 10000) || md->topics[0].partition_cnt == 0)
        die(topic, "no such topic");
    for (int p = 0; p < md->topics[0].partition_cnt; p++)
        rd_kafka_consume_start_queue(*t, p, offset, q);
    rd_kafka_metadata_destroy(md);
    return q;
}

/* What the loop answers with. */
struct answers {
    rd_kafka_message_t *list[BATCH];
    long n; /* 0: the record itself */
};

static void read_answers(struct answers *a, const char *bootstrap, const char *topic)
{
    static const char *const settings[] = {"isolation.level=read_committed", "queued.min.messages=1024", NULL};
    int64_t until = clock_mono_ns() + LIMIT_S * NS_PER_S;
    rd_kafka_t *rk = open_kafka(RD_KAFKA_CONSUMER, bootstrap, settings);
    rd_kafka_topic_t *t;
    rd_kafka_queue_t *q = read_topic(rk, topic, RD_KAFKA_OFFSET_BEGINNING, &t);

    while (a->n < BATCH) { /* the handle stays: they are its own */
        rd_kafka_message_t *m = rd_kafka_consume_queue(q, 200);
        if (m && !m->err)
            a->list[a->n++] = m;
        else if (m)
            rd_kafka_message_destroy(m);
        if (clock_mono_ns() > until)
            die(topic, "too few results");
    }
}

/* The bare loop's answer to one record, the i-th. */
static void answer(rd_kafka_t *out, const char *to, const rd_kafka_message_t *m, const struct answers *a, long i)
{
    const rd_kafka_message_t *with = a->n > 0 ? a->list[i % a->n] : m;
    rd_kafka_headers_t *headers = NULL;

    if (a->n > 0)
        rd_kafka_message_headers(with, &headers);
    produce(out, to, m->key, m->key_len, with->payload, with->len, headers);
}

static void say_processor_time(void)
{
    struct rusage used;

    getrusage(RUSAGE_SELF, &used);
    fprintf(stderr, "%ld\n",
            (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000L + used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

static void copy(const char *bootstrap, const char *from, const char *to, long jobs, const char *results)
{
    static const char *const settings[] = {"group.id=floor", "enable.auto.commit=false", "auto.offset.reset=earliest",
                                           "fetch.wait.max.ms=100", NULL};
    static struct answers answers;
    if (results)
        read_answers(&answers, bootstrap, results);
    rd_kafka_t *in = open_kafka(RD_KAFKA_CONSUMER, bootstrap, settings), *out = open_producer(bootstrap, "linger.ms=2");
    rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
    rd_kafka_message_t *batch[BATCH];
    int64_t begin = 0;
    long done = 0;

    rd_kafka_poll_set_consumer(in);
    rd_kafka_topic_partition_list_add(topics, from, RD_KAFKA_PARTITION_UA);
    rd_kafka_subscribe(in, topics);
    rd_kafka_topic_partition_list_destroy(topics);
    rd_kafka_queue_t *q = rd_kafka_queue_get_consumer(in);
    while (jobs == 0 || done < jobs) {
        ssize_t n = rd_kafka_consume_batch_queue(q, 1, batch, BATCH);
        for (ssize_t i = 0; i < n; i++) {
            const rd_kafka_message_t *m = batch[i];
            if (!m->err && done++ == 0)
                begin = clock_mono_ns();
            if (!m->err)
                answer(out, to, m, &answers, done);
            rd_kafka_message_destroy(batch[i]);
        }
        rd_kafka_poll(out, 0);
    }
    drain(out);
    rd_kafka_commit(in, NULL, 0);
    printf("%.0f\n", (double)done * NS_PER_S / (double)(clock_mono_ns() - begin));
    say_processor_time();
    rd_kafka_queue_destroy(q);
    rd_kafka_consumer_close(in);
    rd_kafka_destroy(in);
    rd_kafka_destroy(out);
}

/* Records and transaction markers there are by now, over all partitions. */
static int64_t count_offsets(rd_kafka_t *rk, const char *topic, int partitions)
{
    int64_t sum = 0, low, high;

    for (int p = 0; p < partitions; p++)
        if (!rd_kafka_query_watermark_offsets(rk, topic, p, &low, &high, 5000))
            sum += high - low;
    return sum;
}

/* A reader would be work for the broker: while they come it is only asked how many there are. */
static void wait_for(rd_kafka_t *rk, const char *topic, long jobs, int64_t until)
{
    const struct rd_kafka_metadata *md;
    rd_kafka_topic_t *t = rd_kafka_topic_new(rk, topic, NULL);
    int partitions;

    if (rd_kafka_metadata(rk, 0, t, &md, 10000) || md->topics[0].partition_cnt == 0)
        die(topic, "no such topic");
    partitions = md->topics[0].partition_cnt;
    rd_kafka_metadata_destroy(md);
    while (count_offsets(rk, topic, partitions) < jobs) {
        if (clock_mono_ns() > until)
            die(topic, "too few records");
        poll(NULL, 0, 100);
    }
    rd_kafka_topic_destroy(t);
}

static void rate(const char *bootstrap, const char *topic, long jobs)
{
    static const char *const settings[] = {"fetch.wait.max.ms=100", NULL};
    rd_kafka_t *rk = open_kafka(RD_KAFKA_CONSUMER, bootstrap, settings);
    int64_t first = INT64_MAX, last = 0, until = clock_mono_ns() + LIMIT_S * NS_PER_S;
    rd_kafka_topic_t *t;
    long seen = 0;

    wait_for(rk, topic, jobs, until);
    rd_kafka_queue_t *q = read_topic(rk, topic, RD_KAFKA_OFFSET_BEGINNING, &t);
    while (seen < jobs) {
        rd_kafka_message_t *m = rd_kafka_consume_queue(q, 200);
        if (m && !m->err) {
            int64_t ts = rd_kafka_message_timestamp(m, NULL);
            first = ts < first ? ts : first;
            last = ts > last ? ts : last;
            seen++;
        }
        if (m)
            rd_kafka_message_destroy(m);
        if (clock_mono_ns() > until)
            die(topic, "too few records");
    }
    printf("%.0f\n", (double)(jobs - 1) * 1000 / (double)(last > first ? last - first : 1));
    rd_kafka_queue_destroy(q);
    rd_kafka_topic_destroy(t);
    rd_kafka_destroy(rk);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static long number_of(const rd_kafka_message_t *m)
{
    char text[32];

    snprintf(text, sizeof text, "%.*s", (int)m->key_len, (const char *)m->key);
    return strncmp(text, "bench-", 6) == 0 ? atol(text + 6) : -1;
}

/* Until whoever copies or translates is in its group and the first job is back. */
static void warm_up(rd_kafka_t *out, const char *to, rd_kafka_queue_t *q)
{
    int64_t until = clock_mono_ns() + LIMIT_S * NS_PER_S;
    long sent = 0, back = 0;

    while (back == 0 || back < sent) {
        rd_kafka_message_t *m = rd_kafka_consume_queue(q, 100);
        back += m && !m->err;
        if (m)
            rd_kafka_message_destroy(m);
        else if (back > 0)
            break; /* those before the first one may have been sent to nobody */
        if (back == 0 && ++sent)
            send_job(out, to, 1000000000 + sent);
        if (clock_mono_ns() > until)
            die(to, "nobody answers");
    }
}

static void latency(const char *bootstrap, const char *to, const char *from, long per_second, long jobs)
{
    static const char *const settings[] = {"fetch.wait.max.ms=100", NULL};
    rd_kafka_t *in = open_kafka(RD_KAFKA_CONSUMER, bootstrap, settings), *out = open_producer(bootstrap, "linger.ms=0");
    int64_t *sent = calloc((size_t)jobs, sizeof *sent), begin, now;
    double *ms = calloc((size_t)jobs, sizeof *ms);
    rd_kafka_topic_t *t;
    rd_kafka_queue_t *q = read_topic(in, from, RD_KAFKA_OFFSET_END, &t);
    long i = 0, seen = 0;

    if (!sent || !ms)
        die("latency", "no memory");
    warm_up(out, to, q);
    begin = clock_mono_ns();
    while (seen < jobs) {
        now = clock_mono_ns();
        if (now - begin > LIMIT_S * NS_PER_S)
            die(from, "too few results");
        for (; i < jobs && now >= begin + i * NS_PER_S / per_second; i++) {
            sent[i] = clock_mono_ns();
            send_job(out, to, i);
        }
        rd_kafka_message_t *m = rd_kafka_consume_queue(q, i < jobs ? 1 : 20);
        long k = m && !m->err ? number_of(m) : -1;
        if (k >= 0 && k < jobs && sent[k] > 0) {
            ms[seen++] = (double)(clock_mono_ns() - sent[k]) / NS_PER_MS;
            sent[k] = 0;
        }
        if (m)
            rd_kafka_message_destroy(m);
    }
    drain(out);
    qsort(ms, (size_t)jobs, sizeof *ms, by_size);
    printf("%.1f %.1f\n", ms[jobs / 2], ms[jobs * 99 / 100]);
    rd_kafka_queue_destroy(q);
    rd_kafka_topic_destroy(t);
    rd_kafka_destroy(in);
    rd_kafka_destroy(out);
    free(sent);
    free(ms);
}

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "fill") == 0)
        fill(argv[2], argv[3], atol(argv[4]));
    else if ((argc == 6 || argc == 7) && strcmp(argv[1], "copy") == 0)
        copy(argv[2], argv[3], argv[4], atol(argv[5]), argc == 7 ? argv[6] : NULL);
    else if (argc == 5 && strcmp(argv[1], "rate") == 0)
        rate(argv[2], argv[3], atol(argv[4]));
    else if (argc == 7 && strcmp(argv[1], "latency") == 0 && atol(argv[5]) > 0)
        latency(argv[2], argv[3], argv[4], atol(argv[5]), atol(argv[6]));
    else
        die("usage", "fill, copy, rate or latency: see the head of tests/tools/kafka_floor.c");
    return 0;
}
