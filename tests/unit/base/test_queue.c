#include "base/clock.h"
#include "base/queue.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

Test(queue, hands_over_and_leaves_null)
{
    struct queue *q;
    int x = 1, *p = &x;

    cr_assert_eq(queue_open(&q, 2, NULL), ERR_OK);
    cr_assert_eq(queue_push(q, &p), ERR_OK);
    cr_assert_null(p);
    cr_assert_eq(queue_pop(q, 0), &x);
    cr_assert_null(queue_pop(q, 0));
    queue_free(q);
}

Test(queue, is_bounded_and_keeps_the_item_when_full)
{
    struct queue *q;
    int x, *p = &x;

    cr_assert_eq(queue_open(&q, 1, NULL), ERR_OK);
    cr_assert_eq(queue_push(q, &p), ERR_OK);
    p = &x;
    cr_assert_eq(queue_push(q, &p), ERR_BUSY);
    cr_assert_eq(p, &x);
    cr_assert_eq(queue_depth(q), 1);
    queue_free(q);
}

Test(queue, pop_waits_no_longer_than_its_deadline)
{
    struct queue *q;

    cr_assert_eq(queue_open(&q, 1, NULL), ERR_OK);
    int64_t t0 = clock_mono_ns();
    cr_assert_null(queue_pop(q, t0 + 20 * NS_PER_MS));
    cr_assert_geq(clock_mono_ns() - t0, 19 * NS_PER_MS);
    queue_free(q);
}

Test(queue, close_wakes_and_lets_the_rest_be_popped)
{
    struct queue *q;
    int x, *p = &x;

    cr_assert_eq(queue_open(&q, 2, NULL), ERR_OK);
    cr_assert_eq(queue_push(q, &p), ERR_OK);
    queue_close(q);
    p = &x;
    cr_assert_eq(queue_push(q, &p), ERR_CLOSED);
    cr_assert_not(queue_is_done(q));
    cr_assert_eq(queue_pop(q, INT64_MAX), &x);
    cr_assert_null(queue_pop(q, INT64_MAX));
    cr_assert(queue_is_done(q));
    queue_free(q);
}

Test(queue, the_newest_can_be_popped_first)
{
    int x[4];
    struct queue *q;

    cr_assert_eq(queue_open(&q, 3, NULL), ERR_OK);
    for (int i = 0; i < 3; i++) {
        int *p = &x[i];
        cr_assert_eq(queue_push(q, &p), ERR_OK);
    }
    cr_assert_eq(queue_pop(q, 0), &x[0]);
    int *p = &x[3];
    cr_assert_eq(queue_push(q, &p), ERR_OK); /* round the end of the slots */
    for (int i = 3; i > 0; i--)
        cr_assert_eq(queue_pop_newest(q, 0), &x[i]);
    cr_assert_null(queue_pop_newest(q, 0));
    queue_free(q);
}

Test(queue, the_push_that_ends_its_emptiness_writes_to_the_wake_fd)
{
    struct queue *q;
    int x, fd = eventfd(0, EFD_NONBLOCK);
    uint64_t n = 0;

    cr_assert_eq(queue_open(&q, 3, NULL), ERR_OK);
    queue_set_wake_fd(q, fd);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 3; i++) {
            int *p = &x;
            cr_assert_eq(queue_push(q, &p), ERR_OK);
        }
        cr_assert_eq(read(fd, &n, sizeof n), (ssize_t)sizeof n);
        cr_assert_eq(n, 1);
        for (int i = 0; i < 2; i++)
            cr_assert_not_null(queue_pop(q, 0));
        int *p = &x;
        cr_assert_eq(queue_push(q, &p), ERR_OK);
        cr_assert_eq(read(fd, &n, sizeof n), -1, "one was left, so the owner is not done popping");
        while (queue_pop(q, 0))
            ;
    }
    queue_close(q);
    cr_assert_eq(read(fd, &n, sizeof n), (ssize_t)sizeof n);
    close(fd);
    queue_free(q);
}

enum { ITEMS = 20000 };

static void *produce(void *arg)
{
    struct queue *q = arg;

    for (uintptr_t i = 1; i <= ITEMS; i++) {
        void *item = (void *)i;
        while (queue_push(q, &item) == ERR_BUSY)
            sched_yield();
    }
    return NULL;
}

Test(queue, loses_nothing_between_threads)
{
    struct queue *q;
    pthread_t t[2];
    uintptr_t sum = 0;

    cr_assert_eq(queue_open(&q, 7, NULL), ERR_OK);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(pthread_create(&t[i], NULL, produce, q), 0);
    for (int i = 0; i < 2 * ITEMS; i++)
        sum += (uintptr_t)queue_pop(q, INT64_MAX);
    cr_assert_eq(sum, 2 * (uintptr_t)ITEMS * (ITEMS + 1) / 2);
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    queue_free(q);
}
