/* member.h -- one member of the group, driven by hand from the test's thread. */
#ifndef SUPPORT_MEMBER_H
#define SUPPORT_MEMBER_H

#include "base/queue.h"
#include "kafka/consumer.h"
#include "tests/support/kafka_case.h"

#include <stdbool.h>

struct member {
    struct consumer *c;
    struct queue *records;
    struct consumer_stats s; /* as of the last turn */
};

void member_join(struct member *m, const struct kafka_case *kc);
void member_turn(struct member *m, int ms);
void member_leave(struct member *m); /* records in the queue are released, unfinished */
struct record *member_next(struct member *m);
/* Reads n records into held. */
void member_hold(struct member *m, struct record **held, int n);
/* As the worker does, and releases it; false: its partition has another owner by now. */
bool member_finish(struct member *m, struct record *r);

#endif
