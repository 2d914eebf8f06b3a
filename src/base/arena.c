#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = 16 };

struct arena_chunk {
    struct arena_chunk *older;
    size_t size, used;
    _Alignas(ALIGN) unsigned char bytes[];
};

void arena_init(struct arena *a, size_t keep_bytes, size_t limit_bytes)
{
    *a = (struct arena){.keep_bytes = keep_bytes, .limit_bytes = limit_bytes};
}

static struct arena_chunk *grow(struct arena *a, size_t bytes)
{
    size_t size = a->head ? a->head->size * 2 : a->keep_bytes;
    struct arena_chunk *c;

    if (size < bytes)
        size = bytes;
    c = malloc(sizeof *c + size);
    if (!c)
        return NULL;
    c->older = a->head;
    c->size = size;
    c->used = 0;
    a->head = c;
    return c;
}

void *arena_take(struct arena *a, size_t bytes)
{
    struct arena_chunk *c = a->head;

    if (bytes > a->limit_bytes)
        return NULL;
    bytes = bytes ? (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1) : ALIGN;
    if (bytes > a->limit_bytes - a->used_bytes)
        return NULL;
    if (!c || c->size - c->used < bytes)
        c = grow(a, bytes);
    if (!c)
        return NULL;
    void *p = c->bytes + c->used;
    c->used += bytes;
    a->used_bytes += bytes;
    return p;
}

void *arena_copy(struct arena *a, const void *data, size_t bytes)
{
    void *p = arena_take(a, bytes);

    if (p && bytes)
        memcpy(p, data, bytes);
    return p;
}

void arena_reset(struct arena *a)
{
    struct arena_chunk *c = a->head;

    while (c && (c->older || c->size > a->keep_bytes)) {
        struct arena_chunk *older = c->older;
        free(c);
        c = older;
    }
    if (c)
        c->used = 0;
    a->head = c;
    a->used_bytes = 0;
}

void arena_free(struct arena *a)
{
    for (struct arena_chunk *c = a->head, *older; c; c = older) {
        older = c->older;
        free(c);
    }
    a->head = NULL;
    a->used_bytes = 0;
}
