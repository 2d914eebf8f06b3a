#include "kafka/assignment.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

struct assignment {
    size_t window;
    uint32_t newest;
    pthread_mutex_t lock; /* list and n, against assignment_list() */
    struct partition **list;
    int n;
    struct partition **by_id;
    _Atomic uint32_t *owned; /* number of the assignment that holds the partition, 0 = none */
};

enum err_code assignment_open(struct assignment **out, size_t ledger_window, struct err *e)
{
    struct assignment *a = calloc(1, sizeof *a);

    *out = NULL;
    if (!a)
        return err_set(e, ERR_NOMEM, ERR_STOP, "assignment: out of memory");
    pthread_mutex_init(&a->lock, NULL);
    a->window = ledger_window;
    a->list = calloc(ASSIGNMENT_PARTITIONS, sizeof(struct partition *));
    a->by_id = calloc(ASSIGNMENT_PARTITIONS, sizeof(struct partition *));
    a->owned = calloc(ASSIGNMENT_PARTITIONS, sizeof(_Atomic uint32_t));
    if (!a->list || !a->by_id || !a->owned) {
        assignment_close(a);
        return err_set(e, ERR_NOMEM, ERR_STOP, "assignment: out of memory");
    }
    *out = a;
    return ERR_OK;
}

static void partition_free(struct partition *p)
{
    if (!p)
        return;
    if (p->queue)
        rd_kafka_queue_destroy(p->queue);
    if (p->put_off)
        rd_kafka_message_destroy(p->put_off);
    ledger_close(p->ledger);
    free(p);
}

void assignment_close(struct assignment *a)
{
    if (!a)
        return;
    while (a->n > 0)
        assignment_drop(a, a->list[a->n - 1]->id);
    pthread_mutex_destroy(&a->lock);
    free(a->list);
    free(a->by_id);
    free((void *)a->owned); /* the atomics' qualifier is of no use to free() */
    free(a);
}

enum err_code assignment_add(struct assignment *a, int32_t id, rd_kafka_queue_t *queue, struct err *e)
{
    enum err_code rc = ERR_OK;
    struct partition *p;

    if (id < 0 || id >= ASSIGNMENT_PARTITIONS) {
        rd_kafka_queue_destroy(queue);
        return err_set(e, ERR_KAFKA, ERR_STOP, "partition %d: ids up to %d are supported", id,
                       ASSIGNMENT_PARTITIONS - 1);
    }
    assignment_drop(a, id); /* an assignment that was given twice starts anew */
    p = calloc(1, sizeof *p);
    if (!p) {
        rd_kafka_queue_destroy(queue);
        return err_set(e, ERR_NOMEM, ERR_STOP, "partition %d: out of memory", id);
    }
    p->id = id;
    p->queue = queue;
    caution_init(&p->caution);
    p->committed = p->frontier = p->position = p->low = p->end = p->start = p->begun = -1;
    if ((rc = ledger_open(&p->ledger, a->window, e)) != ERR_OK) {
        partition_free(p);
        return rc;
    }
    if (++a->newest == 0)
        a->newest = 1;
    p->assignment = a->newest;
    pthread_mutex_lock(&a->lock);
    a->list[a->n++] = p;
    pthread_mutex_unlock(&a->lock);
    a->by_id[id] = p;
    atomic_store(&a->owned[id], p->assignment);
    return ERR_OK;
}

void assignment_drop(struct assignment *a, int32_t id)
{
    struct partition *p = assignment_find(a, id);

    if (!p)
        return;
    atomic_store(&a->owned[id], 0);
    a->by_id[id] = NULL;
    pthread_mutex_lock(&a->lock);
    for (int i = 0; i < a->n; i++)
        if (a->list[i] == p) {
            a->list[i] = a->list[--a->n];
            break;
        }
    pthread_mutex_unlock(&a->lock);
    partition_free(p);
}

struct partition *assignment_find(struct assignment *a, int32_t id)
{
    return id >= 0 && id < ASSIGNMENT_PARTITIONS ? a->by_id[id] : NULL;
}

int assignment_count(const struct assignment *a)
{
    return a->n;
}

struct partition *assignment_at(struct assignment *a, int i)
{
    return a->list[i];
}

uint32_t assignment_newest(const struct assignment *a)
{
    return a->newest;
}

bool assignment_owns(const struct assignment *a, const struct source *at)
{
    return at->partition >= 0 && at->partition < ASSIGNMENT_PARTITIONS && at->assignment != 0 &&
           atomic_load(&a->owned[at->partition]) == at->assignment;
}

/* Records between what is done and the end; -1 = unknown. */
static int64_t lag_of(const struct partition *p)
{
    int64_t end = atomic_load(&p->end), done = atomic_load(&p->frontier);

    if (done < 0)
        done = atomic_load(&p->committed);
    if (done < 0)
        done = atomic_load(&p->low);
    if (end < 0 || done < 0)
        return -1;
    return end > done ? end - done : 0;
}

int assignment_list(struct assignment *a, struct consumer_partition *out, int cap, int64_t *lag)
{
    int64_t sum = 0;
    int n;

    pthread_mutex_lock(&a->lock);
    n = a->n;
    for (int i = 0; i < n; i++) {
        const struct partition *p = a->list[i];
        int64_t one = lag_of(p);

        sum = sum < 0 || one < 0 ? -1 : sum + one;
        if (i < cap) {
            out[i].partition = p->id;
            out[i].committed = atomic_load(&p->committed);
            out[i].position = atomic_load(&p->position);
            out[i].end = atomic_load(&p->end);
            out[i].in_flight = atomic_load(&p->in_flight);
        }
    }
    pthread_mutex_unlock(&a->lock);
    if (lag)
        *lag = sum;
    return n;
}
