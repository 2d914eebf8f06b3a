/* arena.h -- memory that is given back all at once.
 * Owns:   one growing chain of chunks; arena_reset() keeps the first chunk up to keep_bytes and frees the rest.
 * Thread: one owner at a time. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

/* What each take needs is here and not in the chunk, whose own lines are then touched where there is data alone. */
struct arena {
    struct arena_chunk *head; /* newest first */
    unsigned char *at;        /* the next byte of head, */
    size_t room;              /* and how many are left there */
    size_t keep_bytes, limit_bytes, used_bytes;
    bool has_grown; /* head is not the chunk that is kept */
};

/* limit_bytes bounds what may be taken between two resets.  Nothing is allocated yet. */
void arena_init(struct arena *a, size_t keep_bytes, size_t limit_bytes);
/* The chunk that is kept lies in block, 16-byte aligned; it stays its owner's, and outlives the arena. */
void arena_init_in(struct arena *a, void *block, size_t block_bytes, size_t limit_bytes);
/* 16-byte aligned, not cleared; NULL past the limit or without memory. */
void *arena_take(struct arena *a, size_t bytes);
void *arena_copy(struct arena *a, const void *data, size_t bytes); /* bytes 0 gives a valid pointer */
void arena_reset(struct arena *a);
void arena_free(struct arena *a);

#endif
