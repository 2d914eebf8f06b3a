#include "cli/cli.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEMO_MODEL "ops/demo/model"

/* A file with this text; the name must be unlinked. */
static void write_file(char name[], const char *text)
{
    int fd = mkstemp(name);

    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static int run(const char *file, const char *option)
{
    char *argv[] = {(char *)"tokenize",           (char *)"--model",
                    (char *)DEMO_MODEL,           (char *)(option ? option : file),
                    option ? (char *)file : NULL, NULL};

    return cli_tokenize(option ? 5 : 4, argv);
}

Test(tokenize, prints_the_ids_of_each_line, .init = cr_redirect_stdout)
{
    char name[] = "/tmp/test_tokenize_XXXXXX";

    write_file(name, "No SD Card inserted.\n\nNew: key not set");
    cr_expect_eq(run(name, NULL), EXIT_OK);
    unlink(name);
    cr_assert_stdout_eq_str("[891, 327, 35, 467, 779, 9625, 835, 13]\n[]\n[8662, 25, 1910, 731, 1338]\n");
}

Test(tokenize, decodes_ids_back, .init = cr_redirect_stdout)
{
    char name[] = "/tmp/test_tokenize_XXXXXX";

    write_file(name, "[891, 327, 35, 467, 779, 9625, 835, 13]\n[]\n[12000, 8662, 25, 1910, 731, 1338]\n");
    cr_expect_eq(run(name, "--decode"), EXIT_OK);
    unlink(name);
    cr_assert_stdout_eq_str("No SD Card inserted.\n\nNew: key not set\n");
}

static void redirect_both(void)
{
    cr_redirect_stdout();
    cr_redirect_stderr();
}

Test(tokenize, says_which_line_is_bad_and_does_the_others, .init = redirect_both)
{
    char name[] = "/tmp/test_tokenize_XXXXXX", want[256];

    write_file(name, "[8662, 25]\nnonsense\n[99999999]\n[\"a\"]\n[1910]\n");
    cr_expect_eq(run(name, "--decode"), EXIT_FAILED);
    unlink(name);
    cr_assert_stdout_eq_str("New:\n key\n");
    snprintf(want, sizeof want,
             "translate-worker: %s: line 2: not a JSON array\n"
             "translate-worker: %s: line 3: [0]: ids are integers from 0 to 12005\n"
             "translate-worker: %s: line 4: [0]: ids are integers from 0 to 12005\n",
             name, name, name);
    cr_assert_stderr_eq_str(want);
}

Test(tokenize, needs_a_model_that_is_there, .init = redirect_both)
{
    char *none[] = {(char *)"tokenize", NULL};
    char *absent[] = {(char *)"tokenize", (char *)"--model", (char *)"/nowhere", NULL};

    cr_expect_eq(cli_tokenize(1, none), EXIT_USAGE);
    optind = 1;
    cr_expect_eq(cli_tokenize(3, absent), EXIT_MODEL);
}
