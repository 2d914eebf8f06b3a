#include "cli/cli.h"
#include "cpu/cpu_backend.h"
#include "engine/backend.h"
#include "tests/support/cpu_model.h"
#include "tests/support/fake_backend.h"

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

static enum err_code ceilings(struct backend *b, double *copy, double *matrix, struct err *e)
{
    (void)b, (void)e; /* it cannot fail */
    *copy = 4e12;
    *matrix = 8e14;
    return ERR_OK;
}

static void info(const struct backend *b, struct backend_info *i)
{
    fake_backend_ops.info(b, i);
    i->weight_bytes = 4000000000;
    i->rows = 1000;
}

static enum err_code refuse(struct backend **out, const struct model *m, const struct backend_options *o, struct err *e)
{
    (void)out, (void)m, (void)o; /* nothing is opened */
    return err_set(e, ERR_NOMEM, ERR_STOP, "does not fit: 1 of 2 GiB are free");
}

/* The fake backend in the place of the one named cpu, as a device that measures itself. */
static void measure_itself(bool fits)
{
    static struct backend_ops ops;

    ops = fake_backend_ops;
    ops.name = "cpu";
    ops.open = fits ? fake_backend_ops.open : refuse;
    ops.info = info;
    ops.ceilings = ceilings;
    backend_register(&ops);
}

/* A step reads 4 GB: 1 ms at 4 TB/s; 1,000 rows are 4e12 operations: 5 ms at 800 TFLOP/s. */
Test(check, says_what_speed_and_memory_a_device_that_measures_itself_promises)
{
    measure_itself(true);
    cr_assert_eq(RUN("-s", "model.path=" DEMO_MODEL, "-s", "engine.backend=cpu", "--offline"), EXIT_OK);
    const char *out = printed();
    cr_assert(strstr(out, "ok    backend    cpu: fake device"), "%s", out);
    cr_assert(strstr(out, "ok    memory     weights 3.73 GiB"), "%s", out);
    cr_assert(strstr(out, "ok    speed      at most 1000 tokens/s for one row"), "%s", out);
    cr_assert(strstr(out, "200000 for 1000 rows (5.000 ms"), "%s", out);
}

Test(check, says_that_a_model_does_not_fit)
{
    measure_itself(false);
    cr_assert_neq(RUN("-s", "model.path=" DEMO_MODEL, "-s", "engine.backend=cpu", "--offline"), EXIT_OK);
    const char *out = printed();
    cr_assert(strstr(out, "FAIL  memory     does not fit"), "%s", out);
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
