#include "text/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/json.h"
#include "text/bytelevel.h"

#define NO_RANK UINT32_MAX

struct merge {
    uint32_t rank; /* NO_RANK: the pair does not merge */
    int32_t id;    /* what it becomes */
};

struct pair {
    uint64_t key; /* left id << 32 | right id */
    struct merge merge;
};

struct bpe {
    const struct vocab *vocab;
    bool ignore_merges; /* a piece that is a token is taken as it is */
    int32_t byte_id[256];
    struct pair *pairs; /* open addressing, merge.rank NO_RANK = free */
    uint32_t mask;
    uint64_t *filter; /* 8 bits a slot, one of them set for each pair: most pairs do not merge, and this says so from
                       * memory that fits the processor's cache */
    uint64_t filter_mask;
    struct merge bytes[256][256]; /* the same for two single bytes: where every piece begins */
};

void bpe_scratch_free(struct bpe_scratch *s)
{
    free(s->memory);
    s->memory = NULL;
    s->cap = 0;
}

static uint64_t pair_key(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static struct pair *pair_slot(const struct bpe *b, uint64_t key, uint64_t hash)
{
    uint32_t i = (uint32_t)hash & b->mask;

    while (b->pairs[i].merge.rank != NO_RANK && b->pairs[i].key != key)
        i = (i + 1) & b->mask;
    return &b->pairs[i];
}

static struct merge pair_find(const struct bpe *b, int32_t left, int32_t right)
{
    uint64_t key = pair_key(left, right), hash = hash_mix(key, 0), bit = hash >> 32 & b->filter_mask;

    if (!(b->filter[bit / 64] >> bit % 64 & 1))
        return (struct merge){NO_RANK, -1};
    return pair_slot(b, key, hash)->merge;
}

/* The two sides of a merge, written "a b" or ["a","b"], to part[] and len[]; false = neither. */
static bool merge_sides(const json_t *m, const char *part[2], size_t len[2])
{
    if (json_is_string(m)) {
        const char *space = strchr(json_string_value(m), ' ');
        if (!space)
            return false;
        part[0] = json_string_value(m);
        part[1] = space + 1;
        len[0] = (size_t)(space - part[0]);
        len[1] = strlen(part[1]);
        return true;
    }
    if (json_array_size(m) != 2)
        return false;
    for (size_t i = 0; i < 2; i++) {
        part[i] = json_string_value(json_array_get(m, i));
        if (!part[i])
            return false;
        len[i] = strlen(part[i]);
    }
    return true;
}

static enum err_code add_merge(struct bpe *b, const json_t *m, uint32_t rank, const char *where, struct err *e)
{
    unsigned char bytes[2 * VOCAB_MAX_TOKEN_BYTES];
    const char *part[2];
    size_t len[2], n = 0;
    uint64_t key, hash;
    int id[3];

    if (!merge_sides(m, part, len))
        return err_set(e, ERR_MODEL, ERR_STOP, "%s: model.merges[%u]: expected \"a b\" or [\"a\",\"b\"]", where, rank);
    for (int i = 0; i < 2; i++) {
        long k = len[i] && len[i] <= VOCAB_MAX_TOKEN_BYTES ? bytelevel_decode(part[i], len[i], bytes + n) : -1;
        id[i] = k < 0 ? -1 : vocab_find(b->vocab, bytes + n, (size_t)k);
        if (id[i] < 0)
            return err_set(e, ERR_MODEL, ERR_STOP, "%s: model.merges[%u]: \"%.60s\" is no token", where, rank, part[i]);
        n += (size_t)k;
    }
    id[2] = vocab_find(b->vocab, bytes, n);
    if (id[2] < 0)
        return err_set(e, ERR_MODEL, ERR_STOP, "%s: model.merges[%u]: what it makes is no token", where, rank);
    key = pair_key(id[0], id[1]);
    hash = hash_mix(key, 0);
    b->filter[(hash >> 32 & b->filter_mask) / 64] |= (uint64_t)1 << (hash >> 32 & 63);
    *pair_slot(b, key, hash) = (struct pair){key, {rank, id[2]}}; /* of a pair that is there twice, the last counts */
    return ERR_OK;
}

static enum err_code add_merges(struct bpe *b, const json_t *merges, const char *where, struct err *e)
{
    uint32_t n = 16, rank;

    while (n < 2 * json_array_size(merges))
        n *= 2;
    b->mask = n - 1;
    b->filter_mask = (uint64_t)n * 8 - 1;
    b->pairs = malloc(n * sizeof *b->pairs);
    b->filter = calloc(n / 8, sizeof *b->filter);
    if (!b->pairs || !b->filter)
        return err_set(e, ERR_NOMEM, ERR_STOP, "%s: out of memory", where);
    for (uint32_t i = 0; i < n; i++)
        b->pairs[i] = (struct pair){0, {NO_RANK, -1}};
    for (rank = 0; rank < json_array_size(merges); rank++) {
        enum err_code rc = add_merge(b, json_array_get(merges, rank), rank, where, e);
        if (rc != ERR_OK)
            return rc;
    }
    return ERR_OK;
}

/* Everything that "model" may say, and only with the value that means what is done here. */
static enum err_code check_model(struct bpe *b, const json_t *model, const char *where, struct err *e)
{
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)model, key, v)
    {
        const char *s = json_string_value(v);
        bool ok = json_is_null(v);
        if (strcmp(key, "type") == 0)
            ok = s && strcmp(s, "BPE") == 0;
        else if (strcmp(key, "vocab") == 0)
            ok = json_is_object(v);
        else if (strcmp(key, "merges") == 0)
            ok = json_is_array(v) && json_array_size(v) < 1 << 24;
        else if (strcmp(key, "ignore_merges") == 0)
            ok = json_is_boolean(v);
        else if (strcmp(key, "dropout") == 0)
            ok = ok || (json_is_number(v) && json_number_value(v) == 0);
        else if (strcmp(key, "byte_fallback") == 0)
            ok = json_is_false(v);
        else if (strcmp(key, "fuse_unk") == 0)
            ok = json_is_boolean(v); /* nothing to fuse without unk_token */
        else if (strcmp(key, "continuing_subword_prefix") == 0 || strcmp(key, "end_of_word_suffix") == 0)
            ok = ok || (s && !*s);
        else if (strcmp(key, "unk_token") != 0)
            return err_set(e, ERR_UNSUPPORTED, ERR_STOP, "%s: model.%.60s is not supported", where, key);
        if (!ok)
            return err_set(e, ERR_UNSUPPORTED, ERR_STOP, "%s: model.%s: %s %.40s is not supported", where, key,
                           json_kind(v), s ? s : "");
    }
    if (!json_object_get(model, "type") || !json_object_get(model, "merges"))
        return err_set(e, ERR_MODEL, ERR_STOP, "%s: model: no type or merges", where);
    b->ignore_merges = json_is_true(json_object_get(model, "ignore_merges"));
    return ERR_OK;
}

enum err_code bpe_open(struct bpe **out, const struct vocab *v, const json_t *model, const char *where, struct err *e)
{
    struct bpe *b = calloc(1, sizeof *b);
    enum err_code rc;

    *out = NULL;
    if (!b)
        return err_set(e, ERR_NOMEM, ERR_STOP, "%s: out of memory", where);
    b->vocab = v;
    if ((rc = check_model(b, model, where, e)) != ERR_OK)
        goto out;
    if ((rc = add_merges(b, json_object_get(model, "merges"), where, e)) != ERR_OK)
        goto out;
    for (int i = 0; i < 256; i++) {
        unsigned char c = (unsigned char)i;
        b->byte_id[i] = vocab_find(v, &c, 1);
    }
    for (int i = 0; i < 256; i++)
        for (int k = 0; k < 256; k++)
            b->bytes[i][k] = pair_find(b, b->byte_id[i], b->byte_id[k]);
    *out = b;
    b = NULL;
out:
    bpe_close(b);
    return rc;
}

void bpe_close(struct bpe *b)
{
    if (!b)
        return;
    free(b->pairs);
    free(b->filter);
    free(b);
}

/* By looking through all pairs for each merge: for short pieces.  ids also holds the symbols meanwhile. */
static long encode_short(const struct bpe *b, const unsigned char *s, size_t n, int32_t *ids)
{
    struct merge merge[BPE_SHORT]; /* of the pair (i, i + 1) */
    size_t m = 0;
    unsigned char before = 0;

    for (size_t i = 0; i < n; i++) {
        if (b->byte_id[s[i]] < 0)
            continue;
        if (m)
            merge[m - 1] = b->bytes[before][s[i]];
        before = s[i];
        ids[m++] = b->byte_id[s[i]];
    }
    while (m > 1) {
        uint32_t rank = NO_RANK;
        size_t best = 0;
        for (size_t i = 0; i + 1 < m; i++)
            if (merge[i].rank < rank) {
                rank = merge[i].rank;
                best = i;
            }
        if (rank == NO_RANK)
            break;
        ids[best] = merge[best].id;
        m--;
        for (size_t i = best + 1; i < m; i++) {
            ids[i] = ids[i + 1];
            merge[i - 1] = merge[i];
        }
        if (best + 1 < m)
            merge[best] = pair_find(b, ids[best], ids[best + 1]);
        if (best > 0)
            merge[best - 1] = pair_find(b, ids[best - 1], ids[best]);
    }
    return (long)m;
}

/* A piece of n symbols as a linked list by position, and a heap of candidate pairs, rank << 32 | left position:
 * lowest rank first, then leftmost.  Entries of pairs that are gone are known by their rank and skipped. */
struct symbol {
    int32_t id; /* -1: merged into the one on its left */
    int32_t prev, next;
};

struct heap {
    uint64_t *at;
    size_t n;
};

static void heap_push(struct heap *h, uint64_t x)
{
    size_t i = h->n++;

    for (; i && h->at[(i - 1) / 4] > x; i = (i - 1) / 4)
        h->at[i] = h->at[(i - 1) / 4];
    h->at[i] = x;
}

static uint64_t heap_pop(struct heap *h)
{
    uint64_t top = h->at[0], x = h->at[--h->n];
    size_t i = 0, first, best;

    for (; (first = 4 * i + 1) < h->n; i = best) {
        best = first;
        for (size_t k = first + 1; k < first + 4 && k < h->n; k++)
            best = h->at[k] < h->at[best] ? k : best;
        if (h->at[best] >= x)
            break;
        h->at[i] = h->at[best];
    }
    h->at[i] = x;
    return top;
}

static void push_merge(struct heap *h, struct merge m, int32_t left)
{
    if (m.rank != NO_RANK)
        heap_push(h, (uint64_t)m.rank << 32 | (uint32_t)left);
}

static void push_pair(const struct bpe *b, struct heap *h, const struct symbol *sym, int32_t left)
{
    if (left >= 0 && sym[left].next >= 0)
        push_merge(h, pair_find(b, sym[left].id, sym[sym[left].next].id), left);
}

/* Merges the pair that x stands for, if it is still there. */
static void apply(const struct bpe *b, struct heap *h, struct symbol *sym, uint64_t x)
{
    int32_t left = (int32_t)(uint32_t)x, right = sym[left].next;
    struct merge m;

    if (sym[left].id < 0 || right < 0)
        return;
    m = pair_find(b, sym[left].id, sym[right].id);
    if (m.rank != x >> 32)
        return;
    sym[left].id = m.id;
    sym[left].next = sym[right].next;
    if (sym[right].next >= 0)
        sym[sym[right].next].prev = left;
    sym[right].id = -1;
    push_pair(b, h, sym, sym[left].prev);
    push_pair(b, h, sym, left);
}

/* A merge takes one entry and adds at most two, and there are fewer than n merges: the heap stays below 2 n. */
static bool reserve(struct bpe_scratch *s, size_t n, struct symbol **sym, struct heap *h)
{
    size_t need = n * (2 * sizeof *h->at + sizeof **sym);

    if (need > s->cap) {
        void *p = malloc(need);
        if (!p)
            return false;
        free(s->memory);
        s->memory = p;
        s->cap = need;
    }
    h->at = s->memory;
    h->n = 0;
    *sym = (struct symbol *)(h->at + 2 * n);
    return true;
}

static long encode_long(const struct bpe *b, struct bpe_scratch *scratch, const unsigned char *s, size_t n,
                        const int32_t **ids)
{
    struct symbol *sym;
    struct heap h;
    int32_t m = 0, *out;
    unsigned char before = 0;
    long k = 0;

    if (!reserve(scratch, n, &sym, &h))
        return -1;
    for (size_t i = 0; i < n; i++) {
        if (b->byte_id[s[i]] < 0)
            continue;
        sym[m] = (struct symbol){b->byte_id[s[i]], m - 1, m + 1};
        if (m)
            push_merge(&h, b->bytes[before][s[i]], m - 1);
        before = s[i];
        m++;
    }
    if (m == 0)
        return 0;
    sym[m - 1].next = -1;
    while (h.n)
        apply(b, &h, sym, heap_pop(&h));
    out = (int32_t *)h.at; /* the heap is empty by now */
    for (int32_t i = 0; i >= 0; i = sym[i].next)
        out[k++] = sym[i].id;
    *ids = out;
    return k;
}

long bpe_encode(const struct bpe *b, struct bpe_scratch *scratch, const unsigned char *s, size_t n, const int32_t **ids)
{
    *ids = scratch->ids;
    if (b->ignore_merges) {
        scratch->ids[0] = vocab_find(b->vocab, s, n);
        if (scratch->ids[0] >= 0)
            return 1;
    }
    return n <= BPE_SHORT ? encode_short(b, s, n, scratch->ids) : encode_long(b, scratch, s, n, ids);
}
