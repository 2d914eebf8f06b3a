/* backend.h -- the seam between the engine and a device that decodes.
 *
 * A device holds rows 0..rows-1, one request each, and KV blocks 0..blocks-1 of block_tokens positions.  The
 * engine owns the numbers (which request is in which row, which block belongs to whom); the backend owns the
 * memory behind them and each row's position, last token, sampling state.
 *
 *   join ----> [feeding its prompt, n tokens a step] ----> [decoding, one token a step] ----> leave
 *                                 every step is queued; its tokens are collected in order, later
 *
 * Order: copy_block, join, grow, leave and step take effect in the order of the calls, as if each were done when
 * it is called.  Up to info.run_ahead steps may be queued and not yet collected.  A row that has ended (end token
 * or max_length) does nothing in the steps already queued, and answers them with token -1.
 * Blocks: before a step the engine has given the row (join, grow) every block that the step writes to.  A block
 * may be in many rows' lists at once as long as none of them writes to it.
 * Determinism: with options.deterministic a row's tokens and log-probabilities do not depend on other rows, on how
 * its prompt was cut into steps, or on which of its first tokens were found in the cache.  Random numbers are a
 * function of (seed, position of the token being drawn).  Where info.decode_rounds that holds for blocks that a prompt
 * filled; the engine then offers no others.
 * Thread: one, the engine's.  Nothing allocates after open.
 * Errors: act ERR_STOP means the device is gone.  A row whose logits are not finite fails alone: end BACKEND_END_BAD. */
#ifndef ENGINE_BACKEND_H
#define ENGINE_BACKEND_H

#include "base/err.h"
#include "model/model.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BACKEND_ABI 2u

struct backend; /* each backend's own */

struct backend_options {
    int rows;               /* most rows at once; 0 = the backend's choice */
    int block_tokens;       /* a power of two, 16 by default */
    int step_tokens;        /* most prompt tokens in one step, over all rows; 0 = the backend's choice */
    int max_positions;      /* longest row in tokens */
    size_t kv_bytes;        /* 0 = the backend's choice */
    double memory_fraction; /* cuda: of the free memory, for weights, workspace and KV together */
    int device;             /* cuda */
    int threads;            /* cpu; 0 = one a core */
    bool deterministic;
    bool check_launches; /* cuda, to find a failing kernel: no graphs, no overlap, a check after every launch */
    bool random_weights; /* the model has no data: draw weights (normal, 0.02; norms 1) on the device */
};

struct backend_info {
    char device[128]; /* "NVIDIA H200", "AMD EPYC, 2 threads, AVX-512" */
    int rows, blocks, block_tokens, step_tokens, max_positions;
    int run_ahead;      /* steps that may be queued and uncollected; 1 = synchronous */
    bool decode_rounds; /* a decoded position's keys and values differ by rounding from those of the same token fed in a
                           prompt, and the backend is to be deterministic */
    size_t weight_bytes, kv_bytes, workspace_bytes, total_bytes, free_bytes; /* the memory plan */
};

struct sampling {
    float temperature;        /* 0 = greedy */
    float top_p;              /* 1 = off */
    float repetition_penalty; /* 1 = off; over the ids of prompt and output */
    int top_k;                /* 0 = off */
    uint64_t seed;
};

struct row_join {
    int row;
    const int32_t *tokens; /* prompt, and earlier output of a row that was put back; copied */
    int n_tokens;
    int n_cached;          /* of them, how many leading positions already lie in blocks; < n_tokens */
    const int32_t *blocks; /* the row's block list so far */
    int n_blocks;
    struct sampling sampling;
    const int32_t *eos; /* ids that end the row, at most MODEL_MAX_EOS */
    int n_eos;
    int max_length; /* the row ends when prompt and output have this many tokens; <= max_positions */
};

struct step_row {
    int row;
    int n_tokens; /* prompt tokens to feed, > 0; 0 = decode one token.  A step that feeds the last prompt token
                     also samples the first output token */
};

enum backend_end { BACKEND_END_NONE, BACKEND_END_EOS, BACKEND_END_LENGTH, BACKEND_END_BAD };

struct step_token {
    int32_t token; /* -1: this row gave none (prompt not at its end, or it had ended before) */
    float logprob; /* of the token, under the full softmax of the raw logits; ids from dims.vocab_used on are neither
                      sampled nor part of it */
    uint8_t end;   /* enum backend_end, with this token.  An end token is not part of the output */
};

struct backend_ops {
    uint32_t abi;     /* BACKEND_ABI */
    const char *name; /* "cpu", "cuda", "fake" */

    /* Is there a device?  Fills text ("NVIDIA H200, driver 580.159, compute capability 9.0, 139.8 GiB") or e. */
    enum err_code (*probe)(int device, char *text, size_t cap, struct err *e);
    /* Uploads the model and allocates everything.  The model must outlive the backend. */
    enum err_code (*open)(struct backend **out, const struct model *m, const struct backend_options *o, struct err *e);
    void (*close)(struct backend *b);
    void (*info)(const struct backend *b, struct backend_info *info);

    enum err_code (*join)(struct backend *b, const struct row_join *j, struct err *e);
    /* Appends blocks to a row's list. */
    enum err_code (*grow)(struct backend *b, int row, const int32_t *blocks, int n, struct err *e);
    enum err_code (*leave)(struct backend *b, int row, struct err *e);
    /* The first n positions of block src, all layers, to block dst. */
    enum err_code (*copy_block)(struct backend *b, int src, int dst, int n, struct err *e);
    /* Queues one step.  Rows are distinct; a row that is not named keeps its state. */
    enum err_code (*step)(struct backend *b, const struct step_row *rows, int n, struct err *e);
    /* Tokens of the oldest uncollected step, in the order of its rows, n of them.  wait false: *ready may come back
     * false at once. */
    enum err_code (*collect)(struct backend *b, struct step_token *out, int cap, bool wait, bool *ready, struct err *e);

    /* For checks, with no row joined.  Logits [last, vocab] of the last positions of tokens[0..n), through the same
     * kernels and the paged cache, prompt fed chunk tokens a step (0 = as one). */
    enum err_code (*logits)(struct backend *b, const int32_t *tokens, int n, int last, int chunk, float *out,
                            struct err *e);
    /* For checks: the distribution [vocab] from which the token after tokens[0..n) is drawn. */
    enum err_code (*distribution)(struct backend *b, const int32_t *tokens, int n, const struct sampling *s, float *out,
                                  struct err *e);

    /* For `bench`; each may be NULL.  What the device can do at most, measured: bytes read and written by a large copy,
     * floating-point operations of bf16 products.  With no step queued. */
    enum err_code (*ceilings)(struct backend *b, double *copy_bytes_per_s, double *matrix_flops_per_s, struct err *e);
    /* Seconds that the device has spent in the steps collected so far. */
    double (*busy_seconds)(const struct backend *b);
};

/* Makes a linked-in backend known to backend_find(); a second one of the same name replaces the first.  At start-up,
 * before any thread: the entry point registers &backend_cpu_ops, since imports go downward and engine/ knows no cpu/. */
void backend_register(const struct backend_ops *ops);

/* Finds a backend by name: a registered one, or a library: "cuda" is translate-worker-cuda.so beside the binary or in
 * ../lib/translate-worker of it, loaded at the first request and kept.  "auto" is cuda where it loads and its probe finds a
 * card, else cpu, and logs which and why.  ERR_DEVICE says which backends there are. */
MUST_CHECK enum err_code backend_find(const struct backend_ops **out, const char *name, struct err *e);

/* Loads a backend library: symbol translate_worker_backend, a const struct backend_ops of this BACKEND_ABI. */
MUST_CHECK enum err_code backend_load(const struct backend_ops **out, const char *path, struct err *e);

#endif
