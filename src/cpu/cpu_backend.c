#include "cpu/cpu_backend.h"

#include "base/clock.h"
#include "cpu/forward.h"
#include "cpu/kernels.h"
#include "cpu/pool.h"
#include "cpu/random_weights.h"
#include "cpu/sampler.h"
#include "engine/random.h"
#include "engine/sampling.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEFAULT_ROWS = 64, DEFAULT_STEP_TOKENS = 256, DEFAULT_BLOCK_TOKENS = 16, DEFAULT_POSITIONS = 4096 };
#define DEFAULT_KV_BYTES ((size_t)1 << 30)

/* One request.  tokens[0..n_fed) have their keys and values in the cache; tokens[n_fed..n_tokens) are to be fed: the
 * rest of the prompt, or the last token drawn.  No memory of an earlier request survives join. */
struct row {
    bool joined, ended;
    int32_t *tokens; /* [max_positions] */
    int32_t *blocks; /* [blocks of max_positions] */
    uint64_t *seen;  /* a bit an id of tokens */
    int n_tokens, n_fed, n_blocks, max_length, n_eos;
    int32_t eos[MODEL_MAX_EOS];
    struct sampling sampling;
};

/* a row that draws a token in this step */
struct pick {
    struct row *row;
    struct step_token *out;
};

struct backend {
    struct backend_info info;
    const struct kernels *kernels;
    struct pool *pool;
    struct random_weights *random;
    const struct model *m;
    struct forward *forward;
    struct sampler **samplers; /* [threads] */
    int vocab;                 /* ids that may be drawn: without padding rows */
    int max_row_blocks;
    struct row *rows;
    int32_t *row_ints;  /* tokens and blocks of all rows */
    uint64_t *row_seen; /* [rows + 1]: the last one is distribution()'s */
    size_t seen_words;
    struct forward_token *tokens; /* [step_tokens + rows] */
    struct pick *picks;           /* [rows] */
    float *logits;                /* [rows, vocab] */
    struct step_token *results;   /* [rows], of the step not yet collected */
    int n_results;
    bool pending;
    int64_t busy_ns; /* in steps */
};

/* --- probe and open --- */

static void cpu_name(char *name, size_t cap)
{
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[256];

    snprintf(name, cap, "CPU");
    while (f && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');

        if (strncmp(line, "model name", 10) == 0 && colon && colon[1]) {
            colon[strcspn(colon, "\n")] = '\0';
            snprintf(name, cap, "%.90s", colon + 2);
            break;
        }
    }
    if (f)
        fclose(f);
}

static enum err_code cpu_probe(int device, char *text, size_t cap, struct err *e)
{
    char name[96];

    (void)device;
    (void)e;
    cpu_name(name, sizeof name);
    snprintf(text, cap, "%s, %ld cores, %s", name, sysconf(_SC_NPROCESSORS_ONLN), kernels_best()->name);
    return ERR_OK;
}

static size_t default_kv_bytes(void)
{
    size_t quarter = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE) / 4;

    return quarter < DEFAULT_KV_BYTES ? quarter : DEFAULT_KV_BYTES;
}

/* The plan: every 0 in the options becomes a number, and what cannot be is refused. */
static enum err_code plan(struct backend_info *i, const struct dims *d, const struct backend_options *o, struct err *e)
{
    size_t kv_bytes = o->kv_bytes ? o->kv_bytes : default_kv_bytes(), blocks;

    i->rows = o->rows > 0 ? o->rows : DEFAULT_ROWS;
    i->block_tokens = o->block_tokens > 0 ? o->block_tokens : DEFAULT_BLOCK_TOKENS;
    i->step_tokens = o->step_tokens > 0 ? o->step_tokens : DEFAULT_STEP_TOKENS;
    i->max_positions = o->max_positions > 0 ? o->max_positions : DEFAULT_POSITIONS;
    if (i->max_positions > d->max_positions)
        i->max_positions = d->max_positions;
    i->run_ahead = 1;
    if (i->block_tokens & (i->block_tokens - 1))
        return err_set(e, ERR_CONFIG, ERR_STOP, "cpu: block_tokens %d is not a power of two", i->block_tokens);
    blocks = kv_bytes / forward_block_bytes(d, i->block_tokens);
    if (blocks > INT32_MAX)
        blocks = INT32_MAX;
    if (blocks * (size_t)i->block_tokens < (size_t)i->max_positions)
        return err_set(
            e, ERR_CONFIG, ERR_STOP,
            "cpu: %zu MiB of KV hold %zu positions, and one row may have %d; give more memory or a lower limit",
            kv_bytes >> 20, blocks * (size_t)i->block_tokens, i->max_positions);
    i->blocks = (int)blocks;
    i->kv_bytes = blocks * forward_block_bytes(d, i->block_tokens);
    return ERR_OK;
}

static enum err_code open_rows(struct backend *b, struct err *e)
{
    size_t rows = (size_t)b->info.rows, positions = (size_t)b->info.max_positions, blocks;

    b->max_row_blocks = (b->info.max_positions + b->info.block_tokens - 1) / b->info.block_tokens;
    blocks = (size_t)b->max_row_blocks;
    b->seen_words = ((size_t)b->m->dims.vocab + 63) / 64;
    b->rows = calloc(rows, sizeof *b->rows);
    b->row_ints = calloc(rows * (positions + blocks), sizeof *b->row_ints);
    b->row_seen = calloc((rows + 1) * b->seen_words, sizeof *b->row_seen);
    b->tokens = calloc((size_t)b->info.step_tokens + rows, sizeof *b->tokens);
    b->picks = calloc(rows, sizeof *b->picks);
    b->logits = malloc(rows * (size_t)b->m->dims.vocab * sizeof *b->logits);
    b->results = calloc(rows, sizeof *b->results);
    if (!b->rows || !b->row_ints || !b->row_seen || !b->tokens || !b->picks || !b->logits || !b->results)
        return err_set(e, ERR_NOMEM, ERR_STOP, "cpu: no memory for %d rows", b->info.rows);
    for (size_t i = 0; i < rows; i++) {
        b->rows[i].tokens = b->row_ints + i * (positions + blocks);
        b->rows[i].blocks = b->rows[i].tokens + positions;
        b->rows[i].seen = b->row_seen + i * b->seen_words;
    }
    b->info.workspace_bytes =
        rows * (size_t)b->m->dims.vocab * sizeof *b->logits + rows * (positions + blocks) * sizeof *b->row_ints;
    return ERR_OK;
}

static enum err_code open_samplers(struct backend *b, struct err *e)
{
    int threads = pool_threads(b->pool);
    enum err_code rc;

    b->samplers = calloc((size_t)threads, sizeof(struct sampler *));
    if (!b->samplers)
        return err_set(e, ERR_NOMEM, ERR_STOP, "cpu: out of memory");
    for (int i = 0; i < threads; i++)
        if ((rc = sampler_open(&b->samplers[i], b->kernels, b->m->dims.vocab, e)) != ERR_OK)
            return rc;
    b->info.workspace_bytes += (size_t)threads * sampler_bytes(b->m->dims.vocab);
    return ERR_OK;
}

static enum err_code open_forward(struct backend *b, struct err *e)
{
    struct forward_options o = {
        .model = b->m,
        .kernels = b->kernels,
        .pool = b->pool,
        .blocks = b->info.blocks,
        .block_tokens = b->info.block_tokens,
        .max_tokens = b->info.step_tokens + b->info.rows,
        .max_positions = b->info.max_positions,
    };
    enum err_code rc = forward_open(&b->forward, &o, e);

    if (rc == ERR_OK)
        b->info.workspace_bytes += forward_workspace_bytes(b->forward);
    return rc;
}

static void describe(struct backend *b)
{
    char name[96];

    cpu_name(name, sizeof name);
    snprintf(b->info.device, sizeof b->info.device, "%.80s, %d threads, %s", name, pool_threads(b->pool),
             b->kernels->name);
    b->info.weight_bytes = b->m->weight_bytes;
    b->info.total_bytes = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    b->info.free_bytes = (size_t)sysconf(_SC_AVPHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
}

static void cpu_close(struct backend *b)
{
    if (!b)
        return;
    for (int i = 0; b->samplers && i < pool_threads(b->pool); i++)
        sampler_close(b->samplers[i]);
    free(b->samplers);
    forward_close(b->forward);
    random_weights_close(b->random);
    pool_close(b->pool);
    free(b->rows);
    free(b->row_ints);
    free(b->row_seen);
    free(b->tokens);
    free(b->picks);
    free(b->logits);
    free(b->results);
    free(b);
}

static enum err_code cpu_open(struct backend **out, const struct model *m, const struct backend_options *o,
                              struct err *e)
{
    struct backend *b = calloc(1, sizeof *b);
    enum err_code rc;

    *out = NULL;
    if (!b)
        return err_set(e, ERR_NOMEM, ERR_STOP, "cpu: out of memory");
    b->m = m;
    b->vocab = m->dims.vocab_used;
    b->kernels = kernels_best();
    if ((rc = plan(&b->info, &m->dims, o, e)) != ERR_OK)
        goto out;
    if ((rc = pool_open(&b->pool, o->threads, e)) != ERR_OK)
        goto out;
    if (o->random_weights) {
        if ((rc = random_weights_open(&b->random, m, b->pool, e)) != ERR_OK)
            goto out;
        b->m = random_weights_model(b->random);
    } else if (!m->embed.data) {
        rc = err_set(e, ERR_MODEL, ERR_STOP, "cpu: model %s has a shape and no weights", m->name);
        goto out;
    }
    if ((rc = open_rows(b, e)) != ERR_OK || (rc = open_samplers(b, e)) != ERR_OK || (rc = open_forward(b, e)) != ERR_OK)
        goto out;
    describe(b);
    *out = b;
    b = NULL;
out:
    cpu_close(b);
    return rc;
}

static void cpu_info(const struct backend *b, struct backend_info *info)
{
    *info = b->info;
}

/* --- rows: what the engine asks for is checked, since a mistake there must not become a wrong translation --- */

static enum err_code wrong(struct err *e, const char *what, int row)
{
    return err_set(e, ERR_DEVICE, ERR_STOP, "cpu: row %d: %s", row, what);
}

static bool is_row(const struct backend *b, int row)
{
    return row >= 0 && row < b->info.rows;
}

static enum err_code add_blocks(struct backend *b, int row, const int32_t *blocks, int n, struct err *e)
{
    struct row *r = &b->rows[row];

    if (n < 0 || r->n_blocks + n > b->max_row_blocks)
        return wrong(e, "more blocks than max_positions needs", row);
    for (int i = 0; i < n; i++) {
        if (blocks[i] < 0 || blocks[i] >= b->info.blocks)
            return wrong(e, "no such block", row);
        r->blocks[r->n_blocks++] = blocks[i];
    }
    return ERR_OK;
}

static void see(uint64_t *seen, int32_t id)
{
    seen[id / 64] |= UINT64_C(1) << (id % 64);
}

static enum err_code cpu_join(struct backend *b, const struct row_join *j, struct err *e)
{
    struct row *r;
    enum err_code rc;

    if (!is_row(b, j->row) || b->rows[j->row].joined)
        return wrong(e, "joined twice, or there is no such row", j->row);
    r = &b->rows[j->row];
    if (j->max_length > b->info.max_positions || j->n_tokens < 1 || j->n_tokens >= j->max_length)
        return wrong(e, "lengths out of range", j->row);
    if (j->n_cached < 0 || j->n_cached >= j->n_tokens || j->n_cached > j->n_blocks * b->info.block_tokens)
        return wrong(e, "cached positions out of range", j->row);
    if (j->n_eos < 0 || j->n_eos > MODEL_MAX_EOS)
        return wrong(e, "too many end tokens", j->row);
    if ((rc = sampling_check(&j->sampling, e)) != ERR_OK)
        return rc;
    for (int i = 0; i < j->n_tokens; i++)
        if (j->tokens[i] < 0 || j->tokens[i] >= b->m->dims.vocab)
            return wrong(e, "an id outside the vocabulary", j->row);
    r->n_blocks = 0;
    if ((rc = add_blocks(b, j->row, j->blocks, j->n_blocks, e)) != ERR_OK)
        return rc;
    r->joined = true;
    r->ended = false;
    r->n_tokens = j->n_tokens;
    r->n_fed = j->n_cached;
    r->max_length = j->max_length;
    r->sampling = j->sampling;
    r->n_eos = j->n_eos;
    for (int i = 0; i < j->n_eos; i++)
        r->eos[i] = j->eos[i];
    memset(r->seen, 0, b->seen_words * sizeof *r->seen);
    for (int i = 0; i < j->n_tokens; i++)
        see(r->seen, r->tokens[i] = j->tokens[i]);
    return ERR_OK;
}

static enum err_code cpu_grow(struct backend *b, int row, const int32_t *blocks, int n, struct err *e)
{
    if (!is_row(b, row) || !b->rows[row].joined)
        return wrong(e, "not joined", row);
    return add_blocks(b, row, blocks, n, e);
}

static enum err_code cpu_leave(struct backend *b, int row, struct err *e)
{
    if (!is_row(b, row) || !b->rows[row].joined)
        return wrong(e, "not joined", row);
    b->rows[row].joined = false;
    return ERR_OK;
}

static enum err_code cpu_copy_block(struct backend *b, int src, int dst, int n, struct err *e)
{
    if (src < 0 || src >= b->info.blocks || dst < 0 || dst >= b->info.blocks || src == dst || n < 0 ||
        n > b->info.block_tokens)
        return err_set(e, ERR_DEVICE, ERR_STOP, "cpu: cannot copy %d positions of block %d to %d", n, src, dst);
    forward_copy_block(b->forward, src, dst, n);
    return ERR_OK;
}

/* --- a step --- */

static enum err_code check_step_row(const struct backend *b, const struct step_row *s, struct err *e)
{
    const struct row *r;
    int n = s->n_tokens ? s->n_tokens : 1;

    if (!is_row(b, s->row) || !b->rows[s->row].joined)
        return wrong(e, "not joined", s->row);
    r = &b->rows[s->row];
    if (r->ended)
        return ERR_OK;
    if (n < 0 || r->n_fed + n > r->n_tokens)
        return wrong(e, "fed past the end of its prompt", s->row);
    if (s->n_tokens == 0 && r->n_fed + 1 != r->n_tokens)
        return wrong(e, "decodes before its prompt is fed", s->row);
    if (r->n_fed + n > r->n_blocks * b->info.block_tokens)
        return wrong(e, "has no block for the positions of this step", s->row);
    return ERR_OK;
}

static void pick_task(void *arg, int i, int thread)
{
    struct backend *b = arg;
    struct row *r = b->picks[i].row;
    struct step_token *out = b->picks[i].out;
    double u = random_uniform(r->sampling.seed, (uint64_t)r->n_tokens);

    if (!sampler_draw(b->samplers[thread], b->logits + (size_t)i * (size_t)b->vocab, b->vocab, &r->sampling, r->seen, u,
                      &out->token, &out->logprob)) {
        out->end = BACKEND_END_BAD;
        r->ended = true;
        return;
    }
    see(r->seen, out->token);
    r->tokens[r->n_tokens++] = out->token;
    for (int k = 0; k < r->n_eos; k++)
        if (r->eos[k] == out->token)
            out->end = BACKEND_END_EOS;
    if (!out->end && r->n_tokens >= r->max_length)
        out->end = BACKEND_END_LENGTH;
    r->ended = out->end != BACKEND_END_NONE;
}

static enum err_code cpu_step(struct backend *b, const struct step_row *rows, int n, struct err *e)
{
    int n_tokens = 0, n_picks = 0, prompt_tokens = 0;
    enum err_code rc;

    if (b->pending || n < 0 || n > b->info.rows)
        return err_set(e, ERR_DEVICE, ERR_STOP, "cpu: %s",
                       b->pending ? "a step is not yet collected" : "too many rows");
    for (int i = 0; i < n; i++) {
        if ((rc = check_step_row(b, &rows[i], e)) != ERR_OK)
            return rc;
        prompt_tokens += rows[i].n_tokens;
    }
    if (prompt_tokens > b->info.step_tokens)
        return err_set(e, ERR_DEVICE, ERR_STOP, "cpu: %d prompt tokens in a step, at most %d", prompt_tokens,
                       b->info.step_tokens);
    for (int i = 0; i < n; i++) {
        struct row *r = &b->rows[rows[i].row];
        int feed = r->ended ? 0 : rows[i].n_tokens ? rows[i].n_tokens : 1;

        b->results[i] = (struct step_token){.token = -1};
        for (int k = 0; k < feed; k++, r->n_fed++)
            b->tokens[n_tokens++] = (struct forward_token){.id = r->tokens[r->n_fed],
                                                           .position = r->n_fed,
                                                           .blocks = r->blocks,
                                                           .logits = -1};
        if (feed && r->n_fed == r->n_tokens) {
            b->tokens[n_tokens - 1].logits = n_picks;
            b->picks[n_picks++] = (struct pick){.row = r, .out = &b->results[i]};
        }
    }
    const int64_t begin = clock_mono_ns();
    if (n_tokens > 0)
        forward_run(b->forward, b->tokens, n_tokens, b->logits, n_picks, b->vocab);
    pool_run(b->pool, pick_task, b, n_picks);
    b->busy_ns += clock_mono_ns() - begin;
    b->n_results = n;
    b->pending = true;
    return ERR_OK;
}

static enum err_code cpu_collect(struct backend *b, struct step_token *out, int cap, bool wait, bool *ready,
                                 struct err *e)
{
    (void)wait;
    *ready = false;
    if (!b->pending)
        return err_set(e, ERR_DEVICE, ERR_STOP, "cpu: no step to collect");
    if (b->n_results > cap)
        return err_set(e, ERR_DEVICE, ERR_STOP, "cpu: %d tokens to collect, room for %d", b->n_results, cap);
    memcpy(out, b->results, (size_t)b->n_results * sizeof *out);
    b->pending = false;
    *ready = true;
    return ERR_OK;
}

static double cpu_busy_seconds(const struct backend *b)
{
    return (double)b->busy_ns * 1e-9;
}

/* --- checks --- */

/* Feeds tokens into blocks 0, 1, ... of row 0's list, at most chunk a run; the logits of the last `last` ones, the
 * first `columns` ids of each, go to out. */
static enum err_code feed(struct backend *b, const int32_t *tokens, int n, int last, int chunk, int columns, float *out,
                          struct err *e)
{
    int most = b->info.step_tokens, n_logits;

    if (b->rows[0].joined || b->pending)
        return err_set(e, ERR_DEVICE, ERR_STOP, "cpu: checks need idle rows");
    if (n < 1 || n > b->info.max_positions || last < 1 || last > n || chunk < 0)
        return err_set(e, ERR_DEVICE, ERR_STOP, "cpu: %d tokens, the last %d, chunk %d: out of range", n, last, chunk);
    for (int i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= b->m->dims.vocab)
            return wrong(e, "an id outside the vocabulary", 0);
    for (int i = 0; i < b->max_row_blocks; i++)
        b->rows[0].blocks[i] = i;
    if (chunk == 0 || chunk > most)
        chunk = most;
    for (int from = 0; from < n; from += chunk) {
        int m = n - from < chunk ? n - from : chunk;

        n_logits = 0;
        for (int i = 0; i < m; i++)
            b->tokens[i] = (struct forward_token){.id = tokens[from + i],
                                                  .position = from + i,
                                                  .blocks = b->rows[0].blocks,
                                                  .logits = from + i >= n - last ? n_logits++ : -1};
        forward_run(b->forward, b->tokens, m, out, n_logits, columns);
        out += (size_t)n_logits * (size_t)columns;
    }
    return ERR_OK;
}

static enum err_code cpu_logits(struct backend *b, const int32_t *tokens, int n, int last, int chunk, float *out,
                                struct err *e)
{
    return feed(b, tokens, n, last, chunk, b->m->dims.vocab, out, e);
}

static enum err_code cpu_distribution(struct backend *b, const int32_t *tokens, int n, const struct sampling *s,
                                      float *out, struct err *e)
{
    uint64_t *seen = b->row_seen + (size_t)b->info.rows * b->seen_words;
    enum err_code rc = sampling_check(s, e);

    if (rc != ERR_OK || (rc = feed(b, tokens, n, 1, 0, b->vocab, b->logits, e)) != ERR_OK)
        return rc;
    memset(seen, 0, b->seen_words * sizeof *seen);
    for (int i = 0; i < n; i++)
        see(seen, tokens[i]);
    memset(out, 0, (size_t)b->m->dims.vocab * sizeof *out);
    if (!sampler_distribution(b->samplers[0], b->logits, b->vocab, s, seen, out))
        return err_set(e, ERR_NUMERICAL, ERR_SKIP, "cpu: logits are not finite");
    return ERR_OK;
}

const struct backend_ops backend_cpu_ops = {
    .abi = BACKEND_ABI,
    .name = "cpu",
    .probe = cpu_probe,
    .open = cpu_open,
    .close = cpu_close,
    .info = cpu_info,
    .join = cpu_join,
    .grow = cpu_grow,
    .leave = cpu_leave,
    .copy_block = cpu_copy_block,
    .step = cpu_step,
    .collect = cpu_collect,
    .logits = cpu_logits,
    .distribution = cpu_distribution,
    .busy_seconds = cpu_busy_seconds,
};
