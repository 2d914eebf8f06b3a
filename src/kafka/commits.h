/* commits.h -- the consumer's offset commits: one at a time, of each partition its contiguous frontier and a note of what
 * is finished ahead of it.
 *
 *   commits_want() --interval over--> out --stored--> nothing wanted
 *                     ^                |
 *                     +--refused, waits longer each time
 *
 * Thread: the consumer's, but for the counts.
 * Errors: what passes is tried again; what does not is kept for commits_failure(). */
#ifndef KAFKA_COMMITS_H
#define KAFKA_COMMITS_H

#include "base/err.h"
#include "kafka/assignment.h"
#include "kafka/confirm.h"
#include "kafka/offsets.h"

#include <librdkafka/rdkafka.h>
#include <stdbool.h>
#include <stdint.h>

struct commits;

/* Answers write to wake_fd.  All that is given must outlive it. */
MUST_CHECK enum err_code commits_open(struct commits **out, rd_kafka_t *rk, struct offsets *o, struct confirm *cf,
                                      struct assignment *mine, int interval_ms, int wake_fd, struct err *e);
void commits_let_go(struct commits *m); /* before the library closes: no answer is taken any more */
void commits_close(struct commits *m);

void commits_want(struct commits *m); /* something was finished, or a note changed */
bool commits_wanted(const struct commits *m);
void commits_if_due(struct commits *m, bool hurry); /* hurry: the interval need not be over */
int64_t commits_due_ns(const struct commits *m);    /* INT64_MAX = an answer or a want must come first */
/* Takes answers, waits at most timeout_ms for one. */
void commits_serve(struct commits *m, int timeout_ms);
void commits_hurry(struct commits *m); /* the next one waits for nothing, whatever became of the last */
/* Commits all there is and waits for the answers, until until_ns; failures that pass are tried again. */
void commits_all(struct commits *m, int64_t until_ns);
bool commits_refused(const struct commits *m); /* the last one was */
void commits_joined(struct commits *m);        /* a new membership: what the last one was refused may go well now */

MUST_CHECK enum err_code commits_failure(const struct commits *m, struct err *e); /* ERR_OK, or one of act ERR_STOP */
int64_t commits_done(const struct commits *m);                                    /* any thread */
int64_t commits_failed(const struct commits *m);                                  /* any thread */

#endif
