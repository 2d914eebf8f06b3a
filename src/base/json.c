#include "base/json.h"

#include "base/file.h"

enum err_code json_load_path(json_t **out, const char *path, size_t max_bytes, struct err *e)
{
    json_error_t je;
    enum err_code rc;
    size_t size;
    FILE *f;

    *out = NULL;
    if ((rc = file_open(&f, path, &size, NULL, e)) != ERR_OK)
        return rc;
    if (size > max_bytes) {
        rc = err_set(e, ERR_MODEL, ERR_STOP, "%s: %zu bytes, at most %zu are allowed", path, size, max_bytes);
    } else {
        *out = json_loadf(f, JSON_REJECT_DUPLICATES, &je);
        if (!*out)
            rc = err_set(e, ERR_MODEL, ERR_STOP, "%s: line %d: not valid JSON: %s", path, je.line, je.text);
    }
    fclose(f);
    return rc;
}

const char *json_type_name(json_type t)
{
    switch (t) {
    case JSON_OBJECT: return "object";
    case JSON_ARRAY: return "array";
    case JSON_STRING: return "string";
    case JSON_INTEGER: return "integer";
    case JSON_REAL: return "real number";
    case JSON_TRUE:
    case JSON_FALSE: return "boolean";
    case JSON_NULL: return "null";
    }
    return "?";
}

const char *json_kind(const json_t *v)
{
    return v ? json_type_name(json_typeof(v)) : "nothing";
}

/* The value, or NULL when it is absent or null. */
static const json_t *get(const json_t *o, const char *key, bool *found)
{
    const json_t *v = json_object_get(o, key);

    if (json_is_null(v))
        v = NULL;
    *found = v != NULL;
    return v;
}

static enum err_code mistyped(const json_t *v, const char *where, const char *key, const char *want, struct err *e)
{
    return err_set(e, ERR_MODEL, ERR_STOP, "%s: %s: expected %s, found %s", where, key, want, json_kind(v));
}

enum err_code json_get_int(const json_t *o, const char *where, const char *key, int64_t min, int64_t max, int64_t *out,
                           bool *found, struct err *e)
{
    const json_t *v = get(o, key, found);

    if (!v)
        return ERR_OK;
    if (!json_is_integer(v))
        return mistyped(v, where, key, "an integer", e);
    int64_t n = json_integer_value(v);
    if (n < min || n > max)
        return err_set(e, ERR_MODEL, ERR_STOP, "%s: %s: found %lld, allowed are %lld to %lld", where, key, (long long)n,
                       (long long)min, (long long)max);
    *out = n;
    return ERR_OK;
}

enum err_code json_get_double(const json_t *o, const char *where, const char *key, double min, double max, double *out,
                              bool *found, struct err *e)
{
    const json_t *v = get(o, key, found);

    if (!v)
        return ERR_OK;
    if (!json_is_number(v))
        return mistyped(v, where, key, "a number", e);
    double x = json_number_value(v);
    if (!(x >= min && x <= max))
        return err_set(e, ERR_MODEL, ERR_STOP, "%s: %s: found %g, allowed are %g to %g", where, key, x, min, max);
    *out = x;
    return ERR_OK;
}

enum err_code json_get_bool(const json_t *o, const char *where, const char *key, bool *out, bool *found, struct err *e)
{
    const json_t *v = get(o, key, found);

    if (!v)
        return ERR_OK;
    if (!json_is_boolean(v))
        return mistyped(v, where, key, "true or false", e);
    *out = json_is_true(v);
    return ERR_OK;
}

enum err_code json_get_string(const json_t *o, const char *where, const char *key, const char **out, bool *found,
                              struct err *e)
{
    const json_t *v = get(o, key, found);

    if (!v)
        return ERR_OK;
    if (!json_is_string(v))
        return mistyped(v, where, key, "a string", e);
    *out = json_string_value(v);
    return ERR_OK;
}
