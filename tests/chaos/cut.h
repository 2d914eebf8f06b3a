/* cut.h -- cutting the log of the requests under the workers, in a way that the checker can judge.
 *
 *   checker --where its reader is--> DIR/requests-read     runner: cut_log() --"partition from to"--> DIR/cuts --> checker
 *
 * from is what the group had committed before, so that nothing that was lost earlier counts as cut; to is at most where
 * the checker's reader is, so that it knows every job that goes.  The line is written before the log is cut. */
#ifndef CHAOS_CUT_H
#define CHAOS_CUT_H

#include "tests/chaos/chaos.h"
#include "tests/chaos/verdict.h"

#include <stdbool.h>
#include <stdint.h>

struct cut_history { /* zeroed at first */
    int64_t to[VERDICT_PARTITIONS];
};

/* percent of what lies between the committed offset and the checker's reader goes.  -1: it could not be done; else how
 * many offsets went that were not committed. */
int64_t cut_log(const struct chaos_options *o, struct cut_history *h, int partition, int percent);

/* The checker's side. */
void cut_tell_read(const char *dir, const int64_t *position, int partitions);
/* Tells v of the cuts that came since; *seen counts them. */
void cut_learn(const char *dir, int *seen, struct verdict *v);

#endif
