#include "engine/kv_pool.h"

#include <criterion/criterion.h>

Test(kv_pool, gives_every_block_once_and_then_none)
{
    struct kv_pool *p;
    bool seen[5] = {false};

    cr_assert_eq(kv_pool_open(&p, 5, NULL), ERR_OK);
    for (int i = 0; i < 5; i++) {
        int32_t b = kv_pool_take(p);
        cr_assert(b >= 0 && b < 5 && !seen[b]);
        seen[b] = true;
    }
    cr_assert_eq(kv_pool_take(p), -1);
    kv_pool_drop(p, 3);
    cr_assert_eq(kv_pool_free_count(p), 1);
    cr_assert_eq(kv_pool_take(p), 3);
    kv_pool_close(p);
}

Test(kv_pool, frees_a_block_with_its_last_holder)
{
    struct kv_pool *p;

    cr_assert_eq(kv_pool_open(&p, 2, NULL), ERR_OK);
    int32_t b = kv_pool_take(p);
    kv_pool_hold(p, b);
    kv_pool_hold(p, b);
    cr_assert_eq(kv_pool_holders(p, b), 3);
    kv_pool_drop(p, b);
    kv_pool_drop(p, b);
    cr_assert_eq(kv_pool_free_count(p), 1);
    kv_pool_drop(p, b);
    cr_assert_eq(kv_pool_free_count(p), 2);
    kv_pool_close(p);
}

Test(kv_pool, kept_blocks_are_idle_in_the_order_of_their_last_use)
{
    struct kv_pool *p;
    int32_t b[4];

    cr_assert_eq(kv_pool_open(&p, 4, NULL), ERR_OK);
    for (int i = 0; i < 4; i++) {
        b[i] = kv_pool_take(p);
        kv_pool_keep(p, b[i]);
    }
    cr_assert_eq(kv_pool_oldest_idle(p), -1);
    for (int i = 0; i < 4; i++)
        kv_pool_drop(p, b[i]);
    cr_assert_eq(kv_pool_idle_count(p), 4);
    cr_assert_eq(kv_pool_free_count(p), 0);
    cr_assert_eq(kv_pool_take(p), -1); /* idle is not free */
    kv_pool_hold(p, b[0]);             /* used again ... */
    kv_pool_hold(p, b[2]);
    kv_pool_drop(p, b[0]); /* ... so it is the youngest */
    const int order[] = {1, 3, 0};
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(kv_pool_oldest_idle(p), b[order[i]]);
        kv_pool_forget(p, b[order[i]]);
        cr_assert_not(kv_pool_is_kept(p, b[order[i]]));
    }
    cr_assert_eq(kv_pool_oldest_idle(p), -1);
    kv_pool_forget(p, b[2]); /* held: it is freed by its holder */
    cr_assert_eq(kv_pool_free_count(p), 3);
    kv_pool_drop(p, b[2]);
    cr_assert_eq(kv_pool_free_count(p), 4);
    cr_assert_eq(kv_pool_idle_count(p), 0);
    kv_pool_close(p);
}

Test(kv_pool, of_no_block_is_an_error)
{
    struct kv_pool *p;

    cr_assert_eq(kv_pool_open(&p, 0, NULL), ERR_DEVICE);
    cr_assert_null(p);
}
