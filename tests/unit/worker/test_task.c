#include "base/clock.h"
#include "worker/task.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

Test(task, pool_is_bounded_and_gives_clean_tasks)
{
    struct task_pool *p;
    struct task *a, *b;
    int32_t *ids;

    cr_assert_eq(task_pool_open(&p, 2, 1 << 20, NULL), ERR_OK);
    a = task_pool_take(p, 0);
    b = task_pool_take(p, 0);
    cr_assert(a && b && a != b);
    cr_assert_null(task_pool_take(p, clock_mono_ns() + NS_PER_MS));
    cr_assert_eq(task_pool_in_use(p), 2);
    a->attempts = 7;
    cr_assert_not_null(arena_take(&a->arena, 100000));
    cr_assert_eq(task_take_ids(a, 5000, &ids, NULL), ERR_OK);
    memset(ids, 1, 5000 * sizeof ids[0]);
    task_kill(a, ERR_EMPTY_TEXT, "text: %s", "empty");
    task_pool_give(p, a);
    a = task_pool_take(p, 0);
    cr_assert_eq(a->attempts, 0);
    cr_assert_eq(a->outcome, OUTCOME_NONE);
    cr_assert_null(a->large_ids);
    cr_assert_eq(a->arena.used_bytes, 0);
    task_pool_close(p);
}

Test(task, nothing_of_a_job_is_left_but_the_rest_of_an_error_text)
{
    struct task_pool *p;

    cr_assert_eq(task_pool_open(&p, 1, 1 << 20, NULL), ERR_OK);
    struct task *t = task_pool_take(p, 0);
    struct arena arena = t->arena;
    int32_t *ids = t->own_ids;
    memset(t, 0xA5, sizeof *t);
    t->arena = arena;
    t->own_ids = ids;
    t->large_ids = NULL;
    task_pool_give(p, t);
    t = task_pool_take(p, 0);
    cr_assert_str_empty(t->error.msg);
    cr_assert_str_empty(t->request.error.msg);
    memset(t->error.msg, 0, sizeof t->error.msg);
    memset(t->request.error.msg, 0, sizeof t->request.error.msg);
    memset(&t->arena, 0, sizeof t->arena);
    t->own_ids = NULL;
    for (size_t i = 0; i < sizeof *t; i++)
        cr_assert_eq(((unsigned char *)t)[i], 0, "byte %zu", i);
    t->arena = arena;
    task_pool_close(p);
}

Test(task, many_are_given_back_at_once)
{
    struct task_pool *p;
    struct task *many[3];

    cr_assert_eq(task_pool_open(&p, 3, 1 << 20, NULL), ERR_OK);
    for (int i = 0; i < 3; i++) {
        many[i] = task_pool_take(p, 0);
        many[i]->attempts = 1;
        task_fetch(many[i]);
        task_fetch_record(many[i]); /* none: nothing happens */
        task_fetch_result(many[i]);
    }
    task_pool_give_all(p, many, 0);
    cr_assert_eq(task_pool_in_use(p), 3);
    task_pool_give_all(p, many, 3);
    cr_assert_eq(task_pool_in_use(p), 0);
    for (int i = 0; i < 3; i++) {
        struct task *t = task_pool_take(p, 0);
        cr_assert(t && t->attempts == 0 && !many[i]);
    }
    task_pool_close(p);
}

Test(task, ids_up_to_its_own_room_take_no_memory)
{
    struct task_pool *p;
    int32_t *ids;

    cr_assert_eq(task_pool_open(&p, 1, 1 << 20, NULL), ERR_OK);
    struct task *t = task_pool_take(p, 0);
    cr_assert_eq(task_take_ids(t, TASK_OWN_IDS, &ids, NULL), ERR_OK);
    cr_assert_eq(ids, t->own_ids);
    cr_assert_eq(task_take_ids(t, TASK_OWN_IDS + 1, &ids, NULL), ERR_OK);
    cr_assert_eq(ids, t->large_ids);
    task_pool_close(p);
}

Test(task, next_held_finds_every_task_with_a_record)
{
    struct record r = {.topic = "t"};
    struct task_pool *p;
    struct task *t;
    int n = 0;

    cr_assert_eq(task_pool_open(&p, 5, 1 << 20, NULL), ERR_OK);
    for (int i = 0; i < 3; i++)
        task_pool_take(p, 0)->record = &r;
    for (; (t = task_pool_next_held(p)); n++)
        t->record = NULL;
    cr_assert_eq(n, 3);
    task_pool_close(p);
}

Test(task, delay_doubles_to_its_limit_and_pops_what_is_due)
{
    struct task_delay d;
    struct task t = {.tries = 0};
    int64_t want_ms[] = {100, 200, 400, 800, 1000, 1000};

    task_delay_init(&d);
    for (int i = 0; i < 6; i++) {
        task_delay_add(&d, &t, 0, 100, 1000);
        cr_assert_geq(t.due_ns, want_ms[i] * NS_PER_MS * 3 / 4);
        cr_assert_leq(t.due_ns, want_ms[i] * NS_PER_MS * 5 / 4);
        cr_assert_eq(d.next_due_ns, t.due_ns);
        cr_assert_null(task_delay_pop(&d, t.due_ns - 1));
        cr_assert_eq(task_delay_pop(&d, t.due_ns), &t);
        cr_assert_eq(d.n, 0);
        cr_assert_eq(d.next_due_ns, INT64_MAX);
    }
}

Test(task, delay_keeps_the_earliest_due_in_view_over_random_adds_and_pops)
{
    enum { N = 64 };
    struct task_delay d;
    static struct task t[N];
    int in = 0;

    srand(7);
    task_delay_init(&d);
    for (int i = 0; i < N; i++, in++) {
        t[i].tries = rand() % 6;
        task_delay_add(&d, &t[i], 0, 10, 10000);
    }
    for (int64_t now = 0; in > 0; now += NS_PER_MS) {
        struct task *got;
        while ((got = task_delay_pop(&d, now))) {
            cr_assert_leq(got->due_ns, now);
            cr_assert_gt(got->due_ns, now - NS_PER_MS, "popped a turn late");
            in--;
        }
        cr_assert_eq(d.n, in);
    }
}

Test(task, list_is_first_in_first_out)
{
    struct task_list l = {.n = 0};
    struct task a = {.tries = 0}, b = {.tries = 0};

    task_list_add(&l, &a);
    task_list_add(&l, &b);
    cr_assert_eq(task_list_pop(&l), &a);
    cr_assert_null(a.next);
    cr_assert_eq(task_list_pop(&l), &b);
    cr_assert_null(task_list_pop(&l));
    task_list_add(&l, &a);
    cr_assert_eq(l.last, &a);
}
