#include "wire/record.h"

#include <string.h>

const struct header *record_find_header(const struct record *r, const char *name)
{
    for (size_t i = r->n_headers; i > 0; i--)
        if (strcmp(r->headers[i - 1].name, name) == 0)
            return &r->headers[i - 1];
    return NULL;
}
