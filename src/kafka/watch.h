/* watch.h -- caution (caution.h) over all partitions of this process: a suspect is alone in work only where nothing of
 * another partition is in work beside it.
 *
 *   all flow --a record of a careful partition--> its records alone, one by one --careful over, or none comes for
 *      ^                                             |                              WATCH_ALONE_MS--+
 *      +---------------------------------------------+----------------------------------------------+
 *
 * Thread: the consumer's. */
#ifndef KAFKA_WATCH_H
#define KAFKA_WATCH_H

#include "kafka/assignment.h"
#include "kafka/caution.h"
#include "kafka/intake.h"

#include <stdbool.h>
#include <stdint.h>

enum { WATCH_ALONE_MS = 1000 };

struct watch {
    int32_t alone;    /* partition, -1 = none */
    int64_t until_ns; /* monotonic: so long its next record is waited for */
};

/* Before records are read: is it still alone? */
void watch_turn(struct watch *w, struct assignment *mine, int64_t now_ns);
/* Its record is in work: nothing is to be read. */
bool watch_is_busy(const struct watch *w, struct assignment *mine);
/* May this record of p be in work, with so many jobs in work in this process?  INTAKE_LATER: another partition is alone.
 * INTAKE_WAIT: those jobs must be done, or the group has to know it first: one commit in an assignment, and one for each
 * record that is alone.  Where commits are refused the first is not waited for, so that jobs flow: a death is not found
 * then, and no job suspected for it. */
enum intake_verdict watch_admit(struct watch *w, struct assignment *mine, struct partition *p,
                                const struct caution_rule *r, int64_t offset, int64_t jobs, bool refused);
/* Once it is taken: how often it ended its worker where that was too often, else 0. */
int watch_condemned(struct assignment *mine, struct partition *p, const struct caution_rule *r, int64_t offset);
/* Nothing of these partitions is in work: all, or all but one. */
void watch_rest(struct assignment *mine, const struct partition *but);

#endif
