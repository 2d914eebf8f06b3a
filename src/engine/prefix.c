#include "engine/prefix.h"

#include "base/hash.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct node {
    uint64_t hash, key;
    int32_t parent; /* -1: a root */
    int32_t child;  /* youngest; -1: a leaf */
    int32_t newer;  /* sibling; the older one is in older[] */
    int32_t chain;  /* next in the hash bucket */
    bool used;
};

struct prefix {
    int blocks, block_tokens;
    uint32_t mask; /* buckets - 1 */
    int32_t root;  /* youngest root */
    int32_t *buckets;
    int32_t *tokens; /* [blocks, block_tokens] */
    int32_t *older;  /* [blocks]: the sibling before, -1 = none; by itself, since a search walks many */
    struct node *nodes;
};

enum err_code prefix_open(struct prefix **out, int blocks, int block_tokens, struct err *e)
{
    struct prefix *x = calloc(1, sizeof *x);
    uint32_t buckets = 16;

    *out = NULL;
    while (buckets < 2u * (uint32_t)blocks)
        buckets *= 2;
    if (x) {
        x->blocks = blocks;
        x->block_tokens = block_tokens;
        x->mask = buckets - 1;
        x->buckets = malloc(buckets * sizeof x->buckets[0]);
        x->tokens = malloc((size_t)blocks * (size_t)block_tokens * sizeof x->tokens[0]);
        x->older = malloc((size_t)blocks * sizeof x->older[0]);
        x->nodes = malloc((size_t)blocks * sizeof x->nodes[0]);
    }
    if (!x || !x->buckets || !x->tokens || !x->older || !x->nodes) {
        prefix_close(x);
        return err_set(e, ERR_NOMEM, ERR_STOP, "prefix index: out of memory for %d blocks", blocks);
    }
    prefix_clear(x);
    *out = x;
    return ERR_OK;
}

void prefix_close(struct prefix *x)
{
    if (!x)
        return;
    free(x->buckets);
    free(x->tokens);
    free(x->older);
    free(x->nodes);
    free(x);
}

void prefix_clear(struct prefix *x)
{
    memset(x->buckets, 0xff, ((size_t)x->mask + 1) * sizeof x->buckets[0]);
    memset(x->nodes, 0, (size_t)x->blocks * sizeof x->nodes[0]);
    x->root = -1;
}

static int32_t *tokens_of(const struct prefix *x, int32_t block)
{
    return x->tokens + (size_t)block * (size_t)x->block_tokens;
}

static size_t block_bytes(const struct prefix *x)
{
    return (size_t)x->block_tokens * sizeof x->tokens[0];
}

static uint64_t hash_of(const struct prefix *x, uint64_t key, int32_t parent, const int32_t *tokens)
{
    return hash_bytes(tokens, block_bytes(x), parent < 0 ? key : x->nodes[parent].hash);
}

static int32_t find_child(const struct prefix *x, uint64_t key, int32_t parent, const int32_t *tokens, uint64_t hash)
{
    for (int32_t b = x->buckets[hash & x->mask]; b >= 0; b = x->nodes[b].chain) {
        const struct node *n = &x->nodes[b];
        if (n->hash == hash && n->parent == parent && n->key == key &&
            memcmp(tokens_of(x, b), tokens, block_bytes(x)) == 0)
            return b;
    }
    return -1;
}

static int common(const int32_t *a, const int32_t *b, int n)
{
    int i = 0;

    while (i < n && a[i] == b[i])
        i++;
    return i;
}

/* Among the youngest of the siblings from b on, the first that shares most of tokens[0..most).  One that shares more than
 * the best so far has the token after that in common, so most are dismissed by that alone. */
static void find_partly(const struct prefix *x, uint64_t key, int32_t b, const int32_t *tokens, int most,
                        struct prefix_hit *hit)
{
    for (int seen = 0; b >= 0 && seen < PREFIX_SIBLINGS && hit->n_tokens < most; b = x->older[b], seen++) {
        const int32_t *its = tokens_of(x, b);
        if (its[hit->n_tokens] != tokens[hit->n_tokens] || x->nodes[b].key != key)
            continue;
        int c = common(its, tokens, most);
        if (c > hit->n_tokens) {
            hit->n_tokens = c;
            hit->block = b;
        }
    }
}

struct prefix_hit prefix_find(const struct prefix *x, uint64_t key, const int32_t *tokens, int n, int32_t *blocks)
{
    struct prefix_hit hit = {.block = -1};
    int32_t last = -1;

    while (n >= x->block_tokens) {
        int32_t b = find_child(x, key, last, tokens, hash_of(x, key, last, tokens));
        if (b < 0)
            break;
        blocks[hit.n_blocks++] = last = b;
        tokens += x->block_tokens;
        n -= x->block_tokens;
    }
    find_partly(x, key, last < 0 ? x->root : x->nodes[last].child, tokens, n < x->block_tokens ? n : x->block_tokens,
                &hit);
    return hit;
}

bool prefix_add(struct prefix *x, uint64_t key, int32_t parent, const int32_t *tokens, int32_t block)
{
    struct node *n = &x->nodes[block];
    int32_t *head = parent < 0 ? &x->root : &x->nodes[parent].child;
    uint64_t hash = hash_of(x, key, parent, tokens);
    int32_t *bucket = &x->buckets[hash & x->mask];

    assert(!n->used && (parent < 0 || x->nodes[parent].used));
    if (find_child(x, key, parent, tokens, hash) >= 0)
        return false;
    memcpy(tokens_of(x, block), tokens, block_bytes(x));
    *n = (struct node){
        .hash = hash, .key = key, .parent = parent, .child = -1, .newer = -1, .chain = *bucket, .used = true};
    x->older[block] = *head;
    if (*head >= 0)
        x->nodes[*head].newer = block;
    *head = block;
    *bucket = block;
    return true;
}

void prefix_remove(struct prefix *x, int32_t block)
{
    struct node *n = &x->nodes[block];
    int32_t *link = &x->buckets[n->hash & x->mask];

    assert(n->used && n->child < 0);
    while (*link != block)
        link = &x->nodes[*link].chain;
    *link = n->chain;
    const int32_t older = x->older[block];
    if (n->newer >= 0)
        x->older[n->newer] = older;
    else if (n->parent >= 0)
        x->nodes[n->parent].child = older;
    else
        x->root = older;
    if (older >= 0)
        x->nodes[older].newer = n->newer;
    n->used = false;
}
