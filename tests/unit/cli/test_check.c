#include "cli/cli.h"
#include "cpu/cpu_backend.h"
#include "engine/backend.h"
#include "tests/support/cpu_model.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <stdio.h>
#include <string.h>

static void prepare(void)
{
    backend_register(&backend_cpu_ops);
    cr_redirect_stdout();
    cr_redirect_stderr();
}

TestSuite(check, .init = prepare);

#define RUN(...) run((char *[]){"check", __VA_ARGS__, NULL})

static int run(char **argv)
{
    int argc = 0;

    while (argv[argc])
        argc++;
    return cli_check(argc, argv);
}

/* What was printed so far. */
static const char *printed(void)
{
    static char text[8192];
    FILE *f = cr_get_redirected_stdout();

    fflush(stdout);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    return text;
}

Test(check, passes_with_the_demo_model_and_the_embedded_cluster)
{
    cr_assert_eq(RUN("-s", "model.path=" DEMO_MODEL, "-s", "kafka.embedded=true"), EXIT_OK);
    const char *out = printed();
    cr_assert(strstr(out, "ok    topic      translate.requests, 6 partitions"), "%s", out);
    cr_assert(strstr(out, "run would read translate.requests"), "%s", out);
    cr_assert_null(strstr(out, "FAIL"));
}

Test(check, offline_leaves_the_brokers_out)
{
    cr_assert_eq(RUN("-s", "model.path=" DEMO_MODEL, "--offline"), EXIT_OK);
    cr_assert_null(strstr(printed(), "brokers"));
}

Test(check, names_the_part_that_fails_by_its_exit_code)
{
    cr_assert_eq(RUN("-s", "model.path=tests", "--offline"), EXIT_MODEL);
    cr_assert(strstr(printed(), "FAIL  model"));
}

Test(check, says_that_no_broker_answers)
{
    cr_assert_eq(RUN("-s", "model.path=" DEMO_MODEL, "-b", "127.0.0.1:9"), EXIT_KAFKA);
    cr_assert(strstr(printed(), "FAIL  brokers"));
}

Test(check, goes_on_after_a_failure)
{
    cr_assert_eq(RUN("-s", "model.path=tests", "-s", "kafka.embedded=true"), EXIT_MODEL);
    const char *out = printed();
    cr_assert(strstr(out, "FAIL  model") && strstr(out, "ok    backend") && strstr(out, "ok    topic"), "%s", out);
}

Test(check, refuses_a_bad_configuration)
{
    cr_assert_eq(RUN("-s", "kafka.grup_id=x", "--offline"), EXIT_CONFIG);
    cr_assert(strstr(printed(), "FAIL  config"));
}

Test(check, refuses_a_bad_command_line)
{
    cr_assert_eq(RUN("--nonsense"), EXIT_USAGE);
}
