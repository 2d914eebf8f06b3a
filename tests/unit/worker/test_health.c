#include "worker/health.h"

#include <criterion/criterion.h>
#include <string.h>

static char why[160];

static struct health running(void)
{
    struct health h;

    health_init(&h);
    atomic_store(&h.phase, PHASE_RUNNING);
    atomic_store(&h.joined, true);
    return h;
}

Test(health, is_live_while_loading_and_not_ready)
{
    struct health h;

    health_init(&h);
    cr_assert(health_is_live(&h, INT64_MAX, why, sizeof why));
    cr_assert_not(health_is_ready(&h, 0, why, sizeof why));
    cr_assert(strstr(why, "loaded"));
}

Test(health, is_not_live_once_a_loop_has_not_turned_for_twice_the_limit)
{
    struct health h = running();
    int64_t now = clock_mono_ns();

    for (int l = 0; l < LOOPS; l++)
        health_turn(&h, (enum loop)l);
    cr_assert(health_is_live(&h, now + 2 * h.loop_limit_ns, why, sizeof why));
    atomic_store(&h.turned_ns[LOOP_BATCHER], now - 2 * h.loop_limit_ns - 1);
    cr_assert_not(health_is_live(&h, now, why, sizeof why));
    cr_assert(strstr(why, "batcher"));
    cr_assert_not(health_is_ready(&h, now, why, sizeof why));
    health_end(&h, LOOP_BATCHER);
    cr_assert(health_is_live(&h, now, why, sizeof why), "a loop that has ended in good order does not wedge");
}

Test(health, is_ready_only_without_obstacles)
{
    struct health h = running();

    cr_assert(health_is_ready(&h, clock_mono_ns(), why, sizeof why));
    for (int o = 0; o < OBSTACLES; o++) {
        health_set_obstacle(&h, (enum obstacle)o, true);
        why[0] = '\0';
        cr_assert_not(health_is_ready(&h, clock_mono_ns(), why, sizeof why));
        cr_assert_gt(strlen(why), 0);
        health_set_obstacle(&h, (enum obstacle)o, false);
    }
    atomic_store(&h.joined, false);
    cr_assert_not(health_is_ready(&h, clock_mono_ns(), why, sizeof why));
    atomic_store(&h.joined, true);
    atomic_store(&h.phase, PHASE_DRAINING);
    cr_assert_not(health_is_ready(&h, clock_mono_ns(), why, sizeof why));
}

Test(health, is_not_ready_when_requests_wait_and_no_token_comes)
{
    struct health h = running();
    int64_t now = clock_mono_ns();

    atomic_store(&h.progress_ns, now - h.stall_limit_ns - 1);
    cr_assert(health_is_stalled(&h, now));
    cr_assert_not(health_is_ready(&h, now, why, sizeof why));
    cr_assert(health_is_live(&h, now, why, sizeof why), "a restart would not help a slow device");
    atomic_store(&h.progress_ns, now);
    cr_assert(health_is_ready(&h, now, why, sizeof why));
}
