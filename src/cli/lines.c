#include "cli/lines.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FIRST_CAP = 1 << 16 };

enum err_code lines_open(struct lines *l, int fd, size_t limit, struct err *e)
{
    *l = (struct lines){.fd = fd, .cap = FIRST_CAP, .limit = limit};
    l->buf = malloc(l->cap);
    return l->buf ? ERR_OK : err_set(e, ERR_NOMEM, ERR_STOP, "no memory for input lines");
}

void lines_close(struct lines *l)
{
    free(l->buf);
    l->buf = NULL;
}

bool lines_are_over(const struct lines *l)
{
    return l->at_end && l->begin == l->end;
}

/* The next whole line in the buffer, or the last one without its end. */
static bool take(struct lines *l, const char **line, size_t *n)
{
    char *from = l->buf + l->begin, *end = memchr(from + l->scanned, '\n', l->end - l->begin - l->scanned);

    l->scanned = l->end - l->begin;
    if (!end && !(l->at_end && l->begin < l->end))
        return false;
    *line = from;
    *n = end ? (size_t)(end - from) : l->end - l->begin;
    l->begin += *n + (end != NULL);
    l->scanned = 0;
    if (*n > 0 && from[*n - 1] == '\r' && !l->keeps_cr)
        --*n;
    return true;
}

/* What is here of a line that was too long goes; its end ends that. */
static void skip(struct lines *l)
{
    char *from = l->buf + l->begin, *end = memchr(from, '\n', l->end - l->begin);

    l->begin = end ? l->begin + (size_t)(end - from) + 1 : l->end;
    l->scanned = 0;
    l->is_skipping = !end;
}

static enum err_code too_long(const struct lines *l, struct err *e)
{
    return err_set(e, ERR_TEXT_TOO_LONG, ERR_SKIP, "longer than %zu bytes", l->limit);
}

static enum err_code make_room(struct lines *l, struct err *e)
{
    if (l->begin > 0) {
        memmove(l->buf, l->buf + l->begin, l->end - l->begin);
        l->end -= l->begin;
        l->begin = 0;
    }
    if (l->end < l->cap)
        return ERR_OK;
    if (l->cap > l->limit + 1) { /* with its CR, and still no end */
        l->is_skipping = true;
        return too_long(l, e);
    }
    char *buf = realloc(l->buf, l->cap * 2);
    if (!buf)
        return err_set(e, ERR_NOMEM, ERR_STOP, "no memory for an input line of %zu bytes", l->cap * 2);
    l->buf = buf;
    l->cap *= 2;
    return ERR_OK;
}

enum err_code lines_next(struct lines *l, bool wait, const char **line, size_t *n, struct err *e)
{
    enum err_code rc;

    *line = NULL;
    *n = 0;
    if (l->is_skipping)
        skip(l);
    while (!take(l, line, n)) {
        struct pollfd p = {l->fd, POLLIN, 0};
        if (l->at_end || (!wait && poll(&p, 1, 0) <= 0))
            return ERR_OK;
        if ((rc = make_room(l, e)) != ERR_OK)
            return rc;
        ssize_t got = read(l->fd, l->buf + l->end, l->cap - l->end);
        if (got < 0 && errno != EINTR && errno != EAGAIN)
            return err_set(e, ERR_IO, ERR_STOP, "cannot be read: %m");
        if (got == 0)
            l->at_end = true;
        if (got > 0)
            l->end += (size_t)got;
        if (l->is_skipping)
            skip(l);
    }
    if (*n > l->limit) {
        *line = NULL;
        *n = 0;
        return too_long(l, e);
    }
    return ERR_OK;
}
