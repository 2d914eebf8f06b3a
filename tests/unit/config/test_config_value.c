#include "config/config_value.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

Test(config_value, says_what_each_kind_allows)
{
    static const char *const cases[][2] = {
        {"http.enabled", "true or false"},
        {"http.port", "an integer from 0 to 65535"},
        {"wire.result_schema_id", "an integer from -1 to 4294967295"},
        {"dead_letter.max_share", "a number from 0 to 1"},
        {"kafka.group_id", "a string of 1 to 249 bytes"},
        {"model.path", "a string of at most 4000 bytes"},
        {"kafka.offset_reset", "one of \"earliest\", \"latest\", \"error\""},
        {"wire.result_encoding", "one of \"same\", \"json\", \"avro\", \"registry\""},
        {"kafka.properties", "a list of at most 64 strings \"name=value\""},
    };
    char buf[128], tiny[8];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cr_expect_str_eq(config_value_allowed(config_table_find(cases[i][0]), buf, sizeof buf), cases[i][1]);
    cr_expect_str_eq(config_value_allowed(config_table_find("wire.result_encoding"), tiny, sizeof tiny), "one of ");
}

Test(config_value, a_number_that_is_none_is_out_of_every_range)
{
    struct config c = {0};
    struct err e;

    cr_expect_eq(config_value_real(&c, config_table_find("dead_letter.max_share"), NAN, "x", &e), ERR_CONFIG);
    cr_expect_eq(config_value_real(&c, config_table_find("dead_letter.max_share"), INFINITY, "x", &e), ERR_CONFIG);
    cr_expect_eq(config_value_int(&c, config_table_find("dead_letter.max_share"), 2, "x", &e), ERR_CONFIG);
    cr_expect_str_eq(e.msg, "x: found 2, allowed is a number from 0 to 1");
}

Test(config_value, running_out_of_room_for_strings_is_an_error)
{
    struct config c = {0};
    struct arena a;
    struct err e;

    arena_init(&a, 64, 64);
    cr_expect_eq(config_value_string(&c, config_table_find("model.path"), "a", &a, "x", &e), ERR_OK);
    cr_expect_eq(config_value_property(&c, config_table_find("kafka.properties"),
                                       "a=0123456789012345678901234567890123456789", &a, "x", &e),
                 ERR_NOMEM);
    cr_expect_null(c.kafka.properties);
    arena_free(&a);
}
