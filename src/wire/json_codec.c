#include "wire/json_codec.h"

#include "base/json.h"
#include "base/utf8.h"
#include "wire/json_reader.h"
#include "wire/json_writer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 64, MAX_VALUES = 200000 };

/* jansson and json_node give every value some 200 bytes, so that 16 MB of "[[],[],..." would take 1.5 GB: counts the values by what
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

/* The tree that is read, and where from. */
struct tree {
    const struct intake *in;
    const struct json_node *nodes;
};

static enum err_code read_terms(const struct tree *t, const struct field *f, const struct json_node *v)
{
    const struct json_node *term = v + 1;
    enum err_code rc;

    if (v->type != JSON_ARRAY)
        return message_mistyped(t->in, f, json_type_name(v->type));
    if ((rc = message_put_count(t->in, f, v->size)) != ERR_OK)
        return rc;
    for (size_t i = 0; i < v->size; i++, term = t->nodes + term->end) {
        static const struct json_node absent = {.type = JSON_STRING};
        const struct json_node *s = NULL, *g = NULL;
        if (term->type == JSON_OBJECT) {
            s = json_member(t->nodes, term, "source");
            g = json_member(t->nodes, term, "target");
        }
        s = s ? s : &absent;
        g = g ? g : &absent;
        if (term->type != JSON_OBJECT || s->type != JSON_STRING || g->type != JSON_STRING)
            return err_set(t->in->e, ERR_INVALID_FIELD, ERR_SKIP, "%s[%zu]: expected {source, target} of strings",
                           f->path, i);
        if ((rc = message_put_term(t->in, f, i, s->text.s, s->text.n, g->text.s, g->text.n)) != ERR_OK)
            return rc;
    }
    return ERR_OK;
}

static enum err_code read_pairs(const struct tree *t, const struct field *f, const struct json_node *v)
{
    const struct json_node *m = v + 1;
    enum err_code rc;

    if (v->type != JSON_OBJECT)
        return message_mistyped(t->in, f, json_type_name(v->type));
    if ((rc = message_put_count(t->in, f, v->size)) != ERR_OK)
        return rc;
    for (size_t i = 0; i < v->size; i++, m = t->nodes + m->end) {
        if (m->type != JSON_STRING)
            return err_set(t->in->e, ERR_INVALID_FIELD, ERR_SKIP, "%s: key \"%.*s\": expected a string, found %s",
                           f->path, (int)(m->key.n < 60 ? m->key.n : 60), m->key.s, json_type_name(m->type));
        if ((rc = message_put_pair(t->in, f, i, m->key.s, m->key.n, m->text.s, m->text.n)) != ERR_OK)
            return rc;
    }
    return ERR_OK;
}

static enum err_code read_fields(const struct tree *t, const struct field *fields, size_t n, const struct json_node *o);

static enum err_code read_field(const struct tree *t, const struct field *f, const struct json_node *v)
{
    switch (f->kind) {
    case FIELD_TEXT:
        if (v->type == JSON_STRING)
            return message_put_text(t->in, f, v->text.s, v->text.n);
        break;
    case FIELD_SYMBOL:
        if (v->type == JSON_STRING)
            return message_put_symbol(t->in, f, v->text.s, v->text.n);
        break;
    case FIELD_INT:
    case FIELD_LONG:
    case FIELD_TIME:
    case FIELD_DOUBLE:
        if (v->type == JSON_INTEGER)
            return message_put_int(t->in, f, v->integer);
        if (v->type == JSON_REAL)
            return message_put_double(t->in, f, v->real);
        break;
    case FIELD_TERMS: return read_terms(t, f, v);
    case FIELD_PAIRS: return read_pairs(t, f, v);
    case FIELD_GROUP:
        if (v->type == JSON_OBJECT)
            return read_fields(t, f->fields, f->n_fields, v);
        break;
    }
    return message_mistyped(t->in, f, json_type_name(v->type));
}

static enum err_code read_fields(const struct tree *t, const struct field *fields, size_t n, const struct json_node *o)
{
    enum err_code rc;

    for (size_t i = 0; i < n; i++) {
        const struct json_node *v = json_member(t->nodes, o, fields[i].name);
        if (v && v->type != JSON_NULL && (rc = read_field(t, &fields[i], v)) != ERR_OK)
            return rc;
    }
    return ERR_OK;
}

static enum err_code read_root(const struct message *m, const struct intake *in, const struct json_node *nodes)
{
    const struct tree t = {.in = in, .nodes = nodes};

    if (nodes->type != JSON_OBJECT)
        return err_set(in->e, ERR_UNDECODABLE, ERR_SKIP, "JSON: expected an object, found %s",
                       json_type_name(nodes->type));
    return read_fields(&t, m->fields, m->n_fields, nodes);
}

/* By jansson: long lists, escapes, and what is no JSON. */
static enum err_code decode_any(const struct message *m, const struct intake *in, const char *s, size_t n)
{
    enum err_code rc = check_shape(s, n, in->e);
    struct json_node *nodes = NULL;
    json_error_t je;
    json_t *root;

    if (rc != ERR_OK)
        return rc;
    root = json_loadb(s, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &je);
    if (root && (nodes = malloc(json_count_tree(root) * sizeof *nodes))) {
        json_read_tree(nodes, root);
        rc = read_root(m, in, nodes);
    } else if (root || json_error_code(&je) == json_error_out_of_memory) {
        rc = err_set(in->e, ERR_NOMEM, ERR_RETRY, "JSON: out of memory");
    } else {
        rc = err_set(in->e, ERR_UNDECODABLE, ERR_SKIP, "JSON: byte %d: %.150s", je.position, je.text);
    }
    free(nodes);
    json_decref(root);
    return rc;
}

enum err_code json_codec_decode(const struct message *m, const struct intake *in, const char *s, size_t n)
{
    struct json_node nodes[JSON_USUAL_NODES];
    size_t valid = utf8_valid(s, n);

    if (valid != n)
        return err_set(in->e, ERR_INVALID_UTF8, ERR_SKIP, "JSON: byte %zu is not valid UTF-8 (0x%02X)", valid,
                       (unsigned char)s[valid]);
    if (!json_read_usual(nodes, s, n))
        return decode_any(m, in, s, n);
    struct intake here = *in;
    here.in_place = true; /* the usual texts have no escapes */
    return read_root(m, &here, nodes);
}

enum { USUAL_BYTES = 1024 }; /* of a written message */

static bool put_text(struct json_writer *w, struct text t)
{
    return json_put_text(w, (struct text){t.s ? t.s : "", t.n});
}

/* "key": of an object, which n members were written to before. */
static bool put_key(struct json_writer *w, struct text key, size_t n)
{
    if (n > 0)
        json_put(w, ",", 1);
    if (!put_text(w, key))
        return false;
    json_put(w, ":", 1);
    return true;
}

static bool write_terms(struct json_writer *w, const struct term *t, size_t n)
{
    static const struct text source = {"source", 6}, target = {"target", 6};

    json_put(w, "[", 1);
    for (size_t i = 0; i < n; i++) {
        json_put(w, ",{" + (i == 0), 1 + (i > 0));
        if (!put_key(w, source, 0) || !put_text(w, t[i].source) || !put_key(w, target, 1) || !put_text(w, t[i].target))
            return false;
        json_put(w, "}", 1);
    }
    json_put(w, "]", 1);
    return true;
}

static bool is_same(struct text a, struct text b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.s, b.s, a.n) == 0);
}

/* Avro may bring a key twice, JSON may not have it so: the last value counts. */
static bool write_pairs(struct json_writer *w, const struct pair *p, size_t n)
{
    size_t written = 0;

    json_put(w, "{", 1);
    for (size_t i = 0; i < n; i++) {
        const struct pair *last = &p[i];
        bool was_there = false;
        for (size_t k = 0; k < i && !was_there; k++)
            was_there = is_same(p[k].key, p[i].key);
        if (was_there)
            continue;
        for (size_t k = i + 1; k < n; k++)
            if (is_same(p[k].key, p[i].key))
                last = &p[k];
        if (!put_key(w, p[i].key, written++) || !put_text(w, last->value))
            return false;
    }
    json_put(w, "}", 1);
    return true;
}

static bool write_fields(struct json_writer *w, const struct field *fields, size_t n, const void *base,
                         const char **failed);

static bool write_real(struct json_writer *w, double v)
{
    if (!isfinite(v))
        return false;
    json_put_real(w, v);
    return true;
}

/* false: a text that is not UTF-8, a number that JSON cannot say */
static bool write_field(struct json_writer *w, const struct field *f, const void *base, const char **failed)
{
    const void *at = message_at(f, base);

    switch (f->kind) {
    case FIELD_TEXT: return put_text(w, *(const struct text *)at);
    case FIELD_SYMBOL: {
        const char *symbol = f->symbols[*(const int *)at];
        return put_text(w, (struct text){symbol, strlen(symbol)});
    }
    case FIELD_INT: json_put_int(w, *(const int32_t *)at); return true;
    case FIELD_LONG:
    case FIELD_TIME: json_put_int(w, *(const int64_t *)at); return true;
    case FIELD_DOUBLE: return write_real(w, *(const double *)at);
    case FIELD_TERMS: return write_terms(w, *(struct term *const *)at, message_count(f, base));
    case FIELD_PAIRS: return write_pairs(w, *(const struct pair *const *)at, message_count(f, base));
    case FIELD_GROUP: return write_fields(w, f->fields, f->n_fields, base, failed);
    }
    return false;
}

static bool write_fields(struct json_writer *w, const struct field *fields, size_t n, const void *base,
                         const char **failed)
{
    size_t written = 0;

    json_put(w, "{", 1);
    for (size_t i = 0; i < n; i++) {
        if (!message_has(&fields[i], base))
            continue;
        size_t without_comma = written++ == 0;
        json_put(w, fields[i].key.s + without_comma, fields[i].key.n - without_comma);
        if (!write_field(w, &fields[i], base, failed)) {
            if (!*failed)
                *failed = fields[i].path;
            return false;
        }
    }
    json_put(w, "}", 1);
    return true;
}

enum err_code json_codec_encode(const struct message *m, const void *base, struct arena *a, struct text *out,
                                struct err *e)
{
    struct json_writer w = {.cap = USUAL_BYTES};
    const char *failed = NULL;

    /* Most fit the guess; what does not is written again, now that its size is known. */
    for (int i = 0; i < 2; i++) {
        if (!(w.buf = arena_take(a, w.cap)))
            return err_set(e, ERR_NOMEM, ERR_RETRY, "JSON: out of memory for %zu bytes", w.cap);
        if (!write_fields(&w, m->fields, m->n_fields, base, &failed))
            return err_set(e, ERR_INVALID_UTF8, ERR_SKIP, "JSON: %s: not valid UTF-8, or not a finite number",
                           failed ? failed : m->name);
        if (w.n <= w.cap)
            break;
        w = (struct json_writer){.cap = w.n};
    }
    *out = (struct text){w.buf, w.n};
    return ERR_OK;
}
