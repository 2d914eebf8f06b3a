#include "ops/metrics.h"

#include <math.h>

void histogram_init(struct histogram *h, const double *bounds, int n_bounds)
{
    h->bounds = bounds;
    h->n_bounds = n_bounds < HISTOGRAM_BUCKETS ? n_bounds : HISTOGRAM_BUCKETS;
    for (int i = 0; i <= HISTOGRAM_BUCKETS; i++)
        atomic_store(&h->counts[i], 0);
    atomic_store(&h->sum_micro, 0);
}

void histogram_add(struct histogram *h, double value)
{
    int i = 0;

    if (!(value > 0)) /* a NaN counts as nothing, and time does not run backwards */
        value = 0;
    while (i < h->n_bounds && value > h->bounds[i])
        i++;
    metrics_count(&h->counts[i], 1);
    metrics_count(&h->sum_micro, (uint64_t)(value * 1e6 + 0.5));
}

double histogram_quantile(const struct histogram *h, double q)
{
    uint64_t total = 0, below = 0;

    for (int i = 0; i <= h->n_bounds; i++)
        total += atomic_load_explicit(&h->counts[i], memory_order_relaxed);
    if (total == 0)
        return 0;
    for (int i = 0; i < h->n_bounds; i++) {
        below += atomic_load_explicit(&h->counts[i], memory_order_relaxed);
        if ((double)below >= q * (double)total)
            return h->bounds[i];
    }
    return INFINITY;
}

void metrics_family(struct page *p, const char *name, const char *type, const char *help)
{
    page_printf(p, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void one(struct page *p, const char *name, const char *type, const char *help, double value)
{
    metrics_family(p, name, type, help);
    page_printf(p, "%s %.17g\n", name, value);
}

void metrics_counter(struct page *p, const char *name, const char *help, double value)
{
    one(p, name, "counter", help, value);
}

void metrics_gauge(struct page *p, const char *name, const char *help, double value)
{
    one(p, name, "gauge", help, value);
}

/* Quotes, backslashes and line ends are what the format wants escaped. */
static void label_text(struct page *p, const char *s)
{
    for (; *s; s++)
        if (*s == '\n')
            page_printf(p, "\\n");
        else
            page_printf(p, *s == '"' || *s == '\\' ? "\\%c" : "%c", *s);
}

void metrics_sample(struct page *p, const char *name, const char *label, const char *label_value, double value)
{
    page_printf(p, "%s{%s=\"", name, label);
    label_text(p, label_value);
    page_printf(p, "\"} %.17g\n", value);
}

void metrics_histogram(struct page *p, const char *name, const char *help, const struct histogram *h)
{
    uint64_t n = 0;

    metrics_family(p, name, "histogram", help);
    for (int i = 0; i < h->n_bounds; i++) {
        n += atomic_load_explicit(&h->counts[i], memory_order_relaxed);
        page_printf(p, "%s_bucket{le=\"%g\"} %llu\n", name, h->bounds[i], (unsigned long long)n);
    }
    n += atomic_load_explicit(&h->counts[h->n_bounds], memory_order_relaxed);
    page_printf(p, "%s_bucket{le=\"+Inf\"} %llu\n", name, (unsigned long long)n);
    page_printf(p, "%s_sum %.6f\n%s_count %llu\n", name,
                (double)atomic_load_explicit(&h->sum_micro, memory_order_relaxed) / 1e6, name, (unsigned long long)n);
}
