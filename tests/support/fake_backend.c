#include "tests/support/fake_backend.h"

#include "base/clock.h"
#include "base/hash.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One position of one block. */
struct cell {
    int32_t token;
    uint64_t chain; /* of all tokens up to here; 0 = never written */
    bool decoded;   /* written by a decode step, not fed */
};

struct fake_row {
    bool joined, ended;
    int32_t *tokens; /* [max_positions]: as joined, then as drawn */
    int n_join, n_tokens, pos, max_length;
    int32_t *blocks;
    int n_blocks;
    struct sampling sampling;
    int32_t eos[MODEL_MAX_EOS];
    int n_eos;
    uint64_t last_step; /* 1 = the first; 0 = in none */
};

struct queued {
    int n;
    double seconds;
    int64_t ready_ns;
    struct step_token *tokens;
};

struct backend {
    struct fake_options o;
    struct fake_row *rows;
    struct cell *cells; /* [blocks, block_tokens] */
    int *holders;       /* of each block: joined rows that list it */
    struct queued *queue;
    int first, n_queued;
    int32_t *scratch;
    int64_t last_ready_ns;
    long fail_in; /* steps until the device is gone; -1 = never */
    struct fake_counts counts;
    double busy_seconds;
};

static struct fake_options next_options;
static bool has_next_options;

static void __attribute__((format(printf, 1, 2), noreturn, cold)) stop(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    fprintf(stderr, "fake backend: contract broken: ");
    vfprintf(stderr, fmt, args);
    fprintf(stderr, "\n");
    va_end(args);
    abort();
}

/* Not a function: a rule that holds costs its test alone. */
#define require(holds, ...)                                                                                            \
    do {                                                                                                               \
        if (!(holds))                                                                                                  \
            stop(__VA_ARGS__);                                                                                         \
    } while (0)

static void *zeroed(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);

    require(p != NULL, "out of memory");
    return p;
}

struct fake_options fake_defaults(void)
{
    return (struct fake_options){.rows = 8,
                                 .blocks = 256,
                                 .block_tokens = 16,
                                 .step_tokens = 64,
                                 .max_positions = 1024,
                                 .run_ahead = 1,
                                 .first_token = 1000,
                                 .vocab = 1000,
                                 .bad_token = -1,
                                 .refused_token = -1};
}

struct backend *fake_open(const struct fake_options *o)
{
    struct backend *b = zeroed(1, sizeof *b);
    const size_t rows = (size_t)o->rows, ahead = (size_t)o->run_ahead, positions = (size_t)o->max_positions;

    b->o = *o;
    b->fail_in = o->fail_after_steps > 0 ? o->fail_after_steps : -1;
    b->rows = zeroed(rows, sizeof b->rows[0]);
    b->cells = zeroed((size_t)o->blocks * (size_t)o->block_tokens, sizeof b->cells[0]);
    b->holders = zeroed((size_t)o->blocks, sizeof b->holders[0]);
    b->queue = zeroed(ahead, sizeof b->queue[0]);
    b->scratch = zeroed(positions, sizeof b->scratch[0]);
    for (size_t i = 0; i < rows; i++) {
        b->rows[i].tokens = zeroed(positions + 1, sizeof b->scratch[0]);
        b->rows[i].blocks = zeroed((size_t)o->blocks, sizeof b->scratch[0]);
    }
    for (size_t i = 0; i < ahead; i++)
        b->queue[i].tokens = zeroed(rows, sizeof b->queue[i].tokens[0]);
    return b;
}

static void fake_close(struct backend *b)
{
    if (!b)
        return;
    for (int i = 0; i < b->o.rows; i++) {
        free(b->rows[i].tokens);
        free(b->rows[i].blocks);
    }
    for (int i = 0; i < b->o.run_ahead; i++)
        free(b->queue[i].tokens);
    free(b->rows);
    free(b->cells);
    free(b->holders);
    free(b->queue);
    free(b->scratch);
    free(b);
}

void fake_set_options(const struct fake_options *o)
{
    next_options = *o;
    has_next_options = true;
}

static enum err_code fake_open_by_name(struct backend **out, const struct model *m, const struct backend_options *o,
                                       struct err *e)
{
    struct fake_options f = has_next_options ? next_options : fake_defaults();

    (void)m; /* it has no weights */
    (void)e; /* it never fails */
    f.rows = o->rows ? o->rows : f.rows;
    f.block_tokens = o->block_tokens ? o->block_tokens : f.block_tokens;
    f.step_tokens = o->step_tokens ? o->step_tokens : f.step_tokens;
    f.max_positions = o->max_positions ? o->max_positions : f.max_positions;
    *out = fake_open(&f);
    return ERR_OK;
}

static enum err_code fake_probe(int device, char *text, size_t cap, struct err *e)
{
    (void)device;
    (void)e; /* it is always there */
    (void)snprintf(text, cap, "fake device");
    return ERR_OK;
}

static void fake_info(const struct backend *b, struct backend_info *info)
{
    *info = (struct backend_info){.device = "fake device",
                                  .rows = b->o.rows,
                                  .blocks = b->o.blocks,
                                  .block_tokens = b->o.block_tokens,
                                  .step_tokens = b->o.step_tokens,
                                  .max_positions = b->o.max_positions,
                                  .run_ahead = b->o.run_ahead,
                                  .decode_rounds = b->o.decode_rounds};
}

struct fake_counts fake_counts(const struct backend *b)
{
    return b->counts;
}

void fake_fail_after(struct backend *b, int steps)
{
    b->fail_in = steps;
}

/* --- the "model" --- */

static uint64_t chain(uint64_t before, int32_t token)
{
    uint64_t h = hash_mix(before + 1, (uint64_t)(uint32_t)token + 1);
    return h ? h : 1;
}

static int32_t next_token(const struct fake_options *o, const int32_t *tokens, int n, const struct sampling *s,
                          const int32_t *eos, int n_eos, float *logprob)
{
    uint64_t h = 0;

    for (int i = o->trusting ? n - 1 : 0; i < n; i++)
        h = chain(h, tokens[i]);
    if (s->temperature > 0)
        h = hash_mix(h, s->seed + (uint64_t)n);
    *logprob = -(float)(h % 1024) / 256;
    if (o->next)
        return o->next(o->arg, tokens, n, s);
    h = hash_mix(h, 77);
    if (o->eos_one_in > 0 && n_eos > 0 && h % (uint64_t)o->eos_one_in == 0)
        return eos[0];
    return o->first_token + (int32_t)((h >> 20) % (uint64_t)o->vocab);
}

static bool is_among(int32_t token, const int32_t *eos, int n)
{
    for (int i = 0; i < n; i++)
        if (eos[i] == token)
            return true;
    return false;
}

int fake_expect(const struct fake_options *o, const int32_t *prompt, int n_prompt, int max_output,
                const struct sampling *s, const int *eos, int n_eos, int32_t *output, enum backend_end *end)
{
    int32_t *all = zeroed((size_t)n_prompt + (size_t)max_output, sizeof all[0]);
    int n = 0;

    memcpy(all, prompt, (size_t)n_prompt * sizeof all[0]);
    for (*end = BACKEND_END_LENGTH; n < max_output; n++) {
        float logprob;
        int32_t t = next_token(o, all, n_prompt + n, s, eos, n_eos, &logprob);
        if (is_among(t, eos, n_eos)) {
            *end = BACKEND_END_EOS;
            break;
        }
        all[n_prompt + n] = output[n] = t;
    }
    free(all);
    return n;
}

/* --- rows --- */

static struct fake_row *row_at(struct backend *b, int row, const char *what)
{
    require(row >= 0 && row < b->o.rows, "%s: row %d of %d", what, row, b->o.rows);
    return &b->rows[row];
}

static struct cell *cell_at(const struct backend *b, const struct fake_row *row, int pos)
{
    return &b->cells[row->blocks[pos / b->o.block_tokens] * b->o.block_tokens + pos % b->o.block_tokens];
}

static void list_blocks(struct backend *b, struct fake_row *row, const int32_t *blocks, int n)
{
    require(row->n_blocks + n <= b->o.blocks, "a row lists more blocks than there are");
    for (int i = 0; i < n; i++) {
        require(blocks[i] >= 0 && blocks[i] < b->o.blocks, "block %d of %d", blocks[i], b->o.blocks);
        for (int k = 0; k < row->n_blocks; k++)
            require(row->blocks[k] != blocks[i], "block %d twice in a row", blocks[i]);
        row->blocks[row->n_blocks++] = blocks[i];
        b->holders[blocks[i]]++;
    }
}

/* The row as it lies in its blocks, [0, n): checked and copied to b->scratch. */
static void read_back(struct backend *b, const struct fake_row *row, int n)
{
    uint64_t h = 0;

    if (b->o.trusting)
        return;
    require(n <= row->n_blocks * b->o.block_tokens, "row %d reads %d positions and has %d blocks", (int)(row - b->rows),
            n, row->n_blocks);
    for (int i = 0; i < n; i++) {
        const struct cell *c = cell_at(b, row, i);
        h = chain(h, row->tokens[i]);
        require(c->chain == h, "row %d position %d (block %d) holds the KV of another text", (int)(row - b->rows), i,
                row->blocks[i / b->o.block_tokens]);
        b->scratch[i] = c->token;
    }
}

static enum err_code fake_join(struct backend *b, const struct row_join *j, struct err *e)
{
    struct fake_row *row = row_at(b, j->row, "join");

    require(!row->joined, "row %d joined twice", j->row);
    require(j->n_tokens > 0 && j->n_cached >= 0 && j->n_cached < j->n_tokens, "row %d: %d of %d tokens cached", j->row,
            j->n_cached, j->n_tokens);
    require(j->max_length > j->n_tokens && j->max_length <= b->o.max_positions, "row %d: max_length %d", j->row,
            j->max_length);
    require(j->n_eos >= 0 && j->n_eos <= MODEL_MAX_EOS, "%d end tokens", j->n_eos);
    if (b->o.refused_token >= 0 && is_among(b->o.refused_token, j->tokens, j->n_tokens))
        return err_set(e, ERR_INVALID_FIELD, ERR_SKIP, "fake device: no row with token %d", b->o.refused_token);
    memcpy(row->tokens, j->tokens, (size_t)j->n_tokens * sizeof row->tokens[0]);
    memcpy(row->eos, j->eos, (size_t)j->n_eos * sizeof row->eos[0]);
    row->n_eos = j->n_eos;
    row->n_join = row->n_tokens = j->n_tokens;
    row->pos = j->n_cached;
    row->max_length = j->max_length;
    row->sampling = j->sampling;
    row->n_blocks = 0;
    row->joined = true;
    row->ended = false;
    list_blocks(b, row, j->blocks, j->n_blocks);
    read_back(b, row, j->n_cached);
    for (int i = 0; b->o.decode_rounds && !b->o.trusting && i < j->n_cached; i++)
        require(!cell_at(b, row, i)->decoded, "row %d is given position %d, which was decoded", j->row, i);
    b->counts.joins++;
    if (++b->counts.joined > b->counts.max_joined)
        b->counts.max_joined = b->counts.joined;
    return ERR_OK;
}

static enum err_code fake_grow(struct backend *b, int id, const int32_t *blocks, int n, struct err *e)
{
    struct fake_row *row = row_at(b, id, "grow");

    (void)e; /* it never fails */
    require(row->joined, "grow: row %d is not joined", id);
    list_blocks(b, row, blocks, n);
    b->counts.grows++;
    return ERR_OK;
}

static enum err_code fake_leave(struct backend *b, int id, struct err *e)
{
    struct fake_row *row = row_at(b, id, "leave");

    (void)e; /* it never fails */
    require(row->joined, "leave: row %d is not joined", id);
    for (int i = 0; i < row->n_blocks; i++)
        b->holders[row->blocks[i]]--;
    row->joined = false;
    b->counts.joined--;
    b->counts.leaves++;
    return ERR_OK;
}

static enum err_code fake_copy_block(struct backend *b, int src, int dst, int n, struct err *e)
{
    (void)e; /* it never fails */
    require(src >= 0 && src < b->o.blocks && dst >= 0 && dst < b->o.blocks && src != dst, "copy of block %d to %d", src,
            dst);
    require(n > 0 && n <= b->o.block_tokens, "copy of %d positions of a block", n);
    require(b->holders[dst] == 0, "copy to block %d, which a row lists", dst);
    memcpy(&b->cells[dst * b->o.block_tokens], &b->cells[src * b->o.block_tokens], (size_t)n * sizeof b->cells[0]);
    b->counts.copies++;
    return ERR_OK;
}

/* --- steps --- */

static void write_position(struct backend *b, struct fake_row *row)
{
    const int pos = row->pos, k = pos / b->o.block_tokens;

    if (b->o.trusting) {
        row->pos++;
        return;
    }
    require(k < row->n_blocks, "row %d writes position %d and has %d blocks", (int)(row - b->rows), pos, row->n_blocks);
    require(b->holders[row->blocks[k]] == 1, "row %d writes to block %d, which %d rows list", (int)(row - b->rows),
            row->blocks[k], b->holders[row->blocks[k]]);
    struct cell *c = cell_at(b, row, pos);
    c->token = row->tokens[pos];
    c->decoded = pos >= row->n_join;
    c->chain = chain(pos > 0 ? cell_at(b, row, pos - 1)->chain : 0, c->token);
    row->pos++;
}

static struct step_token draw(struct backend *b, struct fake_row *row)
{
    struct step_token t = {.end = BACKEND_END_NONE};
    const int32_t *tokens = b->o.trusting ? row->tokens : b->scratch;

    read_back(b, row, row->pos);
    if (b->o.bad_token >= 0 && is_among(b->o.bad_token, tokens, row->pos)) {
        row->ended = true;
        return (struct step_token){.token = -1, .end = BACKEND_END_BAD};
    }
    t.token = next_token(&b->o, tokens, row->pos, &row->sampling, row->eos, row->n_eos, &t.logprob);
    if (t.token == FAKE_BAD_ROW) {
        row->ended = true;
        return (struct step_token){.token = -1, .end = BACKEND_END_BAD};
    }
    row->tokens[row->n_tokens++] = t.token;
    if (is_among(t.token, row->eos, row->n_eos))
        t.end = BACKEND_END_EOS;
    else if (row->n_tokens >= row->max_length)
        t.end = BACKEND_END_LENGTH;
    row->ended = t.end != BACKEND_END_NONE;
    return t;
}

static struct step_token advance(struct backend *b, const struct step_row *s)
{
    struct fake_row *row = row_at(b, s->row, "step");
    const struct step_token none = {.token = -1};

    require(row->joined, "step: row %d is not joined", s->row);
    if (s->n_tokens > 0) {
        require(row->pos + s->n_tokens <= row->n_join, "row %d is fed %d tokens at %d of %d", s->row, s->n_tokens,
                row->pos, row->n_join);
        for (int i = 0; i < s->n_tokens; i++)
            write_position(b, row);
        b->counts.fed += (uint64_t)s->n_tokens;
        return row->pos == row->n_join ? draw(b, row) : none;
    }
    require(row->pos >= row->n_join, "row %d decodes at %d of %d prompt tokens", s->row, row->pos, row->n_join);
    if (row->ended)
        return none;
    write_position(b, row);
    b->counts.decoded++;
    return draw(b, row);
}

static enum err_code fake_step(struct backend *b, const struct step_row *rows, int n, struct err *e)
{
    int fed = 0;
    bool decodes = false;

    if (b->fail_in == 0)
        return err_set(e, ERR_DEVICE, ERR_STOP, "fake device: it has fallen off the bus");
    b->fail_in -= b->fail_in > 0;
    require(n > 0 && n <= b->o.rows, "a step of %d rows", n);
    require(b->n_queued < b->o.run_ahead, "more than %d steps ahead", b->o.run_ahead);
    for (int i = 0; i < n; i++) {
        fed += rows[i].n_tokens;
        decodes |= rows[i].n_tokens == 0;
        struct fake_row *row = row_at(b, rows[i].row, "step");
        require(row->last_step != b->counts.steps + 1, "row %d twice in a step", rows[i].row);
        row->last_step = b->counts.steps + 1;
    }
    require(fed <= b->o.step_tokens, "%d prompt tokens in a step of at most %d", fed, b->o.step_tokens);
    struct queued *q = &b->queue[(b->first + b->n_queued++) % b->o.run_ahead];
    q->n = n;
    for (int i = 0; i < n; i++)
        q->tokens[i] = advance(b, &rows[i]);
    if (b->o.step_ns > 0) {
        int64_t now = clock_mono_ns();
        q->ready_ns = (now > b->last_ready_ns ? now : b->last_ready_ns) + b->o.step_ns;
        b->last_ready_ns = q->ready_ns;
    }
    q->seconds = b->o.step_seconds + fed * b->o.token_seconds;
    if (decodes && b->counts.steps >= 100 && fed > b->counts.most_fed_beside)
        b->counts.most_fed_beside = fed;
    b->counts.steps++;
    return ERR_OK;
}

static enum err_code fake_collect(struct backend *b, struct step_token *out, int cap, bool wait, bool *ready,
                                  struct err *e)
{
    struct queued *q = &b->queue[b->first];

    (void)e; /* it never fails */
    require(b->n_queued > 0, "collect with no step queued");
    require(cap >= q->n, "collect of %d tokens into room for %d", q->n, cap);
    *ready = wait || (b->o.step_ns > 0 && clock_mono_ns() >= q->ready_ns);
    if (!*ready)
        return ERR_OK;
    if (b->o.step_ns > 0) { /* the device works; a signal may cut the wait short */
        const struct timespec until = {.tv_sec = q->ready_ns / NS_PER_S, .tv_nsec = q->ready_ns % NS_PER_S};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0)
            ;
    }
    memcpy(out, q->tokens, (size_t)q->n * sizeof out[0]);
    b->busy_seconds += q->seconds;
    b->first = (b->first + 1) % b->o.run_ahead;
    b->n_queued--;
    return ERR_OK;
}

static double fake_busy_seconds(const struct backend *b)
{
    return b->busy_seconds;
}

static enum err_code fake_logits(struct backend *b, const int32_t *tokens, int n, int last, int chunk, float *out,
                                 struct err *e)
{
    (void)b, (void)tokens, (void)n, (void)last, (void)chunk, (void)out; /* it has none */
    return err_set(e, ERR_UNSUPPORTED, ERR_STOP, "fake backend: no logits");
}

static enum err_code fake_distribution(struct backend *b, const int32_t *tokens, int n, const struct sampling *s,
                                       float *out, struct err *e)
{
    (void)b, (void)tokens, (void)n, (void)s, (void)out; /* it has none */
    return err_set(e, ERR_UNSUPPORTED, ERR_STOP, "fake backend: no distribution");
}

const struct backend_ops fake_backend_ops = {.abi = BACKEND_ABI,
                                             .name = "fake",
                                             .probe = fake_probe,
                                             .open = fake_open_by_name,
                                             .close = fake_close,
                                             .info = fake_info,
                                             .join = fake_join,
                                             .grow = fake_grow,
                                             .leave = fake_leave,
                                             .copy_block = fake_copy_block,
                                             .step = fake_step,
                                             .collect = fake_collect,
                                             .busy_seconds = fake_busy_seconds,
                                             .logits = fake_logits,
                                             .distribution = fake_distribution};
