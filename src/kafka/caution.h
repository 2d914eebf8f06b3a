/* caution.h -- finds the job that kills its worker, by what the notes of committed offsets say of work under way.
 *
 *   at rest --caution_begin(): before the first record--> in work --caution_rest(): revoked, or a stop in order--> at rest
 *      caution_found(): a note that says "in work" at assignment: its owner died, or lost the partition.  CAUTION_DEATHS
 *      of that without a move of the offset:
 *   careful: caution_suspect(): each record alone in the whole process, and noted before it is handed on
 *      a note found in work with a suspect: that job was alone when its owner died; crashes + 1
 *      crashes = max_crashes: caution_condemns() it, it becomes a dead letter
 *      window records done: caution_pass() --> in work; the next death before the offset moves makes careful at once, with
 *      twice the window, up to the most that may have been in work
 *      the end of the log: caution_over() --> in work, nothing counted
 *
 * Only a death with exactly this job in work counts against it: of many in work nobody knows which one it was.  So each
 * death makes the offset move, or brings its partition nearer to careful, or counts against the one job that did it.
 * Owns:   the state of one partition in one assignment; it lives in struct partition.
 * Thread: the consumer's.  Pure: knows nothing of librdkafka. */
#ifndef KAFKA_CAUTION_H
#define KAFKA_CAUTION_H

#include "kafka/commit_note.h"

#include <stdbool.h>
#include <stdint.h>

enum { CAUTION_DEATHS = 2 };

struct caution_rule {
    int max_crashes; /* 0 = off: nothing is noted, and what notes say of deaths is left aside */
    int window;      /* records that were probably in work at a death */
    int most;        /* and the most that may have been */
};

struct caution {
    bool in_work, careful;
    bool named;           /* a suspect, in this assignment */
    int deaths, crashes;  /* see struct commit_note */
    int64_t suspect;      /* -1 = none */
    int64_t base;         /* the offset at which deaths was counted, -1 = none */
    int left;             /* careful: records to be run alone yet */
    uint64_t changes;     /* of all that a note says */
    uint64_t sent, saved; /* changes in the newest commit, and in the last that was acknowledged */
};

void caution_init(struct caution *c);
/* At assignment, with the note of offset committed.  true: its owner died. */
bool caution_found(struct caution *c, const struct caution_rule *r, const struct commit_note *n, int64_t committed);

void caution_begin(struct caution *c);
void caution_suspect(struct caution *c, int64_t offset);
void caution_rest(struct caution *c);
void caution_pass(struct caution *c, int64_t frontier); /* frontier: the offset now */
void caution_over(struct caution *c);
/* A job of another partition in this process was condemned, which explains the deaths counted here: they are forgotten,
 * but for those of a suspect alone. */
void caution_excuse(struct caution *c);

bool caution_is_saved(const struct caution *c);
bool caution_condemns(const struct caution *c, const struct caution_rule *r, int64_t offset);

/* The crash fields of the note that goes with offset. */
void caution_write(const struct caution *c, struct commit_note *n, int64_t offset);

#endif
