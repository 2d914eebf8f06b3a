/* job.h -- the numbered jobs of a chaos run: what the generator writes and what the checker recognises.
 *
 *   record key   k17                        of job 4711, the 42nd of that key
 *   value        {"job_id": "4711", "text": ..., "options": {"seed": kind in the low 8 bits, ...},
 *                 "metadata": {"key": "17", "sequence": "42", "sum": ...}}, or for JOB_GARBAGE "garbage 4711 17 42 SUM"
 *
 * or the same fields in Avro with registry framing, by job_avro_schema.
 * The sum is a hash of number, key, sequence and kind: a result that carries another job's metadata is found. */
#ifndef CHAOS_JOB_H
#define CHAOS_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The fake engine sees the kind in the low bits of the sampling seed, and acts on it. */
enum job_kind {
    JOB_PLAIN_TEXT, /* a short answer */
    JOB_CRASH,      /* ends the process, the first few times */
    JOB_BAD,        /* logits that are not finite: a dead letter */
    JOB_LONG,       /* some hundred tokens */
    JOB_GARBAGE,    /* no job at all: a dead letter */
    JOB_LATE,       /* a deadline so near that it may pass anywhere on the way: any outcome */
    JOB_KINDS
};

struct numbered {
    int64_t number;
    int key;
    int64_t sequence; /* within its key */
    enum job_kind kind;
};

const char *job_kind_name(enum job_kind k);
/* Writes key and value, NUL-terminated. */
void job_write(const struct numbered *j, char *key, size_t key_cap, char *value, size_t value_cap);
/* The writer's schema of Avro jobs, whatever id it goes by. */
extern const char job_avro_schema[];
/* Returns the value's size; not for JOB_GARBAGE and JOB_LATE. */
size_t job_write_avro(const struct numbered *j, int32_t schema_id, char *key, size_t key_cap, void *value, size_t cap);
/* From a request's or dead letter's value; false: it is none of ours, or its sum is wrong. */
bool job_read(struct numbered *j, const void *value, size_t n);
/* From a result; *text_hash is of status and translation, if it has one.  false as above. */
bool job_read_result(struct numbered *j, uint64_t *text_hash, const void *value, size_t n);

#endif
