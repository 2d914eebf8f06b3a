/* message.h -- the fields of a request and of a result as tables, which every encoding reads and writes by.
 *
 * A field has a name on the wire, a kind, and where in struct job or struct result it goes.  A decoder finds the value
 * and hands it to message_put_*(), which checks it (UTF-8, sizes, ranges, symbols) and keeps it; so all encodings have
 * the same rules and the same error texts. */
#ifndef WIRE_MESSAGE_H
#define WIRE_MESSAGE_H

#include "base/arena.h"
#include "base/err.h"
#include "wire/codec.h"
#include "wire/job.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum field_kind {
    FIELD_TEXT,   /* struct text */
    FIELD_SYMBOL, /* an enum as int */
    FIELD_INT,    /* int32_t */
    FIELD_LONG,   /* int64_t */
    FIELD_TIME,   /* int64_t, wall ms */
    FIELD_DOUBLE, /* NaN = absent where it has no flag */
    FIELD_TERMS,  /* struct term *, count */
    FIELD_PAIRS,  /* const struct pair *, count */
    FIELD_GROUP   /* a record of further fields, in the same struct */
};

enum field_limit { LIMIT_FIELD, LIMIT_ID, LIMIT_TEXT, LIMIT_CONTEXT, LIMIT_VALUE };

struct range {
    double min, max;
    bool over_min; /* min itself is not allowed */
    const char *text;
};

struct field {
    const char *name, *path; /* path: as errors name it */
    struct text key;         /* ,"name": as JSON has it; the comma is not for the first one */
    enum field_kind kind;
    enum field_limit limit; /* of a text */
    size_t at, count_at;
    size_t has_at; /* of the bool that says it is there; 0 = none */
    bool required;
    const char *const *symbols;
    int n_symbols, other_symbol; /* other_symbol: what an unknown one means; -1 = it is an error */
    const struct range *range;   /* NULL = any */
    const struct field *fields;  /* of a group */
    size_t n_fields;
};

struct message {
    const char *name;
    const struct field *fields;
    size_t n_fields;
};

extern const struct message message_request, message_result;

/* Where a decoder puts what it finds. */
struct intake {
    const struct codec_limits *limits;
    struct arena *a;
    struct err *e;
    void *base;    /* struct job or struct result */
    bool in_place; /* texts are valid UTF-8 and outlive base: neither checked again nor copied */
};

MUST_CHECK enum err_code message_put_text(const struct intake *in, const struct field *f, const char *s, size_t n);
MUST_CHECK enum err_code message_put_symbol(const struct intake *in, const struct field *f, const char *s, size_t n);
MUST_CHECK enum err_code message_put_int(const struct intake *in, const struct field *f, int64_t v);
MUST_CHECK enum err_code message_put_double(const struct intake *in, const struct field *f, double v);
/* Room for n terms or pairs, checked against the limits; then each is put at its index, in order. */
MUST_CHECK enum err_code message_put_count(const struct intake *in, const struct field *f, size_t n);
MUST_CHECK enum err_code message_put_term(const struct intake *in, const struct field *f, size_t i, const char *source,
                                          size_t n_source, const char *target, size_t n_target);
MUST_CHECK enum err_code message_put_pair(const struct intake *in, const struct field *f, size_t i, const char *key,
                                          size_t n_key, const char *value, size_t n_value);
MUST_CHECK enum err_code message_mistyped(const struct intake *in, const struct field *f, const char *found);
/* What field f takes, in words. */
const char *message_kind(const struct field *f);

/* ERR_MISSING_FIELD for the first required field that is not there. */
MUST_CHECK enum err_code message_check_required(const struct message *m, const void *base, struct err *e);

/* For writers. */
bool message_has(const struct field *f, const void *base);
static inline void *message_at(const struct field *f, const void *base)
{
    return (char *)base + f->at;
}
static inline size_t message_count(const struct field *f, const void *base)
{
    return *(const size_t *)((const char *)base + f->count_at);
}

#endif
