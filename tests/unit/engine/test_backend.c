#include "engine/backend.h"
#include "tests/support/fake_backend.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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
    cr_assert_eq(backend_find(&ops, "rocm", &e), ERR_DEVICE);
    cr_assert_eq(e.act, ERR_STOP);
    cr_assert_null(ops);
    cr_assert(strstr(e.msg, "'rocm'") && strstr(e.msg, "there are auto, cpu"), "%s", e.msg);
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

/* A stub lies where the search looks last: ../lib/translate-worker, seen from this program. */
Test(backend, auto_is_cuda_where_its_library_finds_a_card_and_else_cpu)
{
    static const char source[] =
        "#include \"engine/backend.h\"\n"
        "#include <stdlib.h>\n"
        "#include <string.h>\n"
        "static enum err_code probe(int device, char *text, size_t cap, struct err *e) {\n"
        "    (void)device; (void)cap;\n"
        "    if (!getenv(\"STUB_CARD\")) { e->code = ERR_DEVICE; strcpy(e->msg, \"no card\"); return ERR_DEVICE; }\n"
        "    strcpy(text, \"stub card\"); return ERR_OK; }\n"
        "const struct backend_ops translate_worker_backend = {.abi = BACKEND_ABI, .name = \"cuda\", .probe = probe};\n";
    char dir[PATH_MAX], path[PATH_MAX + 64];
    const struct backend_ops *ops;
    struct err e;
    ssize_t n = readlink("/proc/self/exe", dir, sizeof dir - 64);

    cr_assert(n > 0);
    dir[n] = '\0';
    strcpy(strrchr(dir, '/'), "/../lib");
    cr_assert(mkdir(dir, 0755) == 0 || errno == EEXIST);
    strcat(dir, "/translate-worker");
    cr_assert(mkdir(dir, 0755) == 0 || errno == EEXIST);
    (void)snprintf(path, sizeof path, "%s/translate-worker-cuda.so", dir);
    cr_assert(unlink(path) == 0 || errno == ENOENT);

    register_cpu();
    cr_assert_eq(backend_find(&ops, "cuda", &e), ERR_DEVICE);
    cr_assert(strstr(e.msg, "translate-worker-cuda.so"), "%s", e.msg);
    cr_assert_eq(backend_find(&ops, "auto", &e), ERR_OK);
    cr_assert_eq(ops, &cpu);
    if (!compile(dir, "translate-worker-cuda", source, path, sizeof path)) {
        printf("backend: no compiler here, the stub of a card is not tried\n");
        return;
    }
    cr_assert_eq(unsetenv("STUB_CARD"), 0);
    cr_assert_eq(backend_find(&ops, "auto", &e), ERR_OK);
    cr_assert_eq(ops, &cpu);
    cr_assert_eq(setenv("STUB_CARD", "1", 1), 0);
    cr_assert_eq(backend_find(&ops, "auto", &e), ERR_OK);
    cr_assert_str_eq(ops->name, "cuda");
    cr_assert_eq(backend_find(&ops, "cuda", &e), ERR_OK);
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(rmdir(dir), 0);
}

Test(backend, a_library_beside_the_binary_is_found_by_its_name_and_listed)
{
    static const char source[] =
        "#include \"engine/backend.h\"\n"
        "const struct backend_ops translate_worker_backend = {.abi = BACKEND_ABI, .name = \"stub7\"};\n";
    char dir[PATH_MAX], path[PATH_MAX + 64];
    const struct backend_ops *ops;
    struct err e;
    ssize_t n = readlink("/proc/self/exe", dir, sizeof dir - 64);

    cr_assert(n > 0);
    dir[n] = '\0';
    *strrchr(dir, '/') = '\0';
    if (!compile(dir, "translate-worker-stub7", source, path, sizeof path)) {
        printf("backend: no compiler here, a library by name is not tried\n");
        return;
    }
    cr_assert_eq(backend_find(&ops, "stub8", &e), ERR_DEVICE);
    cr_assert(strstr(e.msg, ", stub7"), "%s", e.msg);
    cr_assert_eq(backend_find(&ops, "stub7", &e), ERR_OK);
    cr_assert_str_eq(ops->name, "stub7");
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(backend_find(&ops, "stub7", &e), ERR_OK); /* kept */
    cr_assert_eq(backend_find(&ops, "../stub7", &e), ERR_DEVICE);
}

Test(backend, a_library_is_loaded_if_it_has_the_symbol_and_this_interface)
{
    char dir[] = "/tmp/test-backend-XXXXXX", path[PATH_MAX];
    const struct backend_ops *ops;
    struct err e;

    cr_assert(mkdtemp(dir));
    cr_assert_eq(backend_load(&ops, "/nowhere/x.so", &e), ERR_DEVICE);
    cr_assert(strstr(e.msg, "/nowhere/x.so"), "%s", e.msg);
    if (!compile(dir, "none", "int nothing;", path, sizeof path)) {
        printf("backend: no compiler here, libraries are not tried\n");
        cr_assert_eq(rmdir(dir), 0);
        return;
    }
    cr_assert_eq(backend_load(&ops, path, &e), ERR_DEVICE);
    cr_assert(strstr(e.msg, "translate_worker_backend"), "%s", e.msg);
    cr_assert_null(ops);
    cr_assert_eq(unlink(path), 0);
    cr_assert(compile(dir, "old",
                      "#include \"engine/backend.h\"\n"
                      "const struct backend_ops translate_worker_backend = {.abi = BACKEND_ABI + 1, .name = \"cuda\"};",
                      path, sizeof path));
    cr_assert_eq(backend_load(&ops, path, &e), ERR_DEVICE);
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
