#include "worker/key_order.h"

#include "base/hash.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct lane {
    uint64_t hash;
    struct task *first, *last; /* by task.lane_next; the first one's record has the key */
    struct lane *next;         /* in the bucket, or of the free ones */
};

struct key_order {
    pthread_mutex_t lock;
    struct queue *batches, *finished;
    struct lane *lanes, *free;
    struct lane **buckets;
    size_t n_buckets; /* a power of two */
    size_t waiting;
};

enum err_code key_order_open(struct key_order **out, size_t tasks, struct queue *batches, struct queue *finished,
                             struct err *e)
{
    struct key_order *o = calloc(1, sizeof *o);

    *out = NULL;
    if (!o)
        return err_set(e, ERR_NOMEM, ERR_STOP, "key order: no memory");
    pthread_mutex_init(&o->lock, NULL);
    o->batches = batches;
    o->finished = finished;
    for (o->n_buckets = 16; o->n_buckets < 2 * tasks;)
        o->n_buckets *= 2;
    o->lanes = calloc(tasks, sizeof o->lanes[0]);
    o->buckets = calloc(o->n_buckets, sizeof o->buckets[0]);
    if (!o->lanes || !o->buckets) {
        key_order_close(o);
        return err_set(e, ERR_NOMEM, ERR_STOP, "key order: no memory for %zu tasks", tasks);
    }
    for (size_t i = 0; i < tasks; i++) {
        o->lanes[i].next = o->free;
        o->free = &o->lanes[i];
    }
    *out = o;
    return ERR_OK;
}

void key_order_close(struct key_order *o)
{
    if (!o)
        return;
    free(o->lanes);
    free(o->buckets);
    pthread_mutex_destroy(&o->lock);
    free(o);
}

static uint64_t hash_of(const struct record *r)
{
    return hash_bytes(r->key, r->key_size, hash_bytes(r->topic, strlen(r->topic), (uint32_t)r->at.partition));
}

static bool is_same(const struct record *a, const struct record *b)
{
    return a->at.partition == b->at.partition && a->key_size == b->key_size &&
           memcmp(a->key, b->key, a->key_size) == 0 && strcmp(a->topic, b->topic) == 0;
}

/* Where the lane of r hangs in its bucket; *there is NULL when it has none. */
static struct lane **find(struct key_order *o, const struct record *r, uint64_t hash)
{
    struct lane **at = &o->buckets[hash & (o->n_buckets - 1)];

    while (*at && ((*at)->hash != hash || !is_same((*at)->first->record, r)))
        at = &(*at)->next;
    return at;
}

void key_order_enter(struct key_order *o, struct task *t)
{
    if (!o || !t->record->key)
        return;
    pthread_mutex_lock(&o->lock);
    uint64_t hash = hash_of(t->record);
    struct lane **at = find(o, t->record, hash), *l = *at;
    if (l) {
        l->last->lane_next = t;
    } else {
        l = *at = o->free; /* there are as many lanes as tasks */
        o->free = l->next;
        *l = (struct lane){.hash = hash, .first = t};
    }
    l->last = t;
    t->lane = l;
    t->lane_next = NULL;
    pthread_mutex_unlock(&o->lock);
}

bool key_order_ready(struct key_order *o, struct task *t)
{
    bool is_first = true;

    if (!t->lane)
        return true;
    pthread_mutex_lock(&o->lock);
    is_first = t->lane->first == t;
    t->lane_ready = true;
    o->waiting += !is_first;
    pthread_mutex_unlock(&o->lock);
    return is_first;
}

static void drop_lane(struct key_order *o, struct lane *l)
{
    struct lane **at = &o->buckets[l->hash & (o->n_buckets - 1)];

    while (*at != l)
        at = &(*at)->next;
    *at = l->next;
    l->next = o->free;
    o->free = l;
}

/* Takes t out; the task that may go on by that, or NULL. */
static struct task *take_out(struct key_order *o, struct task *t)
{
    struct lane *l = t->lane;

    if (l->first == t) {
        l->first = t->lane_next;
        if (!l->first)
            drop_lane(o, l);
        else if (l->first->lane_ready)
            return l->first;
        return NULL;
    }
    struct task *before = l->first;
    while (before->lane_next != t)
        before = before->lane_next;
    before->lane_next = t->lane_next;
    if (l->last == t)
        l->last = before;
    o->waiting -= t->lane_ready;
    return NULL;
}

void key_order_leave(struct key_order *o, struct task *t)
{
    if (!t->lane)
        return;
    pthread_mutex_lock(&o->lock);
    struct task *next = take_out(o, t);
    o->waiting -= next != NULL;
    pthread_mutex_unlock(&o->lock);
    t->lane = NULL;
    if (!next)
        return;
    next->next = NULL;
    if (queue_push(next->outcome == OUTCOME_NONE ? o->batches : o->finished, &next) != ERR_OK)
        return; /* closed: going down, the pool keeps the task and its record is read again */
}

size_t key_order_waiting(struct key_order *o)
{
    size_t n = 0;

    if (!o)
        return 0;
    pthread_mutex_lock(&o->lock);
    n = o->waiting;
    pthread_mutex_unlock(&o->lock);
    return n;
}
