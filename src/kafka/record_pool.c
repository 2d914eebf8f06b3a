#include "kafka/record_pool.h"

#include "base/clock.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    OWN = 944,   /* bytes of a slot itself, for the usual record: small, so that all slots lie close together */
    KEEP = 8192, /* bytes of further buffer that a free slot keeps for its next record */
    LINE = 64,   /* of the processor's cache */
    AHEAD = 512  /* bytes of a slot that most records need */
};

struct slot {
    struct record r;       /* first: a record's owner is its slot */
    unsigned char *buffer; /* of a record that `own` is too small for */
    size_t capacity, used;
    struct slot *next;
    _Alignas(16) unsigned char own[OWN];
};

/* Who takes writes the first part alone, who releases the second. */
struct record_pool {
    struct slot *slots, *free; /* free: that came back, and were looked at */
    size_t n_slots, n_used;    /* the slots behind n_used were never taken: small loads stay in little memory */
    _Atomic int64_t taken, taken_bytes;
    int64_t seen, seen_bytes; /* released, when it was last looked at */

    _Alignas(LINE) _Atomic(struct slot *) back; /* taken out whole: so no slot comes twice while another looks at it */
    _Atomic int64_t released, released_bytes;
};

enum err_code record_pool_open(struct record_pool **out, size_t slots, struct err *e)
{
    struct record_pool *rp = aligned_alloc(LINE, sizeof *rp);

    *out = NULL;
    if (rp) {
        memset(rp, 0, sizeof *rp);
        rp->slots = calloc(slots, sizeof *rp->slots);
    }
    if (!rp || !rp->slots) {
        free(rp);
        return err_set(e, ERR_NOMEM, ERR_STOP, "records: no memory for %zu slots", slots);
    }
    rp->n_slots = slots;
    *out = rp;
    return ERR_OK;
}

bool record_pool_close(struct record_pool *rp)
{
    if (!rp)
        return true;
    if (record_pool_records(rp) > 0)
        return false;
    for (size_t i = 0; i < rp->n_used; i++)
        free(rp->slots[i].buffer);
    free(rp->slots);
    free(rp);
    return true;
}

/* The one after it is asked for in time: it was last in another core's cache, if in any. */
static struct slot *pop(struct record_pool *rp)
{
    if (!rp->free && atomic_load(&rp->back))
        rp->free = atomic_exchange(&rp->back, NULL);
    struct slot *s = rp->free;
    if (!s)
        return rp->n_used < rp->n_slots ? &rp->slots[rp->n_used++] : NULL;
    rp->free = s->next;
    for (size_t at = 0; rp->free && at < AHEAD; at += LINE)
        __builtin_prefetch((const char *)rp->free + at, 1);
    return s;
}

static void push(struct record_pool *rp, struct slot *s)
{
    s->next = atomic_load(&rp->back);
    while (!atomic_compare_exchange_weak(&rp->back, &s->next, s))
        ;
}

/* The next n bytes of the slot's memory; NULL source stays NULL, an empty one does not. */
static void *put(struct slot *s, unsigned char *memory, const void *data, size_t n)
{
    unsigned char *at = memory + s->used;

    if (!data)
        return NULL;
    memcpy(at, data, n);
    s->used += n;
    return at;
}

static size_t headers_size(const rd_kafka_headers_t *h, size_t n)
{
    size_t bytes = n * sizeof(struct header), size;
    const char *name;
    const void *value;

    for (size_t i = 0; i < n && !rd_kafka_header_get_all(h, i, &name, &value, &size); i++)
        bytes += strlen(name) + 1 + (value ? size : 0);
    return bytes;
}

static void copy_headers(struct slot *s, unsigned char *memory, const rd_kafka_headers_t *h, size_t n)
{
    struct header *out = (struct header *)memory; /* at the front, where it is aligned */
    const char *name;
    const void *value;
    size_t size;

    s->used = n * sizeof *out;
    for (size_t i = 0; i < n && !rd_kafka_header_get_all(h, i, &name, &value, &size); i++) {
        out[i].name = put(s, memory, name, strlen(name) + 1);
        out[i].value = put(s, memory, value, size);
        out[i].size = value ? size : 0;
    }
    s->r.headers = out;
    s->r.n_headers = n;
}

/* Room for a record, or NULL. */
static unsigned char *make_room(struct slot *s, size_t bytes)
{
    if (bytes <= sizeof s->own)
        return s->own;
    if (bytes <= s->capacity)
        return s->buffer;
    free(s->buffer);
    s->capacity = bytes < KEEP ? KEEP : bytes;
    s->buffer = malloc(s->capacity);
    if (!s->buffer)
        s->capacity = 0;
    return s->buffer;
}

/* By its only writer. */
static void count(_Atomic int64_t *n, int64_t more)
{
    atomic_store_explicit(n, atomic_load_explicit(n, memory_order_relaxed) + more, memory_order_release);
}

struct record *record_pool_take(struct record_pool *rp, const rd_kafka_message_t *m, const struct source *at,
                                const char *topic)
{
    rd_kafka_headers_t *h = NULL;
    size_t n = rd_kafka_message_headers(m, &h) == RD_KAFKA_RESP_ERR_NO_ERROR ? rd_kafka_header_cnt(h) : 0;
    rd_kafka_timestamp_type_t kind;
    struct slot *s = pop(rp);
    unsigned char *memory = s ? make_room(s, headers_size(h, n) + m->key_len + m->len + 1) : NULL;

    if (!s)
        return NULL;
    if (!memory) {
        push(rp, s);
        return NULL;
    }
    memset(&s->r, 0, sizeof s->r);
    copy_headers(s, memory, h, n);
    s->r.at = *at;
    s->r.topic = topic;
    s->r.timestamp_ms = rd_kafka_message_timestamp(m, &kind);
    if (kind == RD_KAFKA_TIMESTAMP_NOT_AVAILABLE)
        s->r.timestamp_ms = -1;
    s->r.received_ns = clock_mono_ns();
    s->r.key = put(s, memory, m->key, m->key_len);
    s->r.key_size = m->key ? m->key_len : 0;
    s->r.value = put(s, memory, m->payload, m->len);
    s->r.value_size = m->payload ? m->len : 0;
    s->r.owner = s;
    count(&rp->taken, 1);
    count(&rp->taken_bytes, (int64_t)s->used);
    return &s->r;
}

void record_pool_release(struct record_pool *rp, struct record *r)
{
    struct slot *s = r->owner;
    int64_t used = (int64_t)s->used;

    s->used = 0;
    if (s->capacity > KEEP) {
        free(s->buffer);
        s->buffer = NULL;
        s->capacity = 0;
    }
    push(rp, s);
    atomic_fetch_add(&rp->released_bytes, used);
    atomic_fetch_add(&rp->released, 1);
}

bool record_pool_has_room(struct record_pool *rp, int64_t records, int64_t bytes)
{
    for (int look = 0; look < 2; look++) {
        if (atomic_load(&rp->taken) - rp->seen < records && atomic_load(&rp->taken_bytes) - rp->seen_bytes < bytes)
            return true;
        rp->seen_bytes = atomic_load(&rp->released_bytes);
        rp->seen = atomic_load(&rp->released);
    }
    return false;
}

/* What was released first: else one that is taken and released in between would count as less than none. */
int64_t record_pool_records(const struct record_pool *rp)
{
    int64_t released = atomic_load(&rp->released);

    return atomic_load(&rp->taken) - released;
}

int64_t record_pool_bytes(const struct record_pool *rp)
{
    int64_t released = atomic_load(&rp->released_bytes);

    return atomic_load(&rp->taken_bytes) - released;
}
