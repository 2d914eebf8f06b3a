/* dead_window.h -- is the share of dead letters still a nuisance, or is something wrong with the whole topic?
 * Counts the last DEAD_WINDOW jobs, from DEAD_WINDOW_MIN on, and the length of the present run.  Thread: one. */
#ifndef WORKER_DEAD_WINDOW_H
#define WORKER_DEAD_WINDOW_H

#include "base/err.h"
#include "config/config.h"

#include <stdbool.h>
#include <stdint.h>

enum { DEAD_WINDOW = 10000, DEAD_WINDOW_MIN = 1000 };

struct dead_window {
    uint64_t bits[(DEAD_WINDOW + 63) / 64]; /* 1 = dead letter, by job number modulo DEAD_WINDOW */
    uint64_t jobs;
    int dead, run;
};

/* ERR_POISON (act ERR_STOP) when this job lifts the count over a limit. */
MUST_CHECK enum err_code dead_window_count(struct dead_window *w, const struct dead_letter_config *c, bool is_dead,
                                           struct err *e);

#endif
