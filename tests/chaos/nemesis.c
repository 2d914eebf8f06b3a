#include "tests/chaos/nemesis.h"

#include "base/hash.h"

#include <assert.h>
#include <string.h>

static const struct {
    const char *name;
    int weight, from_ms, to_ms;
} kinds[FAULT_KINDS] = {
    [FAULT_KILL] = {"kill", 18, 0, 2000},
    [FAULT_PAUSE] = {"pause", 8, 1000, 4000},
    [FAULT_ZOMBIE] = {"zombie", 12, 1500, 9000}, /* beyond the session timeout */
    [FAULT_TERM] = {"term", 14, 0, 2000},
    [FAULT_JOIN] = {"join", 10, 1000, 6000},
    [FAULT_JOIN_KILL] = {"join_kill", 8, 1000, 6000},
    [FAULT_TWIN] = {"twin", 8, 0, 9000},
    [FAULT_DEVICE] = {"device", 4, 0, 1000},
    [FAULT_LOG_FULL] = {"log_full", 4, 3000, 6000},
    [FAULT_STORM] = {"storm", 8, 4000, 12000},
    [FAULT_CUT] = {"cut", 12, 0, 4000},
    [FAULT_REGISTRY] = {"registry", 8, 2000, 15000},
    [FAULT_REFUSE] = {"refuse", 6, 2000, 12000},
    [FAULT_BROKER_KILL] = {"broker_kill", 9, 0, 5000},
    [FAULT_BROKER_STOP] = {"broker_stop", 6, 1000, 20000},
    [FAULT_BROKER_PAUSE] = {"broker_pause", 5, 1000, 8000},
    [FAULT_ALL_DOWN] = {"all_down", 2, 10000, 10000},
};

const char *fault_name(enum fault_kind k)
{
    return kinds[k].name;
}

unsigned fault_mask(const char *names)
{
    unsigned mask = 0;

    if (!names)
        return (1u << FAULT_KINDS) - 1;
    while (*names) {
        size_t n = strcspn(names, ",");
        unsigned before = mask;

        for (int k = 0; k < FAULT_KINDS; k++)
            if (strlen(kinds[k].name) == n && strncmp(kinds[k].name, names, n) == 0)
                mask |= 1u << k;
        if (mask == before)
            return 0;
        names += n + (names[n] == ',');
    }
    return mask;
}

static int between(uint64_t h, int from, int to)
{
    return from + (int)(h % (uint64_t)(to - from + 1));
}

static enum fault_kind pick(uint64_t h, unsigned mask)
{
    int sum = 0, dice, k, last = 0;

    for (k = 0; k < FAULT_KINDS; k++)
        sum += mask >> k & 1 ? kinds[k].weight : 0;
    assert(sum > 0);
    dice = (int)(h % (uint64_t)sum);
    for (k = 0; k < FAULT_KINDS && dice >= 0; k++)
        if (mask >> k & 1) {
            dice -= kinds[k].weight;
            last = k;
        }
    return (enum fault_kind)last;
}

void nemesis_draw(struct fault *f, uint64_t seed, int i, unsigned mask, int session_timeout_ms)
{
    uint64_t h = hash_mix(seed, (uint64_t)i);

    f->kind = pick(h, mask);
    f->target = (unsigned)(hash_mix(h, 1) >> 32);
    f->duration_ms = between(hash_mix(h, 2), kinds[f->kind].from_ms, kinds[f->kind].to_ms);
    if (f->kind == FAULT_ZOMBIE)
        f->duration_ms += session_timeout_ms;
    f->has_beside = f->kind >= FAULT_BROKER_KILL && (mask & 1u << FAULT_KILL) && hash_mix(h, 5) % 2 == 0;
    f->beside = (const enum fault_kind[]){FAULT_KILL, FAULT_TERM, FAULT_PAUSE}[hash_mix(h, 6) % 3];
    f->rest_ms = hash_mix(h, 3) % 3 == 0 ? between(hash_mix(h, 4), 0, 300) : between(hash_mix(h, 4), 500, 4000);
}
