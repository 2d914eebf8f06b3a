#include "wire/json_codec.h"

#include "base/json.h"
#include "base/utf8.h"

#include <string.h>

enum { MAX_DEPTH = 64, MAX_VALUES = 200000 };

/* jansson gives every value some 100 bytes, so that 16 MB of "[[],[],..." would take 700 MB: counts the values by what
 * stands between them, outside of strings. */
static enum err_code check_shape(const char *s, size_t n, struct err *e)
{
    size_t values = 0, depth = 0;

    for (size_t i = 0; i < n; i++) {
        switch (s[i]) {
        case '"':
            for (i++; i < n && s[i] != '"'; i++)
                if (s[i] == '\\')
                    i++;
            break;
        case '{':
        case '[':
            depth++;
            values++;
            break;
        case '}':
        case ']': depth -= depth > 0; break;
        case ',': values++; break;
        default: break;
        }
        if (depth > MAX_DEPTH)
            return err_set(e, ERR_UNDECODABLE, ERR_SKIP, "JSON: byte %zu: more than %d levels deep", i, MAX_DEPTH);
        if (values > MAX_VALUES)
            return err_set(e, ERR_UNDECODABLE, ERR_SKIP, "JSON: byte %zu: more than %d values", i, MAX_VALUES);
    }
    return ERR_OK;
}

static enum err_code read_terms(const struct intake *in, const struct field *f, const json_t *v)
{
    enum err_code rc;

    if (!json_is_array(v))
        return message_mistyped(in, f, json_kind(v));
    if ((rc = message_put_count(in, f, json_array_size(v))) != ERR_OK)
        return rc;
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *t = json_array_get(v, i), *s = json_object_get(t, "source"), *g = json_object_get(t, "target");
        if (!json_is_object(t) || (s && !json_is_string(s)) || (g && !json_is_string(g)))
            return err_set(in->e, ERR_INVALID_FIELD, ERR_SKIP, "%s[%zu]: expected {source, target} of strings", f->path,
                           i);
        if ((rc = message_put_term(in, f, i, json_string_value(s), json_string_length(s), json_string_value(g),
                                   json_string_length(g))) != ERR_OK)
            return rc;
    }
    return ERR_OK;
}

static enum err_code read_pairs(const struct intake *in, const struct field *f, json_t *v)
{
    enum err_code rc;
    const char *key;
    size_t i = 0;
    json_t *value;

    if (!json_is_object(v))
        return message_mistyped(in, f, json_kind(v));
    if ((rc = message_put_count(in, f, json_object_size(v))) != ERR_OK)
        return rc;
    json_object_foreach(v, key, value)
    {
        if (!json_is_string(value))
            return err_set(in->e, ERR_INVALID_FIELD, ERR_SKIP, "%s: key \"%.60s\": expected a string, found %s",
                           f->path, key, json_kind(value));
        if ((rc = message_put_pair(in, f, i++, key, strlen(key), json_string_value(value),
                                   json_string_length(value))) != ERR_OK)
            return rc;
    }
    return ERR_OK;
}

static enum err_code read_fields(const struct intake *in, const struct field *fields, size_t n, const json_t *o);

static enum err_code read_field(const struct intake *in, const struct field *f, json_t *v)
{
    switch (f->kind) {
    case FIELD_TEXT:
        if (json_is_string(v))
            return message_put_text(in, f, json_string_value(v), json_string_length(v));
        break;
    case FIELD_SYMBOL:
        if (json_is_string(v))
            return message_put_symbol(in, f, json_string_value(v), json_string_length(v));
        break;
    case FIELD_INT:
    case FIELD_LONG:
    case FIELD_TIME:
    case FIELD_DOUBLE:
        if (json_is_integer(v))
            return message_put_int(in, f, json_integer_value(v));
        if (json_is_real(v))
            return message_put_double(in, f, json_real_value(v));
        break;
    case FIELD_TERMS: return read_terms(in, f, v);
    case FIELD_PAIRS: return read_pairs(in, f, v);
    case FIELD_GROUP:
        if (json_is_object(v))
            return read_fields(in, f->fields, f->n_fields, v);
        break;
    }
    return message_mistyped(in, f, json_kind(v));
}

static enum err_code read_fields(const struct intake *in, const struct field *fields, size_t n, const json_t *o)
{
    enum err_code rc;

    for (size_t i = 0; i < n; i++) {
        json_t *v = json_object_get(o, fields[i].name);
        if (v && !json_is_null(v) && (rc = read_field(in, &fields[i], v)) != ERR_OK)
            return rc;
    }
    return ERR_OK;
}

enum err_code json_codec_decode(const struct message *m, const struct intake *in, const char *s, size_t n)
{
    size_t valid = utf8_valid(s, n);
    enum err_code rc;
    json_error_t je;
    json_t *root;

    if (valid != n)
        return err_set(in->e, ERR_INVALID_UTF8, ERR_SKIP, "JSON: byte %zu is not valid UTF-8 (0x%02X)", valid,
                       (unsigned char)s[valid]);
    if ((rc = check_shape(s, n, in->e)) != ERR_OK)
        return rc;
    root = json_loadb(s, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &je);
    if (!root && json_error_code(&je) == json_error_out_of_memory)
        return err_set(in->e, ERR_NOMEM, ERR_RETRY, "JSON: out of memory");
    if (!root)
        return err_set(in->e, ERR_UNDECODABLE, ERR_SKIP, "JSON: byte %d: %.150s", je.position, je.text);
    if (json_is_object(root))
        rc = read_fields(in, m->fields, m->n_fields, root);
    else
        rc = err_set(in->e, ERR_UNDECODABLE, ERR_SKIP, "JSON: expected an object, found %s", json_kind(root));
    json_decref(root);
    return rc;
}

enum { USUAL_BYTES = 1024 }; /* of a written message */

static json_t *string_of(struct text t)
{
    return json_stringn(t.s ? t.s : "", t.n);
}

static json_t *write_terms(const struct term *t, size_t n)
{
    json_t *list = json_array();

    for (size_t i = 0; list && i < n; i++) {
        json_t *o = json_object();
        if (json_object_set_new(o, "source", string_of(t[i].source)) != 0 ||
            json_object_set_new(o, "target", string_of(t[i].target)) != 0) {
            json_decref(o);
            json_decref(list);
            return NULL;
        }
        if (json_array_append_new(list, o) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *write_pairs(const struct pair *p, size_t n)
{
    json_t *o = json_object();

    for (size_t i = 0; o && i < n; i++) {
        if (json_object_setn_new(o, p[i].key.s ? p[i].key.s : "", p[i].key.n, string_of(p[i].value)) != 0) {
            json_decref(o);
            return NULL;
        }
    }
    return o;
}

static json_t *write_fields(const struct field *fields, size_t n, const void *base, const char **failed);

/* NULL: out of memory, or a text that is not UTF-8 */
static json_t *write_field(const struct field *f, const void *base, const char **failed)
{
    const void *at = message_at(f, base);

    switch (f->kind) {
    case FIELD_TEXT: return string_of(*(const struct text *)at);
    case FIELD_SYMBOL: return json_string_nocheck(f->symbols[*(const int *)at]);
    case FIELD_INT: return json_integer(*(const int32_t *)at);
    case FIELD_LONG:
    case FIELD_TIME: return json_integer(*(const int64_t *)at);
    case FIELD_DOUBLE: return json_real(*(const double *)at);
    case FIELD_TERMS: return write_terms(*(struct term *const *)at, message_count(f, base));
    case FIELD_PAIRS: return write_pairs(*(const struct pair *const *)at, message_count(f, base));
    case FIELD_GROUP: return write_fields(f->fields, f->n_fields, base, failed);
    }
    return NULL;
}

static json_t *write_fields(const struct field *fields, size_t n, const void *base, const char **failed)
{
    json_t *o = json_object();

    for (size_t i = 0; o && i < n; i++) {
        if (!message_has(&fields[i], base))
            continue;
        /* the names are ours: nothing in them to check */
        if (json_object_set_new_nocheck(o, fields[i].name, write_field(&fields[i], base, failed)) != 0) {
            if (!*failed)
                *failed = fields[i].path;
            json_decref(o);
            o = NULL;
        }
    }
    return o;
}

enum err_code json_codec_encode(const struct message *m, const void *base, struct arena *a, struct text *out,
                                struct err *e)
{
    /* 15 digits: 0.7 stays 0.7 and not 0.69999999999999996 */
    const size_t flags = JSON_COMPACT | JSON_REAL_PRECISION(15);
    const char *failed = NULL;
    enum err_code rc = ERR_OK;
    json_t *o = write_fields(m->fields, m->n_fields, base, &failed);
    char *buf;
    size_t n;

    if (!o)
        return err_set(e, ERR_INVALID_UTF8, ERR_SKIP, "JSON: %s: not valid UTF-8 or out of memory",
                       failed ? failed : m->name);
    /* Most fit the guess; what does not is written again, now that its size is known. */
    buf = arena_take(a, USUAL_BYTES);
    n = buf ? json_dumpb(o, buf, USUAL_BYTES, flags) : 0;
    if (n > USUAL_BYTES && (buf = arena_take(a, n)))
        n = json_dumpb(o, buf, n, flags);
    if (!buf || n == 0)
        rc = err_set(e, ERR_NOMEM, ERR_RETRY, "JSON: out of memory for %zu bytes", n);
    else
        *out = (struct text){buf, n};
    json_decref(o);
    return rc;
}
