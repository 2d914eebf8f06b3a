/* nemesis.h -- the faults of a run: the i-th is a function of the seed alone, so the same seed is the same list. */
#ifndef CHAOS_NEMESIS_H
#define CHAOS_NEMESIS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum fault_kind {
    FAULT_KILL,      /* a worker, kill -9, started again */
    FAULT_PAUSE,     /* a worker is stopped and goes on within the session timeout */
    FAULT_ZOMBIE,    /* a worker is stopped past the session timeout and comes back */
    FAULT_TERM,      /* a worker, SIGTERM, started again */
    FAULT_JOIN,      /* one more worker, which leaves by SIGTERM */
    FAULT_JOIN_KILL, /* one more worker, which leaves by kill -9 */
    FAULT_TWIN,      /* a worker is stopped, another of the same identity takes over, the first comes back: fenced */
    FAULT_DEVICE,    /* a worker's device fails for good */
    FAULT_LOG_FULL,  /* a worker whose log goes to a full disk */
    FAULT_STORM,     /* one to three workers come and go, faster than the group settles */
    FAULT_CUT,       /* the log of the requests is cut up to or past what is committed, under the workers */
    FAULT_REGISTRY,  /* the schema registry hangs or fails; half the time a worker that knows no schema yet meets it */
    FAULT_REFUSE,    /* the topic of the results or of the dead letters takes nothing for a while */
    FAULT_BROKER_KILL,  /* a broker, kill -9, started again */
    FAULT_BROKER_STOP,  /* a broker, clean stop, started again: leaders and coordinators move */
    FAULT_BROKER_PAUSE, /* a broker is stopped and goes on: requests hang */
    FAULT_ALL_DOWN,     /* all brokers, kill -9, started again */
    FAULT_KINDS
};

struct fault {
    enum fault_kind kind;
    unsigned target; /* which worker or broker: any number, taken modulo */
    int duration_ms; /* how long the fault lasts */
    int rest_ms;     /* of calm after it; short ones let faults meet */
    bool has_beside; /* of a broker's fault: while it lasts, a worker has one too */
    enum fault_kind beside;
};

const char *fault_name(enum fault_kind k);
/* "kill,term,...": a mask; NULL = all.  0: an unknown name. */
unsigned fault_mask(const char *names);
void nemesis_draw(struct fault *f, uint64_t seed, int i, unsigned mask, int session_timeout_ms);

#endif
