#include "model/safetensors.h"
#include "tests/support/st_writer.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum err_code parse(const char *header, size_t data_bytes, struct err *e)
{
    unsigned char *data = calloc(1, data_bytes + 1), *b;
    struct safetensors *s;
    enum err_code rc;
    size_t n;

    b = st_raw(header, data, data_bytes, &n);
    rc = safetensors_parse(&s, b, n, "f.safetensors", e);
    cr_assert((rc == ERR_OK) == (s != NULL));
    safetensors_close(s);
    free(data);
    free(b);
    return rc;
}

Test(safetensors, finds_what_the_header_lists)
{
    static const char header[] = "{\"__metadata__\":{\"format\":\"pt\"},"
                                 "\"b\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[4,12]},"
                                 "\"a\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4]},"
                                 "\"none\":{\"dtype\":\"F16\",\"shape\":[0,5],\"data_offsets\":[4,4]}}   ";
    const unsigned char data[12] = {1, 2, 3, 4, 5};
    struct safetensors *s;
    size_t n;
    unsigned char *b = st_raw(header, data, sizeof data, &n);

    cr_assert_eq(safetensors_parse(&s, b, n, "f", NULL), ERR_OK);
    cr_assert_eq(safetensors_count(s), 3);
    const struct st_tensor *t = safetensors_find(s, "b");
    cr_assert_not_null(t);
    cr_assert_str_eq(t->dtype, "F32");
    cr_assert_eq(t->n_dims, 2);
    cr_assert_eq(t->shape[0], 2);
    cr_assert_eq(t->bytes, 8);
    cr_assert_eq(*(const unsigned char *)t->data, 5);
    cr_assert_not_null(safetensors_find(s, "none"));
    cr_assert_null(safetensors_find(s, "c"));
    cr_assert_null(safetensors_find(s, "__metadata__"));
    cr_assert_str_eq(safetensors_path(s), "f");
    safetensors_close(s);
    free(b);
}

Test(safetensors, refuses_every_header_that_lies_and_names_file_and_tensor)
{
#define T(offsets) "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":" offsets "}}"
#define S(shape)   "{\"a\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[0,8]}}"
    static const struct {
        const char *header;
        size_t data_bytes;
        const char *message; /* part of it */
    } cases[] = {
        {T("[0,8]"), 7, "tensor 'a': data_offsets [0, 8] do not lie in the 7 bytes"},
        {T("[0,8]"), 9, "the last 1 bytes belong to no tensor"},
        {T("[1,9]"), 9, "tensor 'a': 1 bytes before its data belong to no tensor"},
        {T("[8,0]"), 8, "data_offsets [8, 0] do not lie"},
        {T("[-8,0]"), 8, "data_offsets [-8, 0] do not lie"},
        {T("[0,9223372036854775807]"), 8, "do not lie in the 8 bytes"},
        {T("[0,9223372036854775808]"), 8, "header: not valid JSON"},
        {T("[0,4]"), 4, "data_offsets span 4 bytes, its shape in F32 takes 8"},
        {T("[0,8,8]"), 8, "data_offsets is missing or not two integers"},
        {T("[0.0,8.0]"), 8, "data_offsets is missing or not two integers"},
        {T("8"), 8, "data_offsets is missing or not two integers"},
        {S("[-2]"), 8, "shape[0] is not an integer from 0 to 2^48"},
        {S("[2.0]"), 8, "shape[0] is not an integer"},
        {S("[\"2\"]"), 8, "shape[0] is not an integer"},
        {S("[4294967296,4294967296]"), 8, "shape has more than 2^48 elements"},
        {S("[281474976710657]"), 8, "shape[0] is not an integer from 0 to 2^48"},
        {S("[1,1,1,1,1,1,1,1,2]"), 8, "shape has 9 dimensions, at most 8"},
        {S("2"), 8, "shape is missing or not an array"},
        {"{\"a\":{\"dtype\":\"F33\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "unknown dtype 'F33'"},
        {"{\"a\":{\"dtype\":32,\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "dtype is missing or not a string"},
        {"{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "dtype is missing"},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 8, "shape is missing"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "data_offsets is missing"},
        {"{\"a\":[]}", 0, "tensor 'a': expected an object"},
        {"[]", 0, "header: expected an object"},
        {"", 0, "header: not valid JSON"},
        {"{\"a\":", 0, "header: not valid JSON"},
        {"{} x", 0, "header: not valid JSON"},
        {"{\"__metadata__\":{\"x\":1}}", 0, "__metadata__.x is not a string"},
        {"{\"__metadata__\":7}", 0, "__metadata__ is not an object"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
         "\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}",
         4, "duplicate object key"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}",
         4, "tensor 'b': its data overlaps that of tensor 'a'"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
         4, "overlaps"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[2,2]}}",
         4, "tensor 'b': its data overlaps"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[3,4]}}",
         4, "tensor 'b': 2 bytes before its data belong to no tensor"},
    };
#undef T
#undef S

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err e = {0};

        cr_expect_eq(parse(cases[i].header, cases[i].data_bytes, &e), ERR_MODEL, "%s: %s", cases[i].header, e.msg);
        cr_expect(strstr(e.msg, cases[i].message), "%s\n gave: %s\n want: %s", cases[i].header, e.msg,
                  cases[i].message);
        cr_expect(strncmp(e.msg, "f.safetensors: ", 15) == 0, "%s", e.msg);
        cr_expect_null(strchr(e.msg, '\n'));
        cr_expect_eq(e.act, ERR_STOP);
    }
}

Test(safetensors, refuses_a_header_length_that_cannot_be)
{
    static const uint64_t lengths[] = {3, (16 << 20) + 1, UINT64_MAX, (uint64_t)INT64_MAX, UINT64_MAX - 7};
    unsigned char b[10] = {0};
    struct safetensors *s;
    struct err e;

    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        for (int k = 0; k < 8; k++)
            b[k] = (unsigned char)(lengths[i] >> 8 * k);
        b[8] = '{';
        b[9] = '}';
        cr_expect_eq(safetensors_parse(&s, b, sizeof b, "f", &e), ERR_MODEL);
        cr_expect(strstr(e.msg, "allowed are up to 16777216 and what the file has (2)"), "%s", e.msg);
    }
    for (size_t n = 0; n < 8; n++)
        cr_expect_eq(safetensors_parse(&s, b, n, "f", &e), ERR_MODEL);
    cr_expect(strstr(e.msg, "7 bytes are too few"), "%s", e.msg);
}

Test(safetensors, an_error_is_one_line_whatever_the_names_hold)
{
    struct err e;

    cr_assert_eq(parse("{\"a\\nlevel=info event=fake\":{}}", 0, &e), ERR_MODEL);
    cr_assert_null(strchr(e.msg, '\n'));
    cr_assert(strstr(e.msg, "a?level"), "%s", e.msg);
}

Test(safetensors, survives_deep_and_long_headers)
{
    static char deep[400001];
    struct err e;

    memset(deep, '[', sizeof deep - 1);
    cr_assert_eq(parse(deep, 0, &e), ERR_MODEL);
    cr_assert(strstr(e.msg, "not valid JSON"), "%s", e.msg);
}

Test(safetensors, refuses_what_is_no_regular_readable_file)
{
    const char *dir = st_folder("safetensors");
    struct safetensors *s;
    struct err e;
    char path[256];

    cr_expect_eq(safetensors_open(&s, dir, &e), ERR_IO);
    cr_expect(strstr(e.msg, "not a regular file"), "%s", e.msg);
    snprintf(path, sizeof path, "%s/pipe", dir);
    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_expect_eq(safetensors_open(&s, path, &e), ERR_IO); /* and does not wait for a writer */
    cr_expect(strstr(e.msg, "not a regular file"), "%s", e.msg);
    snprintf(path, sizeof path, "%s/gone", dir);
    cr_expect_eq(safetensors_open(&s, path, &e), ERR_IO);
    cr_expect(strstr(e.msg, "gone: No such file"), "%s", e.msg);
    st_write_text(dir, "empty", "");
    snprintf(path, sizeof path, "%s/empty", dir);
    cr_expect_eq(safetensors_open(&s, path, &e), ERR_MODEL);
    cr_expect(strstr(e.msg, "empty: the file is empty"), "%s", e.msg);
    st_write_text(dir, "lfs", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4\n");
    snprintf(path, sizeof path, "%s/lfs", dir);
    cr_expect_eq(safetensors_open(&s, path, &e), ERR_MODEL);
    cr_expect(strstr(e.msg, "Git LFS pointer"), "%s", e.msg);
    st_remove(dir);
}

Test(safetensors, every_truncation_of_a_file_is_refused)
{
    FILE *f = fopen("tests/golden/tiny-a/model.safetensors", "rb");
    static unsigned char b[16384];
    struct safetensors *s;

    cr_assert_not_null(f);
    size_t n = fread(b, 1, sizeof b, f);
    fclose(f);
    for (size_t k = 0; k < n; k += 97)
        cr_assert_neq(safetensors_parse(&s, b, k, "f", NULL), ERR_OK, "%zu bytes", k);
}
