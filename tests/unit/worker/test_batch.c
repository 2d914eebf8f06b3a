#include "base/clock.h"
#include "worker/batch.h"

#include <criterion/criterion.h>

static const struct batch_config config = {.linger_ms = 5, .max_jobs = 3, .max_tokens = 100};

static struct task *task_of(struct task *t, int tokens)
{
    *t = (struct task){.request.n_prompt = tokens};
    return t;
}

Test(batch, is_due_once_its_oldest_job_is_late)
{
    struct batch b = {.tokens = 0};
    struct task t[2];

    cr_assert_not(batch_is_due(&b, &config, INT64_MAX));
    cr_assert_eq(batch_due_ns(&b, &config), INT64_MAX);
    batch_add(&b, task_of(&t[0], 10), 1000);
    batch_add(&b, task_of(&t[1], 10), 4 * NS_PER_MS);
    cr_assert_eq(batch_due_ns(&b, &config), 1000 + 5 * NS_PER_MS);
    cr_assert_not(batch_is_due(&b, &config, 1000 + 5 * NS_PER_MS - 1));
    cr_assert(batch_is_due(&b, &config, 1000 + 5 * NS_PER_MS));
}

Test(batch, is_due_at_max_jobs_and_at_max_tokens)
{
    struct batch b = {.tokens = 0};
    struct task t[3];

    for (int i = 0; i < 3; i++) {
        cr_assert_not(batch_is_due(&b, &config, 0));
        batch_add(&b, task_of(&t[i], 1), 0);
    }
    cr_assert(batch_is_due(&b, &config, 0));
    batch_close(&b);
    batch_add(&b, task_of(&t[0], 100), 0);
    cr_assert(batch_is_due(&b, &config, 0));
}

Test(batch, has_no_room_for_what_would_lift_it_over_its_tokens)
{
    struct batch b = {.tokens = 0};
    struct task t;

    cr_assert_not(batch_has_no_room(&b, &config, 1000), "a job above the limit goes alone");
    batch_add(&b, task_of(&t, 60), 0);
    cr_assert_not(batch_has_no_room(&b, &config, 40));
    cr_assert(batch_has_no_room(&b, &config, 41));
}

Test(batch, close_gives_the_jobs_in_order_and_leaves_it_empty)
{
    struct batch b = {.tokens = 0};
    struct task t[2];

    batch_add(&b, task_of(&t[0], 1), 7);
    batch_add(&b, task_of(&t[1], 1), 8);
    struct task *first = batch_close(&b);
    cr_assert_eq(first, &t[0]);
    cr_assert_eq(first->next, &t[1]);
    cr_assert_null(t[1].next);
    cr_assert_eq(b.tasks.n, 0);
    cr_assert_eq(b.tokens, 0);
    batch_add(&b, task_of(&t[0], 1), 50);
    cr_assert_eq(b.oldest_ns, 50);
}
