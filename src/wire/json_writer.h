/* json_writer.h -- JSON text, written as it will stand: no tree, no allocation.
 * The bytes are what jansson writes with JSON_COMPACT | JSON_REAL_PRECISION(15).
 * Owns:   nothing; the buffer is the caller's.  What no longer fits is counted and not written, so that a second run with
 *         room for n bytes holds all.
 * Thread: one owner. */
#ifndef WIRE_JSON_WRITER_H
#define WIRE_JSON_WRITER_H

#include "wire/job.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_writer {
    char *buf;
    size_t cap, n; /* n may be past cap */
};

void json_put(struct json_writer *w, const char *s, size_t n); /* as it is */
/* In quotes.  false: not valid UTF-8, nothing is written. */
bool json_put_text(struct json_writer *w, struct text t);
void json_put_int(struct json_writer *w, int64_t v);
/* 15 digits: 0.7 stays 0.7 and not 0.69999999999999996.  Always with a point or an exponent.  v is finite. */
void json_put_real(struct json_writer *w, double v);

#endif
