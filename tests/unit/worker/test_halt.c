#include "worker/halt.h"

#include <criterion/criterion.h>
#include <poll.h>

Test(halt, goes_only_upwards_and_keeps_the_first_error)
{
    struct err e, first, second;
    struct halt h;

    err_set(&first, ERR_DEVICE, ERR_STOP, "the device is gone");
    err_set(&second, ERR_KAFKA, ERR_STOP, "fenced");
    cr_assert_eq(halt_open(&h, NULL), ERR_OK);
    cr_assert_not(halt_is_stopping(&h));
    halt_request(&h);
    cr_assert(halt_is_stopping(&h) && !halt_is_failed(&h));
    cr_assert_eq(halt_error(&h, &e), ERR_OK);
    halt_fail(&h, &first);
    halt_fail(&h, &second);
    halt_request(&h);
    cr_assert(halt_is_failed(&h) && !halt_is_aborted(&h));
    halt_abort(&h, NULL);
    cr_assert(halt_is_aborted(&h));
    cr_assert_eq(halt_error(&h, &e), ERR_DEVICE);
    cr_assert_str_eq(e.msg, "the device is gone");
    halt_close(&h);
}

Test(halt, wakes_who_polls)
{
    struct halt h;

    cr_assert_eq(halt_open(&h, NULL), ERR_OK);
    struct pollfd fd = {.fd = h.wake_fd, .events = POLLIN};
    cr_assert_eq(poll(&fd, 1, 0), 0);
    halt_request(&h);
    cr_assert_eq(poll(&fd, 1, 0), 1);
    halt_close(&h);
}
