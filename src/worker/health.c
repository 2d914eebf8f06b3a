#include "worker/health.h"

#include <stdio.h>
#include <string.h>

static const char *const loop_names[LOOPS] = {"consumer", "batcher", "decoder", "publisher"};

static const char *const obstacle_texts[OBSTACLES] = {
    [OBSTACLE_REGISTRY] = "the schema registry does not answer",
    [OBSTACLE_PUBLISHING] = "results cannot be published",
    [OBSTACLE_BROKER] = "no broker answers",
    [OBSTACLE_OFFSET] = "the offset of a partition is not in its log (kafka.offset_wait_ms)",
};

const char *loop_name(enum loop l)
{
    return (unsigned)l < LOOPS ? loop_names[l] : "?";
}

void health_init(struct health *h)
{
    memset(h, 0, sizeof *h);
    h->loop_limit_ns = HEALTH_LOOP_LIMIT_MS * NS_PER_MS;
    h->stall_limit_ns = HEALTH_STALL_LIMIT_MS * NS_PER_MS;
    atomic_store(&h->phase, PHASE_LOADING);
}

void health_end(struct health *h, enum loop l)
{
    atomic_store(&h->turned_ns[l], 0);
}

void health_set_obstacle(struct health *h, enum obstacle o, bool there)
{
    atomic_store_explicit(&h->obstacle[o], there, memory_order_relaxed);
}

bool health_is_live(const struct health *h, int64_t now_ns, char *why, size_t cap)
{
    for (int l = 0; l < LOOPS; l++) {
        int64_t turned = atomic_load(&h->turned_ns[l]);
        if (turned != 0 && now_ns - turned > 2 * h->loop_limit_ns) {
            snprintf(why, cap, "the %s has not turned for %lld s", loop_names[l],
                     (long long)((now_ns - turned) / NS_PER_S));
            return false;
        }
    }
    return true;
}

bool health_is_stalled(const struct health *h, int64_t now_ns)
{
    int64_t progress = atomic_load(&h->progress_ns);

    return progress != 0 && now_ns - progress > h->stall_limit_ns;
}

bool health_is_ready(const struct health *h, int64_t now_ns, char *why, size_t cap)
{
    switch (atomic_load(&h->phase)) {
    case PHASE_LOADING: snprintf(why, cap, "the model is being loaded"); return false;
    case PHASE_JOINING: snprintf(why, cap, "waiting for the brokers"); return false;
    case PHASE_DRAINING: snprintf(why, cap, "stopping"); return false;
    default: break;
    }
    if (!atomic_load(&h->joined)) {
        snprintf(why, cap, "not in the consumer group yet");
        return false;
    }
    for (int o = 0; o < OBSTACLES; o++)
        if (atomic_load(&h->obstacle[o])) {
            snprintf(why, cap, "%s", obstacle_texts[o]);
            return false;
        }
    if (health_is_stalled(h, now_ns)) {
        snprintf(why, cap, "requests wait and no token came for %lld s",
                 (long long)((now_ns - atomic_load(&h->progress_ns)) / NS_PER_S));
        return false;
    }
    return health_is_live(h, now_ns, why, cap);
}
