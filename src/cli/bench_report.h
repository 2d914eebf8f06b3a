/* bench_report.h -- the report of `translate-worker bench`: a line for people at once, or one JSON object at the end. */
#ifndef CLI_BENCH_REPORT_H
#define CLI_BENCH_REPORT_H

#include <jansson.h>

struct bench_report {
    json_t *root; /* NULL: lines */
};

/* Adds a row to a section and prints its line; row is taken over.  Values are numbers in the unit that their name ends
 * in: _per_s, _ms, _gflops, _gbytes_per_s, _share (of 1). */
void bench_row(struct bench_report *r, const char *section, json_t *row, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#endif
