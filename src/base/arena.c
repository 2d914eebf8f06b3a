#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = 16 };

struct arena_chunk {
    struct arena_chunk *older;
    size_t size;
    bool is_lent;
    _Alignas(ALIGN) unsigned char bytes[];
};

void arena_init(struct arena *a, size_t keep_bytes, size_t limit_bytes)
{
    *a = (struct arena){.keep_bytes = keep_bytes, .limit_bytes = limit_bytes};
}

void arena_init_in(struct arena *a, void *block, size_t block_bytes, size_t limit_bytes)
{
    struct arena_chunk *c = block;

    arena_init(a, block_bytes - sizeof *c, limit_bytes);
    *c = (struct arena_chunk){.size = a->keep_bytes, .is_lent = true};
    a->head = c;
    a->at = c->bytes;
    a->room = c->size;
}

static bool grow(struct arena *a, size_t bytes)
{
    size_t size = a->head ? a->head->size * 2 : a->keep_bytes;
    struct arena_chunk *c;

    if (size < bytes)
        size = bytes;
    c = malloc(sizeof *c + size);
    if (!c)
        return false;
    *c = (struct arena_chunk){.older = a->head, .size = size};
    a->has_grown = c->older || size > a->keep_bytes;
    a->head = c;
    a->at = c->bytes;
    a->room = size;
    return true;
}

void *arena_take(struct arena *a, size_t bytes)
{
    if (bytes > a->limit_bytes)
        return NULL;
    bytes = bytes ? (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1) : ALIGN;
    if (bytes > a->limit_bytes - a->used_bytes)
        return NULL;
    if (a->room < bytes && !grow(a, bytes))
        return NULL;
    void *p = a->at;
    a->at += bytes;
    a->room -= bytes;
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

    a->used_bytes = 0;
    if (!c)
        return;
    while (a->has_grown && c && (c->older || c->size > a->keep_bytes)) {
        struct arena_chunk *older = c->older;
        free(c);
        c = older;
    }
    a->has_grown = false;
    a->head = c;
    a->at = c ? c->bytes : NULL;
    a->room = c ? a->keep_bytes : 0;
}

void arena_free(struct arena *a)
{
    for (struct arena_chunk *c = a->head, *older; c; c = older) {
        older = c->older;
        if (!c->is_lent)
            free(c);
    }
    *a = (struct arena){.keep_bytes = a->keep_bytes, .limit_bytes = a->limit_bytes};
}
