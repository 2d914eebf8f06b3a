/* job.h -- a translation request and its result, as schemas/ defines them, in plain C.
 * A string is bytes and a length: never cut at an embedded NUL, always valid UTF-8 after decoding. */
#ifndef WIRE_JOB_H
#define WIRE_JOB_H

#include "base/arena.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text {
    const char *s; /* NULL = absent; not NUL-terminated by contract */
    size_t n;
};

struct term {
    struct text source, target;
};

struct pair {
    struct text key, value;
};

enum job_format { JOB_PLAIN, JOB_TAGGED };

/* Fields as in schemas/translation_request.avsc.  has_* false = the model's default. */
struct job {
    struct text job_id, text, target_lang, source_lang, context;
    struct term *glossary;
    size_t n_glossary;
    enum job_format format;
    bool has_max_output_tokens, has_temperature, has_top_p, has_top_k, has_repetition_penalty, has_seed;
    int32_t max_output_tokens, top_k;
    double temperature, top_p, repetition_penalty;
    int64_t seed;
    int32_t priority;
    bool has_deadline;
    int64_t deadline_ms; /* wall clock */
    struct pair *metadata;
    size_t n_metadata;
};

/* The rules that need no model: text is not empty nor blank alone (ERR_EMPTY_TEXT).  An empty source_lang or context
 * becomes an absent one.  Sizes and ranges were checked by the codec. */
MUST_CHECK enum err_code job_check(struct job *j, struct err *e);

enum result_status { RESULT_OK, RESULT_TRUNCATED, RESULT_EXPIRED, RESULT_FAILED, RESULT_STATUSES };
const char *result_status_name(enum result_status s); /* "OK", ... */

struct result {
    struct text job_id;
    enum result_status status;
    struct text translation, source_lang, target_lang;
    struct text model, model_digest;
    int32_t prompt_tokens, cached_tokens, output_tokens;
    struct text finish_reason;             /* eos | length | repetition | deadline | error */
    struct text error_code, error_message; /* of EXPIRED and FAILED; else absent */
    double mean_logprob, min_logprob;      /* NaN = none: absent on the wire, as are timings that are NaN */
    /* sampling as it was applied: what the job asked for, else the model's defaults */
    double temperature, top_p, repetition_penalty;
    int32_t top_k, max_output_tokens;
    int64_t seed;
    double queue_ms, batch_wait_ms, decode_ms; /* record to batcher; batcher to row; row to last token */
    int32_t attempts;
    const struct pair *metadata;
    size_t n_metadata;
};

#endif
