/* arena.h -- memory that is given back all at once.
 * Owns:   one growing chain of chunks; arena_reset() keeps the first chunk up to keep_bytes and frees the rest.
 * Thread: one owner at a time. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stddef.h>

struct arena {
    struct arena_chunk *head; /* newest first */
    size_t keep_bytes, limit_bytes, used_bytes;
};

/* limit_bytes bounds what may be taken between two resets.  Nothing is allocated yet. */
void arena_init(struct arena *a, size_t keep_bytes, size_t limit_bytes);
/* 16-byte aligned, not cleared; NULL past the limit or without memory. */
void *arena_take(struct arena *a, size_t bytes);
void *arena_copy(struct arena *a, const void *data, size_t bytes); /* bytes 0 gives a valid pointer */
void arena_reset(struct arena *a);
void arena_free(struct arena *a);

#endif
