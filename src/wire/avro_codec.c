#include "wire/avro_codec.h"

#include "base/utf8.h"
#include "wire/avro_walk.h"

#include <string.h>

/* Everything below runs between avro_lock() and avro_unlock() of the two entry points. */

static const char *kind_of(const avro_value_t *v)
{
    static const char *const names[] = {
        [AVRO_STRING] = "string", [AVRO_BYTES] = "bytes",   [AVRO_INT32] = "int",       [AVRO_INT64] = "long",
        [AVRO_FLOAT] = "float",   [AVRO_DOUBLE] = "double", [AVRO_BOOLEAN] = "boolean", [AVRO_NULL] = "null",
        [AVRO_RECORD] = "record", [AVRO_ENUM] = "enum",     [AVRO_FIXED] = "fixed",     [AVRO_MAP] = "map",
        [AVRO_ARRAY] = "array",   [AVRO_UNION] = "union",   [AVRO_LINK] = "link"};
    avro_type_t t = avro_value_get_type(v);

    return (unsigned)t < sizeof names / sizeof *names ? names[t] : "?";
}

/* The branch of a union, else v itself. */
static avro_value_t unwrap(avro_value_t v)
{
    avro_value_t branch;

    if (avro_value_get_type(&v) == AVRO_UNION && avro_value_get_current_branch(&v, &branch) == 0)
        return branch;
    return v;
}

/* Text of a string, bytes or enum; false for anything else. */
static bool get_text(const avro_value_t *v, const char **s, size_t *n)
{
    const void *bytes = NULL;
    avro_schema_t schema;
    int index;

    switch (avro_value_get_type(v)) {
    case AVRO_STRING:
        if (avro_value_get_string(v, s, n) != 0)
            return false;
        *n -= 1; /* avro-c counts its final NUL */
        return true;
    case AVRO_BYTES:
        if (avro_value_get_bytes(v, &bytes, n) != 0)
            return false;
        *s = bytes ? bytes : "";
        return true;
    case AVRO_ENUM:
        schema = avro_value_get_schema(v);
        if (!schema || avro_value_get_enum(v, &index) != 0) /* the walk checked the index */
            return false;
        *s = avro_schema_enum_get(schema, index);
        *n = strlen(*s);
        return true;
    default: return false;
    }
}

static enum err_code read_number(const struct intake *in, const struct field *f, const avro_value_t *v, bool micros)
{
    int64_t l = 0;
    int32_t i = 0;
    double d = 0;
    float x = 0;

    switch (avro_value_get_type(v)) {
    case AVRO_INT32: avro_value_get_int(v, &i); return message_put_int(in, f, i);
    case AVRO_INT64:
        avro_value_get_long(v, &l);
        if (micros && f->kind == FIELD_TIME)
            l = l / 1000 - (l % 1000 < 0);
        return message_put_int(in, f, l);
    case AVRO_FLOAT: avro_value_get_float(v, &x); return message_put_double(in, f, (double)x);
    case AVRO_DOUBLE: avro_value_get_double(v, &d); return message_put_double(in, f, d);
    default: return message_mistyped(in, f, kind_of(v));
    }
}

static void get_part(const avro_value_t *record, const char *name, const char **s, size_t *n)
{
    avro_value_t v;

    *s = NULL;
    *n = 0;
    if (avro_value_get_by_name(record, name, &v, NULL) != 0)
        return;
    v = unwrap(v);
    if (!get_text(&v, s, n))
        *s = NULL;
}

static enum err_code read_terms(const struct intake *in, const struct field *f, const avro_value_t *v)
{
    const char *source, *target;
    size_t n, n_source, n_target;
    enum err_code rc;
    avro_value_t t;

    if (avro_value_get_type(v) != AVRO_ARRAY || avro_value_get_size(v, &n) != 0)
        return message_mistyped(in, f, kind_of(v));
    if ((rc = message_put_count(in, f, n)) != ERR_OK)
        return rc;
    for (size_t i = 0; i < n; i++) {
        if (avro_value_get_by_index(v, i, &t, NULL) != 0)
            return message_mistyped(in, f, "an array that cannot be read");
        t = unwrap(t);
        if (avro_value_get_type(&t) != AVRO_RECORD)
            return message_mistyped(in, f, "an array of something else");
        get_part(&t, "source", &source, &n_source);
        get_part(&t, "target", &target, &n_target);
        if ((rc = message_put_term(in, f, i, source, n_source, target, n_target)) != ERR_OK)
            return rc;
    }
    return ERR_OK;
}

static enum err_code read_pairs(const struct intake *in, const struct field *f, const avro_value_t *v)
{
    const char *key, *value;
    size_t n, n_value;
    enum err_code rc;
    avro_value_t item;

    if (avro_value_get_type(v) != AVRO_MAP || avro_value_get_size(v, &n) != 0)
        return message_mistyped(in, f, kind_of(v));
    if ((rc = message_put_count(in, f, n)) != ERR_OK)
        return rc;
    for (size_t i = 0; i < n; i++) {
        if (avro_value_get_by_index(v, i, &item, &key) != 0)
            return message_mistyped(in, f, "a map that cannot be read");
        item = unwrap(item);
        if (!get_text(&item, &value, &n_value))
            return message_mistyped(in, f, "a map of something else");
        if ((rc = message_put_pair(in, f, i, key, strlen(key), value, n_value)) != ERR_OK)
            return rc;
    }
    return ERR_OK;
}

static enum err_code read_fields(const struct intake *in, const struct field *fields, size_t n,
                                 const avro_value_t *record, bool micros);

static enum err_code read_field(const struct intake *in, const struct field *f, const avro_value_t *v, bool micros)
{
    const char *s;
    size_t n;

    switch (f->kind) {
    case FIELD_TEXT:
        if (get_text(v, &s, &n))
            return message_put_text(in, f, s, n);
        break;
    case FIELD_SYMBOL:
        if (get_text(v, &s, &n))
            return message_put_symbol(in, f, s, n);
        break;
    case FIELD_INT:
    case FIELD_LONG:
    case FIELD_TIME:
    case FIELD_DOUBLE: return read_number(in, f, v, micros);
    case FIELD_TERMS: return read_terms(in, f, v);
    case FIELD_PAIRS: return read_pairs(in, f, v);
    case FIELD_GROUP:
        if (avro_value_get_type(v) == AVRO_RECORD)
            return read_fields(in, f->fields, f->n_fields, v, micros);
        break;
    }
    return message_mistyped(in, f, kind_of(v));
}

static enum err_code read_fields(const struct intake *in, const struct field *fields, size_t n,
                                 const avro_value_t *record, bool micros)
{
    enum err_code rc;
    avro_value_t v;

    for (size_t i = 0; i < n; i++) {
        if (avro_value_get_by_name(record, fields[i].name, &v, NULL) != 0)
            continue; /* the writer does not know it */
        v = unwrap(v);
        if (avro_value_get_type(&v) == AVRO_NULL)
            continue;
        if ((rc = read_field(in, &fields[i], &v, micros)) != ERR_OK)
            return rc;
    }
    return ERR_OK;
}

enum err_code avro_codec_decode(const struct message *m, const struct intake *in, const struct schema *writer,
                                const void *data, size_t n)
{
    avro_reader_t reader = NULL;
    avro_value_t v;
    enum err_code rc;

    avro_lock();
    if ((rc = avro_walk(writer->avro, data, n, AVRO_MAX_VALUES, in->e)) != ERR_OK)
        goto out;
    if (avro_generic_value_new(writer->iface, &v) != 0) {
        rc = err_set(in->e, ERR_NOMEM, ERR_RETRY, "Avro: %.200s", avro_strerror());
        goto out;
    }
    reader = avro_reader_memory(data, (int64_t)n);
    if (!reader || avro_value_read(reader, &v) != 0)
        rc = err_set(in->e, ERR_UNDECODABLE, ERR_SKIP, "Avro: %.200s", avro_strerror());
    else
        rc = read_fields(in, m->fields, m->n_fields, &v, writer->deadline_micros);
    avro_value_decref(&v);
    if (reader)
        avro_reader_free(reader);
out:
    avro_unlock();
    return rc;
}

/* Writers return 0 or what avro-c returned; text that is not UTF-8 is EILSEQ. */

static int write_text(avro_value_t *v, struct text t, struct arena *a)
{
    char *terminated;

    if (utf8_valid(t.s ? t.s : "", t.n) != t.n)
        return EILSEQ;
    terminated = arena_take(a, t.n + 1); /* avro-c wants its NUL, and counts it */
    if (!terminated)
        return ENOMEM;
    if (t.s)
        memcpy(terminated, t.s, t.n);
    terminated[t.n] = '\0';
    return avro_value_set_string_len(v, terminated, t.n + 1);
}

static int write_terms(avro_value_t *v, const struct term *t, size_t n, struct arena *a)
{
    avro_value_t item, part;
    int rc;

    for (size_t i = 0; i < n; i++)
        if ((rc = avro_value_append(v, &item, NULL)) != 0 ||
            (rc = avro_value_get_by_name(&item, "source", &part, NULL)) != 0 ||
            (rc = write_text(&part, t[i].source, a)) != 0 ||
            (rc = avro_value_get_by_name(&item, "target", &part, NULL)) != 0 ||
            (rc = write_text(&part, t[i].target, a)) != 0)
            return rc;
    return 0;
}

static int write_pairs(avro_value_t *v, const struct pair *p, size_t n, struct arena *a)
{
    avro_value_t item;
    char *key;
    int rc;

    for (size_t i = 0; i < n; i++) {
        const char *s = p[i].key.s ? p[i].key.s : "";
        if (utf8_valid(s, p[i].key.n) != p[i].key.n || memchr(s, 0, p[i].key.n))
            return EILSEQ;
        key = arena_take(a, p[i].key.n + 1);
        if (!key)
            return ENOMEM;
        memcpy(key, s, p[i].key.n);
        key[p[i].key.n] = '\0';
        if ((rc = avro_value_add(v, key, &item, NULL, NULL)) != 0 || (rc = write_text(&item, p[i].value, a)) != 0)
            return rc;
    }
    return 0;
}

/* Our unions are null and one type. */
static int enter_branch(avro_value_t *v, bool present)
{
    avro_schema_t u = avro_value_get_schema(v);
    int null_first = avro_typeof(avro_schema_union_branch(u, 0)) == AVRO_NULL;
    avro_value_t branch;
    int rc = avro_value_set_branch(v, present ? null_first : !null_first, &branch);

    if (rc == 0)
        *v = branch;
    return rc;
}

static int write_fields(avro_value_t *record, const struct field *fields, size_t n, const void *base, struct arena *a,
                        const char **failed);

static int write_field(avro_value_t *v, const struct field *f, const void *base, struct arena *a, const char **failed)
{
    const void *at = message_at(f, base);

    switch (f->kind) {
    case FIELD_TEXT: return write_text(v, *(const struct text *)at, a);
    case FIELD_SYMBOL:
        return avro_value_set_enum(v, avro_schema_enum_get_by_name(avro_value_get_schema(v),
                                                                   f->symbols[*(const int *)at]));
    case FIELD_INT: return avro_value_set_int(v, *(const int32_t *)at);
    case FIELD_LONG:
    case FIELD_TIME: return avro_value_set_long(v, *(const int64_t *)at);
    case FIELD_DOUBLE: return avro_value_set_double(v, *(const double *)at);
    case FIELD_TERMS: return write_terms(v, *(struct term *const *)at, message_count(f, base), a);
    case FIELD_PAIRS: return write_pairs(v, *(const struct pair *const *)at, message_count(f, base), a);
    case FIELD_GROUP: return write_fields(v, f->fields, f->n_fields, base, a, failed);
    }
    return EINVAL;
}

static int write_fields(avro_value_t *record, const struct field *fields, size_t n, const void *base, struct arena *a,
                        const char **failed)
{
    avro_value_t v;
    int rc;

    for (size_t i = 0; i < n; i++) {
        bool present = message_has(&fields[i], base);
        if ((rc = avro_value_get_by_name(record, fields[i].name, &v, NULL)) != 0)
            goto failed;
        if (avro_value_get_type(&v) == AVRO_UNION) {
            if ((rc = enter_branch(&v, present)) != 0)
                goto failed;
            if (!present)
                continue;
        }
        if ((rc = write_field(&v, &fields[i], base, a, failed)) != 0)
            goto failed;
        continue;
    failed:
        if (!*failed)
            *failed = fields[i].path;
        return rc;
    }
    return 0;
}

static enum err_code write_value(avro_value_t *v, size_t n_prefix, struct arena *a, struct text *out, struct err *e)
{
    enum err_code rc = ERR_OK;
    avro_writer_t w = NULL;
    char *buf = NULL;
    size_t n;

    if (avro_value_sizeof(v, &n) == 0 && (buf = arena_take(a, n_prefix + n)) != NULL)
        w = avro_writer_memory(buf + n_prefix, (int64_t)n);
    if (!w || avro_value_write(w, v) != 0 || avro_writer_tell(w) != (int64_t)n)
        rc = err_set(e, ERR_NOMEM, ERR_RETRY, "Avro: out of memory");
    else
        *out = (struct text){buf, n_prefix + n};
    if (w)
        avro_writer_free(w);
    return rc;
}

enum err_code avro_codec_encode(const struct message *m, const struct schema *schema, const void *base, size_t n_prefix,
                                struct arena *a, struct text *out, struct err *e)
{
    const char *failed = NULL;
    enum err_code rc;
    avro_value_t v;

    avro_lock();
    if (avro_generic_value_new(schema->iface, &v) != 0) {
        rc = err_set(e, ERR_NOMEM, ERR_RETRY, "Avro: %.200s", avro_strerror());
        goto out;
    }
    int arc = write_fields(&v, m->fields, m->n_fields, base, a, &failed);
    if (arc == EILSEQ)
        rc = err_set(e, ERR_INVALID_UTF8, ERR_SKIP, "Avro: %s: not valid UTF-8", failed);
    else if (arc != 0)
        rc = err_set(e, ERR_NOMEM, ERR_RETRY, "Avro: %s: %.200s", failed,
                     arc == ENOMEM ? "out of memory" : avro_strerror());
    else
        rc = write_value(&v, n_prefix, a, out, e);
    avro_value_decref(&v);
out:
    avro_unlock();
    return rc;
}
