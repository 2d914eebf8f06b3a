/* shadow.h -- run --shadow: what the worker would have published, as lines of text instead.
 *
 *   job id <tab> OK | TRUNCATED | EXPIRED | DEAD_LETTER code <tab> target language <tab> prompt tokens <tab>
 *   output tokens <tab> milliseconds
 *
 * An id or language that is not known (the record was no job) is "-"; tabs and control characters in an id are "?".
 * Thread: the publisher's; the summary once that has ended. */
#ifndef WORKER_SHADOW_H
#define WORKER_SHADOW_H

#include "ops/metrics.h"
#include "worker/task.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct shadow {
    FILE *out;
    long long limit, jobs; /* limit: 0 = none */
    long long by_status[RESULT_STATUSES], dead, prompt_tokens, cached_tokens, output_tokens;
    struct histogram job_s;
    int64_t begin_ns, end_ns;
};

void shadow_init(struct shadow *s, FILE *out, long long limit);
/* false: the limit is reached. */
bool shadow_job(struct shadow *s, const struct task *t);
void shadow_summary(const struct shadow *s);

#endif
