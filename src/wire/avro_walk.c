#include "wire/avro_walk.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct walk {
    const unsigned char *start, *p, *end;
    size_t values_left;
    const char *field; /* of the outermost record */
    struct err *e;
};

static enum err_code walk_value(struct walk *w, avro_schema_t s, int depth);

static enum err_code __attribute__((format(printf, 2, 3))) bad(struct walk *w, const char *fmt, ...)
{
    char what[160];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return err_set(w->e, ERR_UNDECODABLE, ERR_SKIP, "Avro: byte %zu, field %.60s: %s", (size_t)(w->p - w->start),
                   w->field, what);
}

static size_t left(const struct walk *w)
{
    return (size_t)(w->end - w->p);
}

static enum err_code walk_long(struct walk *w, int64_t *out)
{
    uint64_t v = 0;

    *out = 0;
    for (int i = 0; i < 10; i++) {
        if (left(w) <= (size_t)i)
            return bad(w, "a number is cut off by the end");
        v |= (uint64_t)(w->p[i] & 0x7F) << (7 * i);
        if (w->p[i] & 0x80)
            continue;
        if (i == 9 && w->p[i] > 1)
            break;
        w->p += i + 1;
        *out = (int64_t)(v >> 1 ^ -(v & 1));
        return ERR_OK;
    }
    return bad(w, "a number of more than 64 bits");
}

static enum err_code walk_int(struct walk *w)
{
    enum err_code rc;
    int64_t v;

    if ((rc = walk_long(w, &v)) != ERR_OK)
        return rc;
    if (v < INT32_MIN || v > INT32_MAX)
        return bad(w, "%lld is no int", (long long)v);
    return ERR_OK;
}

static enum err_code walk_skip(struct walk *w, size_t n, const char *what)
{
    if (n > left(w))
        return bad(w, "a %s of %zu bytes with %zu left", what, n, left(w));
    w->p += n;
    return ERR_OK;
}

static enum err_code walk_bytes(struct walk *w, const char *what)
{
    enum err_code rc;
    int64_t n = 0;

    if ((rc = walk_long(w, &n)) != ERR_OK)
        return rc;
    if (n < 0 || (uint64_t)n > left(w))
        return bad(w, "a %s of %lld bytes with %zu left", what, (long long)n, left(w));
    w->p += n;
    return ERR_OK;
}

static enum err_code walk_index(struct walk *w, size_t count, const char *what, int64_t *out)
{
    enum err_code rc;

    if ((rc = walk_long(w, out)) != ERR_OK)
        return rc;
    if (*out < 0 || (uint64_t)*out >= count)
        return bad(w, "%s %lld of %zu", what, (long long)*out, count);
    return ERR_OK;
}

static enum err_code walk_boolean(struct walk *w)
{
    if (left(w) == 0)
        return bad(w, "a boolean is cut off by the end");
    if (*w->p > 1)
        return bad(w, "a boolean of value %d", *w->p);
    w->p++;
    return ERR_OK;
}

/* avro-c takes a key up to its first NUL: what comes behind would be lost */
static enum err_code walk_key(struct walk *w)
{
    const unsigned char *p;
    enum err_code rc;
    int64_t n = 0;

    if ((rc = walk_long(w, &n)) != ERR_OK)
        return rc;
    if (n < 0 || (uint64_t)n > left(w))
        return bad(w, "a map key of %lld bytes with %zu left", (long long)n, left(w));
    p = w->p;
    w->p += n;
    if (n && memchr(p, 0, (size_t)n))
        return bad(w, "a map key with a NUL byte");
    return ERR_OK;
}

/* Blocks of an array or map: count, then as many items; a negative count is followed by the block's size in bytes; a
 * count of 0 ends.  Items take at least one byte, so a count over the bytes left is a lie. */
static enum err_code walk_blocks(struct walk *w, avro_schema_t items, bool keyed, int depth)
{
    for (;;) {
        const unsigned char *block_end = NULL;
        enum err_code rc;
        int64_t count, size;

        if ((rc = walk_long(w, &count)) != ERR_OK)
            return rc;
        if (count == 0)
            return ERR_OK;
        if (count < 0) {
            if ((rc = walk_long(w, &size)) != ERR_OK)
                return rc;
            if (size < 0 || (uint64_t)size > left(w))
                return bad(w, "a block of %lld bytes with %zu left", (long long)size, left(w));
            block_end = w->p + size;
        }
        uint64_t n = count < 0 ? -(uint64_t)count : (uint64_t)count;
        if (n > left(w))
            return bad(w, "a block of %llu items with %zu bytes left", (unsigned long long)n, left(w));
        for (; n > 0; n--) {
            if (keyed && (rc = walk_key(w)) != ERR_OK)
                return rc;
            if ((rc = walk_value(w, items, depth)) != ERR_OK)
                return rc;
        }
        if (block_end && w->p != block_end)
            return bad(w, "a block's size is off by %lld bytes", (long long)(w->p - block_end));
    }
}

static enum err_code walk_record(struct walk *w, avro_schema_t s, int depth)
{
    size_t n = avro_schema_record_size(s);
    enum err_code rc;

    for (size_t i = 0; i < n; i++) {
        if (depth == 0)
            w->field = avro_schema_record_field_name(s, (int)i);
        if ((rc = walk_value(w, avro_schema_record_field_get_by_index(s, (int)i), depth + 1)) != ERR_OK)
            return rc;
    }
    return ERR_OK;
}

static enum err_code walk_union(struct walk *w, avro_schema_t s, int depth)
{
    enum err_code rc;
    int64_t i;

    if ((rc = walk_index(w, avro_schema_union_size(s), "union branch", &i)) != ERR_OK)
        return rc;
    return walk_value(w, avro_schema_union_branch(s, (int)i), depth + 1);
}

static enum err_code walk_value(struct walk *w, avro_schema_t s, int depth)
{
    int64_t v;

    if (w->values_left == 0)
        return bad(w, "more values than are allowed");
    w->values_left--;
    switch (avro_typeof(s)) {
    case AVRO_NULL: return ERR_OK;
    case AVRO_BOOLEAN: return walk_boolean(w);
    case AVRO_INT32: return walk_int(w);
    case AVRO_INT64: return walk_long(w, &v);
    case AVRO_FLOAT: return walk_skip(w, 4, "float");
    case AVRO_DOUBLE: return walk_skip(w, 8, "double");
    case AVRO_STRING: return walk_bytes(w, "string");
    case AVRO_BYTES: return walk_bytes(w, "bytes");
    case AVRO_FIXED: return walk_skip(w, (size_t)avro_schema_fixed_size(s), "fixed");
    case AVRO_ENUM: return walk_index(w, (size_t)avro_schema_enum_number_of_symbols(s), "enum symbol", &v);
    case AVRO_ARRAY: return walk_blocks(w, avro_schema_array_items(s), false, depth + 1);
    case AVRO_MAP: return walk_blocks(w, avro_schema_map_values(s), true, depth + 1);
    case AVRO_UNION: return walk_union(w, s, depth);
    case AVRO_RECORD: return walk_record(w, s, depth);
    case AVRO_LINK: return walk_value(w, avro_schema_link_target(s), depth);
    default: return bad(w, "a type that avro-c does not know"); /* avro-c 1.12 has AVRO_INVALID */
    }
}

enum err_code avro_walk(avro_schema_t writer, const void *data, size_t n, size_t max_values, struct err *e)
{
    struct walk w = {.start = data,
                     .p = data,
                     .end = (const unsigned char *)data + n,
                     .values_left = max_values,
                     .field = "(none)",
                     .e = e};
    enum err_code rc = walk_value(&w, writer, 0);

    if (rc == ERR_OK && w.p != w.end)
        rc = err_set(e, ERR_UNDECODABLE, ERR_SKIP, "Avro: %zu bytes are left over behind the value of %zu bytes",
                     left(&w), (size_t)(w.p - w.start));
    return rc;
}
