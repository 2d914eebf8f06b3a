#include "wire/fetcher.h"

#include "base/clock.h"
#include "tests/support/http_stub.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

Test(fetcher, answers_one_question_at_a_time_and_each_once)
{
    struct http_stub *stub = http_stub_open();
    struct fetcher *f;
    struct fetched a;
    struct err e;

    http_stub_answer_schema(stub, "text", "");
    cr_assert_eq(fetcher_open(&f, http_stub_url(stub), 2000, &e), ERR_OK, "%s", e.msg);
    cr_assert_not(fetcher_take(f, 1000, &a), "nothing was asked");
    for (int32_t id = 1; id < 4; id++) {
        cr_assert(fetcher_start(f, id));
        cr_assert_not(fetcher_start(f, 99), "the answer is not taken yet");
        cr_assert(fetcher_take(f, 2000, &a));
        cr_assert_eq(a.id, id);
        cr_assert_eq(a.rc, ERR_OK, "%s", a.why.msg);
        cr_assert_str_eq(a.text, "text");
        free(a.text);
        cr_assert_not(fetcher_take(f, 0, &a));
    }
    http_stub_answer(stub, 404, "", 0);
    cr_assert(fetcher_start(f, 7));
    cr_assert(fetcher_take(f, 2000, &a));
    cr_assert_eq(a.rc, ERR_UNKNOWN_SCHEMA);
    cr_assert_null(a.text);
    cr_assert(fetcher_start(f, 8)); /* an answer that nobody takes */
    fetcher_close(f);
    http_stub_close(stub);
}

Test(fetcher, nobody_waits_for_a_silent_registry_nor_at_close)
{
    int port, fd = http_stub_open_silent(&port);
    int64_t t0 = clock_mono_ns();
    struct fetcher *f;
    struct fetched a;
    char url[64];
    struct err e;

    snprintf(url, sizeof url, "http://127.0.0.1:%d", port);
    cr_assert_eq(fetcher_open(&f, url, 60000, &e), ERR_OK);
    cr_assert(fetcher_start(f, 1));
    cr_assert_not(fetcher_take(f, 20, &a));
    cr_assert_not(fetcher_start(f, 2));
    cr_assert_lt(clock_mono_ns() - t0, NS_PER_S);
    fetcher_close(f);
    cr_assert_lt(clock_mono_ns() - t0, 5 * NS_PER_S, "closed long before the time limit");
    close(fd);
}
