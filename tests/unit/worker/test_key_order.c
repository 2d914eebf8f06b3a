#include "worker/key_order.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TASKS = 64 };

static struct key_order *order;
static struct queue *batches, *finished;
static struct task tasks[TASKS];
static struct record records[TASKS];

static void open_order(void)
{
    cr_assert_eq(queue_open(&batches, TASKS, NULL), ERR_OK);
    cr_assert_eq(queue_open(&finished, TASKS, NULL), ERR_OK);
    cr_assert_eq(key_order_open(&order, TASKS, batches, finished, NULL), ERR_OK);
}

static void close_order(void)
{
    key_order_close(order);
    queue_free(finished);
    queue_free(batches);
}

TestSuite(key_order, .init = open_order, .fini = close_order);

static struct task *job(int i, const char *topic, int partition, const char *key)
{
    records[i] =
        (struct record){.topic = topic, .at.partition = partition, .key = key, .key_size = key ? strlen(key) : 0};
    tasks[i] = (struct task){.record = &records[i]};
    key_order_enter(order, &tasks[i]);
    return &tasks[i];
}

Test(key_order, jobs_of_one_key_go_one_at_a_time_in_their_order)
{
    struct task *a = job(0, "t", 0, "k"), *b = job(1, "t", 0, "k"), *c = job(2, "t", 0, "k");

    cr_assert(key_order_ready(order, a));
    cr_assert_not(key_order_ready(order, c), "also when it is ready before the one ahead of it");
    cr_assert_not(key_order_ready(order, b));
    cr_assert_eq(key_order_waiting(order), 2);
    key_order_leave(order, a);
    cr_assert_eq(queue_pop(batches, 0), b);
    cr_assert_null(queue_pop(batches, 0));
    key_order_leave(order, b);
    cr_assert_eq(queue_pop(batches, 0), c);
    key_order_leave(order, c);
    cr_assert_eq(key_order_waiting(order), 0);
    cr_assert_null(queue_pop(batches, 0));
}

Test(key_order, other_keys_partitions_and_topics_do_not_wait)
{
    cr_assert(key_order_ready(order, job(0, "t", 0, "k")));
    cr_assert(key_order_ready(order, job(1, "t", 0, "l")));
    cr_assert(key_order_ready(order, job(2, "t", 1, "k")));
    cr_assert(key_order_ready(order, job(3, "u", 0, "k")));
    cr_assert(key_order_ready(order, job(4, "t", 0, "")), "an empty key is a key");
    cr_assert_not(key_order_ready(order, job(5, "t", 0, "")));
}

Test(key_order, null_keys_share_no_lane)
{
    for (int i = 0; i < TASKS; i++)
        cr_assert(key_order_ready(order, job(i, "t", 0, NULL)));
    for (int i = 0; i < TASKS; i++)
        key_order_leave(order, &tasks[i]);
    cr_assert_null(queue_pop(batches, 0));
}

Test(key_order, one_that_is_settled_already_goes_to_the_publisher_in_its_turn)
{
    struct task *a = job(0, "t", 0, "k"), *b = job(1, "t", 0, "k");

    cr_assert(key_order_ready(order, a));
    task_kill(b, ERR_UNDECODABLE, "no job");
    cr_assert_not(key_order_ready(order, b));
    key_order_leave(order, a);
    cr_assert_eq(queue_pop(finished, 0), b);
    cr_assert_null(queue_pop(batches, 0));
}

Test(key_order, one_that_is_not_ready_holds_its_lane_up_and_no_other)
{
    struct task *a = job(0, "t", 0, "k"), *held = job(1, "t", 0, "k"), *c = job(2, "t", 0, "k");

    cr_assert(key_order_ready(order, a));
    cr_assert_not(key_order_ready(order, c));
    key_order_leave(order, a);
    cr_assert_null(queue_pop(batches, 0), "its schema is still asked for");
    cr_assert(key_order_ready(order, job(3, "t", 0, "l")));
    cr_assert(key_order_ready(order, held), "and now it goes on");
    key_order_leave(order, held);
    cr_assert_eq(queue_pop(batches, 0), c);
}

Test(key_order, one_that_is_dropped_out_of_turn_leaves_the_others_in_order)
{
    struct task *a = job(0, "t", 0, "k"), *b = job(1, "t", 0, "k"), *c = job(2, "t", 0, "k");

    cr_assert(key_order_ready(order, a));
    cr_assert_not(key_order_ready(order, b));
    key_order_leave(order, c);
    struct task *d = job(3, "t", 0, "k");
    cr_assert_not(key_order_ready(order, d));
    key_order_leave(order, b);
    cr_assert_eq(key_order_waiting(order), 1);
    key_order_leave(order, a);
    cr_assert_eq(queue_pop(batches, 0), d);
}

Test(key_order, none_is_no_order)
{
    struct record r = {.topic = "t", .key = "k", .key_size = 1};
    struct task a = {.record = &r}, b = {.record = &r};

    key_order_enter(NULL, &a);
    key_order_enter(NULL, &b);
    cr_assert(key_order_ready(NULL, &a) && key_order_ready(NULL, &b));
    key_order_leave(NULL, &a);
    cr_assert_eq(key_order_waiting(NULL), 0);
}

/* Whoever finishes tasks: takes what goes on, and leaves in turn. */
static void *finisher(void *arg)
{
    int *done = arg;
    struct task *t;

    while ((t = queue_pop(batches, INT64_MAX))) {
        char *seen = (char *)t->record->value;
        *seen = '1';
        if (t->lane && t->record->timestamp_ms > 0) /* the one before it in its lane is out */
            cr_assert_eq(*((char *)records[t - tasks - 4].value), '1');
        key_order_leave(order, t);
        ++*done;
    }
    return NULL;
}

Test(key_order, threads_that_enter_and_leave_lose_nothing_and_keep_the_order)
{
    static const char *const keys[] = {"a", "b", "c", "d"}; /* task i has key i % 4 */
    static char seen[TASKS];

    for (int round = 0; round < 2000; round++) {
        pthread_t two[2];
        int done[2] = {0, 0};
        memset(seen, '0', sizeof seen);
        close_order();
        open_order();
        for (int i = 0; i < 2; i++)
            cr_assert_eq(pthread_create(&two[i], NULL, finisher, &done[i]), 0);
        for (int i = 0; i < TASKS; i++) {
            records[i] = (struct record){
                .topic = "t", .key = keys[i % 4], .key_size = 1, .value = &seen[i], .timestamp_ms = i >= 4};
            tasks[i] = (struct task){.record = &records[i]};
            struct task *t = &tasks[i];
            key_order_enter(order, t);
            if (key_order_ready(order, t))
                cr_assert_eq(queue_push(batches, &t), ERR_OK);
        }
        for (int i = 0; i < TASKS; i++)
            while (((volatile char *)seen)[i] == '0')
                sched_yield();
        while (key_order_waiting(order) > 0)
            sched_yield();
        queue_close(batches);
        pthread_join(two[0], NULL);
        pthread_join(two[1], NULL);
        cr_assert_eq(done[0] + done[1], TASKS);
    }
}
