#include "ops/metrics.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double bounds[] = {0.1, 1, 10};

Test(metrics, histogram_counts_values_up_to_each_bound)
{
    struct page p = {.status = 200};
    struct histogram h;

    histogram_init(&h, bounds, 3);
    histogram_add(&h, 0.1);
    histogram_add(&h, 0.5);
    histogram_add(&h, 11);
    histogram_add(&h, -4);
    histogram_add(&h, NAN);
    metrics_histogram(&p, "x_seconds", "Time.", &h);
    cr_assert_str_eq(p.s, "# HELP x_seconds Time.\n# TYPE x_seconds histogram\nx_seconds_bucket{le=\"0.1\"} 3\n"
                          "x_seconds_bucket{le=\"1\"} 4\nx_seconds_bucket{le=\"10\"} 4\n"
                          "x_seconds_bucket{le=\"+Inf\"} 5\nx_seconds_sum 11.600000\nx_seconds_count 5\n");
    free(p.s);
}

Test(metrics, quantile_is_the_bound_of_its_bucket)
{
    struct histogram h;

    histogram_init(&h, bounds, 3);
    cr_assert_eq(histogram_quantile(&h, 0.5), 0);
    for (int i = 0; i < 99; i++)
        histogram_add(&h, 0.5);
    histogram_add(&h, 100);
    cr_assert_eq(histogram_quantile(&h, 0.5), 1);
    cr_assert_eq(histogram_quantile(&h, 0.99), 1);
    cr_assert(isinf(histogram_quantile(&h, 0.999)));
}

Test(metrics, labels_are_escaped_and_numbers_exact)
{
    struct page p = {.status = 200};

    metrics_family(&p, "x", "gauge", "Things.");
    metrics_sample(&p, "x", "name", "a\"b\\c\nd", 9007199254740991);
    metrics_counter(&p, "y_total", "Others.", 3);
    cr_assert_str_eq(p.s, "# HELP x Things.\n# TYPE x gauge\nx{name=\"a\\\"b\\\\c\\nd\"} 9007199254740991\n"
                          "# HELP y_total Others.\n# TYPE y_total counter\ny_total 3\n");
    free(p.s);
}
