#include "cli/cli.h"
#include "cpu/cpu_backend.h"
#include "engine/backend.h"
#include "tests/support/cpu_model.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void prepare(void)
{
    backend_register(&backend_cpu_ops);
    cr_redirect_stdout();
    cr_redirect_stderr();
}

TestSuite(translate, .init = prepare, .timeout = 60);

#define RUN(...) run((char *[]){"translate", "--to", "de", __VA_ARGS__, NULL})

static int run(char **argv)
{
    int argc = 0;

    while (argv[argc])
        argc++;
    return cli_translate(argc, argv);
}

static void give_input(const char *text, size_t n)
{
    FILE *f = tmpfile();

    cr_assert_not_null(f);
    cr_assert_eq(fwrite(text, 1, n, f), n);
    cr_assert_eq(fflush(f), 0);
    rewind(f);
    cr_assert_eq(dup2(fileno(f), STDIN_FILENO), STDIN_FILENO);
    fclose(f);
}

static const char *read_back(FILE *f)
{
    static char text[8192];

    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    return text;
}

Test(translate, a_line_that_is_too_long_leaves_an_empty_line_and_the_others_go_on)
{
    enum { LONG = 3 << 20 };
    static const char first[] = "Hello.\n", last[] = "\nHello.\n";
    char *text = malloc(sizeof first + LONG + sizeof last);
    size_t n = 0;

    cr_assert_not_null(text);
    memcpy(text, first, sizeof first - 1);
    memset(text + (n += sizeof first - 1), 'a', LONG);
    memcpy(text + (n += LONG), last, sizeof last - 1);
    give_input(text, n + sizeof last - 1);
    free(text);
    cr_assert_eq(RUN("--model", DEMO_MODEL), EXIT_FAILED);
    fflush(stdout);
    cr_assert_str_eq(read_back(cr_get_redirected_stdout()), "Hallo.\n\nHallo.\n");
    fflush(stderr);
    const char *said = read_back(cr_get_redirected_stderr());
    cr_assert(strstr(said, "line 2: longer than 1048576 bytes"), "%s", said);
}

Test(translate, tells_by_its_exit_code_that_a_part_of_the_checkpoint_is_missing)
{
    static const char *const parts[] = {"tokenizer.json", "tokenizer_config.json", "config.json"};
    static const char *const all[] = {"config.json",
                                      "generation_config.json",
                                      "model-00001-of-00003.safetensors",
                                      "model-00002-of-00003.safetensors",
                                      "model-00003-of-00003.safetensors",
                                      "model.safetensors.index.json",
                                      "tokenizer.json",
                                      "tokenizer_config.json"};
    char dir[] = "/tmp/test_translate.XXXXXX", path[128], target[4096], here[2048];

    cr_assert_not_null(mkdtemp(dir));
    cr_assert_not_null(getcwd(here, sizeof here));
    give_input("Hello.\n", 7);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, all[i]);
        snprintf(target, sizeof target, "%s/%s/%s", here, DEMO_MODEL, all[i]);
        cr_assert_eq(symlink(target, path), 0);
    }
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, parts[i]);
        snprintf(target, sizeof target, "%s/%s/%s", here, DEMO_MODEL, parts[i]);
        cr_assert_eq(unlink(path), 0);
        optind = 0; /* the command line is read from its beginning */
        cr_expect_eq(RUN("--model", dir), EXIT_MODEL, "%s", parts[i]);
        cr_assert_eq(symlink(target, path), 0);
    }
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, all[i]);
        cr_expect_eq(unlink(path), 0);
    }
    cr_expect_eq(rmdir(dir), 0);
}

Test(translate, tells_by_its_exit_code_that_the_backend_is_not_here)
{
    give_input("Hello.\n", 7);
    cr_assert_eq(RUN("--model", DEMO_MODEL, "--backend", "nowhere"), EXIT_DEVICE);
}
