#include "engine/kv_pool.h"

#include <assert.h>
#include <stdlib.h>

struct slot {
    int32_t holders;
    bool kept;
    int32_t prev, next; /* idle list; free list by next alone; -1 = end */
};

struct kv_pool {
    int size, n_free, n_idle;
    int32_t free_head, idle_head, idle_tail; /* idle: least recently used at the head */
    struct slot slots[];
};

enum err_code kv_pool_open(struct kv_pool **out, int blocks, struct err *e)
{
    *out = NULL;
    if (blocks < 1)
        return err_set(e, ERR_DEVICE, ERR_STOP, "kv pool: %d blocks, at least 1 is needed", blocks);
    struct kv_pool *p = calloc(1, sizeof *p + (size_t)blocks * sizeof p->slots[0]);
    if (!p)
        return err_set(e, ERR_NOMEM, ERR_STOP, "kv pool: out of memory for %d blocks", blocks);
    p->size = p->n_free = blocks;
    p->idle_head = p->idle_tail = -1;
    for (int i = 0; i < blocks; i++)
        p->slots[i].next = i + 1 < blocks ? i + 1 : -1;
    *out = p;
    return ERR_OK;
}

void kv_pool_close(struct kv_pool *p)
{
    free(p);
}

static void push_free(struct kv_pool *p, int32_t block)
{
    p->slots[block].next = p->free_head;
    p->free_head = block;
    p->n_free++;
}

static void push_idle(struct kv_pool *p, int32_t block)
{
    struct slot *s = &p->slots[block];

    s->prev = p->idle_tail;
    s->next = -1;
    if (p->idle_tail >= 0)
        p->slots[p->idle_tail].next = block;
    else
        p->idle_head = block;
    p->idle_tail = block;
    p->n_idle++;
}

static void remove_idle(struct kv_pool *p, int32_t block)
{
    const struct slot *s = &p->slots[block];

    if (s->prev >= 0)
        p->slots[s->prev].next = s->next;
    else
        p->idle_head = s->next;
    if (s->next >= 0)
        p->slots[s->next].prev = s->prev;
    else
        p->idle_tail = s->prev;
    p->n_idle--;
}

int32_t kv_pool_take(struct kv_pool *p)
{
    int32_t block = p->free_head;

    if (block < 0)
        return -1;
    p->free_head = p->slots[block].next;
    p->n_free--;
    p->slots[block].holders = 1;
    return block;
}

void kv_pool_hold(struct kv_pool *p, int32_t block)
{
    struct slot *s = &p->slots[block];

    assert(s->holders > 0 || s->kept);
    if (s->holders++ == 0)
        remove_idle(p, block);
}

void kv_pool_drop(struct kv_pool *p, int32_t block)
{
    struct slot *s = &p->slots[block];

    assert(s->holders > 0);
    if (--s->holders > 0)
        return;
    if (s->kept)
        push_idle(p, block);
    else
        push_free(p, block);
}

void kv_pool_keep(struct kv_pool *p, int32_t block)
{
    assert(p->slots[block].holders > 0 && !p->slots[block].kept);
    p->slots[block].kept = true;
}

void kv_pool_forget(struct kv_pool *p, int32_t block)
{
    struct slot *s = &p->slots[block];

    assert(s->kept);
    s->kept = false;
    if (s->holders == 0) {
        remove_idle(p, block);
        push_free(p, block);
    }
}

bool kv_pool_is_kept(const struct kv_pool *p, int32_t block)
{
    return p->slots[block].kept;
}

int32_t kv_pool_oldest_idle(const struct kv_pool *p)
{
    return p->idle_head;
}

int kv_pool_holders(const struct kv_pool *p, int32_t block)
{
    return p->slots[block].holders;
}

int kv_pool_size(const struct kv_pool *p)
{
    return p->size;
}

int kv_pool_free_count(const struct kv_pool *p)
{
    return p->n_free;
}

int kv_pool_idle_count(const struct kv_pool *p)
{
    return p->n_idle;
}
