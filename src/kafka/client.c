#define _GNU_SOURCE /* pthread_timedjoin_np */
#include "kafka/client.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { COMPLAINT_EVERY_S = 5, ANSWER_AGE_S = 15, LOGGED_BYTES = 1024 };

/* Shared by all roles.  A dead broker must not hold up another's work for a minute; small requests go at once. */
static const struct {
    const char *name, *value;
} common[] = {
    {"socket.nagle.disable", "true"},
    {"socket.timeout.ms", "10000"},
    {"socket.keepalive.enable", "true"},
    {"log.connection.close", "false"},
    {"reconnect.backoff.ms", "100"},
    {"reconnect.backoff.max.ms", "2000"},
    {"topic.metadata.refresh.interval.ms", "10000"}, /* new topics and partitions are seen within this */
};

void client_init(struct client *cl, void *owner, const char *role)
{
    memset(cl, 0, sizeof *cl);
    cl->owner = owner;
    cl->role = role;
}

static struct client *client_of(const rd_kafka_t *rk)
{
    return rk ? rd_kafka_opaque(rk) : NULL;
}

/* At most one complaint every few seconds: a broker that is away must not fill the log. */
static bool may_complain(struct client *cl, int *held)
{
    int64_t now = clock_mono_ns(), last = atomic_load(&cl->complaint_ns);

    if ((last && now - last < COMPLAINT_EVERY_S * NS_PER_S) ||
        !atomic_compare_exchange_strong(&cl->complaint_ns, &last, now)) {
        atomic_fetch_add(&cl->complaints_held, 1);
        return false;
    }
    *held = atomic_exchange(&cl->complaints_held, 0);
    return true;
}

static void complain(struct client *cl, const char *event, const char *text)
{
    char q[LOGGED_BYTES];
    int held = 0;

    if (may_complain(cl, &held))
        log_event(LOG_WARN, event, "client=%s held_back=%d text=%s", cl->role, held, log_quote(q, sizeof q, text));
}

static void on_log(const rd_kafka_t *rk, int syslog_level, const char *facility, const char *text)
{
    struct client *cl = client_of(rk);
    char q[LOGGED_BYTES];
    enum log_level level = syslog_level <= 3 ? LOG_ERROR : syslog_level == 4 ? LOG_WARN : LOG_DEBUG;

    if (cl && (strcmp(facility, "FAIL") == 0 || strcmp(facility, "REQTMOUT") == 0) && !strstr(text, "Connect to"))
        atomic_fetch_add(&cl->troubles, 1); /* a connection that never was has lost nothing */
    if (cl && (strcmp(facility, "FAIL") == 0 || strcmp(facility, "ERROR") == 0)) {
        complain(cl, "kafka_connection", text);
        return;
    }
    if (strcmp(facility, "CONFWARN") == 0 || strcmp(facility, "AUTOCREATE") == 0)
        level = LOG_DEBUG; /* a consumer's property seen by a producer; what the embedded broker cannot */
    log_event(level, "kafka_log", "client=%s facility=%s text=%s", cl ? cl->role : "?", facility,
              log_quote(q, sizeof q, text));
}

static void on_error(rd_kafka_t *rk, int rc, const char *reason, void *opaque)
{
    struct client *cl = opaque;
    char text[512];

    if (rc == RD_KAFKA_RESP_ERR__FATAL) {
        rd_kafka_resp_err_t cause = rd_kafka_fatal_error(rk, text, sizeof text);
        char q[LOGGED_BYTES];

        atomic_store(&cl->fatal, true);
        log_event(LOG_ERROR, "kafka_fatal", "client=%s error=%s text=%s", cl->role, rd_kafka_err2name(cause),
                  log_quote(q, sizeof q, text));
        return;
    }
    if (rc == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN)
        atomic_store(&cl->all_down_ns, clock_mono_ns());
    complain(cl, rc == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN ? "kafka_down" : "kafka_error", reason);
}

static rd_kafka_resp_err_t on_response(rd_kafka_t *rk, int sockfd, const char *broker, int32_t id, int16_t api,
                                       int16_t version, int32_t correlation, size_t size, int64_t rtt,
                                       rd_kafka_resp_err_t rc, void *opaque)
{
    struct client *cl = opaque;

    (void)rk, (void)sockfd, (void)broker, (void)id, (void)api, (void)version, (void)correlation, (void)size, (void)rtt;
    if (rc == RD_KAFKA_RESP_ERR_NO_ERROR)
        atomic_store_explicit(&cl->answered_ns, clock_mono_ns(), memory_order_relaxed);
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

static rd_kafka_resp_err_t on_thread(rd_kafka_t *rk, rd_kafka_thread_type_t type, const char *name, void *opaque)
{
    char own[16];

    (void)rk, (void)type, (void)opaque;
    snprintf(own, sizeof own, "rdk:%.11s", name);
    log_thread_name(own);
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

static rd_kafka_resp_err_t on_new(rd_kafka_t *rk, const rd_kafka_conf_t *conf, void *opaque, char *errstr, size_t n)
{
    (void)conf, (void)errstr, (void)n;
    rd_kafka_resp_err_t rc = rd_kafka_interceptor_add_on_response_received(rk, "client", on_response, opaque);
    return rc ? rc : rd_kafka_interceptor_add_on_thread_start(rk, "client", on_thread, opaque);
}

enum err_code client_set(rd_kafka_conf_t *conf, const char *name, const char *value, struct err *e)
{
    char why[256];

    if (rd_kafka_conf_set(conf, name, value, why, sizeof why) != RD_KAFKA_CONF_OK)
        return err_set(e, ERR_CONFIG, ERR_STOP, "kafka property %s=%.60s: %s", name, value, why);
    return ERR_OK;
}

enum err_code client_set_int(rd_kafka_conf_t *conf, const char *name, int64_t value, struct err *e)
{
    char text[24];

    snprintf(text, sizeof text, "%lld", (long long)value);
    return client_set(conf, name, text, e);
}

int64_t client_get_int(const rd_kafka_conf_t *conf, const char *name)
{
    char text[32] = "";
    size_t size = sizeof text;

    return rd_kafka_conf_get(conf, name, text, &size) == RD_KAFKA_CONF_OK ? strtoll(text, NULL, 10) : 0;
}

enum err_code client_conf(rd_kafka_conf_t **out, struct client *cl, const struct kafka_config *k, const char *bootstrap,
                          struct err *e)
{
    enum err_code rc = ERR_OK;
    rd_kafka_conf_t *conf = rd_kafka_conf_new();

    *out = NULL;
    rd_kafka_conf_set_opaque(conf, cl);
    rd_kafka_conf_set_log_cb(conf, on_log);
    rd_kafka_conf_set_error_cb(conf, on_error);
    if (rd_kafka_conf_interceptor_add_on_new(conf, "client", on_new, cl))
        rc = err_set(e, ERR_KAFKA, ERR_STOP, "kafka: no interceptor could be added");
    for (size_t i = 0; rc == ERR_OK && i < sizeof common / sizeof common[0]; i++)
        rc = client_set(conf, common[i].name, common[i].value, e);
    if (rc == ERR_OK)
        rc = client_set(conf, "bootstrap.servers", bootstrap ? bootstrap : k->bootstrap_servers, e);
    if (rc == ERR_OK && k->client_id && *k->client_id)
        rc = client_set(conf, "client.id", k->client_id, e);
    if (rc != ERR_OK) {
        rd_kafka_conf_destroy(conf);
        return rc;
    }
    *out = conf;
    return ERR_OK;
}

enum err_code client_set_properties(rd_kafka_conf_t *conf, const struct kafka_config *k, struct err *e)
{
    for (const char *const *p = k->properties; p && *p; p++) {
        const char *equals = strchr(*p, '=');
        char name[128], why[256];

        if (!equals || equals == *p || (size_t)(equals - *p) >= sizeof name)
            return err_set(e, ERR_CONFIG, ERR_STOP, "kafka.properties: \"%.80s\" is not name=value", *p);
        snprintf(name, sizeof name, "%.*s", (int)(equals - *p), *p);
        const char *instead = config_property_taken(name, strlen(name));
        if (instead) /* every promise about offsets, order and acknowledgement rests on these */
            return err_set(e, ERR_CONFIG, ERR_STOP, "kafka.properties: %s cannot be set here: %s", name, instead);
        /* the value is not repeated in the message: it may be a password */
        if (rd_kafka_conf_set(conf, name, equals + 1, why, sizeof why) != RD_KAFKA_CONF_OK)
            return err_set(e, ERR_CONFIG, ERR_STOP, "kafka.properties: %s: %s", name, why);
    }
    return ERR_OK;
}

enum err_code client_new(rd_kafka_t **out, rd_kafka_type_t type, rd_kafka_conf_t **conf, struct err *e)
{
    char why[256];

    *out = rd_kafka_new(type, *conf, why, sizeof why);
    if (!*out)
        rd_kafka_conf_destroy(*conf);
    *conf = NULL;
    return *out ? ERR_OK : err_set(e, ERR_KAFKA, ERR_STOP, "kafka: %s", why);
}

/* The end of a handle runs on a thread of its own, because it may hang (librdkafka before 2.4 when an assignment
 * arrives during close, before 2.6 after a partition vanished). */
struct ending {
    rd_kafka_t *rk;
    bool is_consumer;
};

static void *end_main(void *arg)
{
    struct ending *en = arg;

    log_thread_name("kafka-close");
    if (en->is_consumer)
        rd_kafka_consumer_close(en->rk);
    rd_kafka_destroy_flags(en->rk, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
    free(en);
    return NULL;
}

static bool start_end(pthread_t *t, struct ending *en)
{
    sigset_t all, old;

    sigfillset(&all); /* signals are for the threads that wait for them */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(t, NULL, end_main, en);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc == 0;
}

bool client_destroy(struct client *cl, rd_kafka_t *rk, bool is_consumer, int timeout_ms)
{
    struct ending *en;
    struct timespec until;
    pthread_t t;

    if (!rk)
        return true;
    en = malloc(sizeof *en);
    if (en) {
        en->rk = rk;
        en->is_consumer = is_consumer;
    }
    if (!en || !start_end(&t, en)) {
        free(en);
        log_event(LOG_ERROR, "kafka_abandoned", "client=%s reason=no_thread", cl->role);
        return false;
    }
    clock_gettime(CLOCK_REALTIME, &until);
    int64_t ns = until.tv_nsec + (int64_t)(timeout_ms > 0 ? timeout_ms : 0) * NS_PER_MS;
    until.tv_sec += (time_t)(ns / NS_PER_S);
    until.tv_nsec = (long)(ns % NS_PER_S);
    if (pthread_timedjoin_np(t, NULL, &until) == 0)
        return true;
    pthread_detach(t);
    log_event(LOG_WARN, "kafka_abandoned", "client=%s after_ms=%d", cl->role, timeout_ms);
    return false;
}

void client_wake_from(rd_kafka_queue_t *q, int wake_fd)
{
    const uint64_t one = 1; /* the library copies it */

    rd_kafka_queue_io_event_enable(q, wake_fd, &one, sizeof one);
}

void client_wake_from_producer(rd_kafka_t *rk, int wake_fd)
{
    rd_kafka_queue_t *q = rd_kafka_queue_get_main(rk);

    client_wake_from(q, wake_fd);
    rd_kafka_queue_destroy(q);
}

void client_let_go(rd_kafka_queue_t **q)
{
    if (!*q)
        return;
    rd_kafka_queue_io_event_enable(*q, -1, NULL, 0);
    rd_kafka_queue_destroy(*q);
    *q = NULL;
}

bool client_broker_up(const struct client *cl)
{
    int64_t answered = atomic_load(&cl->answered_ns), down = atomic_load(&cl->all_down_ns);

    return answered && answered > down && clock_mono_ns() - answered < ANSWER_AGE_S * NS_PER_S;
}

enum err_act client_act(rd_kafka_resp_err_t rc)
{
    switch (rc) {
    case RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID:
    case RD_KAFKA_RESP_ERR_UNSUPPORTED_VERSION:
    case RD_KAFKA_RESP_ERR_INCONSISTENT_GROUP_PROTOCOL: return ERR_STOP;
    case RD_KAFKA_RESP_ERR_INVALID_RECORD:
    case RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE: return ERR_SKIP;
    default: return ERR_RETRY;
    }
}

enum err_code client_err(struct err *e, rd_kafka_resp_err_t rc, const char *what)
{
    return err_set(e, ERR_KAFKA, client_act(rc), "%s: %s", what, rd_kafka_err2str(rc));
}
