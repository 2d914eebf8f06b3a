#include "base/json.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static json_t *parse(const char *text)
{
    json_t *o = json_loads(text, 0, NULL);

    cr_assert_not_null(o, "%s", text);
    return o;
}

Test(json, absent_and_null_are_not_found)
{
    json_t *o = parse("{\"a\": null}");
    int64_t n = 7;
    bool found = true;

    cr_assert_eq(json_get_int(o, "f", "a", 0, 9, &n, &found, NULL), ERR_OK);
    cr_assert_not(found);
    cr_assert_eq(json_get_int(o, "f", "b", 0, 9, &n, &found, NULL), ERR_OK);
    cr_assert_not(found);
    cr_assert_eq(n, 7);
    json_decref(o);
}

Test(json, names_the_file_the_key_and_what_was_found)
{
    json_t *o = parse("{\"n\": \"x\", \"big\": 11, \"r\": 1.5, \"b\": 1, \"s\": []}");
    struct err e;
    int64_t n;
    double x;
    bool b, found;
    const char *s;

    cr_assert_eq(json_get_int(o, "config.json", "n", 0, 10, &n, &found, &e), ERR_MODEL);
    cr_assert_str_eq(e.msg, "config.json: n: expected an integer, found string");
    cr_assert_eq(json_get_int(o, "config.json", "big", 0, 10, &n, &found, &e), ERR_MODEL);
    cr_assert_str_eq(e.msg, "config.json: big: found 11, allowed are 0 to 10");
    cr_assert_eq(json_get_int(o, "config.json", "r", 0, 10, &n, &found, &e), ERR_MODEL);
    cr_assert_eq(json_get_double(o, "config.json", "r", 2, 3, &x, &found, &e), ERR_MODEL);
    cr_assert_eq(json_get_bool(o, "config.json", "b", &b, &found, &e), ERR_MODEL);
    cr_assert_eq(json_get_string(o, "config.json", "s", &s, &found, &e), ERR_MODEL);
    cr_assert_eq(json_get_double(o, "config.json", "big", 0, 20, &x, &found, &e), ERR_OK);
    cr_assert_eq(x, 11);
    json_decref(o);
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    cr_assert_not_null(f);
    fputs(text, f);
    fclose(f);
}

Test(json, load_refuses_duplicates_garbage_and_what_is_too_large)
{
    char path[] = "/tmp/test-json-XXXXXX";
    struct err e;
    json_t *o;
    int fd = mkstemp(path);

    cr_assert_geq(fd, 0);
    close(fd);
    write_file(path, "{\"a\": 1, \"a\": 2}");
    cr_assert_eq(json_load_path(&o, path, 1000, &e), ERR_MODEL);
    write_file(path, "{\"a\": ");
    cr_assert_eq(json_load_path(&o, path, 1000, &e), ERR_MODEL);
    cr_assert_not_null(strstr(e.msg, path));
    cr_assert_not_null(strstr(e.msg, "line 1"));
    write_file(path, "{\"a\": 1}");
    cr_assert_eq(json_load_path(&o, path, 7, &e), ERR_MODEL);
    cr_assert_eq(json_load_path(&o, path, 8, &e), ERR_OK);
    json_decref(o);
    unlink(path);
    cr_assert_eq(json_load_path(&o, path, 8, &e), ERR_IO);
    cr_assert_eq(json_load_path(&o, "/tmp", 8, &e), ERR_IO);
}
