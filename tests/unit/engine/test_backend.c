#include "engine/backend.h"
#include "tests/support/fake_backend.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct backend_ops cpu;

static void register_cpu(void)
{
    cpu = fake_backend_ops;
    cpu.name = "cpu";
    backend_register(&cpu);
}

Test(backend, is_found_by_the_name_it_was_registered_under)
{
    const struct backend_ops *ops;

    register_cpu();
    backend_register(&fake_backend_ops);
    backend_register(&fake_backend_ops);
    cr_assert_eq(backend_find(&ops, "cpu", NULL), ERR_OK);
    cr_assert_eq(ops, &cpu);
    cr_assert_eq(backend_find(&ops, "fake", NULL), ERR_OK);
    cr_assert_eq(ops, &fake_backend_ops);
}

Test(backend, of_an_unknown_name_is_an_error_that_lists_the_known_ones)
{
    const struct backend_ops *ops;
    struct err e;

    register_cpu();
    cr_assert_eq(backend_find(&ops, "rocm", &e), ERR_UNSUPPORTED);
    cr_assert_eq(e.act, ERR_STOP);
    cr_assert_null(ops);
    cr_assert(strstr(e.msg, "'rocm'") && strstr(e.msg, "auto, cuda, cpu"), "%s", e.msg);
}

Test(backend, auto_is_cpu_where_no_cuda_library_lies_beside_the_program)
{
    const struct backend_ops *ops;
    struct err e;

    register_cpu();
    cr_assert_eq(backend_find(&ops, "cuda", &e), ERR_UNSUPPORTED);
    cr_assert(strstr(e.msg, "translate-worker-cuda.so"), "%s", e.msg);
    cr_assert_eq(backend_find(&ops, "auto", &e), ERR_OK);
    cr_assert_eq(ops, &cpu);
}

/* Compiles a library of one line; false where there is no compiler. */
static bool compile(const char *dir, const char *name, const char *source, char *path, size_t cap)
{
    char file[PATH_MAX], command[3 * PATH_MAX];

    (void)snprintf(file, sizeof file, "%s/%s.c", dir, name);
    (void)snprintf(path, cap, "%s/%s.so", dir, name);
    FILE *f = fopen(file, "w");
    cr_assert(f);
    fputs(source, f);
    cr_assert_eq(fclose(f), 0);
    (void)snprintf(command, sizeof command, "cc -shared -fPIC -Isrc -o %s %s 2>/dev/null", path, file);
    bool made = system(command) == 0;
    cr_assert_eq(unlink(file), 0);
    return made;
}

Test(backend, a_library_is_loaded_if_it_has_the_symbol_and_this_interface)
{
    char dir[] = "/tmp/test-backend-XXXXXX", path[PATH_MAX];
    const struct backend_ops *ops;
    struct err e;

    cr_assert(mkdtemp(dir));
    cr_assert_eq(backend_load(&ops, "/nowhere/x.so", &e), ERR_UNSUPPORTED);
    cr_assert(strstr(e.msg, "/nowhere/x.so"), "%s", e.msg);
    if (!compile(dir, "none", "int nothing;", path, sizeof path)) {
        printf("backend: no compiler here, libraries are not tried\n");
        cr_assert_eq(rmdir(dir), 0);
        return;
    }
    cr_assert_eq(backend_load(&ops, path, &e), ERR_UNSUPPORTED);
    cr_assert(strstr(e.msg, "translate_worker_backend"), "%s", e.msg);
    cr_assert_null(ops);
    cr_assert_eq(unlink(path), 0);
    cr_assert(compile(dir, "old",
                      "#include \"engine/backend.h\"\n"
                      "const struct backend_ops translate_worker_backend = {.abi = BACKEND_ABI + 1, .name = \"cuda\"};",
                      path, sizeof path));
    cr_assert_eq(backend_load(&ops, path, &e), ERR_UNSUPPORTED);
    cr_assert(strstr(e.msg, "interface"), "%s", e.msg);
    cr_assert_eq(unlink(path), 0);
    cr_assert(compile(dir, "good",
                      "#include \"engine/backend.h\"\n"
                      "const struct backend_ops translate_worker_backend = {.abi = BACKEND_ABI, .name = \"cuda\"};",
                      path, sizeof path));
    cr_assert_eq(backend_load(&ops, path, &e), ERR_OK);
    cr_assert_str_eq(ops->name, "cuda");
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(rmdir(dir), 0);
}
