/* tally.h -- a member of the group that finishes what comes at once, and counts the jobs by their number. */
#ifndef SUPPORT_TALLY_H
#define SUPPORT_TALLY_H

#include "tests/support/member.h"

#include <stdbool.h>

enum { TALLY_JOBS = 2000 };

struct tally {
    struct member m;
    struct err e; /* of the last turn */
    int seen[TALLY_JOBS];
    int64_t first;       /* offset of the first record, -1 = none came */
    bool hold;           /* job 0 is not finished, */
    struct record *held; /* but put here */
};

void tally_join(struct tally *t, const struct kafka_case *kc);
enum err_code tally_turn(struct tally *t);
/* How many of the n jobs from first on came at least once. */
int tally_count(const struct tally *t, int first, int n);
/* Turns until all of them came; false: an error came before. */
bool tally_see(struct tally *t, int first, int n);
/* The error that ends it, or ERR_OK after a long time. */
enum err_code tally_turn_until_stopped(struct tally *t);
void tally_turn_until_committed(struct tally *t, const struct kafka_case *kc, int partition, int64_t offset);

#endif
