#include "base/file.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

static const char *in_folder(const char *name)
{
    static char path[128];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void make_folder(void)
{
    strcpy(folder, "/tmp/test_file.XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
}

static void remove_folder(void)
{
    (void)unlink(in_folder("f")); /* not every test makes it */
    (void)rmdir(folder);
}

TestSuite(file, .init = make_folder, .fini = remove_folder, .timeout = 10);

Test(file, is_opened_with_its_size)
{
    FILE *f = fopen(in_folder("f"), "w");
    bool is_missing = true;
    size_t size;
    struct err e;
    char text[8];

    cr_assert_not_null(f);
    fputs("four", f);
    fclose(f);
    cr_assert_eq(file_open(&f, in_folder("f"), &size, &is_missing, &e), ERR_OK);
    cr_assert_eq(size, 4);
    cr_assert_not(is_missing);
    cr_assert_str_eq(fgets(text, sizeof text, f), "four");
    fclose(f);
}

Test(file, that_is_a_pipe_is_refused_and_not_waited_for)
{
    struct err e;
    FILE *f;

    cr_assert_eq(mkfifo(in_folder("f"), 0600), 0);
    cr_assert_eq(file_open(&f, in_folder("f"), NULL, NULL, &e), ERR_IO);
    cr_assert_null(f);
    cr_assert(strstr(e.msg, "/f: not a regular file"), "%s", e.msg);
}

Test(file, that_is_a_folder_or_a_device_is_refused)
{
    struct err e;
    FILE *f;

    cr_assert_eq(file_open(&f, folder, NULL, NULL, &e), ERR_IO);
    cr_assert_eq(file_open(&f, "/dev/zero", NULL, NULL, &e), ERR_IO);
    cr_assert_null(f);
}

Test(file, that_is_missing_is_told_from_one_that_cannot_be_read)
{
    bool is_missing = false;
    struct err e;
    FILE *f;

    cr_assert_eq(file_open(&f, in_folder("f"), NULL, &is_missing, &e), ERR_IO);
    cr_assert(is_missing);
    cr_assert(strstr(e.msg, "No such file"), "%s", e.msg);
    cr_assert_eq(file_open(&f, folder, NULL, &is_missing, &e), ERR_IO);
    cr_assert_not(is_missing);
}
