#include "wire/avro_walk.h"

#include "base/clock.h"
#include "tests/support/wire_setup.h"
#include "wire/schema.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define RECORD(type) "{\"type\":\"record\",\"name\":\"R\",\"fields\":[{\"name\":\"f\",\"type\":" type "}]}"

static enum err_code walk(const char *schema, const char *hex, size_t max_values, struct err *e)
{
    unsigned char payload[256];
    size_t n = wire_from_hex(hex, payload, sizeof payload);
    struct schema *s;
    enum err_code rc;

    cr_assert_eq(schema_open(&s, schema, strlen(schema), e), ERR_OK, "%s: %s", schema, e->msg);
    /* at the very end of a heap block, so that a sanitizer sees a byte too much */
    unsigned char *exact = malloc(n ? n : 1);
    memcpy(exact, payload, n);
    int64_t t0 = clock_mono_ns();
    rc = avro_walk(s->avro, exact, n, max_values, e);
    cr_assert_lt(clock_mono_ns() - t0, 100 * NS_PER_MS);
    free(exact);
    schema_close(s);
    return rc;
}

Test(avro_walk, accepts_every_type_as_the_specification_writes_it)
{
    static const struct {
        const char *type, *hex;
    } cases[] = {
        {"\"null\"", ""},
        {"\"boolean\"", "01"},
        {"\"int\"", "ffffffff0f"},
        {"\"long\"", "ffffffffffffffffff01"},
        {"\"float\"", "00000000"},
        {"\"double\"", "0000000000000000"},
        {"\"string\"", "06666f6f"},
        {"\"bytes\"", "00"},
        {"{\"type\":\"fixed\",\"name\":\"F\",\"size\":3}", "010203"},
        {"{\"type\":\"enum\",\"name\":\"E\",\"symbols\":[\"A\",\"B\"]}", "02"},
        {"[\"null\",\"int\"]", "00"},
        {"[\"null\",\"int\"]", "0202"},
        {"{\"type\":\"array\",\"items\":\"int\"}", "00"},
        {"{\"type\":\"array\",\"items\":\"int\"}", "0402040208"
                                                   "00"},
        {"{\"type\":\"array\",\"items\":\"int\"}", "0304020400"},
        {"{\"type\":\"map\",\"values\":\"int\"}", "0202610200"},
        {"{\"type\":\"map\",\"values\":\"int\"}", "010602610200"},
    };
    char schema[512];
    struct err e;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(schema, sizeof schema, RECORD("%s"), cases[i].type);
        cr_assert_eq(walk(schema, cases[i].hex, 100, &e), ERR_OK, "%s %s: %s", cases[i].type, cases[i].hex, e.msg);
    }
}

/* cases D8, E8 and E9 */
Test(avro_walk, refuses_what_lies_about_itself)
{
    static const struct {
        const char *type, *hex, *says;
    } cases[] = {
        {"\"string\"", "", "cut off"},
        {"\"string\"", "80", "cut off"},
        {"\"string\"", "01", "string of -1 bytes"},
        {"\"string\"", "03", "string of -2 bytes"},
        {"\"string\"", "8080808010", "string of 2147483648 bytes"},
        {"\"string\"",
         "808080808080808080"
         "01",
         "string of 4611686018427387904 bytes"},
        {"\"string\"", "ffffffffffffffffff01", "string of -9223372036854775808 bytes"},
        {"\"string\"", "0661", "string of 3 bytes with 1 left"},
        {"\"string\"",
         "0261"
         "00",
         "left over"},
        {"\"bytes\"", "0661", "bytes of 3 bytes"},
        {"\"long\"", "ffffffffffffffffff02", "more than 64 bits"},
        {"\"long\"", "ffffffffffffffffffff01", "more than 64 bits"},
        {"\"int\"", "8080808010", "is no int"},
        {"\"boolean\"", "02", "boolean of value 2"},
        {"\"boolean\"", "", "cut off"},
        {"\"float\"", "000000", "float of 4 bytes with 3 left"},
        {"\"double\"", "000000", "double of 8 bytes"},
        {"{\"type\":\"fixed\",\"name\":\"F\",\"size\":3}", "0102", "fixed of 3 bytes with 2 left"},
        {"{\"type\":\"enum\",\"name\":\"E\",\"symbols\":[\"A\",\"B\"]}", "04", "enum symbol 2 of 2"},
        {"{\"type\":\"enum\",\"name\":\"E\",\"symbols\":[\"A\",\"B\"]}", "01", "enum symbol -1 of 2"},
        {"{\"type\":\"enum\",\"name\":\"E\",\"symbols\":[\"A\",\"B\"]}", "c801", "enum symbol 100 of 2"},
        {"[\"null\",\"int\"]", "04", "union branch 2 of 2"},
        {"[\"null\",\"int\"]", "01", "union branch -1 of 2"},
        {"{\"type\":\"array\",\"items\":\"int\"}",
         "8080808040"
         "00",
         "block of 8589934592 items"},
        {"{\"type\":\"array\",\"items\":\"int\"}",
         "ffffffffffffffffff01"
         "00",
         "items with"},
        {"{\"type\":\"array\",\"items\":\"int\"}", "0202", "cut off"},
        {"{\"type\":\"array\",\"items\":\"int\"}",
         "0101"
         "0200",
         "block of -1 bytes"},
        {"{\"type\":\"array\",\"items\":\"int\"}",
         "0180"
         "01"
         "0200",
         "block of 64 bytes"},
        {"{\"type\":\"array\",\"items\":\"int\"}",
         "0104"
         "020000",
         "size is off by -1"},
        {"{\"type\":\"array\",\"items\":\"int\"}",
         "0100"
         "0200",
         "size is off by 1"},
        {"{\"type\":\"map\",\"values\":\"int\"}", "0201", "map key of -1 bytes"},
        {"{\"type\":\"map\",\"values\":\"int\"}",
         "02020002"
         "00",
         "NUL"},
        {"\"null\"", "00", "left over"},
    };
    char schema[512];
    struct err e;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(schema, sizeof schema, RECORD("%s"), cases[i].type);
        cr_assert_eq(walk(schema, cases[i].hex, 100, &e), ERR_UNDECODABLE, "%s %s", cases[i].type, cases[i].hex);
        cr_assert_eq(e.act, ERR_SKIP);
        cr_assert(strstr(e.msg, cases[i].says), "%s %s: %s", cases[i].type, cases[i].hex, e.msg);
        cr_assert(strstr(e.msg, "field f") || strstr(e.msg, "left over"), "%s", e.msg);
    }
}

Test(avro_walk, counts_values_of_any_size)
{
    static const char schema[] = RECORD(
        "{\"type\":\"array\",\"items\":{\"type\":\"record\",\"name\":\"I\",\"fields\":["
        "{\"name\":\"a\",\"type\":\"null\"},{\"name\":\"b\",\"type\":\"null\"},{\"name\":\"c\",\"type\":\"int\"}]}}");
    struct err e;

    /* 1 record, 1 array, 3 items of a record and three fields */
    cr_assert_eq(walk(schema,
                      "06020202"
                      "00",
                      14, &e),
                 ERR_OK);
    cr_assert_eq(walk(schema,
                      "06020202"
                      "00",
                      13, &e),
                 ERR_UNDECODABLE);
    cr_assert(strstr(e.msg, "more values"), "%s", e.msg);
}
