#include "tests/support/wire_setup.h"
#include "wire/own_schema.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <string.h>

static json_t *load(const char *path)
{
    json_error_t je;
    json_t *j = json_load_file(path, 0, &je);

    cr_assert(j, "%s: %s", path, je.text);
    return j;
}

static const char *get(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));

    cr_assert(s, "%s", key);
    return s;
}

/* payloads of another implementation under many writer schemas: tests/golden/wire/generate.py */
Test(avro_codec, reads_what_fastavro_writes_under_any_writer_schema)
{
    json_t *cases = load("tests/golden/wire/requests.json"), *c;
    unsigned char value[4096] = {0};
    struct wire_setup w;
    size_t i;

    wire_setup_open(&w);
    json_array_foreach(cases, i, c)
    {
        const char *schema = get(c, "schema");
        cr_assert_eq(schema_store_add(w.store, (int32_t)i, schema, strlen(schema), &w.e), ERR_OK, "%s: %s",
                     get(c, "name"), w.e.msg);
        value[4] = (unsigned char)i;
        size_t n = 5 + wire_from_hex(get(c, "hex"), value + 5, sizeof value - 5);
        cr_assert_eq(wire_decode(&w, value, n), ERR_OK, "%s: %s", get(c, "name"), w.e.msg);
        cr_assert_eq(w.enc, ENCODING_REGISTRY);
        cr_assert_str_eq(wire_job_json(&w), get(c, "expect"), "%s", get(c, "name"));
    }
    cr_assert_geq(i, 9);
    json_decref(cases);
    wire_setup_close(&w);
}

Test(avro_codec, single_objects_are_found_by_fastavros_fingerprint)
{
    json_t *cases = load("tests/golden/wire/requests.json"), *c;
    unsigned char value[4096] = {0xC3, 0x01};
    struct wire_setup w;
    size_t i;

    wire_setup_open(&w);
    json_array_foreach(cases, i, c)
    {
        const char *schema = get(c, "schema");
        cr_assert_eq(schema_store_add(w.store, (int32_t)i, schema, strlen(schema), &w.e), ERR_OK);
        cr_assert_eq(wire_from_hex(get(c, "fingerprint"), value + 2, 8), 8);
        size_t n = 10 + wire_from_hex(get(c, "hex"), value + 10, sizeof value - 10);
        cr_assert_eq(wire_decode(&w, value, n), ERR_OK, "%s: %s", get(c, "name"), w.e.msg);
        cr_assert_eq(w.enc, ENCODING_SINGLE_OBJECT);
        cr_assert_str_eq(wire_job_json(&w), get(c, "expect"), "%s", get(c, "name"));
    }
    json_decref(cases);
    wire_setup_close(&w);
}

Test(avro_codec, writes_the_bytes_that_fastavro_writes)
{
    json_t *cases = load("tests/golden/wire/requests.json"), *c;
    struct wire_setup w;
    size_t i, same = 0;

    wire_setup_open(&w);
    json_array_foreach(cases, i, c)
    {
        unsigned char want[4096];
        const char *expect = get(c, "expect");
        struct text t;

        if (strncmp(get(c, "name"), "our schema", 10) != 0)
            continue;
        size_t n = wire_from_hex(get(c, "hex"), want, sizeof want);
        cr_assert_eq(wire_decode(&w, expect, strlen(expect)), ERR_OK, "%s", w.e.msg);
        cr_assert_eq(codec_encode_request(w.codec, &w.job, ENCODING_REGISTRY, 0x01020304, &w.arena, &t, &w.e), ERR_OK);
        cr_assert_eq(t.n, n + 5, "%s: %zu bytes, not %zu", get(c, "name"), t.n, n + 5);
        cr_assert_arr_eq(t.s, "\0\1\2\3\4", 5);
        cr_assert_arr_eq(t.s + 5, want, n, "%s", get(c, "name"));
        same++;
    }
    cr_assert_eq(same, 2);
    json_decref(cases);
    wire_setup_close(&w);
}
