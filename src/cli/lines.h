/* lines.h -- lines from a file descriptor, without waiting where something else is to be done.
 * Owns:   its buffer, which grows to the longest line allowed and no further, whatever comes. */
#ifndef CLI_LINES_H
#define CLI_LINES_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct lines {
    int fd;
    char *buf;
    size_t begin, end, cap, limit;
    size_t scanned;           /* from begin on, bytes known to hold no line end */
    bool keeps_cr;            /* set after lines_open(): a CR before the line's end is part of the line */
    bool at_end, is_skipping; /* of a line that was too long: what is left of it goes */
};

/* limit: bytes of the longest line. */
MUST_CHECK enum err_code lines_open(struct lines *l, int fd, size_t limit, struct err *e);
void lines_close(struct lines *l);

/* *line (NULL: none) is valid until the next call and has no line end (LF or CR LF).  wait false: only what can be had
 * at once; lines_are_over() tells "none yet" from "none any more".
 * A line that is too long is ERR_TEXT_TOO_LONG with act ERR_SKIP, once, and the next call goes on behind it. */
MUST_CHECK enum err_code lines_next(struct lines *l, bool wait, const char **line, size_t *n, struct err *e);
bool lines_are_over(const struct lines *l);

#endif
