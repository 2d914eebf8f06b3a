/* safetensors.h -- one mapped file of tensors; the header is checked before anything is believed.
 * Format: 8-byte little-endian header length, that many bytes of JSON, then data.  Refused: a header past the
 * file or 16 MiB, overlapping or gapped ranges, ranges past the end, a size that is not shape times dtype,
 * duplicate names, an unknown dtype, a shape with more than 2^48 elements or more than 8 dimensions. */
#ifndef MODEL_SAFETENSORS_H
#define MODEL_SAFETENSORS_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct safetensors;

struct st_tensor {
    const char *name;
    const char *dtype; /* as spelled: "BF16", "F32", "F8_E4M3", ... */
    int n_dims;
    int64_t shape[8];
    const void *data;
    size_t bytes;
};

MUST_CHECK enum err_code safetensors_open(struct safetensors **out, const char *path, struct err *e);
/* The same over bytes that the caller keeps alive: for tests and fuzzing. */
MUST_CHECK enum err_code safetensors_parse(struct safetensors **out, const void *bytes, size_t n, const char *where,
                                           struct err *e);
void safetensors_close(struct safetensors *s); /* NULL is fine */

/* How the data will be read.  A file opens as "scattered", since its opener samples a few pages of each tensor: no
 * read-ahead, which on a cold 16 GB checkpoint costs seconds.  Whoever then reads all of it says so. */
void safetensors_read_whole(struct safetensors *s);

size_t safetensors_count(const struct safetensors *s);
const struct st_tensor *safetensors_at(const struct safetensors *s, size_t i);
const struct st_tensor *safetensors_find(const struct safetensors *s, const char *name); /* NULL = not there */
const char *safetensors_path(const struct safetensors *s);

#endif
