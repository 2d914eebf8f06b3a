/* The scheduler.  A request's states, and the function that makes each move:
 *
 *   outside --engine_submit--> WAITING --admit_one--> RUNNING --finish_row--> DONE --hand_back--> outside
 *                  |              | ^                    |                     ^
 *                  |              | +---- put_back ------+                     |
 *                  +-- refused ---+---- sweep (deadline), engine_cancel -------+
 *
 * A turn (engine_step): sweep deadlines and cancelled rows; admit; plan one step over the running rows, oldest first,
 * and queue it; publish the prompt blocks that it completes; collect.
 *
 * Positions.  row->pos counts the KV positions that cached blocks and queued steps fill.  Below n_join the row is
 * feeding its prompt; from there each step writes one position, pos, and draws token pos + 1.  The engine knows where
 * max_length is, so no step past it is queued; past an end token up to run_ahead - 1 are, and answer -1 or tokens that
 * nobody reads: a row's generation changes when it is given up, and answers carry the one they were queued under.
 *
 * Shared prefixes.  A prompt block enters the index right after the step that completes it was queued: whoever finds it
 * is joined later, and calls take effect in order.  A request whose next block is just being computed by another row
 * waits for that row's step instead of computing it again; so of many equal prompts in one turn the first is admitted,
 * the others one step later, with its blocks.  Output blocks enter when the row is given up, unless the backend says
 * that they differ from a prompt's (info.decode_rounds): then only whole blocks of the prompt do.  A row stops entering blocks at the first that the index has already, so that its chain in the index is always its own: whoever holds a
 * block holds all before it, and every idle block can be given up, least recently used first.
 *
 * Memory.  A request is admitted when its blocks are there and, beside them, the growth that it and the running rows
 * are expected to have (output_share of max_output, a running mean).  That guess may fail: then, once nothing is
 * queued any more, the youngest row goes back.  A single row always fits (engine_submit checks), so the oldest never
 * goes back and everything ends. */
#include "engine/engine.h"

#include "base/clock.h"
#include "engine/kv_pool.h"
#include "engine/pace.h"
#include "engine/prefix.h"
#include "engine/repetition.h"
#include "engine/sampling.h"
#include "engine/waiting.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum request_state { REQUEST_OUTSIDE, REQUEST_WAITING, REQUEST_RUNNING, REQUEST_DONE };

/* A waiting request goes first once this many times max_requests others were admitted since it came. */
enum { PASSED_OVER_LIMIT = 4 };

struct row {
    struct request *r; /* NULL: free */
    uint32_t generation;
    int n_join; /* tokens that join() was given */
    int pos, max_length;
    int n_entered; /* leading blocks that are in the prefix index */
    bool enters;   /* further blocks may follow them */
    int n_blocks;
    int32_t *blocks;
    struct repetition repetition;
};

struct flight_row {
    int row;
    uint32_t generation;
};

/* A step queued and not collected. */
struct flight {
    int n, fed; /* fed: prompt tokens */
    bool decodes;
    struct flight_row *rows;
};

struct engine {
    const struct backend_ops *ops;
    struct backend *backend;
    struct backend_info info;
    struct engine_options options;
    int32_t eos[MODEL_MAX_EOS];
    int block_shift;

    struct pace pace;
    double busy_seconds; /* of the backend, at the last collection */

    struct kv_pool *pool;
    struct prefix *prefix;
    struct row *rows;
    int *free_rows, n_free_rows;
    int *running, n_running; /* rows by order of their requests: oldest first */
    int32_t *row_blocks;     /* what rows[].blocks point into */

    struct flight *flights; /* ring of info.run_ahead */
    int first_flight, n_flights;
    struct flight_row *flight_rows;

    struct step_row *plan;
    struct step_token *tokens;
    int32_t *scratch; /* [max_sequence]: prompt and output of a row that was put back */

    struct waiting waiting;
    struct request *done_first, *done_last;
    int n_inside; /* waiting, running, done */

    int64_t next_deadline_ns; /* no request inside has an earlier one */
    bool cancel_due;          /* a running request was cancelled */
    bool starved;             /* a running row waits for a block: nobody is admitted */
    double output_share;      /* of max_output that requests really used, running mean */
    uint64_t admissions;
    int64_t now_ns;    /* of the last submit, turn or collection: the stamps' time */
    struct err broken; /* the device's error, once there was one */
    struct engine_stats stats;
};

const char *finish_name(enum finish f)
{
    static const char *const names[] = {"none", "eos", "length", "repetition", "deadline", "cancelled", "error"};

    return (unsigned)f < sizeof names / sizeof names[0] ? names[f] : "none";
}

static int blocks_for(const struct engine *en, int tokens)
{
    return (tokens + en->info.block_tokens - 1) >> en->block_shift;
}

/* --- open and close --- */

static enum err_code check_options(const struct engine *en, const struct engine_options *o, struct err *e)
{
    const struct backend_info *i = &en->info;

    if (i->rows < 1 || i->blocks < 1 || i->step_tokens < 1 || i->run_ahead < 1 || i->block_tokens < 1 ||
        (i->block_tokens & (i->block_tokens - 1)) != 0)
        return err_set(e, ERR_DEVICE, ERR_STOP,
                       "backend %s: %d rows, %d blocks of %d tokens, %d tokens a step, %d steps ahead make no engine",
                       en->ops->name, i->rows, i->blocks, i->block_tokens, i->step_tokens, i->run_ahead);
    if (o->max_sequence < 2 || o->max_sequence > i->max_positions)
        return err_set(e, ERR_CONFIG, ERR_STOP, "longest sequence is %d tokens: the backend allows 2 to %d",
                       o->max_sequence, i->max_positions);
    if (o->max_requests < 1)
        return err_set(e, ERR_CONFIG, ERR_STOP, "most requests at once is %d: allowed is 1 and more", o->max_requests);
    if (o->n_eos < 0 || o->n_eos > MODEL_MAX_EOS)
        return err_set(e, ERR_MODEL, ERR_STOP, "%d end tokens: at most %d are allowed", o->n_eos, MODEL_MAX_EOS);
    return ERR_OK;
}

static bool allocate(struct engine *en)
{
    const size_t rows = (size_t)en->info.rows, ahead = (size_t)en->info.run_ahead;
    const size_t row_blocks = (size_t)blocks_for(en, en->options.max_sequence);

    en->rows = calloc(rows, sizeof en->rows[0]);
    en->row_blocks = calloc(rows * row_blocks, sizeof en->row_blocks[0]);
    en->free_rows = calloc(rows, sizeof en->free_rows[0]);
    en->running = calloc(rows, sizeof en->running[0]);
    en->flights = calloc(ahead, sizeof en->flights[0]);
    en->flight_rows = calloc(ahead * rows, sizeof en->flight_rows[0]);
    en->plan = calloc(rows, sizeof en->plan[0]);
    en->tokens = calloc(rows, sizeof en->tokens[0]);
    en->scratch = calloc((size_t)en->options.max_sequence, sizeof en->scratch[0]);
    if (!en->rows || !en->row_blocks || !en->free_rows || !en->running || !en->flights || !en->flight_rows ||
        !en->plan || !en->tokens || !en->scratch)
        return false;
    for (size_t i = 0; i < rows; i++) {
        en->rows[i].blocks = en->row_blocks + i * row_blocks;
        en->free_rows[i] = (int)(rows - 1 - i); /* row 0 is given out first */
    }
    for (size_t i = 0; i < ahead; i++)
        en->flights[i].rows = en->flight_rows + i * rows;
    en->n_free_rows = en->info.rows;
    return true;
}

enum err_code engine_open(struct engine **out, const struct backend_ops *ops, struct backend *b,
                          const struct engine_options *o, struct err *e)
{
    enum err_code rc;
    struct engine *en = calloc(1, sizeof *en);

    *out = NULL;
    if (!en)
        return err_set(e, ERR_NOMEM, ERR_STOP, "engine: out of memory");
    en->ops = ops;
    en->backend = b;
    ops->info(b, &en->info);
    if ((rc = check_options(en, o, e)) != ERR_OK)
        goto out;
    en->options = *o;
    for (int i = 0; i < o->n_eos; i++)
        en->eos[i] = o->eos[i];
    en->options.eos = en->eos;
    en->pace.limit = ops->busy_seconds ? o->step_seconds : 0;
    while (1 << en->block_shift < en->info.block_tokens)
        en->block_shift++;
    en->next_deadline_ns = INT64_MAX;
    en->output_share = 1;
    if ((rc = kv_pool_open(&en->pool, en->info.blocks, e)) != ERR_OK)
        goto out;
    if ((rc = prefix_open(&en->prefix, en->info.blocks, en->info.block_tokens, e)) != ERR_OK)
        goto out;
    if (!allocate(en)) {
        rc = err_set(e, ERR_NOMEM, ERR_STOP, "engine: out of memory for %d rows", en->info.rows);
        goto out;
    }
    *out = en;
    en = NULL;
out:
    engine_close(en);
    return rc;
}

void engine_close(struct engine *en)
{
    if (!en)
        return;
    kv_pool_close(en->pool);
    prefix_close(en->prefix);
    free(en->rows);
    free(en->row_blocks);
    free(en->free_rows);
    free(en->running);
    free(en->flights);
    free(en->flight_rows);
    free(en->plan);
    free(en->tokens);
    free(en->scratch);
    free(en);
}

/* --- requests in and out --- */

static void finish(struct engine *en, struct request *r, enum finish how)
{
    r->finish = how;
    r->state = REQUEST_DONE;
    r->finished_ns = en->now_ns;
    r->next = NULL;
    if (en->done_last)
        en->done_last->next = r;
    else
        en->done_first = r;
    en->done_last = r;
}

static int hand_back(struct engine *en, struct request **done, int cap)
{
    int n = 0;

    while (n < cap && en->done_first) {
        struct request *r = en->done_first;
        en->done_first = r->next;
        if (!en->done_first)
            en->done_last = NULL;
        r->next = NULL;
        r->state = REQUEST_OUTSIDE;
        en->n_inside--;
        en->stats.requests_done++;
        done[n++] = r;
    }
    return n;
}

static enum err_code check_request(const struct engine *en, const struct request *r, struct err *e)
{
    const int64_t length = (int64_t)r->n_prompt + r->max_output;
    const int64_t pool = (int64_t)en->info.blocks << en->block_shift;

    if (r->n_prompt < 1 || !r->prompt)
        return err_set(e, ERR_EMPTY_TEXT, ERR_SKIP, "the prompt has no tokens");
    if (r->max_output < 1 || !r->output)
        return err_set(e, ERR_INVALID_FIELD, ERR_SKIP, "max_output is %d tokens: allowed is 1 and more", r->max_output);
    if (length > en->options.max_sequence)
        return err_set(e, ERR_TEXT_TOO_LONG, ERR_SKIP,
                       "%d tokens of prompt and up to %d of output: at most %d together are allowed", r->n_prompt,
                       r->max_output, en->options.max_sequence);
    if (length - 1 > pool) /* the last token's KV is never written */
        return err_set(e, ERR_TEXT_TOO_LONG, ERR_SKIP,
                       "%d tokens of prompt and up to %d of output: the KV cache holds %lld", r->n_prompt,
                       r->max_output, (long long)pool);
    return sampling_check(&r->sampling, e);
}

static void take_in(struct engine *en, struct request *r)
{
    r->n_output = r->n_scored = r->n_cached = r->times_put_back = 0;
    r->finish = FINISH_NONE;
    r->sum_logprob = r->min_logprob = 0;
    r->submitted_ns = en->now_ns;
    r->admitted_ns = r->first_token_ns = r->finished_ns = 0;
    r->next = r->prev = r->older = r->newer = NULL;
    r->state = REQUEST_WAITING;
    r->cancelled = false;
    r->row = -1;
    r->order = 0;
    r->submitted_at = en->admissions;
}

enum err_code engine_submit(struct engine *en, struct request *const *reqs, int n, struct err *e)
{
    struct request *batch = NULL, **tail = &batch;

    if (n > engine_room(en))
        return err_set(e, ERR_BUSY, ERR_RETRY, "engine: %d requests and room for %d", n, engine_room(en));
    en->now_ns = clock_mono_ns();
    for (int i = 0; i < n; i++) {
        struct request *r = reqs[i];
        take_in(en, r);
        en->n_inside++;
        if (check_request(en, r, &r->error) != ERR_OK) {
            finish(en, r, FINISH_ERROR);
            continue;
        }
        r->may_loop = repetition_is_inside(r->prompt, r->n_prompt);
        if (r->deadline_ns != 0 && r->deadline_ns < en->next_deadline_ns)
            en->next_deadline_ns = r->deadline_ns;
        *tail = r;
        tail = &r->next;
    }
    waiting_add(&en->waiting, batch);
    return ERR_OK;
}

void engine_cancel(struct engine *en, struct request *r)
{
    if (r->state == REQUEST_WAITING) {
        waiting_remove(&en->waiting, r);
        finish(en, r, FINISH_CANCELLED);
    } else if (r->state == REQUEST_RUNNING) {
        r->cancelled = true;
        en->cancel_due = true;
    }
}

bool engine_is_busy(const struct engine *en)
{
    return en->n_inside > 0 || en->n_flights > 0;
}

int engine_room(const struct engine *en)
{
    return en->options.max_requests - en->n_inside;
}

void engine_get_stats(const struct engine *en, struct engine_stats *s)
{
    *s = en->stats;
    s->rows_running = en->n_running;
    s->rows_total = en->info.rows;
    s->waiting = en->waiting.n;
    s->blocks_total = en->info.blocks;
    s->blocks_free = kv_pool_free_count(en->pool);
    s->blocks_cached = kv_pool_idle_count(en->pool);
}

/* --- blocks and the prefix index --- */

static int available(const struct engine *en)
{
    return kv_pool_free_count(en->pool) + kv_pool_idle_count(en->pool);
}

static int32_t take_block(struct engine *en)
{
    if (kv_pool_free_count(en->pool) == 0) {
        int32_t idle = kv_pool_oldest_idle(en->pool);
        if (idle < 0)
            return -1;
        prefix_remove(en->prefix, idle);
        kv_pool_forget(en->pool, idle);
    }
    return kv_pool_take(en->pool);
}

/* Deepest first: an idle block is then always younger in the pool's list than the blocks that follow it in a text. */
static void drop_blocks(struct engine *en, const int32_t *blocks, int n)
{
    while (n > 0)
        kv_pool_drop(en->pool, blocks[--n]);
}

static int32_t token_at(const struct request *r, int i)
{
    return i < r->n_prompt ? r->prompt[i] : r->output[i - r->n_prompt];
}

/* Enters the row's full blocks below position end. */
static void enter_blocks(struct engine *en, struct row *row, int end)
{
    const int bt = en->info.block_tokens;

    if (en->info.decode_rounds && end > row->r->n_prompt)
        end = row->r->n_prompt;
    while (row->enters && (row->n_entered + 1) * bt <= end) {
        const int k = row->n_entered;
        for (int i = 0; i < bt; i++)
            en->scratch[i] = token_at(row->r, k * bt + i);
        row->enters = prefix_add(en->prefix, en->options.weights_key, k > 0 ? row->blocks[k - 1] : -1, en->scratch,
                                 row->blocks[k]);
        if (row->enters) {
            kv_pool_keep(en->pool, row->blocks[k]);
            row->n_entered++;
        }
    }
}

void engine_forget_prefixes(struct engine *en)
{
    for (int32_t b = 0; b < en->info.blocks; b++)
        if (kv_pool_is_kept(en->pool, b))
            kv_pool_forget(en->pool, b);
    prefix_clear(en->prefix);
    for (int i = 0; i < en->n_running; i++)
        en->rows[en->running[i]].enters = false; /* the blocks before its next one are no longer there */
}

/* --- rows end --- */

/* Gives the row up.  What it wrote stays in the index if entering is set. */
static enum err_code release_row(struct engine *en, struct row *row, bool entering, struct err *e)
{
    const int id = (int)(row - en->rows);
    const int known = row->r->n_prompt + row->r->n_output;
    int i = 0;

    if (entering)
        enter_blocks(en, row, row->pos < known ? row->pos : known);
    drop_blocks(en, row->blocks, row->n_blocks);
    while (en->running[i] != id)
        i++;
    en->n_running--;
    memmove(en->running + i, en->running + i + 1, (size_t)(en->n_running - i) * sizeof en->running[0]);
    en->free_rows[en->n_free_rows++] = id;
    row->r->row = -1;
    row->r = NULL;
    row->generation++;
    return en->ops->leave(en->backend, id, e);
}

static void learn_output_share(struct engine *en, const struct request *r, enum finish how)
{
    if (how == FINISH_EOS || how == FINISH_LENGTH || how == FINISH_REPETITION)
        en->output_share += ((double)r->n_output / r->max_output - en->output_share) / 16;
}

static enum err_code finish_row(struct engine *en, struct row *row, enum finish how, struct err *e)
{
    struct request *r = row->r;
    enum err_code rc = release_row(en, row, how != FINISH_ERROR, e);

    learn_output_share(en, r, how);
    finish(en, r, how);
    if (how == FINISH_ERROR)
        engine_forget_prefixes(en); /* its blocks may hold what is not finite; this happens to broken devices */
    return rc;
}

static enum err_code put_back(struct engine *en, struct row *row, struct err *e)
{
    struct request *r = row->r;
    enum err_code rc = release_row(en, row, true, e);

    r->times_put_back++;
    r->state = REQUEST_WAITING;
    en->stats.put_back++;
    waiting_put_back(&en->waiting, r);
    return rc;
}

/* --- deadlines, cancelled rows --- */

static void sweep_waiting(struct engine *en, struct request *list, int64_t now)
{
    struct request *next;

    for (struct request *r = list; r; r = next) {
        next = r->next;
        if (r->deadline_ns == 0)
            continue;
        if (r->deadline_ns <= now) {
            waiting_remove(&en->waiting, r);
            finish(en, r, FINISH_DEADLINE);
        } else if (r->deadline_ns < en->next_deadline_ns) {
            en->next_deadline_ns = r->deadline_ns;
        }
    }
}

static enum err_code sweep_running(struct engine *en, int64_t now, struct err *e)
{
    for (int i = en->n_running - 1; i >= 0; i--) {
        struct row *row = &en->rows[en->running[i]];
        const struct request *r = row->r;
        enum err_code rc = ERR_OK;
        if (r->cancelled)
            rc = finish_row(en, row, FINISH_CANCELLED, e);
        else if (r->deadline_ns != 0 && r->deadline_ns <= now)
            rc = finish_row(en, row, FINISH_DEADLINE, e);
        else if (r->deadline_ns != 0 && r->deadline_ns < en->next_deadline_ns)
            en->next_deadline_ns = r->deadline_ns;
        if (rc != ERR_OK)
            return rc;
    }
    return ERR_OK;
}

static enum err_code sweep(struct engine *en, struct err *e)
{
    const int64_t now = en->now_ns = clock_mono_ns();

    if (now < en->next_deadline_ns && !en->cancel_due)
        return ERR_OK;
    en->next_deadline_ns = INT64_MAX;
    en->cancel_due = false;
    sweep_waiting(en, en->waiting.put_back, now);
    sweep_waiting(en, en->waiting.first, now);
    return sweep_running(en, now, e);
}

/* --- admission --- */

/* Blocks that r is expected to hold at its end. */
static int expected_blocks(const struct engine *en, const struct request *r)
{
    int output = (int)(en->output_share * r->max_output) + 1;

    if (output < r->n_output + en->info.block_tokens)
        output = r->n_output + en->info.block_tokens;
    if (output > r->max_output)
        output = r->max_output;
    return blocks_for(en, r->n_prompt + output - 1);
}

static int expected_growth(const struct engine *en, const struct request *r, int n_blocks)
{
    const int more = expected_blocks(en, r) - n_blocks;

    return more > 0 ? more : 0;
}

/* Is the block after those that were found being computed by a row that has it in its prompt too?  A row with fewer blocks
 * entered would meet its next one in the index and stop entering. */
static bool is_being_computed(const struct engine *en, const struct request *r, int n_tokens, int n_found)
{
    const int end = (n_found + 1) << en->block_shift;

    if (end > n_tokens - 1 || end > r->n_prompt)
        return false;
    for (int i = 0; i < en->n_running; i++) {
        const struct row *row = &en->rows[en->running[i]];
        if (row->pos < row->n_join && row->enters && row->n_entered == n_found && end <= row->r->n_prompt &&
            memcmp(row->r->prompt, r->prompt, (size_t)end * sizeof r->prompt[0]) == 0)
            return true;
    }
    return false;
}

/* Gives the row the blocks that hold tokens[0..n): those found, a copy of the one found in part, fresh ones.  They
 * are there.  *n_cached: how many tokens need not be fed. */
static enum err_code fill_blocks(struct engine *en, struct row *row, int n, const struct prefix_hit *hit, int *n_cached,
                                 struct err *e)
{
    const int total = blocks_for(en, n), fresh = total - hit->n_blocks;
    enum err_code rc = ERR_OK;
    int32_t source = hit->n_tokens > 0 ? hit->block : -1;

    /* the last block that is there may be the very one to copy: then it is given up and computed */
    if (source >= 0 && kv_pool_holders(en->pool, source) == 0 && available(en) <= fresh)
        source = -1;
    if (source >= 0)
        kv_pool_hold(en->pool, source);
    for (row->n_blocks = hit->n_blocks; row->n_blocks < total; row->n_blocks++) {
        row->blocks[row->n_blocks] = take_block(en);
        assert(row->blocks[row->n_blocks] >= 0);
    }
    *n_cached = hit->n_blocks << en->block_shift;
    if (source >= 0) {
        rc = en->ops->copy_block(en->backend, source, row->blocks[hit->n_blocks], hit->n_tokens, e);
        kv_pool_drop(en->pool, source);
        *n_cached += hit->n_tokens;
    }
    return rc;
}

static void enter_running(struct engine *en, int id)
{
    int i = en->n_running++;

    for (; i > 0 && en->rows[en->running[i - 1]].r->order > en->rows[id].r->order; i--)
        en->running[i] = en->running[i - 1];
    en->running[i] = id;
}

static void count_admission(struct engine *en, struct request *r, int n_tokens, int n_cached)
{
    if (r->admitted_ns == 0) {
        r->admitted_ns = en->now_ns;
        r->n_cached = n_cached;
        r->order = ++en->admissions;
    } else {
        en->stats.wasted_tokens += (uint64_t)(n_tokens - n_cached);
    }
    en->stats.cached_tokens += (uint64_t)n_cached;
}

static void start_row(struct engine *en, int id, struct request *r, int n_join, int n_cached, int n_entered)
{
    struct row *row = &en->rows[id];

    waiting_remove(&en->waiting, r);
    count_admission(en, r, n_join, n_cached);
    r->state = REQUEST_RUNNING;
    r->row = id;
    row->r = r;
    row->n_join = n_join;
    row->pos = n_cached;
    row->max_length = r->n_prompt + r->max_output;
    row->n_entered = n_entered;
    row->enters = en->options.prefix_cache;
    repetition_reset(&row->repetition);
    for (int i = 1; i <= r->n_output; i++)
        (void)repetition_push(&row->repetition, r->output, i); /* it passed when it was new */
    en->n_free_rows--;
    enter_running(en, id);
}

/* A request that the backend will not have (act ERR_SKIP) fails alone; it has no row then. */
static enum err_code join_row(struct engine *en, struct request *r, const int32_t *tokens, int n,
                              const struct prefix_hit *hit, struct err *e)
{
    const int id = en->free_rows[en->n_free_rows - 1];
    struct row *row = &en->rows[id];
    int n_cached;
    enum err_code rc = fill_blocks(en, row, n, hit, &n_cached, e);

    if (rc != ERR_OK)
        return rc;
    const struct row_join join = {.row = id,
                                  .tokens = tokens,
                                  .n_tokens = n,
                                  .n_cached = n_cached,
                                  .blocks = row->blocks,
                                  .n_blocks = row->n_blocks,
                                  .sampling = r->sampling,
                                  .eos = en->eos,
                                  .n_eos = en->options.n_eos,
                                  .max_length = r->n_prompt + r->max_output};
    rc = en->ops->join(en->backend, &join, e);
    if (rc == ERR_OK) {
        start_row(en, id, r, n, n_cached, hit->n_blocks);
        return ERR_OK;
    }
    drop_blocks(en, row->blocks, row->n_blocks);
    if (e->act != ERR_SKIP)
        return rc;
    waiting_remove(&en->waiting, r);
    r->error = *e;
    finish(en, r, FINISH_ERROR);
    return ERR_OK;
}

/* The admissions of one turn. */
struct admissions {
    int reserve; /* blocks that the running rows are expected to grow by */
    int tries;   /* how many more requests are looked at */
    bool full;   /* no row is free, or one found no room: nobody overtakes it, so it gets its room */
};

/* Does nothing where r's prefix is being computed.  Such a request may be overtaken: it waits for a row that is being
 * fed, for as long as that takes. */
static enum err_code admit_one(struct engine *en, struct request *r, struct admissions *a, struct err *e)
{
    const int n = r->n_prompt + r->n_output;
    int32_t *blocks = en->rows[en->free_rows[en->n_free_rows - 1]].blocks;
    const int32_t *tokens = r->prompt;
    struct prefix_hit hit = {.block = -1};

    if (r->n_output > 0) {
        memcpy(en->scratch, r->prompt, (size_t)r->n_prompt * sizeof tokens[0]);
        memcpy(en->scratch + r->n_prompt, r->output, (size_t)r->n_output * sizeof tokens[0]);
        tokens = en->scratch;
    }
    if (en->options.prefix_cache) {
        hit = prefix_find(en->prefix, en->options.weights_key, tokens, n - 1, blocks);
        if (r->times_put_back == 0 && is_being_computed(en, r, n, hit.n_blocks))
            return ERR_OK;
    }
    for (int i = 0; i < hit.n_blocks; i++)
        kv_pool_hold(en->pool, blocks[i]);
    const int growth = expected_growth(en, r, blocks_for(en, n));
    const int fresh = blocks_for(en, n) - hit.n_blocks;
    if (available(en) < fresh + (en->n_running > 0 ? growth + a->reserve : 0)) {
        drop_blocks(en, blocks, hit.n_blocks);
        a->full = true;
        return ERR_OK;
    }
    a->reserve += growth;
    enum err_code rc = join_row(en, r, tokens, n, &hit, e);
    a->full = en->n_free_rows == 0;
    return rc;
}

static struct request *passed_over(const struct engine *en)
{
    struct request *r = en->waiting.oldest;
    const uint64_t limit = (uint64_t)PASSED_OVER_LIMIT * (uint64_t)en->options.max_requests;

    return r && en->admissions - r->submitted_at > limit ? r : NULL;
}

/* Waiting requests have lain since they were submitted, so their memory is fetched before their turn: of one that is
 * three places away the prompt, of the next the request. */
static struct request *prefetch_next(struct request *ahead)
{
    if (!ahead)
        return NULL;
    __builtin_prefetch(ahead->prompt);
    if (ahead->n_prompt > 16)
        __builtin_prefetch(ahead->prompt + 16);
    if (ahead->next)
        engine_prefetch(ahead->next);
    return ahead->next;
}

static enum err_code admit_list(struct engine *en, struct request *list, struct admissions *a, struct err *e)
{
    enum { AHEAD = 3 };
    struct request *next, *ahead = list;
    enum err_code rc = ERR_OK;

    for (int i = 0; i < AHEAD; i++)
        ahead = prefetch_next(ahead);
    for (struct request *r = list; r && !a->full && a->tries > 0 && rc == ERR_OK; r = next, a->tries--) {
        next = r->next;
        ahead = prefetch_next(ahead);
        rc = admit_one(en, r, a, e);
    }
    return rc;
}

static enum err_code admit(struct engine *en, struct err *e)
{
    struct admissions a = {.tries = 2 * en->info.rows};
    enum err_code rc;

    if (en->n_free_rows == 0 || en->waiting.n == 0 || en->starved)
        return ERR_OK;
    for (int i = 0; i < en->n_running; i++) {
        const struct row *row = &en->rows[en->running[i]];
        a.reserve += expected_growth(en, row->r, row->n_blocks);
    }
    if ((rc = admit_list(en, en->waiting.put_back, &a, e)) != ERR_OK)
        return rc;
    struct request *first = passed_over(en);
    if (first && !a.full && (rc = admit_one(en, first, &a, e)) != ERR_OK)
        return rc;
    return admit_list(en, en->waiting.first, &a, e);
}

/* --- one step --- */

/* One more block for running[i].  *granted false: the row was put back, or (starved) waits for what is queued. */
static enum err_code grow_row(struct engine *en, struct row *row, bool *granted, struct err *e)
{
    const int id = (int)(row - en->rows);
    int32_t block;

    *granted = false;
    while ((block = take_block(en)) < 0) {
        if (en->n_flights > 0) { /* rows in them may end; and no token is lost */
            en->starved = true;
            return ERR_OK;
        }
        struct row *youngest = &en->rows[en->running[en->n_running - 1]];
        enum err_code rc = put_back(en, youngest, e);
        if (rc != ERR_OK || youngest == row)
            return rc;
    }
    row->blocks[row->n_blocks++] = block;
    *granted = true;
    return en->ops->grow(en->backend, id, &block, 1, e);
}

/* Does a row decode in the next step? */
static bool decodes(const struct engine *en)
{
    for (int i = 0; i < en->n_running; i++) {
        const struct row *row = &en->rows[en->running[i]];
        if (row->pos >= row->n_join && row->pos + 1 < row->max_length)
            return true;
    }
    return false;
}

/* Who does what in the next step: *n rows in en->plan; none while starved. */
static enum err_code make_plan(struct engine *en, int *n, struct err *e)
{
    int budget = pace_budget(&en->pace, en->info.step_tokens, en->pace.limit > 0 && decodes(en));

    *n = 0;
    en->starved = false;
    for (int i = 0; i < en->n_running; i++) {
        struct row *row = &en->rows[en->running[i]];
        int feed = row->n_join - row->pos;
        if (feed > 0) {
            feed = feed < budget ? feed : budget;
            if (feed == 0)
                continue;
            budget -= feed;
        } else if (row->pos + 1 >= row->max_length) {
            continue; /* its last token is under way */
        } else if (row->pos >> en->block_shift == row->n_blocks) {
            bool granted;
            enum err_code rc = grow_row(en, row, &granted, e);
            if (rc != ERR_OK)
                return rc;
            if (en->starved) {
                *n = 0;
                return ERR_OK;
            }
            if (!granted)
                break; /* it was the youngest */
        }
        en->plan[(*n)++] = (struct step_row){.row = en->running[i], .n_tokens = feed > 0 ? feed : 0};
    }
    return ERR_OK;
}

static enum err_code queue_step(struct engine *en, int n, struct err *e)
{
    struct flight *f = &en->flights[(en->first_flight + en->n_flights) % en->info.run_ahead];
    enum err_code rc = en->ops->step(en->backend, en->plan, n, e);

    if (rc != ERR_OK)
        return rc;
    en->n_flights++;
    en->stats.steps++;
    en->stats.rows_in_steps += (uint64_t)n;
    f->n = n;
    f->fed = 0;
    f->decodes = false;
    for (int i = 0; i < n; i++) {
        struct row *row = &en->rows[en->plan[i].row];
        const int fed = en->plan[i].n_tokens;
        f->fed += fed;
        f->decodes |= fed == 0;
        f->rows[i] = (struct flight_row){.row = en->plan[i].row, .generation = row->generation};
        row->pos += fed > 0 ? fed : 1;
        if (fed > 0)
            enter_blocks(en, row, row->pos);
        en->stats.prompt_tokens += (uint64_t)fed;
    }
    return ERR_OK;
}

static void score(struct request *r, float logprob)
{
    if (r->n_scored++ == 0 || logprob < r->min_logprob)
        r->min_logprob = logprob;
    r->sum_logprob += logprob;
}

static enum err_code take_token(struct engine *en, struct row *row, const struct step_token *t, struct err *e)
{
    struct request *r = row->r;

    if (t->end == BACKEND_END_BAD) {
        (void)err_set(&r->error, ERR_NUMERICAL, ERR_SKIP, "logits are not finite after %d tokens of output",
                      r->n_output); /* the request carries it */
        return finish_row(en, row, FINISH_ERROR, e);
    }
    if (t->token < 0)
        return ERR_OK; /* its prompt goes on */
    if (r->first_token_ns == 0)
        r->first_token_ns = en->now_ns;
    score(r, t->logprob);
    if (t->end == BACKEND_END_EOS)
        return finish_row(en, row, FINISH_EOS, e);
    r->output[r->n_output++] = t->token;
    en->stats.output_tokens++;
    if (t->end == BACKEND_END_LENGTH || r->n_output == r->max_output)
        return finish_row(en, row, FINISH_LENGTH, e);
    if (repetition_push(&row->repetition, r->output, r->n_output) && !r->may_loop)
        return finish_row(en, row, FINISH_REPETITION, e);
    return ERR_OK;
}

static void learn_pace(struct engine *en, const struct flight *f)
{
    if (en->pace.limit <= 0)
        return;
    const double busy = en->ops->busy_seconds(en->backend);
    pace_learn(&en->pace, f->fed, f->decodes, busy - en->busy_seconds);
    en->busy_seconds = busy;
}

static enum err_code collect_one(struct engine *en, bool wait, bool *ready, struct err *e)
{
    const struct flight *f = &en->flights[en->first_flight];
    enum err_code rc = en->ops->collect(en->backend, en->tokens, f->n, wait, ready, e);

    if (rc != ERR_OK || !*ready)
        return rc;
    en->now_ns = clock_mono_ns();
    learn_pace(en, f);
    en->first_flight = (en->first_flight + 1) % en->info.run_ahead;
    en->n_flights--;
    for (int i = 0; i < f->n; i++) {
        struct row *row = &en->rows[f->rows[i].row];
        if (row->generation != f->rows[i].generation) {
            en->stats.wasted_tokens += en->tokens[i].token >= 0;
            continue;
        }
        if ((rc = take_token(en, row, &en->tokens[i], e)) != ERR_OK)
            return rc;
    }
    return ERR_OK;
}

static enum err_code turn(struct engine *en, struct err *e)
{
    enum err_code rc;
    bool ready = true;
    int n;

    if ((rc = sweep(en, e)) != ERR_OK || (rc = admit(en, e)) != ERR_OK || (rc = make_plan(en, &n, e)) != ERR_OK)
        return rc;
    if (n > 0 && (rc = queue_step(en, n, e)) != ERR_OK)
        return rc;
    bool wait = n == 0 || en->n_flights == en->info.run_ahead;
    while (en->n_flights > 0 && ready) {
        if ((rc = collect_one(en, wait, &ready, e)) != ERR_OK)
            return rc;
        wait = false;
    }
    return ERR_OK;
}

enum err_code engine_step(struct engine *en, struct request **done, int cap, int *n, struct err *e)
{
    struct err mine = {0};

    if (en->broken.code == ERR_OK) {
        enum err_code rc = turn(en, &mine);
        if (rc != ERR_OK)
            (void)err_set(&en->broken, rc, ERR_STOP, "%s", mine.msg); /* returned below */
    }
    *n = hand_back(en, done, cap);
    if (en->broken.code == ERR_OK)
        return ERR_OK;
    return err_set(e, en->broken.code, ERR_STOP, "%s", en->broken.msg);
}
