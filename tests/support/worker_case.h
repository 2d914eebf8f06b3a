/* worker_case.h -- a whole worker in this process: embedded cluster, fake or CPU backend, demo model's tokenizer.
 * What fails ends the test with a message. */
#ifndef SUPPORT_WORKER_CASE_H
#define SUPPORT_WORKER_CASE_H

#include "kafka/embedded.h"
#include "tests/support/fake_backend.h"
#include "wire/codec.h"
#include "worker/pipeline.h"
#include "worker/worker.h"

#include <pthread.h>
#include <stdbool.h>

enum { WORKER_CASE_WAIT_MS = 30000 };

struct worker_case {
    struct config cfg;
    struct fake_options fake;
    struct embedded *broker;
    char bootstrap[64];
    struct worker *w;
    pthread_t thread;
    enum err_code rc; /* of worker_run(), once stopped */
    struct err e;
};

/* Fake backend that ends a row after some ten tokens, 2 partitions, short times; then overrides "key=value", ended by
 * NULL.  wc->cfg and wc->fake may be changed before worker_case_start(). */
void worker_case_open(struct worker_case *wc, const char *const *overrides);
void worker_case_start(struct worker_case *wc); /* opens the worker and runs it on a thread of its own */
void worker_case_stop(struct worker_case *wc);  /* as SIGTERM would; waits, fills rc and e */
void worker_case_wait(struct worker_case *wc);  /* the same for one that stops by itself */
void worker_case_close(struct worker_case *wc);

/* Requests. */
struct outgoing worker_case_value(const void *value, size_t n);
void worker_case_send(struct worker_case *wc, const struct outgoing *o, int n);           /* all acknowledged */
void worker_case_send_at(struct worker_case *wc, const char *json, int64_t timestamp_ms); /* one, stamped so */
void worker_case_jobs(struct worker_case *wc, const char *prefix, int n);                 /* good ones: prefix-0, ... */

/* What lies on a topic: counted by job id (results) or simply listed (dead letters). */
struct seen {
    char id[64];     /* of a result; "" of a dead letter */
    char code[32];   /* of a dead letter, and of a result that says one */
    char status[16]; /* of a result */
    bool has_translation;
    char topic[64]; /* source, as its headers say */
    int64_t offset, timestamp_ms;
    int partition;
    size_t value_size; /* SIZE_MAX = null */
    char value[96];    /* its beginning */
    bool omitted;      /* has translate-omitted */
    char finish[16];
    int prompt_tokens, output_tokens;
    char trace[64];
};
/* Reads from the beginning until n records were seen (or the time is over) and then to the end; *list is malloc'd. */
int worker_case_read(struct worker_case *wc, bool dead_letters, int n, int wait_ms, struct seen **list);

int64_t worker_case_committed(struct worker_case *wc, int partition); /* -1 = nothing */
/* GET of a page of the worker: its status; body (may be NULL) gets at most cap bytes. */
long worker_case_get(struct worker_case *wc, const char *path, char *body, size_t cap);
/* Waits until the condition holds; the test fails where it does not come true in WORKER_CASE_WAIT_MS. */
void worker_case_until(struct worker_case *wc, bool (*holds)(struct worker_case *wc, int n), int n, const char *what);
bool worker_case_is_ready(struct worker_case *wc, int n);
bool worker_case_has_results(struct worker_case *wc, int n);  /* at least n acknowledged */
bool worker_case_has_finished(struct worker_case *wc, int n); /* results and dead letters */

#endif
