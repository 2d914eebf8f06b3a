/* json.h -- typed access to a jansson tree, with errors that name file and key.
 * The parsing is jansson's; this adds the limits and the messages.  Values returned are borrowed from the tree. */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Parses a whole file; duplicate keys are errors.  max_bytes bounds what is read.  The caller json_decref()s *out. */
MUST_CHECK enum err_code json_load_path(json_t **out, const char *path, size_t max_bytes, struct err *e);

/* Each reads key of object o.  Absent or null: *found = false, *out untouched, ERR_OK.  A wrong type or a
 * number out of [min, max] is an ERR_MODEL that names where ("config.json"), the key and what was found. */
MUST_CHECK enum err_code json_get_int(const json_t *o, const char *where, const char *key, int64_t min, int64_t max,
                                      int64_t *out, bool *found, struct err *e);
MUST_CHECK enum err_code json_get_double(const json_t *o, const char *where, const char *key, double min, double max,
                                         double *out, bool *found, struct err *e); /* takes integers too */
MUST_CHECK enum err_code json_get_bool(const json_t *o, const char *where, const char *key, bool *out, bool *found,
                                       struct err *e);
MUST_CHECK enum err_code json_get_string(const json_t *o, const char *where, const char *key, const char **out,
                                         bool *found, struct err *e);

/* "string", "integer", ... for messages. */
const char *json_type_name(json_type t); /* "object", "real number", ... */
const char *json_kind(const json_t *v);

#endif
