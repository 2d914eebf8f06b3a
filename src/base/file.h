/* file.h -- opening a file that must be one: a pipe, a socket or a device in its place is an error at once, and is never
 * waited for. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* For reading.  *size (NULL is allowed): bytes at this moment.  ERR_IO names path and reason; *out is NULL then.
 * *is_missing (NULL is allowed): whether the reason is that there is no such file. */
MUST_CHECK enum err_code file_open(FILE **out, const char *path, size_t *size, bool *is_missing, struct err *e);

#endif
