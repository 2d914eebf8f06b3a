#include "kafka/dead_letter.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define PREFIX "kafka_dlt-"

/* Those of the first death stay, those of the latest are replaced. */
enum { TOPIC, PARTITION, OFFSET, TIMESTAMP, ORIGINALS, FQCN = ORIGINALS, MESSAGE, ATTEMPTS, NAMES };

static const char *const names[NAMES] = {
    [TOPIC] = PREFIX "original-topic",   [PARTITION] = PREFIX "original-partition",
    [OFFSET] = PREFIX "original-offset", [TIMESTAMP] = PREFIX "original-timestamp",
    [FQCN] = PREFIX "exception-fqcn",    [MESSAGE] = PREFIX "exception-message",
    [ATTEMPTS] = PREFIX "attempts",
};

static int name_index(const char *name)
{
    if (strncmp(name, PREFIX, sizeof PREFIX - 1) != 0)
        return -1;
    for (int i = 0; i < NAMES; i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    return -1;
}

/* Big-endian, as Java's ByteBuffer writes numbers. */
static void *number(struct arena *a, int64_t value, size_t bytes)
{
    unsigned char *p = arena_take(a, bytes);

    for (size_t i = 0; p && i < bytes; i++)
        p[i] = (unsigned char)((uint64_t)value >> (8 * (bytes - 1 - i)));
    return p;
}

static struct header text_header(int name, const char *text, struct arena *a)
{
    return (struct header){names[name], arena_copy(a, text, strlen(text)), strlen(text)};
}

/* Attempts of earlier deaths, from the header that the record carries; 0 = none, or not what we write. */
static int64_t attempts_before(const struct record *r)
{
    const struct header *h = record_find_header(r, names[ATTEMPTS]);
    const unsigned char *b = h ? h->value : NULL;

    if (!b || h->size != 4 || b[0] > 0x7F)
        return 0;
    return (int64_t)b[0] << 24 | b[1] << 16 | b[2] << 8 | b[3];
}

static bool died_before(const struct record *r)
{
    for (int i = 0; i < ORIGINALS; i++)
        if (record_find_header(r, names[i]))
            return true;
    return false;
}

/* The record's own headers in order, without those that are written anew. */
static size_t keep(struct header *out, const struct record *r, bool again)
{
    size_t n = 0;
    bool seen[ORIGINALS] = {false};

    for (size_t i = 0; i < r->n_headers; i++) {
        int at = name_index(r->headers[i].name);

        if (at >= ORIGINALS || (at >= 0 && (!again || seen[at])))
            continue;
        if (at >= 0)
            seen[at] = true;
        out[n++] = r->headers[i];
    }
    return n;
}

static size_t write_originals(struct header *out, const struct record *r, struct arena *a)
{
    out[TOPIC] = text_header(TOPIC, r->topic, a);
    out[PARTITION] = (struct header){names[PARTITION], number(a, r->at.partition, 4), 4};
    out[OFFSET] = (struct header){names[OFFSET], number(a, r->at.offset, 8), 8};
    out[TIMESTAMP] = (struct header){names[TIMESTAMP], number(a, r->timestamp_ms, 8), 8};
    return ORIGINALS;
}

enum err_code dead_letter_build(struct outgoing *o, const struct record *r, const struct err *why, int attempts,
                                struct arena *a, struct err *e)
{
    bool again = died_before(r);
    int64_t total = attempts_before(r) + (attempts > 0 ? attempts : 0);
    struct header *h = arena_take(a, (r->n_headers + NAMES) * sizeof *h);
    size_t n;

    if (!h)
        return err_set(e, ERR_NOMEM, ERR_RETRY, "dead letter: no memory for %zu headers", r->n_headers);
    n = keep(h, r, again);
    if (!again)
        n += write_originals(h + n, r, a);
    h[n++] = text_header(FQCN, err_name(why->code), a);
    h[n++] = text_header(MESSAGE, why->msg, a);
    h[n++] = (struct header){names[ATTEMPTS], number(a, total < INT32_MAX ? total : INT32_MAX, 4), 4};
    for (size_t i = 0; i < n; i++)
        if (!h[i].value && h[i].size > 0)
            return err_set(e, ERR_NOMEM, ERR_RETRY, "dead letter: no memory for its headers");
    o->to = PUBLISH_DEAD_LETTER;
    o->partition = -1;
    o->key = r->key;
    o->key_size = r->key_size;
    o->value = r->value;
    o->value_size = r->value_size;
    o->headers = h;
    o->n_headers = n;
    return ERR_OK;
}
