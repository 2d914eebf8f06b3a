#include "cli/bench_report.h"

#include <stdarg.h>
#include <stdio.h>

void bench_row(struct bench_report *r, const char *section, json_t *row, const char *fmt, ...)
{
    va_list ap;

    if (!r->root) {
        va_start(ap, fmt);
        vprintf(fmt, ap);
        va_end(ap);
        putchar('\n');
        fflush(stdout);
        json_decref(row);
        return;
    }
    if (!json_object_get(r->root, section))
        json_object_set_new(r->root, section, json_array());
    json_array_append_new(json_object_get(r->root, section), row);
}
