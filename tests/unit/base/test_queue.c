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

Test(queue, many_move_at_once_in_their_order)
{
    int x[5];
    void *in[3] = {&x[0], &x[1], &x[2]}, *out[5];
    struct queue *q;

    cr_assert_eq(queue_open(&q, 4, NULL), ERR_OK);
    cr_assert_eq(queue_push_all(q, in, 3), ERR_OK);
    for (int i = 0; i < 3; i++)
        cr_assert_null(in[i]);
    cr_assert_eq(queue_pop_all(q, out, 2, 0), 2);
    cr_assert(out[0] == &x[0] && out[1] == &x[1]);
    in[0] = &x[3], in[1] = &x[4], in[2] = &x[0];
    cr_assert_eq(queue_push_all(q, in, 3), ERR_OK); /* round the end of the slots */
    cr_assert_eq(queue_pop_all(q, out, 5, 0), 4);   /* likewise */
    cr_assert(out[0] == &x[2] && out[1] == &x[3] && out[2] == &x[4] && out[3] == &x[0]);
    cr_assert_eq(queue_pop_all(q, out, 5, 0), 0);
    queue_free(q);
}

Test(queue, takes_all_of_many_or_none)
{
    int x[3];
    void *in[3] = {&x[0], &x[1], &x[2]}, *out[3];
    struct queue *q;

    cr_assert_eq(queue_open(&q, 3, NULL), ERR_OK);
    cr_assert_eq(queue_push_all(q, in, 1), ERR_OK);
    in[0] = &x[0];
    cr_assert_eq(queue_push_all(q, in, 3), ERR_BUSY);
    cr_assert(in[0] == &x[0] && in[1] == &x[1] && in[2] == &x[2]);
    cr_assert_eq(queue_depth(q), 1);
    cr_assert_eq(queue_push_all(q, in, 0), ERR_OK);
    queue_close(q);
    cr_assert_eq(queue_push_all(q, in, 2), ERR_CLOSED);
    cr_assert_eq(in[0], &x[0]);
    cr_assert_eq(queue_pop_all(q, out, 3, INT64_MAX), 1);
    cr_assert_eq(queue_pop_all(q, out, 3, INT64_MAX), 0);
    cr_assert(queue_is_done(q));
    queue_free(q);
}

Test(queue, many_at_once_write_to_the_wake_fd_once)
{
    int x, fd = eventfd(0, EFD_NONBLOCK);
    void *items[3] = {&x, &x, &x};
    struct queue *q;
    uint64_t n = 0;

    cr_assert_eq(queue_open(&q, 6, NULL), ERR_OK);
    queue_set_wake_fd(q, fd);
    for (int round = 0; round < 2; round++) {
        items[0] = items[1] = items[2] = &x;
        cr_assert_eq(queue_push_all(q, items, 3), ERR_OK);
        cr_assert_eq(read(fd, &n, sizeof n), (ssize_t)sizeof n);
        cr_assert_eq(n, 1);
        cr_assert_eq(queue_pop_all(q, items, 2, 0), 2);
        cr_assert_eq(queue_push_all(q, items, 2), ERR_OK);
        cr_assert_eq(read(fd, &n, sizeof n), -1, "one was left, so the owner is not done popping");
        cr_assert_eq(queue_pop_all(q, items, 3, 0), 3);
    }
    close(fd);
    queue_free(q);
}

struct waiter {
    struct queue *q;
    pthread_barrier_t *begin;
    int64_t took_ns;
};

static void *wait_for_one(void *arg)
{
    struct waiter *w = arg;

    pthread_barrier_wait(w->begin);
    int64_t t0 = clock_mono_ns();
    cr_assert_not_null(queue_pop(w->q, t0 + 10 * NS_PER_S));
    w->took_ns = clock_mono_ns() - t0;
    return NULL;
}

/* Often, since nothing says that they wait by the time of the push. */
Test(queue, many_at_once_wake_every_waiter)
{
    for (int round = 0; round < 100; round++) {
        int x;
        void *items[3] = {&x, &x, &x};
        struct waiter w[3];
        pthread_barrier_t begin;
        pthread_t t[3];
        struct queue *q;
        cr_assert_eq(queue_open(&q, 3, NULL), ERR_OK);
        pthread_barrier_init(&begin, NULL, 4);
        for (int i = 0; i < 3; i++) {
            w[i] = (struct waiter){.q = q, .begin = &begin};
            cr_assert_eq(pthread_create(&t[i], NULL, wait_for_one, &w[i]), 0);
        }
        pthread_barrier_wait(&begin);
        for (int i = 0; i < round; i++)
            sched_yield();
        cr_assert_eq(queue_push_all(q, items, 3), ERR_OK);
        for (int i = 0; i < 3; i++) {
            pthread_join(t[i], NULL);
            cr_assert_lt(w[i].took_ns, 9 * NS_PER_S, "it was not woken");
        }
        pthread_barrier_destroy(&begin);
        queue_free(q);
    }
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
    for (int i = 0; i < ITEMS; i++)
        sum += (uintptr_t)queue_pop(q, INT64_MAX);
    for (size_t left = ITEMS, n; left > 0; left -= n) {
        uintptr_t items[5];
        n = queue_pop_all(q, items, left < 5 ? left : 5, INT64_MAX);
        for (size_t i = 0; i < n; i++)
            sum += items[i];
    }
    cr_assert_eq(sum, 2 * (uintptr_t)ITEMS * (ITEMS + 1) / 2);
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    queue_free(q);
}
