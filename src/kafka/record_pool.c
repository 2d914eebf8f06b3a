#include "kafka/record_pool.h"

#include "base/clock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { KEEP = 8192 }; /* bytes of buffer a free slot keeps for its next record */

struct slot {
    struct record r; /* first: a record's owner is its slot */
    unsigned char *buffer;
    size_t capacity, used;
    struct slot *next;
};

struct record_pool {
    pthread_mutex_t lock;
    struct slot *slots, *free; /* free: under lock */
    size_t n_slots;
    _Atomic int64_t records, bytes;
};

enum err_code record_pool_open(struct record_pool **out, size_t slots, struct err *e)
{
    struct record_pool *rp = calloc(1, sizeof *rp);

    *out = NULL;
    if (rp)
        rp->slots = calloc(slots, sizeof *rp->slots);
    if (!rp || !rp->slots) {
        free(rp);
        return err_set(e, ERR_NOMEM, ERR_STOP, "records: no memory for %zu slots", slots);
    }
    pthread_mutex_init(&rp->lock, NULL);
    rp->n_slots = slots;
    for (size_t i = slots; i > 0; i--) {
        rp->slots[i - 1].next = rp->free;
        rp->free = &rp->slots[i - 1];
    }
    *out = rp;
    return ERR_OK;
}

bool record_pool_close(struct record_pool *rp)
{
    if (!rp)
        return true;
    if (atomic_load(&rp->records) > 0)
        return false;
    for (size_t i = 0; i < rp->n_slots; i++)
        free(rp->slots[i].buffer);
    pthread_mutex_destroy(&rp->lock);
    free(rp->slots);
    free(rp);
    return true;
}

static struct slot *pop(struct record_pool *rp)
{
    pthread_mutex_lock(&rp->lock);
    struct slot *s = rp->free;
    if (s)
        rp->free = s->next;
    pthread_mutex_unlock(&rp->lock);
    return s;
}

static void push(struct record_pool *rp, struct slot *s)
{
    pthread_mutex_lock(&rp->lock);
    s->next = rp->free;
    rp->free = s;
    pthread_mutex_unlock(&rp->lock);
}

/* The next n bytes of the slot's buffer; NULL source stays NULL, an empty one does not. */
static void *put(struct slot *s, const void *data, size_t n)
{
    unsigned char *at = s->buffer + s->used;

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

static void copy_headers(struct slot *s, const rd_kafka_headers_t *h, size_t n)
{
    struct header *out = (struct header *)s->buffer; /* at the front, where it is aligned */
    const char *name;
    const void *value;
    size_t size;

    s->used = n * sizeof *out;
    for (size_t i = 0; i < n && !rd_kafka_header_get_all(h, i, &name, &value, &size); i++) {
        out[i].name = put(s, name, strlen(name) + 1);
        out[i].value = put(s, value, size);
        out[i].size = value ? size : 0;
    }
    s->r.headers = out;
    s->r.n_headers = n;
}

static bool make_room(struct slot *s, size_t bytes)
{
    if (bytes <= s->capacity)
        return true;
    free(s->buffer);
    s->capacity = 0;
    s->buffer = malloc(bytes < KEEP ? KEEP : bytes);
    if (!s->buffer)
        return false;
    s->capacity = bytes < KEEP ? KEEP : bytes;
    return true;
}

struct record *record_pool_take(struct record_pool *rp, const rd_kafka_message_t *m, const struct source *at,
                                const char *topic)
{
    rd_kafka_headers_t *h = NULL;
    size_t n = rd_kafka_message_headers(m, &h) == RD_KAFKA_RESP_ERR_NO_ERROR ? rd_kafka_header_cnt(h) : 0;
    rd_kafka_timestamp_type_t kind;
    struct slot *s = pop(rp);

    if (!s)
        return NULL;
    if (!make_room(s, headers_size(h, n) + m->key_len + m->len + 1)) {
        push(rp, s);
        return NULL;
    }
    memset(&s->r, 0, sizeof s->r);
    copy_headers(s, h, n);
    s->r.at = *at;
    s->r.topic = topic;
    s->r.timestamp_ms = rd_kafka_message_timestamp(m, &kind);
    if (kind == RD_KAFKA_TIMESTAMP_NOT_AVAILABLE)
        s->r.timestamp_ms = -1;
    s->r.received_ns = clock_mono_ns();
    s->r.key = put(s, m->key, m->key_len);
    s->r.key_size = m->key ? m->key_len : 0;
    s->r.value = put(s, m->payload, m->len);
    s->r.value_size = m->payload ? m->len : 0;
    s->r.owner = s;
    atomic_fetch_add(&rp->records, 1);
    atomic_fetch_add(&rp->bytes, (int64_t)s->used);
    return &s->r;
}

void record_pool_release(struct record_pool *rp, struct record *r)
{
    struct slot *s = r->owner;

    atomic_fetch_sub(&rp->bytes, (int64_t)s->used);
    s->used = 0;
    if (s->capacity > KEEP) {
        free(s->buffer);
        s->buffer = NULL;
        s->capacity = 0;
    }
    push(rp, s);
    atomic_fetch_sub(&rp->records, 1);
}

int64_t record_pool_records(const struct record_pool *rp)
{
    return atomic_load(&rp->records);
}

int64_t record_pool_bytes(const struct record_pool *rp)
{
    return atomic_load(&rp->bytes);
}
