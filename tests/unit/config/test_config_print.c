#include "config/config.h"
#include "config/config_table.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *printed(void (*print)(FILE *))
{
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);

    cr_assert_not_null(f);
    print(f);
    fclose(f);
    return text;
}

Test(config_print, worker_cfg_is_exactly_what_is_printed)
{
    char *text = printed(config_print_file), *file = calloc(1, 1 << 20);
    FILE *f = fopen("config/worker.cfg", "rb");

    cr_assert_not_null(f);
    file[fread(file, 1, (1 << 20) - 1, f)] = '\0';
    fclose(f);
    cr_expect_str_eq(file, text, "run: translate-worker config --file > config/worker.cfg");
    free(text);
    free(file);
}

Test(config_print, the_printed_file_holds_every_key_at_its_default)
{
    char *text = printed(config_print_file);
    struct config printed_one, plain;
    struct err e;

    cr_assert_eq(config_parse_string(&printed_one, text, "printed", &e), ERR_OK, "%s", e.msg);
    cr_assert_eq(config_parse_string(&plain, "", "empty", &e), ERR_OK, "%s", e.msg);
    for (size_t i = 0; i < config_n_keys; i++) {
        const struct config_key *k = &config_keys[i];
        const char *a = (const char *)&printed_one + k->offset, *b = (const char *)&plain + k->offset;
        char line[128];

        snprintf(line, sizeof line, "    %s = ", strchr(k->path, '.') + 1);
        cr_expect(strstr(text, line), "%s", k->path);
        switch (k->kind) {
        case CONFIG_BOOL: cr_expect_eq(*a, *b, "%s", k->path); break;
        case CONFIG_INT:
        case CONFIG_ENUM: cr_expect_eq(memcmp(a, b, sizeof(int)), 0, "%s", k->path); break;
        case CONFIG_INT64:
        case CONFIG_REAL: cr_expect_eq(memcmp(a, b, 8), 0, "%s", k->path); break;
        case CONFIG_STRING:
        case CONFIG_CHOICE: cr_expect_str_eq(*(const char *const *)a, *(const char *const *)b, "%s", k->path); break;
        case CONFIG_PROPERTIES: cr_expect_null(**(const char *const *const *)a); break;
        }
    }
    config_free(&printed_one);
    config_free(&plain);
    free(text);
}

Test(config_print, lines_fit_and_markdown_has_a_row_a_key)
{
    char *text = printed(config_print_file), *markdown = printed(config_print_markdown), row[128];

    for (const char *p = text; *p; p += strcspn(p, "\n") + 1)
        cr_expect_leq(strcspn(p, "\n"), 120, "%.*s", (int)strcspn(p, "\n"), p);
    for (size_t i = 0; i < config_n_keys; i++) {
        snprintf(row, sizeof row, "\n| `%s` | ", config_keys[i].path);
        cr_expect(strstr(markdown, row), "%s", config_keys[i].path);
    }
    free(text);
    free(markdown);
}
