#include "engine/prefix.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { BT = 4 };

static struct prefix *open_index(int blocks)
{
    struct prefix *x;

    cr_assert_eq(prefix_open(&x, blocks, BT, NULL), ERR_OK);
    return x;
}

Test(prefix, finds_the_longest_chain_and_the_tokens_after_it)
{
    struct prefix *x = open_index(8);
    const int32_t text[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    int32_t blocks[8];

    cr_assert(prefix_add(x, 0, -1, text, 6));
    cr_assert(prefix_add(x, 0, 6, text + 4, 2));
    cr_assert(prefix_add(x, 0, 2, text + 8, 4));
    for (int n = 0; n <= 12; n++) {
        struct prefix_hit hit = prefix_find(x, 0, text, n, blocks);
        const int32_t chain[] = {6, 2, 4};
        cr_assert_eq(hit.n_blocks, n / BT);
        cr_assert_arr_eq(blocks, chain, (size_t)hit.n_blocks * sizeof chain[0]);
        cr_assert_eq(hit.n_tokens, n % BT);
        cr_assert_eq(hit.block, n % BT ? chain[n / BT] : -1);
    }
    const int32_t other[] = {1, 2, 3, 4, 5, 6, 0, 8};
    struct prefix_hit hit = prefix_find(x, 0, other, 8, blocks);
    cr_assert(hit.n_blocks == 1 && hit.block == 2 && hit.n_tokens == 2);
    prefix_close(x);
}

Test(prefix, takes_the_child_that_shares_most)
{
    struct prefix *x = open_index(8);
    const int32_t a[] = {1, 2, 0, 0}, b[] = {1, 2, 3, 0}, c[] = {1, 0, 0, 0}, q[] = {1, 2, 3, 4};
    int32_t blocks[8];

    cr_assert(prefix_add(x, 0, -1, a, 0));
    cr_assert(prefix_add(x, 0, -1, b, 1));
    cr_assert(prefix_add(x, 0, -1, c, 2));
    struct prefix_hit hit = prefix_find(x, 0, q, 4, blocks);
    cr_assert(hit.n_blocks == 0 && hit.block == 1 && hit.n_tokens == 3);
    prefix_remove(x, 1);
    hit = prefix_find(x, 0, q, 4, blocks);
    cr_assert(hit.block == 0 && hit.n_tokens == 2);
    prefix_remove(x, 0);
    hit = prefix_find(x, 0, q, 4, blocks);
    cr_assert(hit.block == 2 && hit.n_tokens == 1);
    prefix_remove(x, 2);
    hit = prefix_find(x, 0, q, 4, blocks);
    cr_assert(hit.block == -1 && hit.n_tokens == 0);
    prefix_close(x);
}

Test(prefix, the_same_tokens_after_something_else_are_something_else)
{
    struct prefix *x = open_index(8);
    const int32_t a[] = {1, 1, 1, 1, 9, 9, 9, 9}, b[] = {2, 2, 2, 2, 9, 9, 9, 9};
    int32_t blocks[8];

    cr_assert(prefix_add(x, 0, -1, a, 0));
    cr_assert(prefix_add(x, 0, 0, a + 4, 1));
    cr_assert(prefix_add(x, 0, -1, b, 2));
    cr_assert_eq(prefix_find(x, 0, b, 8, blocks).n_blocks, 1);
    cr_assert(prefix_add(x, 0, 2, b + 4, 3));
    cr_assert_eq(prefix_find(x, 0, b, 8, blocks).n_blocks, 2);
    cr_assert_eq(blocks[1], 3);
    cr_assert_not(prefix_add(x, 0, 2, b + 4, 5)); /* it is there */
    prefix_close(x);
}

Test(prefix, other_weights_never_find_it)
{
    struct prefix *x = open_index(8);
    const int32_t a[] = {1, 2, 3, 4, 5, 6, 7, 8};
    int32_t blocks[8];

    cr_assert(prefix_add(x, 111, -1, a, 0));
    cr_assert(prefix_add(x, 111, 0, a + 4, 1));
    struct prefix_hit hit = prefix_find(x, 112, a, 8, blocks);
    cr_assert(hit.n_blocks == 0 && hit.n_tokens == 0 && hit.block == -1);
    cr_assert(prefix_add(x, 112, -1, a, 2));
    cr_assert_eq(prefix_find(x, 111, a, 8, blocks).n_blocks, 2);
    cr_assert_eq(prefix_find(x, 112, a, 8, blocks).n_blocks, 1);
    prefix_clear(x);
    cr_assert_eq(prefix_find(x, 111, a, 8, blocks).n_blocks, 0);
    prefix_close(x);
}

/* Against a list that is searched from end to end, over many additions and removals. */
Test(prefix, agrees_with_a_plain_search)
{
    enum { BLOCKS = 40, DEPTH = 3 };
    struct prefix *x = open_index(BLOCKS);
    int32_t text[BLOCKS][DEPTH * BT], q[DEPTH * BT], blocks[DEPTH];
    int depth[BLOCKS] = {0}, children[BLOCKS] = {0}, parent[BLOCKS]; /* depth 0: not in the index */

    srand(3);
    for (int round = 0; round < 20000; round++) {
        for (int i = 0; i < DEPTH * BT; i++)
            q[i] = rand() % 8 == 0;
        struct prefix_hit hit = prefix_find(x, 5, q, DEPTH * BT, blocks);
        int most = 0;
        for (int b = 0; b < BLOCKS; b++) {
            int same = 0;
            while (same < depth[b] * BT && q[same] == text[b][same])
                same++;
            most = same > most ? same : most;
        }
        cr_assert_eq(hit.n_blocks * BT + hit.n_tokens, most);
        int b = rand() % BLOCKS;
        if (depth[b] == 0 && hit.n_blocks < DEPTH) {
            parent[b] = hit.n_blocks ? blocks[hit.n_blocks - 1] : -1;
            depth[b] = hit.n_blocks + 1;
            memcpy(text[b], q, sizeof q);
            cr_assert(prefix_add(x, 5, parent[b], q + hit.n_blocks * BT, b));
            if (parent[b] >= 0)
                children[parent[b]]++;
        } else if (depth[b] > 0 && children[b] == 0) {
            prefix_remove(x, b);
            if (parent[b] >= 0)
                children[parent[b]]--;
            depth[b] = 0;
        }
    }
    prefix_close(x);
}
