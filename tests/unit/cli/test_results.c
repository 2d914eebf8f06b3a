#include "cli/cli.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <getopt.h>

TestSuite(results, .init = cr_redirect_stderr, .timeout = 30);

#define RUN(...) run((char *[]){"results", "-b", "127.0.0.1:1", __VA_ARGS__, NULL})

static int run(char **argv)
{
    int argc = 0;

    while (argv[argc])
        argc++;
    optind = 0;
    return cli_results(argc, argv);
}

Test(results, refuses_ids_that_cannot_be_read)
{
    cr_expect_eq(RUN("--ids", "/"), EXIT_USAGE);
    cr_expect_eq(RUN("--ids", "/nowhere/at/all"), EXIT_USAGE);
}

Test(results, tells_by_its_exit_code_that_no_broker_answers)
{
    cr_assert_eq(RUN("-n", "1"), EXIT_KAFKA);
}
