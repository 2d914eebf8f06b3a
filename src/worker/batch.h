/* batch.h -- when a micro-batch is closed: batch.linger_ms after its oldest job came, at max_jobs, or before a job
 * that would lift it over max_tokens (a job above that alone goes alone).
 * Owns:   nothing: it is a list of the batcher's tasks.
 * Units:  tokens are prompt tokens; times in monotonic ns. */
#ifndef WORKER_BATCH_H
#define WORKER_BATCH_H

#include "config/config.h"
#include "worker/task.h"

#include <stdbool.h>
#include <stdint.h>

struct batch {
    struct task_list tasks;
    int64_t tokens, oldest_ns;
};

/* Must the batch be closed before a job of so many tokens is added? */
bool batch_has_no_room(const struct batch *b, const struct batch_config *c, int tokens);
void batch_add(struct batch *b, struct task *t, int64_t now_ns);
bool batch_is_due(const struct batch *b, const struct batch_config *c, int64_t now_ns);
int64_t batch_due_ns(const struct batch *b, const struct batch_config *c); /* INT64_MAX when empty */
/* The tasks, linked by next, or NULL; the batch is empty after it. */
struct task *batch_close(struct batch *b);

#endif
