/* wake.h -- an eventfd that wakes a thread: whoever has work for it writes, it empties the counter before it looks. */
#ifndef KAFKA_WAKE_H
#define KAFKA_WAKE_H

#include "base/clock.h"

#include <poll.h>
#include <stdint.h>
#include <unistd.h>

static inline void wake_up(int fd)
{
    uint64_t one = 1;
    ssize_t rc = write(fd, &one, sizeof one);

    (void)rc; /* full: it is awake already */
}

static inline void wake_empty(int fd)
{
    uint64_t n;
    ssize_t rc = read(fd, &n, sizeof n);

    (void)rc; /* empty is fine */
}

static inline void wake_wait(int fd, int64_t until_ns)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int64_t left = until_ns - clock_mono_ns();

    if (left > 0)
        poll(&p, 1, (int)((left + NS_PER_MS - 1) / NS_PER_MS));
}

#endif
