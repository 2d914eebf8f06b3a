#include "wire/schema.h"

#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* The one global of wire/: it guards a global of avro-c. */
static pthread_mutex_t avro_mutex = PTHREAD_MUTEX_INITIALIZER;

void avro_lock(void)
{
    pthread_mutex_lock(&avro_mutex);
}

void avro_unlock(void)
{
    pthread_mutex_unlock(&avro_mutex);
}

uint64_t crc64_avro(const void *data, size_t n)
{
    const uint64_t empty = 0xC15D213AA4D7A795u;
    const unsigned char *p = data;
    uint64_t fp = empty;

    /* bit by bit: a schema is hashed once in its life */
    for (size_t i = 0; i < n; i++) {
        fp ^= p[i];
        for (int bit = 0; bit < 8; bit++)
            fp = fp >> 1 ^ (empty & -(fp & 1));
    }
    return fp;
}

/* What a type costs, from which the walk's bounds follow. */
struct measure {
    bool takes_bytes; /* every value of it has at least one byte */
    int depth;
    uint32_t expanded;
};

struct named {
    char *name; /* full */
    bool open;  /* its definition is still being read: a reference now is a recursion */
    struct measure m;
};

struct buffer {
    char *s;
    size_t n, cap;
};

struct parse {
    struct buffer canonical; /* the parsing canonical form: for the fingerprint */
    /* the same with T0, T1, ... for the names of types, which avro-c would put into namespaces of its own choice */
    struct buffer plain;
    struct named *named;
    size_t n_named;
    size_t nodes;
    struct err *e;
};

static enum err_code parse_type(struct parse *p, const json_t *j, const char *space, int depth, struct measure *m);

#define REFUSE(p, ...) err_set((p)->e, ERR_UNKNOWN_SCHEMA, ERR_SKIP, "schema refused: " __VA_ARGS__)

static enum err_code append(struct parse *p, struct buffer *b, const char *s, size_t n)
{
    if (n > b->cap - b->n) {
        size_t cap = (b->cap + n) * 2;
        char *bigger = realloc(b->s, cap);
        if (!bigger)
            return err_set(p->e, ERR_NOMEM, ERR_RETRY, "schema: out of memory");
        b->s = bigger;
        b->cap = cap;
    }
    memcpy(b->s + b->n, s, n);
    b->n += n;
    return ERR_OK;
}

static enum err_code emit(struct parse *p, const char *s)
{
    enum err_code rc = append(p, &p->canonical, s, strlen(s));

    return rc == ERR_OK ? append(p, &p->plain, s, strlen(s)) : rc;
}

/* before "name" after; a name needs no escapes, it was checked */
static enum err_code emit_name(struct parse *p, const char *before, const char *name, const char *after)
{
    enum err_code rc = emit(p, before);

    if (rc == ERR_OK)
        rc = emit(p, name);
    return rc == ERR_OK ? emit(p, after) : rc;
}

/* The quoted name of the type at index of the table. */
static enum err_code emit_type(struct parse *p, size_t index)
{
    const char *name = p->named[index].name;
    enum err_code rc;
    char plain[32];

    snprintf(plain, sizeof plain, "T%zu", index);
    if ((rc = emit(p, "\"")) != ERR_OK || (rc = append(p, &p->canonical, name, strlen(name))) != ERR_OK ||
        (rc = append(p, &p->plain, plain, strlen(plain))) != ERR_OK)
        return rc;
    return emit(p, "\"");
}

static bool is_name(const char *s, size_t n)
{
    if (n == 0 || (s[0] >= '0' && s[0] <= '9'))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!((s[i] >= 'A' && s[i] <= 'Z') || (s[i] >= 'a' && s[i] <= 'z') || s[i] == '_' ||
              (s[i] >= '0' && s[i] <= '9')))
            return false;
    return true;
}

static bool is_full_name(const char *s)
{
    if (strlen(s) > SCHEMA_MAX_NAME)
        return false;
    for (;;) {
        size_t n = strcspn(s, ".");
        if (!is_name(s, n))
            return false;
        if (s[n] == '\0')
            return true;
        s += n + 1;
    }
}

static bool is_primitive(const char *t, struct measure *m)
{
    static const char *const names[] = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(t, names[i]) == 0) {
            *m = (struct measure){.takes_bytes = i != 0, .depth = 1, .expanded = 1};
            return true;
        }
    }
    return false;
}

static struct named *find_named(struct parse *p, const char *name)
{
    for (size_t i = 0; i < p->n_named; i++)
        if (strcmp(p->named[i].name, name) == 0)
            return &p->named[i];
    return NULL;
}

/* space.name, or name where it has a dot or space is empty; buf holds 2 * SCHEMA_MAX_NAME + 2 bytes */
static void qualify(char *buf, const char *name, const char *space)
{
    buf[0] = '\0';
    if (!strchr(name, '.') && space[0]) {
        strcpy(buf, space);
        strcat(buf, ".");
    }
    strcat(buf, name);
}

static enum err_code parse_reference(struct parse *p, const char *name, const char *space, struct measure *m)
{
    char full[2 * SCHEMA_MAX_NAME + 2];
    struct named *found;

    if (is_primitive(name, m))
        return emit_name(p, "\"", name, "\"");
    if (!is_full_name(name))
        return REFUSE(p, "\"%.60s\" is no type", name);
    qualify(full, name, space);
    found = find_named(p, full);
    if (!found)
        found = find_named(p, name);
    if (!found)
        return REFUSE(p, "type \"%.100s\" is not defined", full);
    if (found->open)
        return REFUSE(p, "type \"%.100s\" is recursive", full);
    *m = found->m;
    return emit_type(p, (size_t)(found - p->named));
}

/* Reads name and namespace of a definition, remembers it as open and emits its head.  *index stays valid when the table
 * grows; *space is the namespace inside, in buf. */
static enum err_code open_named(struct parse *p, const json_t *j, const char *type, const char *space, size_t *index,
                                char *inner)
{
    const char *name = json_string_value(json_object_get(j, "name"));
    const json_t *ns = json_object_get(j, "namespace");
    char full[2 * SCHEMA_MAX_NAME + 2];
    struct measure m;
    enum err_code rc;

    *index = 0;
    if (!name || !is_full_name(name) || is_primitive(name, &m))
        return REFUSE(p, "a %s without a valid name", type);
    if (ns) {
        space = json_string_value(ns);
        if (!space || (space[0] && !is_full_name(space)))
            return REFUSE(p, "%s \"%.60s\": namespace is no name", type, name);
    }
    qualify(full, name, space);
    if (strlen(full) > SCHEMA_MAX_NAME)
        return REFUSE(p, "a name over %d bytes", SCHEMA_MAX_NAME);
    if (find_named(p, full))
        return REFUSE(p, "\"%.100s\" is defined twice", full);
    if (p->n_named == SCHEMA_MAX_NAMED)
        return REFUSE(p, "more than %d named types", SCHEMA_MAX_NAMED);
    *index = p->n_named;
    p->named[*index] = (struct named){.name = strdup(full), .open = true};
    if (!p->named[*index].name)
        return err_set(p->e, ERR_NOMEM, ERR_RETRY, "schema: out of memory");
    p->n_named++;
    char *dot = strrchr(full, '.');
    if (dot)
        *dot = '\0';
    strcpy(inner, dot ? full : "");
    if ((rc = emit(p, "{\"name\":")) != ERR_OK || (rc = emit_type(p, *index)) != ERR_OK)
        return rc;
    return emit_name(p, ",\"type\":\"", type, "\"");
}

static enum err_code close_named(struct parse *p, size_t index, const struct measure *m, const char *end)
{
    p->named[index].open = false;
    p->named[index].m = *m;
    return emit(p, end);
}

static enum err_code parse_field(struct parse *p, const json_t *fields, size_t i, const char *space, int depth,
                                 struct measure *m)
{
    const json_t *f = json_array_get(fields, i), *type = json_object_get(f, "type");
    const char *name = json_string_value(json_object_get(f, "name"));
    enum err_code rc;

    if (!name || !is_name(name, strlen(name)) || strlen(name) > SCHEMA_MAX_NAME)
        return REFUSE(p, "field %zu of a record has no valid name", i);
    for (size_t k = 0; k < i; k++)
        if (strcmp(json_string_value(json_object_get(json_array_get(fields, k), "name")), name) == 0)
            return REFUSE(p, "field \"%.60s\" stands twice in a record", name);
    if (!type)
        return REFUSE(p, "field \"%.60s\" has no type", name);
    if ((rc = emit_name(p, i ? ",{\"name\":\"" : "{\"name\":\"", name, "\",\"type\":")) != ERR_OK ||
        (rc = parse_type(p, type, space, depth, m)) != ERR_OK)
        return rc;
    return emit(p, "}");
}

static enum err_code parse_record(struct parse *p, const json_t *j, const char *space, int depth, struct measure *m)
{
    const json_t *fields = json_object_get(j, "fields");
    char inner[2 * SCHEMA_MAX_NAME + 2];
    struct measure sum = {.depth = 1, .expanded = 1}, one = {0};
    enum err_code rc;
    size_t index;

    if ((rc = open_named(p, j, "record", space, &index, inner)) != ERR_OK)
        return rc;
    if (!json_is_array(fields) || json_array_size(fields) == 0)
        return REFUSE(p, "record \"%.100s\" has no fields", p->named[index].name);
    if (json_array_size(fields) > SCHEMA_MAX_FIELDS)
        return REFUSE(p, "record \"%.100s\" has more than %d fields", p->named[index].name, SCHEMA_MAX_FIELDS);
    if ((rc = emit(p, ",\"fields\":[")) != ERR_OK)
        return rc;
    for (size_t i = 0; i < json_array_size(fields); i++) {
        if ((rc = parse_field(p, fields, i, inner, depth + 1, &one)) != ERR_OK)
            return rc;
        sum.takes_bytes |= one.takes_bytes;
        sum.expanded += one.expanded;
        if (sum.depth < one.depth + 1)
            sum.depth = one.depth + 1;
        if (sum.expanded > SCHEMA_MAX_EXPANDED)
            return REFUSE(p, "it expands to more than %d types", SCHEMA_MAX_EXPANDED);
    }
    *m = sum;
    return close_named(p, index, m, "]}");
}

static enum err_code parse_enum(struct parse *p, const json_t *j, const char *space, struct measure *m)
{
    const json_t *symbols = json_object_get(j, "symbols");
    char inner[2 * SCHEMA_MAX_NAME + 2];
    enum err_code rc;
    size_t index;

    if ((rc = open_named(p, j, "enum", space, &index, inner)) != ERR_OK)
        return rc;
    if (!json_is_array(symbols) || json_array_size(symbols) == 0)
        return REFUSE(p, "enum \"%.100s\" has no symbols", p->named[index].name);
    p->nodes += json_array_size(symbols);
    if (p->nodes > SCHEMA_MAX_NODES)
        return REFUSE(p, "more than %d types, fields and symbols", SCHEMA_MAX_NODES);
    if ((rc = emit(p, ",\"symbols\":[")) != ERR_OK)
        return rc;
    for (size_t i = 0; i < json_array_size(symbols); i++) {
        const char *s = json_string_value(json_array_get(symbols, i));
        if (!s || !is_name(s, strlen(s)) || strlen(s) > SCHEMA_MAX_NAME)
            return REFUSE(p, "enum \"%.100s\": symbol %zu is no name", p->named[index].name, i);
        for (size_t k = 0; k < i; k++)
            if (strcmp(json_string_value(json_array_get(symbols, k)), s) == 0)
                return REFUSE(p, "enum \"%.100s\": symbol \"%.60s\" stands twice", p->named[index].name, s);
        if ((rc = emit_name(p, i ? ",\"" : "\"", s, "\"")) != ERR_OK)
            return rc;
    }
    *m = (struct measure){.takes_bytes = true, .depth = 1, .expanded = 1};
    return close_named(p, index, m, "]}");
}

static enum err_code parse_fixed(struct parse *p, const json_t *j, const char *space, struct measure *m)
{
    const json_t *size = json_object_get(j, "size");
    char inner[2 * SCHEMA_MAX_NAME + 2], digits[40];
    enum err_code rc;
    size_t index;

    if ((rc = open_named(p, j, "fixed", space, &index, inner)) != ERR_OK)
        return rc;
    if (!json_is_integer(size) || json_integer_value(size) < 1 || json_integer_value(size) > SCHEMA_MAX_FIXED)
        return REFUSE(p, "fixed \"%.100s\": size must be 1 to %d", p->named[index].name, SCHEMA_MAX_FIXED);
    snprintf(digits, sizeof digits, ",\"size\":%d", (int)json_integer_value(size));
    if ((rc = emit(p, digits)) != ERR_OK)
        return rc;
    *m = (struct measure){.takes_bytes = true, .depth = 1, .expanded = 1};
    return close_named(p, index, m, "}");
}

/* array: what = "items"; map: what = "values" */
static enum err_code parse_items(struct parse *p, const json_t *j, const char *type, const char *what,
                                 const char *space, int depth, struct measure *m)
{
    const json_t *items = json_object_get(j, what);
    enum err_code rc;

    if (!items)
        return REFUSE(p, "%s without %s", type, what);
    if ((rc = emit_name(p, "{\"type\":\"", type, "\",\"")) != ERR_OK ||
        (rc = emit_name(p, "", what, "\":")) != ERR_OK || (rc = parse_type(p, items, space, depth + 1, m)) != ERR_OK)
        return rc;
    if (!m->takes_bytes)
        return REFUSE(p, "%s whose %s take no bytes", type, what);
    m->depth++;
    m->expanded++;
    return emit(p, "}");
}

/* Two branches of a union must differ: in type, or in name where they have one. */
static bool same_branch(const json_t *a, const json_t *b)
{
    const char *ta = json_is_object(a) ? json_string_value(json_object_get(a, "type")) : json_string_value(a);
    const char *tb = json_is_object(b) ? json_string_value(json_object_get(b, "type")) : json_string_value(b);

    if (!ta || !tb || strcmp(ta, tb) != 0)
        return false;
    return strcmp(ta, "record") != 0 && strcmp(ta, "enum") != 0 && strcmp(ta, "fixed") != 0;
}

static enum err_code parse_union(struct parse *p, const json_t *j, const char *space, int depth, struct measure *m)
{
    struct measure sum = {.takes_bytes = true, .depth = 1, .expanded = 1}, one = {0};
    size_t n = json_array_size(j);
    enum err_code rc;

    if (n == 0)
        return REFUSE(p, "a union without branches");
    if (n > SCHEMA_MAX_BRANCHES)
        return REFUSE(p, "a union of more than %d branches", SCHEMA_MAX_BRANCHES);
    if ((rc = emit(p, "[")) != ERR_OK)
        return rc;
    for (size_t i = 0; i < n; i++) {
        const json_t *branch = json_array_get(j, i);
        if (json_is_array(branch))
            return REFUSE(p, "a union in a union");
        for (size_t k = 0; k < i; k++)
            if (same_branch(json_array_get(j, k), branch))
                return REFUSE(p, "a union with the same branch twice");
        if ((i && (rc = emit(p, ",")) != ERR_OK) || (rc = parse_type(p, branch, space, depth + 1, &one)) != ERR_OK)
            return rc;
        sum.expanded += one.expanded;
        if (sum.depth < one.depth + 1)
            sum.depth = one.depth + 1;
        if (sum.expanded > SCHEMA_MAX_EXPANDED)
            return REFUSE(p, "it expands to more than %d types", SCHEMA_MAX_EXPANDED);
    }
    *m = sum;
    return emit(p, "]");
}

static enum err_code parse_object(struct parse *p, const json_t *j, const char *space, int depth, struct measure *m)
{
    const char *type = json_string_value(json_object_get(j, "type"));

    if (!type)
        return REFUSE(p, "an object whose \"type\" is no string");
    if (strcmp(type, "record") == 0)
        return parse_record(p, j, space, depth, m);
    if (strcmp(type, "enum") == 0)
        return parse_enum(p, j, space, m);
    if (strcmp(type, "fixed") == 0)
        return parse_fixed(p, j, space, m);
    if (strcmp(type, "array") == 0)
        return parse_items(p, j, "array", "items", space, depth, m);
    if (strcmp(type, "map") == 0)
        return parse_items(p, j, "map", "values", space, depth, m);
    return parse_reference(p, type, space, m);
}

static enum err_code parse_type(struct parse *p, const json_t *j, const char *space, int depth, struct measure *m)
{
    enum err_code rc;

    *m = (struct measure){0};
    if (depth > SCHEMA_MAX_DEPTH)
        return REFUSE(p, "more than %d levels deep", SCHEMA_MAX_DEPTH);
    if (++p->nodes > SCHEMA_MAX_NODES)
        return REFUSE(p, "more than %d types, fields and symbols", SCHEMA_MAX_NODES);
    if (json_is_string(j))
        rc = parse_reference(p, json_string_value(j), space, m);
    else if (json_is_array(j))
        rc = parse_union(p, j, space, depth, m);
    else if (json_is_object(j))
        rc = parse_object(p, j, space, depth, m);
    else
        rc = REFUSE(p, "a type that is no string, array or object");
    if (rc != ERR_OK)
        return rc;
    /* by way of names a schema can be deeper than it is written */
    if (depth - 1 + m->depth > SCHEMA_MAX_DEPTH)
        return REFUSE(p, "more than %d levels deep", SCHEMA_MAX_DEPTH);
    if (m->expanded > SCHEMA_MAX_EXPANDED)
        return REFUSE(p, "it expands to more than %d types", SCHEMA_MAX_EXPANDED);
    return ERR_OK;
}

static bool is_micros(const json_t *type)
{
    const char *logical = json_string_value(json_object_get(type, "logicalType"));

    return logical && strcmp(logical, "timestamp-micros") == 0;
}

/* The canonical form has no logical types, so the one that matters is looked up in the text. */
static bool find_deadline_micros(const json_t *root)
{
    const json_t *fields = json_object_get(root, "fields"), *f, *branch;
    size_t i, k;

    json_array_foreach(fields, i, f)
    {
        const json_t *type = json_object_get(f, "type");
        if (strcmp(json_string_value(json_object_get(f, "name")), "deadline") != 0)
            continue;
        if (is_micros(type))
            return true;
        json_array_foreach(type, k, branch) if (is_micros(branch)) return true;
    }
    return false;
}

static enum err_code build_avro(struct schema *s, const struct buffer *plain, struct err *e)
{
    enum err_code rc = ERR_OK;

    avro_lock();
    if (avro_schema_from_json_length(plain->s, plain->n, &s->avro) != 0) {
        s->avro = NULL;
        rc = err_set(e, ERR_UNKNOWN_SCHEMA, ERR_SKIP, "schema refused: %.200s", avro_strerror());
    } else if (!(s->iface = avro_generic_class_from_schema(s->avro))) {
        rc = err_set(e, ERR_NOMEM, ERR_RETRY, "schema: %.200s", avro_strerror());
    }
    avro_unlock();
    return rc;
}

enum err_code schema_open(struct schema **out, const char *text, size_t n, struct err *e)
{
    struct parse p = {.e = e};
    struct schema *s = NULL;
    struct measure m;
    json_t *root = NULL;
    json_error_t je;
    enum err_code rc;

    *out = NULL;
    if (n > SCHEMA_MAX_TEXT)
        return err_set(e, ERR_UNKNOWN_SCHEMA, ERR_SKIP, "schema refused: %zu bytes, at most %d are allowed", n,
                       SCHEMA_MAX_TEXT);
    s = calloc(1, sizeof *s);
    p.named = calloc(SCHEMA_MAX_NAMED, sizeof *p.named);
    if (!s || !p.named) {
        rc = err_set(e, ERR_NOMEM, ERR_RETRY, "schema: out of memory");
        goto out;
    }
    root = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &je);
    if (!root) {
        rc = REFUSE(&p, "line %d is not valid JSON: %.120s", je.line, je.text);
        goto out;
    }
    if ((rc = parse_type(&p, root, "", 1, &m)) != ERR_OK)
        goto out;
    const char *type = json_string_value(json_object_get(root, "type"));
    if (!type || strcmp(type, "record") != 0) {
        rc = REFUSE(&p, "its outermost type is no record");
        goto out;
    }
    if ((rc = build_avro(s, &p.plain, e)) != ERR_OK)
        goto out;
    s->fingerprint = crc64_avro(p.canonical.s, p.canonical.n);
    s->deadline_micros = find_deadline_micros(root);
    *out = s;
    s = NULL; /* moved to the caller */
out:
    for (size_t i = 0; i < p.n_named; i++)
        free(p.named[i].name);
    free(p.named);
    free(p.canonical.s);
    free(p.plain.s);
    json_decref(root);
    schema_close(s);
    return rc;
}

void schema_close(struct schema *s)
{
    if (!s)
        return;
    avro_lock();
    if (s->iface)
        avro_value_iface_decref(s->iface);
    if (s->avro)
        avro_schema_decref(s->avro);
    avro_unlock();
    free(s);
}
