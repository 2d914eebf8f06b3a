#include "cli/cli.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int call(const char *argument)
{
    char name[] = "config", *copy = argument ? strdup(argument) : NULL, *argv[] = {name, copy, NULL};
    int rc = cli_config(copy ? 2 : 1, argv);

    free(copy);
    fflush(stdout);
    return rc;
}

static char *output(void)
{
    FILE *f = cr_get_redirected_stdout();
    char *text = calloc(1, 65536);

    cr_assert_not_null(text);
    fclose(stdout);
    text[fread(text, 1, 65535, f)] = '\0';
    return text;
}

Test(cli_config, prints_the_file_by_default, .init = cr_redirect_stdout)
{
    cr_assert_eq(call(NULL), EXIT_OK);
    char *text = output();
    cr_expect(strstr(text, "\nkafka:\n{\n"));
    free(text);
}

Test(cli_config, prints_markdown, .init = cr_redirect_stdout)
{
    cr_assert_eq(call("--markdown"), EXIT_OK);
    char *text = output();
    cr_expect(strstr(text, "\n| `kafka.group_id` | string | `\"translate-worker\"` | "));
    free(text);
}

Test(cli_config, has_help, .init = cr_redirect_stdout)
{
    cr_assert_eq(call("--help"), EXIT_OK);
    char *text = output();
    cr_expect(strncmp(text, "usage: translate-worker config", 30) == 0);
    free(text);
}

Test(cli_config, refuses_what_it_does_not_know, .init = cr_redirect_stderr)
{
    cr_expect_eq(call("--toml"), EXIT_USAGE);
}

Test(cli_config, takes_no_argument, .init = cr_redirect_stderr)
{
    cr_expect_eq(call("worker.cfg"), EXIT_USAGE);
}
