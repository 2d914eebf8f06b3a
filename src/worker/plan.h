/* plan.h -- from a decoded job to what the engine is asked: languages, prompt ids, limits, sampling, deadline.
 *
 * Longest output: what the job asks for, else PLAN_OUTPUT_BASE + PLAN_OUTPUT_RATIO tokens a source token; both capped
 * by limits.max_output_tokens and by what max_sequence leaves.  The ratio is generous on purpose: between languages
 * that the vocabulary knows well an answer has 0.5 to 2 tokens a source token, but scripts that fall back to bytes
 * (Burmese, Khmer, Tibetan) take five and more, a cut answer is worse than a long one, and endless repetition has a
 * stop of its own.
 * Sampling: the job's values, else generation_config.json's; greedy where that says do_sample false and the job gives
 * no temperature.  Without a seed it is a hash of the job id: a repeated job gives the same text.
 * Thread: the batcher's.  Nothing allocates after open, but task_take_ids(). */
#ifndef WORKER_PLAN_H
#define WORKER_PLAN_H

#include "base/err.h"
#include "config/config.h"
#include "engine/backend.h"
#include "model/model.h"
#include "text/prompt.h"
#include "text/tokenizer.h"
#include "worker/task.h"

#include <stdint.h>

enum { PLAN_OUTPUT_BASE = 64, PLAN_OUTPUT_RATIO = 6, PLAN_MAX_SEQUENCE = 8192 };

struct plan_limits {
    int max_sequence; /* prompt and output, tokens */
    int max_input;    /* prompt */
    int max_output;
};
/* Fills the zeros of the configuration: from config.json's max_position_embeddings, and the KV pool where info is
 * known (NULL: not yet).  ERR_CONFIG where what is asked for cannot be had. */
MUST_CHECK enum err_code plan_limits(struct plan_limits *out, const struct limits_config *c, const struct dims *dims,
                                     const struct backend_info *info, struct err *e);

/* What the configuration asks of a backend. */
struct backend_options plan_backend(const struct engine_config *c, const struct plan_limits *l);

struct planner;
MUST_CHECK enum err_code planner_open(struct planner **out, const struct prompt *p, const struct tokenizer *t,
                                      const struct generation *defaults, const struct plan_limits *l, struct err *e);
void planner_close(struct planner *p);

/* A deadline may also be a header, PLAN_DEADLINE_HEADER: milliseconds since 1970 as decimal text, so that a gateway can
 * set one without decoding the job.  Of a field and a header the earlier one holds; of several headers the last.
 * ERR_INVALID_FIELD (act ERR_SKIP) for other text: no job is translated past a deadline that could not be read. */
#define PLAN_DEADLINE_HEADER "translate-deadline"
MUST_CHECK enum err_code plan_header_deadline(struct job *j, const struct record *r, struct err *e);

/* Fills t->from, t->to and t->request from t->job.  Errors are the job's (act ERR_SKIP).  ERR_DEADLINE_PASSED comes for
 * a job that is good in every other respect but its length; any deadline that is not after now is one, 0 and negative
 * ones too. */
MUST_CHECK enum err_code planner_plan(struct planner *p, struct task *t, int64_t now_mono_ns, int64_t now_wall_ms,
                                      struct err *e);

/* The parts, for tests. */
int plan_max_output(const struct plan_limits *l, const struct job *j, int n_prompt, int n_source);
MUST_CHECK enum err_code plan_sampling(struct sampling *s, const struct job *j, const struct generation *g,
                                       struct err *e);

#endif
