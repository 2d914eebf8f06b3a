/* engine.h -- many requests through one backend: continuous batching over a paged, prefix-shared KV pool.
 *
 *   submit -> waiting (ordered) -> admitted: row + blocks, prompt in chunks -> decoding -> done
 *                 ^                                   |
 *                 +---- put back: pool was full ------+   (its tokens stay, its KV is computed again)
 *
 * A finished row leaves at once and a waiting request joins at the next step.  A row that runs out of blocks makes
 * the youngest row go back to the front of the waiting ones; the oldest row is never put back, so all finish.
 * Order:  put-back ones first, then by priority, then batch by batch.  Nobody waits for ever: a request that saw four
 *         times max_requests others admitted since it came is next, whatever its priority; one that finds no room is
 *         not overtaken.  Between equal prompts the first is computed, the others join a step later and share it.
 * Output: depends on the request alone (backend's options.deterministic): not on neighbours, pool, cache or order.  On a
 *         backend whose info.decode_rounds one thing is excepted: a row that was put back has the keys and values of its
 *         earlier output computed again as a prompt, and goes on from values that differ by rounding.
 * Owns:   rows, the block pool, the prefix index.  Requests and their buffers are the caller's until handed back.
 * Thread: one.  Nothing allocates after open.
 * Limits: waiting requests are bounded by options.max_requests. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "base/err.h"
#include "engine/backend.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct engine;

enum finish {
    FINISH_NONE,
    FINISH_EOS,
    FINISH_LENGTH,
    FINISH_REPETITION,
    FINISH_DEADLINE,
    FINISH_CANCELLED,
    FINISH_ERROR
};
const char *finish_name(enum finish f); /* "eos", "length", "repetition", "deadline", "cancelled", "error" */

struct request {
    /* in: filled by the caller, untouched until it comes back */
    const int32_t *prompt;
    int n_prompt;
    int max_output; /* > 0; prompt + max_output <= options.max_sequence */
    struct sampling sampling;
    int priority;        /* higher is admitted first */
    int64_t deadline_ns; /* monotonic; 0 = none; passed (also below 0): FINISH_DEADLINE at the next turn, and without a
                            token if it was never admitted */
    int32_t *output;     /* room for max_output ids */
    void *owner;

    /* out */
    int n_output; /* the end token is not counted */
    enum finish finish;
    float sum_logprob, min_logprob; /* over the output and the end token, n_scored of them */
    int n_scored;
    int n_cached; /* prompt tokens whose KV was found, at the first admission */
    int times_put_back;
    int64_t submitted_ns, admitted_ns, first_token_ns, finished_ns; /* monotonic, to the turn; 0 = not reached */

    /* the engine's own: zero before the first submit */
    struct request *next, *prev;   /* in the list that holds it */
    struct request *older, *newer; /* waiting ones by submission */
    uint8_t state;
    bool cancelled, may_loop;
    int row;
    uint64_t order;        /* of its first admission: what "oldest" and "youngest" go by */
    uint64_t submitted_at; /* admissions until then */

    /* out, of FINISH_ERROR alone: act ERR_RETRY or ERR_SKIP.  Last, since it is larger than all the rest, which every
     * request needs in the caches */
    struct err error;
};

struct engine_options {
    int max_requests; /* waiting and running together */
    int max_sequence; /* prompt and output, <= backend's max_positions */
    bool prefix_cache;
    const int *eos; /* the model's, <= MODEL_MAX_EOS */
    int n_eos;
    double
        step_seconds; /* prompts are cut so that a step with decoding rows takes about so long at most; 0: no limit */
    uint64_t weights_key; /* part of every prefix key: another model never finds these blocks */
};

struct engine_stats {
    int rows_running, rows_total, waiting;
    int blocks_total, blocks_free, blocks_cached; /* cached: held by the prefix index alone, free on demand */
    uint64_t steps, output_tokens, requests_done, put_back;
    uint64_t prompt_tokens; /* fed, counted step by step */
    uint64_t cached_tokens; /* found in the index instead */
    uint64_t wasted_tokens; /* drawn and not wanted any more, or fed again after a put-back */
    uint64_t rows_in_steps; /* sum over steps: divided by steps, the mean batch */
};

MUST_CHECK enum err_code engine_open(struct engine **out, const struct backend_ops *ops, struct backend *b,
                                     const struct engine_options *o, struct err *e);
void engine_close(struct engine *en); /* requests still inside are forgotten, the backend stays open */

/* Takes n requests as one micro-batch: among them, longer prompts first (similar lengths run together), priorities
 * before that.  ERR_BUSY takes none.  A request that can never fit (too long, no prompt, bad sampling values) is
 * taken and comes back at the next engine_step() with FINISH_ERROR, act ERR_SKIP. */
MUST_CHECK enum err_code engine_submit(struct engine *en, struct request *const *reqs, int n, struct err *e);

/* Has the processor fetch what engine_submit() and engine_step() need of r itself. */
static inline void engine_prefetch(const struct request *r)
{
    for (size_t i = 0; i < offsetof(struct request, error); i += 64)
        __builtin_prefetch((const char *)r + i);
}

/* Finishes r (waiting or running) as FINISH_CANCELLED; it comes back from the next engine_step().  One that is done or
 * outside stays as it is. */
void engine_cancel(struct engine *en, struct request *r);

/* One turn: deadlines, admission, one step queued if any row can go on, collection of what is due.  Waits for the
 * device only when as many steps are queued as it may run ahead.  Finished requests are written to done[0..cap), *n of
 * them, also beside an error; call again while engine_is_busy().  An error is the device's, act ERR_STOP, and the
 * engine returns it from then on: close it, and what is inside is the caller's again. */
MUST_CHECK enum err_code engine_step(struct engine *en, struct request **done, int cap, int *n, struct err *e);

bool engine_is_busy(const struct engine *en); /* anything waiting, running or to hand back */
int engine_room(const struct engine *en);     /* how many more requests engine_submit() takes */
void engine_get_stats(const struct engine *en, struct engine_stats *s);
/* Drops the prefix index: for tests. */
void engine_forget_prefixes(struct engine *en);

#endif
