/* schema.h -- one writer's schema: checked, made canonical, fingerprinted, then given to avro-c.
 *
 * The text is untrusted.  It is checked here in full before avro-c parses its canonical form, so that avro-c only ever
 * sees a schema with names of our making (nothing here reads a type's name), no recursion, no array or map whose items take no bytes (six payload bytes could
 * claim 2^33 of them), and bounds on depth, on types and on what a record expands to.
 * Errors: ERR_UNKNOWN_SCHEMA, act ERR_SKIP, says what the schema has that is refused.
 * Thread: one owner at a time, avro-c's calls between avro_lock() and avro_unlock(). */
#ifndef WIRE_SCHEMA_H
#define WIRE_SCHEMA_H

#include "base/err.h"

#include <avro.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SCHEMA_MAX_TEXT = 1 << 20,   /* bytes */
    SCHEMA_MAX_DEPTH = 32,       /* types inside types */
    SCHEMA_MAX_NODES = 4096,     /* types, fields and symbols written down */
    SCHEMA_MAX_NAMED = 512,      /* records, enums and fixed */
    SCHEMA_MAX_FIELDS = 1024,    /* of one record */
    SCHEMA_MAX_BRANCHES = 64,    /* of one union */
    SCHEMA_MAX_EXPANDED = 65536, /* types once every named one stands where it is used */
    SCHEMA_MAX_FIXED = 65536,    /* bytes of one fixed */
    SCHEMA_MAX_NAME = 512        /* bytes of a full name */
};

struct schema {
    avro_schema_t avro; /* a record; its types are named T0, T1, ... */
    avro_value_iface_t *iface;
    uint64_t fingerprint; /* CRC-64-AVRO of the parsing canonical form */
    bool deadline_micros; /* the root's field "deadline" is a timestamp-micros */
};

MUST_CHECK enum err_code schema_open(struct schema **out, const char *text, size_t n, struct err *e);
void schema_close(struct schema *s); /* NULL is fine */

/* avro-c keeps its error text in one static buffer that every failing call writes, whatever the thread.  So each run of
 * avro-c calls stands between these two; nothing that waits does. */
void avro_lock(void);
void avro_unlock(void);

uint64_t crc64_avro(const void *data, size_t n);

#endif
