/* worker_process.h -- one worker under test: started, watched through its log, ended.
 *
 *   GONE --worker_start()--> STARTING --event=ready--> READY --event=joined--> JOINED --its end--> GONE
 *
 * Its log goes through a pipe to a file; the pipe's end is its end.  A worker whose log is to fail writes to /dev/full
 * and holds the pipe open unused.
 * Thread: one. */
#ifndef CHAOS_WORKER_PROCESS_H
#define CHAOS_WORKER_PROCESS_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

enum worker_state { WORKER_GONE, WORKER_STARTING, WORKER_READY, WORKER_JOINED };

struct worker_process {
    int slot, starts;
    int log_cuts; /* how often it and those before it said that the log was cut */
    pid_t pid;
    int fd; /* the pipe's reading end, -1 = none */
    FILE *log;
    enum worker_state state;
    bool spoke; /* it has written something: it was past its own beginning */
    int status; /* of waitpid(), once it is GONE */
    char line[4096];
    size_t n;
};

void worker_init(struct worker_process *w, int slot);
/* argv as of execv(), logs in dir. */
bool worker_start(struct worker_process *w, const char *dir, char *const *argv, bool log_full);
/* Reads what the pipe holds; call it when the pipe is readable.  true: it has ended, status is set. */
bool worker_serve(struct worker_process *w);

#endif
