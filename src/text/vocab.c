#include "text/vocab.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/json.h"
#include "text/bytelevel.h"

static uint32_t slot_of(const struct vocab *v, const unsigned char *s, size_t n)
{
    return (uint32_t)hash_bytes(s, n, 0) & v->mask;
}

int vocab_find(const struct vocab *v, const unsigned char *s, size_t n)
{
    for (uint32_t i = slot_of(v, s, n); v->slots[i]; i = (i + 1) & v->mask) {
        const struct vocab_token *t = &v->token[v->slots[i] - 1];
        if (t->len == n && memcmp(v->bytes + t->offset, s, n) == 0)
            return (int)v->slots[i] - 1;
    }
    return -1;
}

int vocab_find_added(const struct vocab *v, const char *spelling)
{
    size_t n = strlen(spelling);

    for (int id = 0; id < v->size; id++) {
        const struct vocab_token *t = &v->token[id];
        if (t->is_added && t->len == n && memcmp(v->bytes + t->offset, spelling, n) == 0)
            return id;
    }
    return -1;
}

const unsigned char *vocab_bytes(const struct vocab *v, int id, size_t *len)
{
    if (id < 0 || id >= v->size || !v->token[id].is_present)
        return NULL;
    *len = v->token[id].len;
    return v->bytes + v->token[id].offset;
}

static enum err_code check_id(const json_t *id, const char *name, const char *where, struct err *e)
{
    if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= VOCAB_MAX_IDS)
        return err_set(e, ERR_MODEL, ERR_STOP, "%s: token \"%.60s\": an id must be an integer from 0 to %d", where,
                       name, VOCAB_MAX_IDS - 1);
    if (strlen(name) > VOCAB_MAX_TOKEN_BYTES)
        return err_set(e, ERR_MODEL, ERR_STOP, "%s: token \"%.60s...\": longer than %d bytes", where, name,
                       VOCAB_MAX_TOKEN_BYTES);
    return ERR_OK;
}

/* How many ids, and how many bytes all spellings have: what to allocate. */
static enum err_code measure(struct vocab *v, const json_t *tokens, const json_t *added, const char *where,
                             struct err *e)
{
    enum err_code rc;
    const char *name;
    json_t *id, *a;
    json_int_t last = -1;
    size_t i;

    json_object_foreach((json_t *)tokens, name, id)
    {
        if ((rc = check_id(id, name, where, e)) != ERR_OK)
            return rc;
        last = json_integer_value(id) > last ? json_integer_value(id) : last;
        v->cap_bytes += strlen(name);
    }
    json_array_foreach((json_t *)added, i, a)
    {
        name = json_string_value(json_object_get(a, "content"));
        id = json_object_get(a, "id");
        if (!name || !*name)
            return err_set(e, ERR_MODEL, ERR_STOP, "%s: added_tokens[%zu]: no content", where, i);
        if ((rc = check_id(id, name, where, e)) != ERR_OK)
            return rc;
        last = json_integer_value(id) > last ? json_integer_value(id) : last;
        v->cap_bytes += strlen(name);
    }
    if (last < 0)
        return err_set(e, ERR_MODEL, ERR_STOP, "%s: no tokens", where);
    v->size = (int)last + 1;
    return ERR_OK;
}

static enum err_code allocate(struct vocab *v, const char *where, struct err *e)
{
    uint32_t n = 16;

    while (n < 2 * (uint32_t)v->size)
        n *= 2;
    v->mask = n - 1;
    v->token = calloc((size_t)v->size, sizeof *v->token);
    v->bytes = malloc(v->cap_bytes + 1);
    v->slots = calloc(n, sizeof *v->slots);
    if (!v->token || !v->bytes || !v->slots)
        return err_set(e, ERR_NOMEM, ERR_STOP, "%s: out of memory", where);
    return ERR_OK;
}

/* Writes the token's bytes; what is not in the byte alphabet stands for its own UTF-8. */
static void store(struct vocab *v, struct vocab_token *t, const char *name, bool is_added)
{
    size_t n = strlen(name);
    long m = is_added ? -1 : bytelevel_decode(name, n, v->bytes + v->n_bytes);

    t->is_present = true;
    t->is_added = is_added;
    t->is_bytes = m > 0;
    t->offset = (uint32_t)v->n_bytes;
    if (m < 0) {
        memcpy(v->bytes + v->n_bytes, name, n);
        m = (long)n;
    }
    t->len = (uint16_t)m;
    v->n_bytes += t->len;
    if (t->len > v->max_len)
        v->max_len = t->len;
}

static enum err_code add(struct vocab *v, const char *name, int id, const char *where, struct err *e)
{
    struct vocab_token *t = &v->token[id];

    if (t->is_present)
        return err_set(e, ERR_MODEL, ERR_STOP, "%s: token \"%.60s\": id %d is another token's too", where, name, id);
    store(v, t, name, false);
    if (t->is_bytes) {
        uint32_t i = slot_of(v, v->bytes + t->offset, t->len);
        while (v->slots[i])
            i = (i + 1) & v->mask;
        v->slots[i] = (uint32_t)id + 1;
    }
    return ERR_OK;
}

/* An added token may be in the vocabulary too, under the same id. */
static enum err_code add_added(struct vocab *v, const json_t *tokens, const char *name, int id, bool is_special,
                               const char *where, struct err *e)
{
    const json_t *same = json_object_get(tokens, name);
    struct vocab_token *t = &v->token[id];

    if (same ? json_integer_value(same) != id : t->is_present)
        return err_set(e, ERR_MODEL, ERR_STOP, "%s: added token \"%.60s\": id %d is not its own", where, name, id);
    if (t->is_bytes)
        return err_set(e, ERR_UNSUPPORTED, ERR_STOP, "%s: added token \"%.60s\" is an ordinary token too", where, name);
    store(v, t, name, true);
    t->is_special = is_special;
    return ERR_OK;
}

enum err_code vocab_open(struct vocab **out, const json_t *tokens, const json_t *added, const char *where,
                         struct err *e)
{
    struct vocab *v = calloc(1, sizeof *v);
    enum err_code rc;
    const char *name;
    json_t *id, *a;
    size_t i;

    *out = NULL;
    if (!v)
        return err_set(e, ERR_NOMEM, ERR_STOP, "%s: out of memory", where);
    if ((rc = measure(v, tokens, added, where, e)) != ERR_OK || (rc = allocate(v, where, e)) != ERR_OK)
        goto out;
    json_object_foreach((json_t *)tokens, name, id)
    {
        if ((rc = add(v, name, (int)json_integer_value(id), where, e)) != ERR_OK)
            goto out;
    }
    json_array_foreach((json_t *)added, i, a)
    {
        rc = add_added(v, tokens, json_string_value(json_object_get(a, "content")),
                       (int)json_integer_value(json_object_get(a, "id")), json_is_true(json_object_get(a, "special")),
                       where, e);
        if (rc != ERR_OK)
            goto out;
    }
    *out = v;
    v = NULL;
out:
    vocab_close(v);
    return rc;
}

void vocab_close(struct vocab *v)
{
    if (!v)
        return;
    free(v->token);
    free(v->bytes);
    free(v->slots);
    free(v);
}
