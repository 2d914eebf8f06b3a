/* stats.h -- what the pipeline counts.  Pages are rendered from relaxed reads.
 * Thread: any adds with stats_add(); one alone to each histogram, and to what is counted with stats_count(). */
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
    /* the publisher's alone */
    counter jobs_ok, jobs_truncated, jobs_expired, jobs_dead; /* outcomes, once each; also the next two */
    counter dead_by_code[ERR_CODES];
    counter prompt_tokens, cached_tokens, output_tokens;
    struct histogram queue_s, batch_wait_s, decode_s, publish_s, total_s; /* seconds */

    counter jobs_late, jobs_given_back;
    counter decode_retries, publish_retries, registry_waits, bad_traces, skewed_clocks, batches;

    /* the batcher's alone */
    struct histogram batch_jobs, batch_tokens; /* jobs, tokens */
    struct histogram record_age_s;             /* seconds */

    pthread_mutex_t lock;
    struct engine_stats engine; /* guarded: the decoder's last snapshot */
};

void stats_init(struct stats *s);
void stats_close(struct stats *s);
static inline void stats_add(counter *c, uint64_t n)
{
    atomic_fetch_add_explicit(c, n, memory_order_relaxed);
}
/* Of a counter that no other thread adds to, see metrics_count(). */
static inline void stats_count(counter *c, uint64_t n)
{
    metrics_count(c, n);
}
static inline uint64_t stats_read(const counter *c)
{
    return atomic_load_explicit(c, memory_order_relaxed);
}
void stats_set_engine(struct stats *s, const struct engine_stats *e);
void stats_get_engine(struct stats *s, struct engine_stats *e);

#endif
