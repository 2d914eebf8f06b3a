#include "base/arena.h"

#include <criterion/criterion.h>
#include <stdint.h>
#include <string.h>

Test(arena, gives_aligned_memory_that_does_not_overlap)
{
    struct arena a;
    unsigned char *p[200];

    arena_init(&a, 256, 1 << 20);
    for (int i = 0; i < 200; i++) {
        p[i] = arena_take(&a, (size_t)i + 1);
        cr_assert_not_null(p[i]);
        cr_assert_eq((uintptr_t)p[i] % 16, 0);
        memset(p[i], i, (size_t)i + 1);
    }
    for (int i = 0; i < 200; i++)
        for (int k = 0; k <= i; k++)
            cr_assert_eq(p[i][k], i);
    arena_free(&a);
}

Test(arena, refuses_more_than_its_limit_until_it_is_reset)
{
    struct arena a;

    arena_init(&a, 64, 1000);
    cr_assert_null(arena_take(&a, 1001));
    cr_assert_null(arena_take(&a, SIZE_MAX));
    cr_assert_not_null(arena_take(&a, 900));
    cr_assert_null(arena_take(&a, 200));
    arena_reset(&a);
    cr_assert_not_null(arena_take(&a, 900));
    arena_free(&a);
}

Test(arena, keeps_its_first_chunk_over_a_reset)
{
    struct arena a;

    arena_init(&a, 1024, 1 << 20);
    void *first = arena_take(&a, 100);
    cr_assert_not_null(arena_take(&a, 100000));
    arena_reset(&a);
    cr_assert_eq(arena_take(&a, 100), first);
    arena_free(&a);
}

Test(arena, keeps_no_first_chunk_over_its_keep_size)
{
    struct arena a;

    arena_init(&a, 64, 1 << 20);
    for (int round = 0; round < 3; round++) {
        memset(arena_take(&a, 5000), round, 5000);
        memset(arena_take(&a, 60), round, 60);
        memset(arena_take(&a, 20000), round, 20000);
        arena_reset(&a);
        cr_assert_null(a.head);
        cr_assert_eq(a.room, 0);
        cr_assert_eq(a.used_bytes, 0);
    }
    cr_assert_not_null(arena_take(&a, 1));
    arena_reset(&a);
    cr_assert_not_null(a.head);
    cr_assert_eq(a.room, 64);
    arena_free(&a);
    cr_assert_not_null(arena_take(&a, 1), "as good as new");
    arena_free(&a);
}

Test(arena, in_a_block_begins_there_and_leaves_it_to_its_owner)
{
    _Alignas(16) static unsigned char block[512];
    struct arena a;

    arena_init_in(&a, block, sizeof block, 1 << 20);
    for (int round = 0; round < 3; round++) {
        unsigned char *p = arena_take(&a, 100);
        cr_assert(p >= block && p + 100 <= block + sizeof block);
        cr_assert_eq((uintptr_t)p % 16, 0);
        memset(arena_take(&a, a.room), round, 16);
        p = arena_take(&a, 100);
        cr_assert(p < block || p >= block + sizeof block);
        memset(p, round, 100);
        arena_reset(&a);
    }
    arena_free(&a);
}

Test(arena, copies_nothing_as_something)
{
    struct arena a;

    arena_init(&a, 64, 1024);
    cr_assert_not_null(arena_copy(&a, NULL, 0));
    cr_assert_str_eq(arena_copy(&a, "abc", 4), "abc");
    arena_free(&a);
}
