#include "wire/json_reader.h"

#include <string.h>

enum { MAX_DEPTH = 4, INTEGER_DIGITS = 18, REAL_DIGITS = 15 };

struct reader {
    const char *at, *end;
    struct json_node *nodes;
    size_t n;
};

static void skip_space(struct reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r'))
        r->at++;
}

/* The next character behind white space, taken if it is c. */
static bool take(struct reader *r, char c)
{
    skip_space(r);
    if (r->at == r->end || *r->at != c)
        return false;
    r->at++;
    return true;
}

static bool take_word(struct reader *r, const char *word)
{
    size_t n = strlen(word);

    if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n) != 0)
        return false;
    r->at += n;
    return true;
}

/* Behind the opening quote. */
static bool read_text(struct reader *r, struct text *out)
{
    const char *begin = r->at;

    for (; r->at < r->end && *r->at != '"'; r->at++)
        if (*r->at == '\\' || (unsigned char)*r->at < 0x20)
            return false;
    if (r->at == r->end)
        return false;
    *out = (struct text){begin, (size_t)(r->at - begin)};
    r->at++;
    return true;
}

/* Digits into *v, which starts at what came before; returns how many. */
static int read_digits(struct reader *r, int64_t *v, int most)
{
    int n = 0;

    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9' && n <= most; r->at++, n++)
        *v = n < most ? *v * 10 + (*r->at - '0') : *v;
    return n;
}

/* Up to 15 digits are a double's own, and a power of ten up to the 22nd is exact: so their quotient is rounded once, as
 * strtod() rounds. */
static bool read_number(struct reader *r, struct json_node *node)
{
    static const double tens[REAL_DIGITS + 1] = {1,   1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                                 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    bool negative = r->at < r->end && *r->at == '-';
    int64_t v = 0;
    int whole, part = 0;

    r->at += negative;
    const char *first = r->at;
    whole = read_digits(r, &v, INTEGER_DIGITS);
    if (whole == 0 || whole > INTEGER_DIGITS || (whole > 1 && *first == '0'))
        return false;
    if (r->at < r->end && *r->at == '.') {
        r->at++;
        if (whole > REAL_DIGITS || (part = read_digits(r, &v, REAL_DIGITS - whole)) == 0 || whole + part > REAL_DIGITS)
            return false;
        node->type = JSON_REAL;
        node->real = (double)v / tens[part];
        node->real = negative ? -node->real : node->real;
    } else {
        node->type = JSON_INTEGER;
        node->integer = negative ? -v : v;
    }
    return r->at < r->end && *r->at != 'e' && *r->at != 'E' && *r->at != '.'; /* it is inside of an object */
}

static bool read_value(struct reader *r, struct text key, int depth);

static bool is_new(const struct reader *r, const struct json_node *object, struct text key)
{
    const struct json_node *c = object + 1;

    for (size_t i = 0; i < object->size; i++, c = r->nodes + c->end)
        if (c->key.n == key.n && memcmp(c->key.s, key.s, key.n) == 0)
            return false;
    return true;
}

/* Behind the opening bracket. */
static bool read_container(struct reader *r, struct json_node *node, int depth)
{
    char closing = node->type == JSON_OBJECT ? '}' : ']';
    struct text key = {NULL, 0};

    if (depth == MAX_DEPTH)
        return false;
    if (take(r, closing))
        return true;
    do {
        if (node->type == JSON_OBJECT &&
            (!take(r, '"') || !read_text(r, &key) || !is_new(r, node, key) || !take(r, ':')))
            return false;
        if (!read_value(r, key, depth + 1))
            return false;
        node->size++;
    } while (take(r, ','));
    return take(r, closing);
}

static bool read_value(struct reader *r, struct text key, int depth)
{
    struct json_node *node = &r->nodes[r->n];
    bool good;

    skip_space(r);
    if (r->at == r->end || r->n == JSON_USUAL_NODES)
        return false;
    r->n++;
    *node = (struct json_node){.key = key};
    switch (*r->at) {
    case '{':
    case '[':
        node->type = *r->at++ == '{' ? JSON_OBJECT : JSON_ARRAY;
        good = read_container(r, node, depth);
        break;
    case '"':
        r->at++;
        node->type = JSON_STRING;
        good = read_text(r, &node->text);
        break;
    case 't':
        node->type = JSON_TRUE;
        good = take_word(r, "true");
        break;
    case 'f':
        node->type = JSON_FALSE;
        good = take_word(r, "false");
        break;
    case 'n':
        node->type = JSON_NULL;
        good = take_word(r, "null");
        break;
    default: good = read_number(r, node); break;
    }
    node->end = r->n;
    return good;
}

bool json_read_usual(struct json_node nodes[JSON_USUAL_NODES], const char *s, size_t n)
{
    struct reader r = {.at = s, .end = s + n, .nodes = nodes};

    skip_space(&r);
    if (r.at == r.end || *r.at != '{' || !read_value(&r, (struct text){NULL, 0}, 0))
        return false;
    skip_space(&r);
    return r.at == r.end;
}

/* ---- jansson's ---- */

size_t json_count_tree(const json_t *root)
{
    size_t n = 1, i;
    const char *key;
    json_t *v;

    if (json_is_object(root)) {
        json_object_foreach((json_t *)root, key, v) n += json_count_tree(v);
    } else if (json_is_array(root)) {
        json_array_foreach(root, i, v) n += json_count_tree(v);
    }
    return n;
}

static size_t put_tree(struct json_node *nodes, size_t at, struct text key, json_t *root)
{
    struct json_node *node = &nodes[at++];
    const char *name;
    size_t i;
    json_t *v;

    *node = (struct json_node){.type = json_typeof(root), .key = key};
    switch (node->type) {
    case JSON_OBJECT:
        json_object_foreach(root, name, v) at = put_tree(nodes, at, (struct text){name, strlen(name)}, v);
        node->size = json_object_size(root);
        break;
    case JSON_ARRAY:
        json_array_foreach(root, i, v) at = put_tree(nodes, at, (struct text){NULL, 0}, v);
        node->size = json_array_size(root);
        break;
    case JSON_STRING: node->text = (struct text){json_string_value(root), json_string_length(root)}; break;
    case JSON_INTEGER: node->integer = json_integer_value(root); break;
    case JSON_REAL: node->real = json_real_value(root); break;
    default: break;
    }
    node->end = at;
    return at;
}

void json_read_tree(struct json_node *nodes, json_t *root)
{
    (void)put_tree(nodes, 0, (struct text){NULL, 0}, root); /* as many as were counted */
}

const struct json_node *json_member(const struct json_node *nodes, const struct json_node *object, const char *key)
{
    size_t n = strlen(key);
    const struct json_node *c = object + 1;

    for (size_t i = 0; i < object->size; i++, c = nodes + c->end)
        if (c->key.n == n && memcmp(c->key.s, key, n) == 0)
            return c;
    return NULL;
}
