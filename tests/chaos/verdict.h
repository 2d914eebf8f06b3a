/* verdict.h -- what a chaos run must hold, checked on sets of numbered jobs.  Pure: knows nothing of Kafka.
 *
 *   request (as read) --> placed --> outcome (result or dead letter, as read) --> judged at the end
 *   committed offsets, each once everything that was visible when it was seen has been read
 *
 * Thread: one.  Numbers of jobs are dense from 0. */
#ifndef CHAOS_VERDICT_H
#define CHAOS_VERDICT_H

#include "tests/chaos/job.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum finding {
    FOUND_LOST,          /* on the topic, not cut away, and no outcome */
    FOUND_UNWRITTEN,     /* acknowledged, and not on the topic: the brokers' fault or the generator's */
    FOUND_BOTH,          /* result and dead letter */
    FOUND_TWICE,         /* exactly once: more than one outcome */
    FOUND_REPEATS,       /* at least once: more repeats than the faults allow */
    FOUND_STRANGER,      /* outcome of what is not on the topic: aborted, or never written */
    FOUND_GARBLED,       /* outcome that is not readable, or has another job's metadata or source */
    FOUND_WRONG_OUTCOME, /* a good job dead, a bad one translated */
    FOUND_DIFFERENT,     /* two results of one job differ */
    FOUND_DISORDER,      /* order per key: a job's result before that of an earlier one */
    FOUND_COMMIT_BACK,
    FOUND_COMMIT_EARLY, /* committed past a job that has no visible outcome */
    FOUND_LAG,          /* committed is not the end, when all is done */
    FOUND_UNPROVEN,     /* commits that could not be judged because the readers did not get there */
    FINDINGS
};

enum { VERDICT_PARTITIONS = 64, VERDICT_KEYS = 1024 };

struct verdict_rules {
    bool exactly_once, order_by_key;
    int64_t max_repeats; /* at least once */
};

struct verdict_figures {
    int64_t requests, written_twice, acknowledged, unsure, aborted, results, dead_letters, crashed, repeats,
        commits_seen;
    int64_t cut; /* jobs that left the log before they had an outcome, and never got one */
    int64_t found[FINDINGS];
};

struct verdict;

/* findings: a line for each of the first few of a kind; NULL = none.  NULL: no memory. */
struct verdict *verdict_open(FILE *findings);
void verdict_close(struct verdict *v);

/* A record of the request topic, in order of offset within its partition; j NULL: a record that is no job of ours. */
void verdict_request(struct verdict *v, int partition, int64_t offset, const struct numbered *j);
/* The log is about to lose [from, to), where the group had committed at most from: jobs there need no outcome, and commits
 * may pass them.  They have been read: to is at most where the reader of the requests is. */
void verdict_cut(struct verdict *v, int partition, int64_t from, int64_t to);
/* source: the partition and offset of the job as the outcome's headers name them, -1 = they do not. */
void verdict_result(struct verdict *v, const struct numbered *j, uint64_t text_hash, int source_partition,
                    int64_t source_offset);
/* crashed: its code says that it ended its workers. */
void verdict_dead_letter(struct verdict *v, const struct numbered *j, bool crashed, int source_partition,
                         int64_t source_offset);
void verdict_garbled(struct verdict *v, const char *topic, int partition, int64_t offset);
/* offset -1 = none.  verdict_committed_raw() at once, for going back; verdict_committed() once the readers are there. */
void verdict_committed_raw(struct verdict *v, int partition, int64_t offset);
void verdict_committed(struct verdict *v, int partition, int64_t offset);
void verdict_unproven(struct verdict *v, int64_t samples);

/* From the generator's log, at the end. */
void verdict_acknowledged(struct verdict *v, int64_t number);
void verdict_unsure(struct verdict *v, int64_t number);
void verdict_aborted(struct verdict *v, int64_t number);
int64_t verdict_unsettled(const struct verdict *v); /* placed jobs without an outcome */
/* Every placed job has an outcome. */
bool verdict_is_settled(const struct verdict *v);
void verdict_end(struct verdict *v, int partition, int64_t committed, int64_t end);
/* true: nothing was found. */
bool verdict_judge(struct verdict *v, const struct verdict_rules *r, struct verdict_figures *out);

const char *finding_name(enum finding f);

#endif
