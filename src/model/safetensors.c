#include "model/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

enum { LENGTH_BYTES = 8, MAX_HEADER_BYTES = 16 << 20, MAX_DIMS = 8, WHERE_BYTES = 96 };
static const int64_t max_elements = INT64_C(1) << 48;

struct named {
    const struct st_tensor *tensor;
};

struct safetensors {
    char *path;
    json_t *header;            /* owns the names */
    struct st_tensor *tensors; /* in the order of their data */
    struct named *by_name;     /* sorted */
    size_t n;
    void *map; /* NULL: the bytes are the caller's */
    size_t map_bytes;
};

static const struct {
    const char *name;
    int bytes;
} dtypes[] = {
    {"BF16", 2}, {"F16", 2}, {"F32", 4},  {"F64", 8}, {"F8_E4M3", 1}, {"F8_E5M2", 1},
    {"I8", 1},   {"I16", 2}, {"I32", 4},  {"I64", 8}, {"U8", 1},      {"U16", 2},
    {"U32", 4},  {"U64", 8}, {"BOOL", 1}, {"C64", 8}, {"F8_E8M0", 1},
};

/* A long path must not push the finding out of the message: its end is what tells files apart. */
static const char *path_tail(const char *path)
{
    size_t n = strlen(path);

    return n <= WHERE_BYTES ? path : path + n - WHERE_BYTES;
}

static enum err_code bad_tensor(struct err *e, const char *where, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

static enum err_code bad_tensor(struct err *e, const char *where, const char *name, const char *fmt, ...)
{
    char text[160];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return err_set(e, ERR_MODEL, ERR_STOP, "%s: tensor '%.80s': %s", path_tail(where), name, text);
}

static enum err_code read_shape(struct st_tensor *t, const json_t *shape, int64_t *elements, const char *where,
                                struct err *e)
{
    size_t n = json_array_size(shape);

    if (!json_is_array(shape))
        return bad_tensor(e, where, t->name, "shape is missing or not an array");
    if (n > MAX_DIMS)
        return bad_tensor(e, where, t->name, "shape has %zu dimensions, at most %d are allowed", n, MAX_DIMS);
    t->n_dims = (int)n;
    *elements = 1;
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(shape, i);
        int64_t d = json_integer_value(v);

        if (!json_is_integer(v) || d < 0 || d > max_elements)
            return bad_tensor(e, where, t->name, "shape[%zu] is not an integer from 0 to 2^48", i);
        t->shape[i] = d;
        if (d && *elements > max_elements / d)
            return bad_tensor(e, where, t->name, "shape has more than 2^48 elements");
        *elements *= d;
    }
    return ERR_OK;
}

static enum err_code read_range(struct st_tensor *t, const json_t *range, const unsigned char *data, size_t data_bytes,
                                const char *where, struct err *e)
{
    const json_t *first = json_array_get(range, 0), *last = json_array_get(range, 1);

    if (json_array_size(range) != 2 || !json_is_integer(first) || !json_is_integer(last))
        return bad_tensor(e, where, t->name, "data_offsets is missing or not two integers");
    int64_t begin = json_integer_value(first), end = json_integer_value(last);
    if (begin < 0 || end < begin || (uint64_t)end > data_bytes)
        return bad_tensor(e, where, t->name,
                          "data_offsets [%lld, %lld] do not lie in the %zu bytes of data (is the file complete?)",
                          (long long)begin, (long long)end, data_bytes);
    t->data = data + begin;
    t->bytes = (size_t)(end - begin);
    return ERR_OK;
}

static enum err_code read_tensor(struct st_tensor *t, const char *name, const json_t *v, const unsigned char *data,
                                 size_t data_bytes, const char *where, struct err *e)
{
    const char *dtype = json_string_value(json_object_get(v, "dtype"));
    int64_t elements = 0, size = 0;
    enum err_code rc;

    t->name = name;
    if (!json_is_object(v))
        return bad_tensor(e, where, name, "expected an object with dtype, shape and data_offsets");
    if (!dtype)
        return bad_tensor(e, where, name, "dtype is missing or not a string");
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(dtype, dtypes[i].name) == 0) {
            t->dtype = dtypes[i].name;
            size = dtypes[i].bytes;
        }
    if (!t->dtype)
        return bad_tensor(e, where, name, "unknown dtype '%.24s'", dtype);
    if ((rc = read_shape(t, json_object_get(v, "shape"), &elements, where, e)) != ERR_OK)
        return rc;
    if ((rc = read_range(t, json_object_get(v, "data_offsets"), data, data_bytes, where, e)) != ERR_OK)
        return rc;
    const uint64_t takes = (uint64_t)elements * (uint64_t)size;
    if (takes != t->bytes)
        return bad_tensor(e, where, name, "data_offsets span %zu bytes, its shape in %s takes %llu", t->bytes, t->dtype,
                          (unsigned long long)takes);
    return ERR_OK;
}

static int compare_data(const void *a, const void *b)
{
    const struct st_tensor *x = a, *y = b;
    const char *xd = x->data, *yd = y->data;

    if (xd != yd)
        return xd < yd ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes); /* an empty one before its neighbour */
}

static int compare_name(const void *a, const void *b)
{
    const struct named *x = a, *y = b;

    return strcmp(x->tensor->name, y->tensor->name);
}

/* The data must be covered exactly once: an overlap aliases two tensors, a gap is somewhere to hide. */
static enum err_code check_cover(const struct safetensors *s, const unsigned char *data, size_t data_bytes,
                                 const char *where, struct err *e)
{
    const unsigned char *at = data;

    for (size_t i = 0; i < s->n; i++) {
        const struct st_tensor *t = &s->tensors[i];
        const unsigned char *begin = t->data;

        if (begin < at)
            return bad_tensor(e, where, t->name, "its data overlaps that of tensor '%.60s'", s->tensors[i - 1].name);
        if (begin > at)
            return bad_tensor(e, where, t->name, "%zu bytes before its data belong to no tensor", (size_t)(begin - at));
        at = begin + t->bytes;
    }
    if (at != data + data_bytes)
        return err_set(e, ERR_MODEL, ERR_STOP, "%s: the last %zu bytes belong to no tensor", path_tail(where),
                       (size_t)(data + data_bytes - at));
    return ERR_OK;
}

static enum err_code check_metadata(const json_t *m, const char *where, struct err *e)
{
    json_t *v;
    const char *key;

    if (m && !json_is_object(m))
        return err_set(e, ERR_MODEL, ERR_STOP, "%s: __metadata__ is not an object", path_tail(where));
    json_object_foreach((json_t *)m, key, v) /* jansson's macro wants it writable; nothing is written */
        if (!json_is_string(v)) return err_set(e, ERR_MODEL, ERR_STOP, "%s: __metadata__.%.40s is not a string",
                                               path_tail(where), key);
    return ERR_OK;
}

static enum err_code load_header(json_t **out, const unsigned char *bytes, size_t n, uint64_t *header_bytes,
                                 const char *where, struct err *e)
{
    static const char lfs[] = "version https://git-lfs";
    uint64_t len = 0;
    json_error_t je;

    where = path_tail(where);
    if (n >= sizeof lfs - 1 && memcmp(bytes, lfs, sizeof lfs - 1) == 0)
        return err_set(e, ERR_MODEL, ERR_STOP, "%s: this is a Git LFS pointer, not the weights: fetch them", where);
    if (n < LENGTH_BYTES)
        return err_set(e, ERR_MODEL, ERR_STOP, "%s: %zu bytes are too few for a safetensors file", where, n);
    for (int i = LENGTH_BYTES - 1; i >= 0; i--)
        len = len << 8 | bytes[i];
    if (len > MAX_HEADER_BYTES || len > n - LENGTH_BYTES)
        return err_set(e, ERR_MODEL, ERR_STOP,
                       "%s: header of %llu bytes, allowed are up to %d and what the file has (%zu)", where,
                       (unsigned long long)len, MAX_HEADER_BYTES, n - LENGTH_BYTES);
    *out = json_loadb((const char *)bytes + LENGTH_BYTES, (size_t)len, JSON_REJECT_DUPLICATES, &je);
    if (!*out)
        return err_set(e, ERR_MODEL, ERR_STOP, "%s: header: not valid JSON: %s", where, je.text);
    if (!json_is_object(*out))
        return err_set(e, ERR_MODEL, ERR_STOP, "%s: header: expected an object", where);
    *header_bytes = len;
    return ERR_OK;
}

static enum err_code build_table(struct safetensors *s, const unsigned char *data, size_t data_bytes, const char *where,
                                 struct err *e)
{
    size_t cap = json_object_size(s->header);
    enum err_code rc;
    const char *key;
    json_t *v;

    s->tensors = calloc(cap + 1, sizeof *s->tensors);
    s->by_name = calloc(cap + 1, sizeof *s->by_name);
    if (!s->tensors || !s->by_name)
        return err_set(e, ERR_NOMEM, ERR_STOP, "%s: out of memory", path_tail(where));
    if ((rc = check_metadata(json_object_get(s->header, "__metadata__"), where, e)) != ERR_OK)
        return rc;
    json_object_foreach(s->header, key, v)
    {
        if (strcmp(key, "__metadata__") == 0)
            continue;
        if ((rc = read_tensor(&s->tensors[s->n], key, v, data, data_bytes, where, e)) != ERR_OK)
            return rc;
        s->n++;
    }
    qsort(s->tensors, s->n, sizeof *s->tensors, compare_data);
    for (size_t i = 0; i < s->n; i++)
        s->by_name[i].tensor = &s->tensors[i];
    qsort(s->by_name, s->n, sizeof *s->by_name, compare_name);
    return check_cover(s, data, data_bytes, where, e);
}

enum err_code safetensors_parse(struct safetensors **out, const void *bytes, size_t n, const char *where, struct err *e)
{
    struct safetensors *s = calloc(1, sizeof *s);
    uint64_t header_bytes = 0;
    enum err_code rc;

    *out = NULL;
    if (!s || !(s->path = strdup(where))) {
        err_set(e, ERR_NOMEM, ERR_STOP, "%s: out of memory", path_tail(where));
        rc = ERR_NOMEM;
        goto out;
    }
    if ((rc = load_header(&s->header, bytes, n, &header_bytes, where, e)) != ERR_OK)
        goto out;
    const unsigned char *data = (const unsigned char *)bytes + LENGTH_BYTES + header_bytes;
    if ((rc = build_table(s, data, n - LENGTH_BYTES - (size_t)header_bytes, where, e)) != ERR_OK)
        goto out;
    *out = s;
    s = NULL;
out:
    safetensors_close(s);
    return rc;
}

/* O_NONBLOCK: a FIFO of that name must not hang the start. */
static enum err_code map_file(void **map, size_t *n, const char *path, struct err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    enum err_code rc = ERR_OK;
    struct stat st;

    if (fd < 0)
        return err_set(e, ERR_IO, ERR_STOP, "%s: %s", path_tail(path), strerror(errno));
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        rc = err_set(e, ERR_IO, ERR_STOP, "%s: not a regular file", path_tail(path));
    } else if (st.st_size == 0) {
        rc = err_set(e, ERR_MODEL, ERR_STOP, "%s: the file is empty", path_tail(path));
    } else {
        *n = (size_t)st.st_size;
        *map = mmap(NULL, *n, PROT_READ, MAP_PRIVATE, fd, 0);
        if (*map == MAP_FAILED) {
            *map = NULL;
            rc = err_set(e, ERR_IO, ERR_STOP, "%s: cannot be mapped: %s", path_tail(path), strerror(errno));
        }
    }
    close(fd);
    return rc;
}

enum err_code safetensors_open(struct safetensors **out, const char *path, struct err *e)
{
    void *map = NULL;
    size_t n = 0;

    *out = NULL;
    enum err_code rc = map_file(&map, &n, path, e);
    if (rc != ERR_OK || !map)
        return rc;
    if ((rc = safetensors_parse(out, map, n, path, e)) != ERR_OK) {
        munmap(map, n);
        return rc;
    }
    madvise(map, n, MADV_RANDOM);
    (*out)->map = map;
    (*out)->map_bytes = n;
    return ERR_OK;
}

/* Advice only: where the kernel refuses, nothing is lost but time. */
void safetensors_read_whole(struct safetensors *s)
{
    if (s->map)
        madvise(s->map, s->map_bytes, MADV_NORMAL);
}

void safetensors_close(struct safetensors *s)
{
    if (!s)
        return;
    if (s->map)
        munmap(s->map, s->map_bytes);
    json_decref(s->header);
    free(s->tensors);
    free(s->by_name);
    free(s->path);
    free(s);
}

size_t safetensors_count(const struct safetensors *s)
{
    return s->n;
}

const struct st_tensor *safetensors_at(const struct safetensors *s, size_t i)
{
    return &s->tensors[i];
}

const struct st_tensor *safetensors_find(const struct safetensors *s, const char *name)
{
    const struct st_tensor t = {.name = name};
    const struct named key = {&t}, *hit = bsearch(&key, s->by_name, s->n, sizeof *s->by_name, compare_name);

    return hit ? hit->tensor : NULL;
}

const char *safetensors_path(const struct safetensors *s)
{
    return s->path;
}
