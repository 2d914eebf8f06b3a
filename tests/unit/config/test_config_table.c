#include "config/config.h"
#include "config/config_table.h"

#include <criterion/criterion.h>
#include <stddef.h>
#include <string.h>

Test(config_table, every_key_is_in_a_known_group_has_help_and_a_place_of_its_own)
{
    for (size_t i = 0; i < config_n_keys; i++) {
        const struct config_key *k = &config_keys[i];
        char group[64];

        snprintf(group, sizeof group, "%.*s", (int)strcspn(k->path, "."), k->path);
        cr_expect_not_null(config_table_group(group), "%s", k->path);
        cr_expect(strchr(k->path, '.') && k->help && strlen(k->help) > 4 && k->help[strlen(k->help) - 1] == '.', "%s",
                  k->path);
        cr_expect_eq(config_table_find(k->path), k);
        cr_expect_lt(k->offset, sizeof(struct config));
        cr_expect_eq(k->names != NULL, k->kind == CONFIG_CHOICE || k->kind == CONFIG_ENUM, "%s", k->path);
        for (size_t n = i + 1; n < config_n_keys; n++)
            cr_expect(config_keys[n].offset != k->offset && strcmp(config_keys[n].path, k->path) != 0, "%s", k->path);
    }
}

/* The struct is its keys and, at its end, what has none: a field without a row would be 0 for ever. */
Test(config_table, covers_the_whole_struct)
{
    static const size_t bytes[] = {
        [CONFIG_BOOL] = sizeof(bool),           [CONFIG_INT] = sizeof(int),           [CONFIG_INT64] = sizeof(int64_t),
        [CONFIG_REAL] = sizeof(double),         [CONFIG_STRING] = sizeof(char *),     [CONFIG_CHOICE] = sizeof(char *),
        [CONFIG_ENUM] = sizeof(enum log_level), [CONFIG_PROPERTIES] = sizeof(char **)};
    size_t at = 0, padding = 0;

    for (size_t n = 0; n < config_n_keys; n++) {
        const struct config_key *next = NULL;

        for (size_t i = 0; i < config_n_keys; i++)
            if (config_keys[i].offset >= at && (!next || config_keys[i].offset < next->offset))
                next = &config_keys[i];
        cr_assert_not_null(next);
        cr_expect_leq(next->offset - at, 7, "a field before %s has no row", next->path);
        padding += next->offset - at;
        at = next->offset + bytes[next->kind];
    }
    cr_expect_leq(offsetof(struct config, shadow_count) - at, 7, "a field at the end has no row");
    cr_expect_leq(padding, 128);
}

Test(config_table, finds_the_nearest_key)
{
    static const char *const cases[][2] = {
        {"kafka.grup_id", "kafka.group_id"},
        {"kafak.group_id", "kafka.group_id"},
        {"group_id", "kafka.group_id"},
        {"kafka.linger_ms", "batch.linger_ms"},
        {"batch.linger", "batch.linger_ms"},
        {"http.prot", "http.port"},
        {"http.adress", "http.address"},
        {"log.levle", "log.level"},
        {"deadletter.max_run", "dead_letter.max_run"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cr_expect_str_eq(config_table_nearest(cases[i][0]), cases[i][1], "%s", cases[i][0]);
    char longer[4096];

    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    cr_expect_not_null(config_table_nearest(longer));
    cr_expect_not_null(config_table_nearest(""));
}
