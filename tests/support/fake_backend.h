/* fake_backend.h -- a backend for tests: no arithmetic, every rule of engine/backend.h checked.
 *
 * Its KV blocks hold real content: of each position the token, and a hash of all tokens up to it, as a real KV entry
 * depends on all of them.  A step reads the whole row back through its block list and checks it; the next token is a
 * hash of it all.  So a wrong block, a wrong share or copy, or a late write changes the output or stops the test.
 * Breaking the contract (a row joined twice, a step past the row's blocks, a write into another row's block, too many
 * prompt tokens in a step, ...) prints one line and aborts.
 *
 *     struct fake_options o = fake_defaults();
 *     o.run_ahead = 2;
 *     struct backend *b = fake_open(&o);
 *     engine_open(&en, &fake_backend_ops, b, ...);
 *
 * Where the code under test opens the backend by itself: fake_set_options(&o), backend_register(&fake_backend_ops), and
 * the name is "fake"; what struct backend_options leaves 0 comes from o. */
#ifndef TESTS_FAKE_BACKEND_H
#define TESTS_FAKE_BACKEND_H

#include "engine/backend.h"

enum { FAKE_BAD_ROW = -2 };

struct fake_options {
    int rows, blocks, block_tokens, step_tokens, max_positions, run_ahead;
    int32_t first_token; /* outputs are first_token .. first_token + vocab - 1 */
    int vocab;
    int eos_one_in;        /* one token in so many is the first end token; 0 = never */
    int32_t bad_token;     /* a row whose tokens hold it ends BACKEND_END_BAD; -1 = none */
    int32_t refused_token; /* join() refuses a row whose tokens hold it; -1 = none */
    int fail_after_steps;  /* step() fails for good after so many; 0 = never */
    bool decode_rounds;    /* as in struct backend_info; no row may be given a decoded position then */
    bool trusting;         /* blocks are not read back: for measurements, where the engine is to cost next to nothing */
    double step_seconds, token_seconds; /* what busy_seconds() counts a step and each of its prompt tokens */
    int64_t step_ns; /* how long a step takes; 0 = until it is waited for, so tokens come as late as they may */
    /* Instead of the hash: the token after tokens[0..n), as read back from the blocks; FAKE_BAD_ROW: the row ends
     * BACKEND_END_BAD. */
    int32_t (*next)(void *arg, const int32_t *tokens, int n, const struct sampling *s);
    void *arg;
};

/* 8 rows, 256 blocks of 16, 64 tokens a step, 1,024 positions, synchronous; tokens 1,000 to 1,999; never ends by
 * itself; no time. */
struct fake_options fake_defaults(void);

struct fake_counts {
    int joined; /* rows that are in now */
    uint64_t joins, leaves, grows, copies, steps, fed, decoded;
    int max_joined;
    int most_fed_beside; /* prompt tokens in a step in which rows decoded, since the 100th step */
};

extern const struct backend_ops fake_backend_ops;

struct backend *fake_open(const struct fake_options *o); /* never NULL; close with fake_backend_ops.close() */
void fake_set_options(const struct fake_options *o);     /* for fake_backend_ops.open(); *o is copied */
struct fake_counts fake_counts(const struct backend *b);
void fake_fail_after(struct backend *b, int steps); /* from now on; 0 = at the next */

/* What a request must give, whatever the engine does: fills output, returns its length; *end how it ends. */
int fake_expect(const struct fake_options *o, const int32_t *prompt, int n_prompt, int max_output,
                const struct sampling *s, const int *eos, int n_eos, int32_t *output, enum backend_end *end);

#endif
