#include "cli/lines.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { LIMIT = 200000 };

struct input {
    int fd;
    size_t longs; /* bytes of the long line in the middle */
};

/* "first CR LF", a line of x, "last" without its end. */
static void *write_input(void *arg)
{
    const struct input *in = arg;
    char x[4096];

    memset(x, 'x', sizeof x);
    cr_assert_eq(write(in->fd, "first\r\n", 7), 7);
    for (size_t left = in->longs; left > 0;) {
        ssize_t n = write(in->fd, x, left < sizeof x ? left : sizeof x);
        cr_assert_gt(n, 0);
        left -= (size_t)n;
    }
    cr_assert_eq(write(in->fd, "\nlast", 5), 5);
    close(in->fd);
    return NULL;
}

static void check(size_t longs, bool fits)
{
    struct input in = {.longs = longs};
    const char *line;
    pthread_t writer;
    struct lines l;
    struct err e;
    int fds[2];
    size_t n;

    cr_assert_eq(pipe(fds), 0);
    in.fd = fds[1];
    cr_assert_eq(pthread_create(&writer, NULL, write_input, &in), 0);
    cr_assert_eq(lines_open(&l, fds[0], LIMIT, &e), ERR_OK);
    cr_assert_eq(lines_next(&l, true, &line, &n, &e), ERR_OK);
    cr_assert(n == 5 && memcmp(line, "first", 5) == 0);
    if (fits) {
        cr_assert_eq(lines_next(&l, true, &line, &n, &e), ERR_OK);
        cr_assert_eq(n, longs);
    } else {
        cr_assert_eq(lines_next(&l, true, &line, &n, &e), ERR_TEXT_TOO_LONG);
        cr_assert_eq(e.act, ERR_SKIP);
        cr_assert_null(line);
    }
    cr_assert_eq(lines_next(&l, true, &line, &n, &e), ERR_OK);
    cr_assert(n == 4 && memcmp(line, "last", 4) == 0, "after %zu bytes: %zu", longs, n);
    cr_assert(lines_are_over(&l));
    cr_assert_leq(l.cap, 4 * LIMIT);
    lines_close(&l);
    pthread_join(writer, NULL);
    close(fds[0]);
}

Test(lines, up_to_the_limit_pass_and_a_longer_one_costs_only_itself, .timeout = 30)
{
    check(0, true);
    check(1, true);
    check(LIMIT, true);
    check(LIMIT + 1, false);
    check(2 * LIMIT, false);
    check(20 * LIMIT, false);
}

Test(lines, of_no_end_are_over_once_the_input_is, .timeout = 30)
{
    static char x[LIMIT + 2];
    const char *line;
    struct lines l;
    struct err e;
    int fds[2];
    size_t n;

    cr_assert_eq(pipe(fds), 0);
    memset(x, 'x', sizeof x);
    cr_assert_eq(write(fds[1], x, 60000), 60000);
    close(fds[1]);
    cr_assert_eq(lines_open(&l, fds[0], 1000, &e), ERR_OK);
    cr_assert_eq(lines_next(&l, true, &line, &n, &e), ERR_TEXT_TOO_LONG);
    cr_assert_eq(lines_next(&l, true, &line, &n, &e), ERR_OK);
    cr_assert_null(line);
    cr_assert(lines_are_over(&l));
    lines_close(&l);
    close(fds[0]);
}

Test(lines, keep_their_cr_where_it_belongs_to_them)
{
    const char *line;
    struct lines l;
    struct err e;
    int fds[2];
    size_t n;

    cr_assert_eq(pipe(fds), 0);
    cr_assert_eq(write(fds[1], "a\r\n", 3), 3);
    close(fds[1]);
    cr_assert_eq(lines_open(&l, fds[0], LIMIT, &e), ERR_OK);
    l.keeps_cr = true;
    cr_assert_eq(lines_next(&l, true, &line, &n, &e), ERR_OK);
    cr_assert(n == 2 && memcmp(line, "a\r", 2) == 0);
    lines_close(&l);
    close(fds[0]);
}
