/* result.h -- a finished task to the bytes of its result or dead letter.
 * Owns:   the codec it encodes with, and a buffer for the text of one translation.
 * Thread: the publisher's.  The buffer grows to the longest translation (at most TASK arena's limit). */
#ifndef WORKER_RESULT_H
#define WORKER_RESULT_H

#include "base/err.h"
#include "config/config.h"
#include "model/model.h"
#include "text/tokenizer.h"
#include "wire/codec.h"
#include "worker/stats.h"
#include "worker/task.h"

struct result_writer;

MUST_CHECK enum err_code result_writer_open(struct result_writer **out, struct codec *codec,
                                            const struct wire_config *w, const struct tokenizer *t,
                                            const struct model *m, struct stats *s, struct err *e);
void result_writer_close(struct result_writer *w);

/* Fills t->out (memory in t->arena and t->record). */
MUST_CHECK enum err_code result_write(struct result_writer *w, struct task *t, struct err *e);
/* The same for a dead letter, by t->squeezed: 0 whole, 1 without its value, 2 without the request's headers too. */
MUST_CHECK enum err_code result_write_dead(struct task *t, struct err *e);

#endif
