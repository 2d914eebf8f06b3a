/* stats.h -- what the pipeline counts.  Any thread adds; pages are rendered from relaxed reads. */
#ifndef WORKER_STATS_H
#define WORKER_STATS_H

#include "base/err.h"
#include "engine/engine.h"
#include "ops/metrics.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

typedef _Atomic uint64_t counter;

struct stats {
    counter jobs_ok, jobs_truncated, jobs_expired, jobs_dead, jobs_late, jobs_given_back; /* outcomes, once each */
    counter dead_by_code[ERR_CODES];
    counter decode_retries, publish_retries, registry_waits, bad_traces, skewed_clocks;
    counter prompt_tokens, cached_tokens, output_tokens, batches;
    struct histogram batch_jobs, batch_tokens;                                          /* jobs, tokens */
    struct histogram record_age_s, queue_s, batch_wait_s, decode_s, publish_s, total_s; /* seconds */

    pthread_mutex_t lock;
    struct engine_stats engine; /* guarded: the decoder's last snapshot */
};

void stats_init(struct stats *s);
void stats_close(struct stats *s);
static inline void stats_add(counter *c, uint64_t n)
{
    atomic_fetch_add_explicit(c, n, memory_order_relaxed);
}
static inline uint64_t stats_read(const counter *c)
{
    return atomic_load_explicit(c, memory_order_relaxed);
}
void stats_set_engine(struct stats *s, const struct engine_stats *e);
void stats_get_engine(struct stats *s, struct engine_stats *e);

#endif
