#define _GNU_SOURCE /* memmem() */
#include "config/config_check.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static enum err_code missing(const char *key, const char *why, struct err *e)
{
    return err_set(e, ERR_CONFIG, ERR_STOP, "%s is missing: %s", key, why);
}

/* small must not be more than large (or, strict, must be less). */
static enum err_code check_order(const char *small_key, long long small, const char *large_key, long long large,
                                 bool strict, struct err *e)
{
    if (small < large || (!strict && small == large))
        return ERR_OK;
    return err_set(e, ERR_CONFIG, ERR_STOP, "%s = %lld must be %s %s = %lld", small_key, small,
                   strict ? "less than" : "at most", large_key, large);
}

static enum err_code check_topic(const char *key, const char *name, struct err *e)
{
    for (const char *p = name; *p; p++)
        if (!isalnum((unsigned char)*p) && !strchr("._-", *p))
            return err_set(e, ERR_CONFIG, ERR_STOP,
                           "%s: found \"%.60s\", allowed in a topic's name are letters, digits, '.', '_' and '-'", key,
                           name);
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return err_set(e, ERR_CONFIG, ERR_STOP, "%s: found \"%s\", which is not the name of a topic", key, name);
    return ERR_OK;
}

static enum err_code check_topics(const struct kafka_config *k, struct err *e)
{
    const struct {
        const char *key, *name;
    } t[] = {
        {"kafka.request_topic", k->request_topic},
        {"kafka.result_topic", k->result_topic},
        {"kafka.dead_letter_topic", k->dead_letter_topic},
    };
    enum err_code rc;

    for (int i = 0; i < 3; i++)
        if ((rc = check_topic(t[i].key, t[i].name, e)) != ERR_OK)
            return rc;
    for (int i = 0; i < 3; i++)
        if (strcmp(t[i].name, t[(i + 1) % 3].name) == 0)
            return err_set(e, ERR_CONFIG, ERR_STOP, "%s and %s are both \"%.80s\": they must differ", t[i].key,
                           t[(i + 1) % 3].key, t[i].name);
    return ERR_OK;
}

/* One "[PROTOCOL://]HOST[:PORT]" of n bytes; an IPv6 address stands in brackets.  librdkafka takes anything, and a port of
 * 99999 for 34463: the worker would wait for a broker that cannot be. */
static bool is_server(const char *s, size_t n)
{
    const char *slashes = memmem(s, n, "://", 3);
    size_t port = n;
    long number = 0;

    if (slashes) {
        n -= (size_t)(slashes + 3 - s);
        s = slashes + 3;
    }
    for (size_t i = 0; i < n; i++)
        if (isspace((unsigned char)s[i]) || s[i] == '/')
            return false;
    for (port = n; port > 0 && s[port - 1] != ':' && s[port - 1] != ']'; port--)
        ;
    if (port == 0 || s[port - 1] == ']')
        return n > 0 && (port == 0 || port == n); /* no port */
    for (size_t i = port; i < n; i++) {
        if (!isdigit((unsigned char)s[i]) || number > 65535)
            return false;
        number = number * 10 + (s[i] - '0');
    }
    return port > 1 && number >= 1 && number <= 65535;
}

static enum err_code check_servers(const char *list, struct err *e)
{
    int servers = 0;

    for (const char *p = list; *p;) {
        size_t n = strcspn(p, ","), blank = strspn(p, " ");
        const char *next = p + n + (p[n] == ',');

        p += blank < n ? blank : n;
        n -= blank < n ? blank : n;
        while (n > 0 && p[n - 1] == ' ')
            n--;
        if (n > 0 && !is_server(p, n))
            return err_set(e, ERR_CONFIG, ERR_STOP,
                           "kafka.bootstrap_servers: found \"%.*s\", allowed is host:port with a port from 1 to 65535",
                           n < 100 ? (int)n : 100, p);
        servers += n > 0;
        p = next;
    }
    return servers > 0 ? ERR_OK : missing("kafka.bootstrap_servers", "kafka.embedded is false", e);
}

static enum err_code check_kafka(const struct config *c, struct err *e)
{
    const struct kafka_config *k = &c->kafka;
    enum err_code rc;

    if (!k->embedded && (rc = check_servers(k->bootstrap_servers, e)) != ERR_OK)
        return rc;
    if ((rc = check_topics(k, e)) != ERR_OK ||
        (rc = check_order("kafka.session_timeout_ms", k->session_timeout_ms, "kafka.max_poll_interval_ms",
                          k->max_poll_interval_ms, true, e)) != ERR_OK)
        return rc;
    return check_order("delivery.revoke_timeout_ms", c->delivery.revoke_timeout_ms, "kafka.max_poll_interval_ms",
                       k->max_poll_interval_ms, true, e);
}

static enum err_code check_delivery(const struct config *c, struct err *e)
{
    const struct delivery_config *d = &c->delivery;

    if (d->mode != DELIVERY_EXACTLY_ONCE)
        return ERR_OK;
    if (c->kafka.embedded)
        return err_set(e, ERR_CONFIG, ERR_STOP,
                       "delivery.mode: exactly_once needs a real Kafka: the embedded broker (kafka.embedded = true) "
                       "throws the offsets of transactions away");
    if (!*d->transactional_id && !*c->kafka.instance_id)
        return missing("delivery.transactional_id (or kafka.instance_id)", "delivery.mode is exactly_once", e);
    return ERR_OK;
}

static enum err_code check_backend(const char *name, struct err *e)
{
    if (name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789")] == '\0')
        return ERR_OK;
    return err_set(e, ERR_CONFIG, ERR_STOP,
                   "engine.backend: found \"%.32s\", allowed are auto, cpu, cuda, or the name of a backend library in "
                   "small letters and digits",
                   name);
}

static enum err_code check_sizes(const struct config *c, struct err *e)
{
    const struct limits_config *l = &c->limits;
    int sequence = l->max_sequence_tokens ? l->max_sequence_tokens : INT_MAX;
    enum err_code rc;

    if (c->engine.block_tokens & (c->engine.block_tokens - 1))
        return err_set(e, ERR_CONFIG, ERR_STOP,
                       "engine.block_tokens: found %d, allowed are powers of two from 8 to 256",
                       c->engine.block_tokens);
    if ((rc = check_order("batch.max_jobs", c->batch.max_jobs, "delivery.max_in_flight_jobs",
                          c->delivery.max_in_flight_jobs, false, e)) != ERR_OK ||
        (rc = check_order("limits.max_text_bytes", l->max_text_bytes, "limits.max_record_bytes", l->max_record_bytes,
                          false, e)) != ERR_OK ||
        (rc = check_order("limits.max_input_tokens", l->max_input_tokens, "limits.max_sequence_tokens", sequence, true,
                          e)) != ERR_OK)
        return rc;
    return check_order("limits.max_record_bytes", l->max_record_bytes, "delivery.max_in_flight_mb in bytes",
                       (long long)c->delivery.max_in_flight_mb << 20, false, e);
}

static enum err_code check_wire(const struct wire_config *w, struct err *e)
{
    if (w->result_encoding == WIRE_REGISTRY && w->result_schema_id < 0)
        return missing("wire.result_schema_id", "wire.result_encoding is registry", e);
    if (*w->registry_url && strncmp(w->registry_url, "http://", 7) != 0 && strncmp(w->registry_url, "https://", 8) != 0)
        return err_set(e, ERR_CONFIG, ERR_STOP, "wire.registry_url: allowed are http:// and https:// addresses");
    return ERR_OK;
}

enum err_code config_check_all(const struct config *c, struct err *e)
{
    enum err_code rc;

    if ((rc = check_backend(c->engine.backend, e)) != ERR_OK || (rc = check_kafka(c, e)) != ERR_OK ||
        (rc = check_delivery(c, e)) != ERR_OK || (rc = check_sizes(c, e)) != ERR_OK ||
        (rc = check_wire(&c->wire, e)) != ERR_OK)
        return rc;
    return check_order("retry.backoff_ms", c->retry.backoff_ms, "retry.backoff_max_ms", c->retry.backoff_max_ms, false,
                       e);
}

/* Before 2.3 a cooperative-sticky member that stops before its first assignment aborts the process. */
enum err_code config_check_library(const struct config *c, int librdkafka_version, struct err *e)
{
    enum { FIRST_SAFE = 0x02030000 };

    if (strcmp(c->kafka.assignment_strategy, "cooperative-sticky") != 0 || librdkafka_version >= FIRST_SAFE)
        return ERR_OK;
    return err_set(e, ERR_CONFIG, ERR_STOP,
                   "kafka.assignment_strategy: cooperative-sticky needs librdkafka 2.3, this is %d.%d.%d; allowed are "
                   "roundrobin and range",
                   librdkafka_version >> 24 & 0xFF, librdkafka_version >> 16 & 0xFF, librdkafka_version >> 8 & 0xFF);
}
