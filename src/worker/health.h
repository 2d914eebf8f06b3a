/* health.h -- honest signals: live = every loop turns; ready = model loaded, group joined, nothing in the way.
 * Thread: any; all fields are atomics.  Units: monotonic ns. */
#ifndef WORKER_HEALTH_H
#define WORKER_HEALTH_H

#include "base/clock.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum loop { LOOP_CONSUMER, LOOP_BATCHER, LOOP_DECODER, LOOP_PUBLISHER, LOOPS };
const char *loop_name(enum loop l);

enum phase { PHASE_LOADING, PHASE_JOINING, PHASE_RUNNING, PHASE_DRAINING };

/* What keeps jobs from getting on for now; each is raised and lowered by one loop. */
enum obstacle { OBSTACLE_REGISTRY, OBSTACLE_PUBLISHING, OBSTACLE_BROKER, OBSTACLE_OFFSET, OBSTACLES };

enum {
    HEALTH_LOOP_LIMIT_MS = 30000, /* /live fails when a loop has not turned for twice this */
    HEALTH_STALL_LIMIT_MS = 30000 /* /ready fails when requests wait and no token came for so long */
};

struct health {
    int64_t loop_limit_ns, stall_limit_ns; /* const once the loops run */
    _Atomic int64_t turned_ns[LOOPS];      /* of the last turn; 0 = does not run */
    _Atomic int phase;
    _Atomic int64_t progress_ns; /* the decoder's last token, or the first request; 0 = nothing to decode */
    _Atomic bool obstacle[OBSTACLES];
    _Atomic bool joined; /* in the group */
};

void health_init(struct health *h);
static inline void health_turn_at(struct health *h, enum loop l, int64_t now_ns)
{
    atomic_store_explicit(&h->turned_ns[l], now_ns, memory_order_relaxed);
}
static inline void health_turn(struct health *h, enum loop l)
{
    health_turn_at(h, l, clock_mono_ns());
}
void health_end(struct health *h, enum loop l); /* the loop has ended in good order */
void health_set_obstacle(struct health *h, enum obstacle o, bool there);

/* Each fills why (a sentence) when the answer is no. */
bool health_is_live(const struct health *h, int64_t now_ns, char *why, size_t cap);
bool health_is_ready(const struct health *h, int64_t now_ns, char *why, size_t cap);
bool health_is_stalled(const struct health *h, int64_t now_ns);

#endif
