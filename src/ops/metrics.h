/* metrics.h -- counters, gauges and histograms as Prometheus text.  Names are stable: they are part of the interface.
 * Thread: one adds to a histogram, so that no add has to lock the bus; a page is rendered from relaxed reads by any. */
#ifndef OPS_METRICS_H
#define OPS_METRICS_H

#include "ops/http.h"

#include <stdatomic.h>
#include <stdint.h>

/* Adds to what no other thread adds to: without a locked instruction. */
static inline void metrics_count(_Atomic uint64_t *c, uint64_t n)
{
    atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + n, memory_order_relaxed);
}

enum { HISTOGRAM_BUCKETS = 24 };

/* Bucket i counts values <= bounds[i]; the last bound is +Inf. */
struct histogram {
    const double *bounds;
    int n_bounds;
    _Atomic uint64_t counts[HISTOGRAM_BUCKETS + 1];
    _Atomic uint64_t sum_micro; /* sum in millionths */
};

void histogram_init(struct histogram *h, const double *bounds, int n_bounds);
void histogram_add(struct histogram *h, double value);
double histogram_quantile(const struct histogram *h, double q); /* upper bound of the bucket; 0 when empty */

void metrics_counter(struct page *p, const char *name, const char *help, double value);
void metrics_gauge(struct page *p, const char *name, const char *help, double value);
/* One sample of a family with a label; call metrics_family() once before its samples. */
void metrics_family(struct page *p, const char *name, const char *type, const char *help);
void metrics_sample(struct page *p, const char *name, const char *label, const char *label_value, double value);
void metrics_histogram(struct page *p, const char *name, const char *help, const struct histogram *h);

#endif
