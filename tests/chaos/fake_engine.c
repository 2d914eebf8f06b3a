/* fake_engine.c -- build/translate-worker-fake.so: the fake backend of the unit tests as a library that the real worker
 * loads (engine.backend = "fake"), with faults on demand.  It checks the contract of backend.h all the while.
 *
 *   FAKE_STEP_US       how long a step takes (0)
 *   FAKE_TRUST         1: checks nothing and looks at no more than the last token, for measurements
 *   FAKE_DIR           a folder for what outlives the process:
 *     crash-N-K        job N has ended a process for the Kth time
 *     device-gone-PID  made by somebody: this process's device fails for good at its next step
 *   FAKE_CRASHES       how often a job of kind JOB_CRASH ends its process (2); every third of them (number % 3 = 1) does
 *                      so whenever it is run.  0: none does
 *
 * A job says by the low bits of its sampling seed what it is (tests/chaos/job.h).  Outputs are a function of the prompt,
 * so every try of a job gives the same text. */
#include "base/hash.h"
#include "tests/chaos/job.h"
#include "tests/support/fake_backend.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ANSWER_TOKENS = 8, LONG_TOKENS = 150 }; /* mean lengths */
enum { ENDLESS = 1000 };

static int32_t end_token; /* of the one model of this process */
static bool trusting;
static char gone_path[PATH_MAX]; /* empty without FAKE_DIR */

static long number_of(const char *variable, long otherwise)
{
    const char *s = getenv(variable);

    return s && *s ? strtol(s, NULL, 10) : otherwise;
}

/* The count outlives us in files, one a crash; O_EXCL, so that two workers never take the same one. */
static void crash(uint64_t seed)
{
    const char *dir = getenv("FAKE_DIR");
    long most = number_of("FAKE_CRASHES", 2);
    char path[PATH_MAX];

    if (most > 0 && (seed >> 8) % 3 == 1)
        most = ENDLESS;
    for (long k = 1; dir && k <= most; k++) {
        snprintf(path, sizeof path, "%s/crash-%" PRIu64 "-%ld", dir, seed >> 8, k);
        int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
        if (fd >= 0) {
            close(fd);
            kill(getpid(), SIGKILL);
        }
    }
}

static int32_t next(void *arg, const int32_t *tokens, int n, const struct sampling *s)
{
    enum job_kind kind = (enum job_kind)(s->seed & 0xFF);
    size_t first = trusting ? (size_t)n - 1 : 0;
    uint64_t h =
        hash_mix(hash_bytes(tokens + first, ((size_t)n - first) * sizeof *tokens, trusting ? s->seed : 1), (uint64_t)n);

    (void)arg; /* nothing beside the row */
    if (kind == JOB_CRASH)
        crash(s->seed);
    if (kind == JOB_BAD)
        return FAKE_BAD_ROW;
    if (h % (kind == JOB_LONG || kind == JOB_LATE ? LONG_TOKENS : ANSWER_TOKENS) == 0)
        return end_token;
    return 1000 + (int32_t)(h >> 20) % 1000;
}

static enum err_code open_fake(struct backend **out, const struct model *m, const struct backend_options *o,
                               struct err *e)
{
    const char *dir = getenv("FAKE_DIR");
    struct fake_options f = fake_defaults();

    end_token = m->generation.n_eos > 0 ? m->generation.eos[0] : -1;
    if (dir)
        snprintf(gone_path, sizeof gone_path, "%s/device-gone-%ld", dir, (long)getpid());
    f.trusting = trusting = number_of("FAKE_TRUST", 0) != 0;
    f.blocks = 2048;
    f.step_ns = number_of("FAKE_STEP_US", 0) * 1000;
    f.run_ahead = 2;
    f.next = next;
    fake_set_options(&f);
    return fake_backend_ops.open(out, m, o, e);
}

static enum err_code step(struct backend *b, const struct step_row *rows, int n, struct err *e)
{
    if (gone_path[0] && access(gone_path, F_OK) == 0 && unlink(gone_path) == 0)
        fake_fail_after(b, 0);
    return fake_backend_ops.step(b, rows, n, e);
}

struct backend_ops translate_worker_backend;

/* The table is the other one's, but for what is ours. */
static void __attribute__((constructor)) fill(void)
{
    translate_worker_backend = fake_backend_ops;
    translate_worker_backend.open = open_fake;
    translate_worker_backend.step = step;
}
