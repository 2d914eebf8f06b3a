#include "config/config_value.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

/* What the worker sets itself: by the key that does it, or because delivery depends on it. */
static const struct {
    const char *name, *instead;
} taken[] = {
    {"bootstrap.servers", "set kafka.bootstrap_servers"},
    {"metadata.broker.list", "set kafka.bootstrap_servers"},
    {"group.id", "set kafka.group_id"},
    {"group.instance.id", "set kafka.instance_id"},
    {"client.id", "set kafka.client_id"},
    {"partition.assignment.strategy", "set kafka.assignment_strategy"},
    {"auto.offset.reset", "set kafka.offset_reset"},
    {"session.timeout.ms", "set kafka.session_timeout_ms"},
    {"max.poll.interval.ms", "set kafka.max_poll_interval_ms"},
    {"message.timeout.ms", "set delivery.publish_timeout_ms"},
    {"delivery.timeout.ms", "set delivery.publish_timeout_ms"},
    {"test.mock.num.brokers", "set kafka.embedded"},
    {"enable.auto.commit", "the worker commits, once results are acknowledged"},
    {"auto.commit.enable", "the worker commits, once results are acknowledged"},
    {"auto.commit.interval.ms", "set delivery.commit_interval_ms"},
    {"enable.auto.offset.store", "the worker commits, once results are acknowledged"},
    {"delivery.report.only.error", "delivery depends on it"},
    {"enable.gapless.guarantee", "delivery depends on it"},
    {"enable.partition.eof", "the worker depends on it"},
    {"isolation.level", "delivery depends on it"},
    {"allow.auto.create.topics", "set kafka.create_topics"},
    {"partitioner", "results go where the keys of other clients go"},
    {"log.queue", "the worker reads librdkafka's log itself"},
    {"queue.buffering.backpressure.threshold", "the worker sends in batches of its own"},
    {"statistics.interval.ms", "the worker reads the statistics itself"},
    {"enable.idempotence", "delivery depends on it"},
    {"acks", "delivery depends on it"},
    {"request.required.acks", "delivery depends on it"},
    {"transactional.id", "set delivery.transactional_id"},
    {"transaction.timeout.ms", "it follows from delivery.commit_interval_ms"},
    {"group.protocol", "the worker uses the classic protocol"},
};

static void *place(struct config *c, const struct config_key *k)
{
    return (char *)c + k->offset;
}

const char *config_value_allowed(const struct config_key *k, char *buf, size_t cap)
{
    size_t n;

    switch (k->kind) {
    case CONFIG_BOOL: snprintf(buf, cap, "true or false"); break;
    case CONFIG_INT:
    case CONFIG_INT64: snprintf(buf, cap, "an integer from %.0f to %.0f", k->min, k->max); break;
    case CONFIG_REAL: snprintf(buf, cap, "a number from %g to %g", k->min, k->max); break;
    case CONFIG_STRING:
        if (k->min > 0)
            snprintf(buf, cap, "a string of %.0f to %.0f bytes", k->min, k->max);
        else
            snprintf(buf, cap, "a string of at most %.0f bytes", k->max);
        break;
    case CONFIG_PROPERTIES: snprintf(buf, cap, "a list of at most %.0f strings \"name=value\"", k->max); break;
    case CONFIG_CHOICE:
    case CONFIG_ENUM:
        n = (size_t)snprintf(buf, cap, "one of");
        for (int i = 0; k->names[i] && n < cap; i++)
            n += (size_t)snprintf(buf + n, cap - n, "%s \"%s\"", i ? "," : "", k->names[i]);
        break;
    }
    return buf;
}

static enum err_code refuse(const struct config_key *k, const char *found, const char *at, struct err *e)
{
    char allowed[128];

    return err_set(e, ERR_CONFIG, ERR_STOP, "%s: found %.60s, allowed is %s", at, found,
                   config_value_allowed(k, allowed, sizeof allowed));
}

enum err_code config_value_mistyped(const struct config_key *k, const char *found, const char *at, struct err *e)
{
    char allowed[128];

    return err_set(e, ERR_CONFIG, ERR_STOP, "%s: expected %s, found %s", at,
                   config_value_allowed(k, allowed, sizeof allowed), found);
}

enum err_code config_value_bool(struct config *c, const struct config_key *k, bool v, const char *at, struct err *e)
{
    if (k->kind != CONFIG_BOOL)
        return config_value_mistyped(k, "a boolean", at, e);
    *(bool *)place(c, k) = v;
    return ERR_OK;
}

enum err_code config_value_int(struct config *c, const struct config_key *k, int64_t v, const char *at, struct err *e)
{
    char found[32];

    if (k->kind == CONFIG_REAL)
        return config_value_real(c, k, (double)v, at, e);
    if (k->kind != CONFIG_INT && k->kind != CONFIG_INT64)
        return config_value_mistyped(k, "an integer", at, e);
    if (v < (int64_t)k->min || v > (int64_t)k->max) {
        snprintf(found, sizeof found, "%lld", (long long)v);
        return refuse(k, found, at, e);
    }
    if (k->kind == CONFIG_INT64)
        *(int64_t *)place(c, k) = v;
    else
        *(int *)place(c, k) = (int)v;
    return ERR_OK;
}

enum err_code config_value_real(struct config *c, const struct config_key *k, double v, const char *at, struct err *e)
{
    char found[32];

    if (k->kind != CONFIG_REAL)
        return config_value_mistyped(k, "a real number", at, e);
    if (!(v >= k->min && v <= k->max)) { /* NaN is out of every range */
        snprintf(found, sizeof found, "%g", v);
        return refuse(k, found, at, e);
    }
    *(double *)place(c, k) = v;
    return ERR_OK;
}

static bool has_control(const char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7F)
            return true;
    return false;
}

static enum err_code store(struct config *c, const struct config_key *k, const char *v, struct arena *a, const char *at,
                           struct err *e)
{
    const char *copy = arena_copy(a, v, strlen(v) + 1);

    if (!copy)
        return err_set(e, ERR_NOMEM, ERR_STOP, "%s: out of memory", at);
    *(const char **)place(c, k) = copy;
    return ERR_OK;
}

static enum err_code take_name(struct config *c, const struct config_key *k, const char *v, const char *at,
                               struct err *e)
{
    char found[72];

    for (int i = 0; k->names[i]; i++) {
        if (strcmp(k->names[i], v) != 0)
            continue;
        if (k->kind == CONFIG_CHOICE)
            *(const char **)place(c, k) = k->names[i];
        else
            *(unsigned *)place(c, k) = (unsigned)i;
        return ERR_OK;
    }
    snprintf(found, sizeof found, "\"%.50s\"", v);
    return refuse(k, found, at, e);
}

enum err_code config_value_string(struct config *c, const struct config_key *k, const char *v, struct arena *a,
                                  const char *at, struct err *e)
{
    size_t n = strlen(v);
    char found[32];

    if (k->kind == CONFIG_CHOICE || k->kind == CONFIG_ENUM)
        return take_name(c, k, v, at, e);
    if (k->kind != CONFIG_STRING)
        return config_value_mistyped(k, "a string", at, e);
    if (n < (size_t)k->min || n > (size_t)k->max) {
        snprintf(found, sizeof found, "%zu bytes", n);
        return refuse(k, n ? found : "an empty string", at, e);
    }
    if (utf8_valid(v, n) != n || has_control(v))
        return err_set(e, ERR_CONFIG, ERR_STOP, "%s: found control characters or invalid UTF-8, allowed is text", at);
    return store(c, k, v, a, at, e);
}

static size_t name_length(const char *property)
{
    return strspn(property, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
}

const char *config_property_taken(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (strlen(taken[i].name) == n && strncmp(taken[i].name, name, n) == 0)
            return taken[i].instead;
    return NULL;
}

static enum err_code check_property(const char *v, const char *at, struct err *e)
{
    size_t n = name_length(v);

    if (n == 0 || v[n] != '=')
        return err_set(e, ERR_CONFIG, ERR_STOP, "%s: expected \"name=value\" with the name of a librdkafka property",
                       at);
    if (has_control(v + n) || strlen(v) > 65536)
        return err_set(e, ERR_CONFIG, ERR_STOP, "%s: the value of %.*s has control characters or over 65536 bytes", at,
                       (int)(n < 64 ? n : 64), v);
    const char *instead = config_property_taken(v, n);
    if (instead)
        return err_set(e, ERR_CONFIG, ERR_STOP, "%s: %.*s cannot be set here: %s", at, (int)n, v, instead);
    return ERR_OK;
}

enum err_code config_value_property(struct config *c, const struct config_key *k, const char *v, struct arena *a,
                                    const char *at, struct err *e)
{
    const char **list = *(const char ***)place(c, k), **grown;
    size_t n = 0, at_index, name = name_length(v);
    enum err_code rc = check_property(v, at, e);

    if (rc != ERR_OK)
        return rc;
    while (list && list[n])
        n++;
    for (at_index = 0; at_index < n; at_index++)
        if (name_length(list[at_index]) == name && strncmp(list[at_index], v, name) == 0)
            break;
    if (at_index >= (size_t)k->max)
        return refuse(k, "more", at, e);
    grown = arena_take(a, (n + 2) * sizeof *grown);
    const char *copy = arena_copy(a, v, strlen(v) + 1);
    if (!grown || !copy)
        return err_set(e, ERR_NOMEM, ERR_STOP, "%s: out of memory", at);
    if (n)
        memcpy(grown, list, n * sizeof *grown);
    grown[at_index] = copy;
    grown[at_index == n ? n + 1 : n] = NULL;
    *(const char ***)place(c, k) = grown;
    return ERR_OK;
}

/* One a line; an empty text is an empty list. */
static enum err_code text_properties(struct config *c, const struct config_key *k, const char *text, struct arena *a,
                                     const char *at, struct err *e)
{
    enum err_code rc = ERR_OK;

    while (rc == ERR_OK && *text) {
        size_t n = strcspn(text, "\n");
        char *line = arena_copy(a, text, n + 1);

        if (!line)
            return err_set(e, ERR_NOMEM, ERR_STOP, "%s: out of memory", at);
        line[n] = '\0';
        if (n)
            rc = config_value_property(c, k, line, a, at, e);
        text += n + (text[n] == '\n');
    }
    return rc;
}

enum err_code config_value_text(struct config *c, const struct config_key *k, const char *text, struct arena *a,
                                const char *at, struct err *e)
{
    char quoted[72], *end = NULL;

    snprintf(quoted, sizeof quoted, "\"%.50s\"", text);
    errno = 0;
    switch (k->kind) {
    case CONFIG_BOOL:
        if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0)
            return refuse(k, quoted, at, e);
        return config_value_bool(c, k, *text == 't', at, e);
    case CONFIG_INT:
    case CONFIG_INT64: {
        int64_t v = strtoll(text, &end, 10);
        if (errno || end == text || *end)
            return refuse(k, quoted, at, e);
        return config_value_int(c, k, v, at, e);
    }
    case CONFIG_REAL: {
        double v = strtod(text, &end);
        if (end == text || *end || !isfinite(v))
            return refuse(k, quoted, at, e);
        return config_value_real(c, k, v, at, e);
    }
    case CONFIG_STRING:
    case CONFIG_CHOICE:
    case CONFIG_ENUM: return config_value_string(c, k, text, a, at, e);
    case CONFIG_PROPERTIES: return text_properties(c, k, text, a, at, e);
    }
    return ERR_OK;
}
