#include "base/clock.h"
#include "cli/cli.h"
#include "cpu/cpu_backend.h"
#include "engine/backend.h"
#include "tests/support/cpu_model.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

static int run(void)
{
    static char *argv[] = {
        "run",   "-s", "model.path=" DEMO_MODEL, "-s", "kafka.embedded=true", "-s", "http.port=0", "--log-level",
        "error", NULL};

    backend_register(&backend_cpu_ops);
    return cli_run(9, argv);
}

/* There is no event for it: the handler is looked up until it is there. */
static void wait_for_handler(void)
{
    struct sigaction now;

    do {
        nanosleep(&(struct timespec){0, NS_PER_MS}, NULL);
        sigaction(SIGTERM, NULL, &now);
    } while (now.sa_handler == SIG_DFL);
}

/* raise() returns once the handler has run on this thread. */
static void *terminate(void *arg)
{
    wait_for_handler();
    raise(SIGHUP);
    raise(SIGPIPE);
    raise(SIGUSR1);
    raise(SIGUSR2);
    for (int i = 0; i < *(const int *)arg; i++)
        raise(SIGTERM);
    return NULL;
}

Test(run, drains_at_a_signal_and_exits_0)
{
    int times = 1;
    pthread_t t;

    cr_assert_eq(pthread_create(&t, NULL, terminate, &times), 0);
    cr_assert_eq(run(), EXIT_OK);
    pthread_join(t, NULL);
}

Test(run, exits_at_once_at_the_second_signal, .exit_code = EXIT_ABORTED)
{
    int times = 2;
    pthread_t t;

    cr_assert_eq(pthread_create(&t, NULL, terminate, &times), 0);
    run();
    cr_assert_fail("it came back");
}

static void *break_memory(void *arg)
{
    (void)arg;
    wait_for_handler();
    raise(SIGBUS);
    return NULL;
}

Test(run, ends_with_the_models_exit_code_when_a_mapped_file_is_cut, .exit_code = EXIT_MODEL)
{
    pthread_t t;

    cr_assert_eq(pthread_create(&t, NULL, break_memory, NULL), 0);
    run();
    cr_assert_fail("it came back");
}

Test(run, refuses_to_start_where_too_few_files_may_be_open, .init = cr_redirect_stderr)
{
    struct rlimit r = {20, 20};
    char said[512] = "";

    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &r), 0);
    cr_assert_eq(run(), EXIT_FAILED);
    fflush(stderr);
    (void)fgets(said, sizeof said, cr_get_redirected_stderr()); /* NULL leaves it empty */
    cr_assert(strstr(said, "ulimit -n"), "%s", said);
}

Test(run, refuses_a_bad_command_line)
{
    cr_assert_eq(cli_run(2, (char *[]){"run", "surplus", NULL}), EXIT_USAGE);
    cr_assert_eq(cli_run(2, (char *[]){"run", "--nonsense", NULL}), EXIT_USAGE);
}
