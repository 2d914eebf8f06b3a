/* config_print.c -- the table as documentation.  Declared in config.h. */
#include "config/config.h"

#include <ctype.h>
#include <string.h>

#include "config/config_table.h"
#include "config/config_value.h"

enum { WIDTH = 116 };

static bool in_group(const struct config_key *k, const struct config_group *g)
{
    size_t n = strlen(g->name);

    return strncmp(k->path, g->name, n) == 0 && k->path[n] == '.';
}

static bool is_text(const struct config_key *k)
{
    return k->kind == CONFIG_STRING || k->kind == CONFIG_CHOICE || k->kind == CONFIG_ENUM;
}

static const char *kind_name(const struct config_key *k)
{
    switch (k->kind) {
    case CONFIG_BOOL: return "boolean";
    case CONFIG_INT:
    case CONFIG_INT64: return "integer";
    case CONFIG_REAL: return "number";
    case CONFIG_STRING:
    case CONFIG_CHOICE:
    case CONFIG_ENUM: return "string";
    case CONFIG_PROPERTIES: return "list";
    }
    return "?";
}

/* text as lines "    # ...", broken between words. */
static void print_comment(FILE *out, const char *indent, const char *text)
{
    size_t used = 0, room = WIDTH - strlen(indent) - 2;

    while (*text) {
        size_t n = strcspn(text, " ");

        if (used && used + 1 + n > room) {
            fputc('\n', out);
            used = 0;
        }
        if (used)
            fprintf(out, " %.*s", (int)n, text);
        else
            fprintf(out, "%s# %.*s", indent, (int)n, text);
        used += n + (used > 0);
        text += n + strspn(text + n, " ");
    }
    fputc('\n', out);
}

static void print_value(FILE *out, const struct config_key *k)
{
    const char *field = strchr(k->path, '.') + 1;

    if (k->kind == CONFIG_PROPERTIES)
        fprintf(out, "    %s = ();\n", field);
    else if (is_text(k))
        fprintf(out, "    %s = \"%s\";\n", field, k->value);
    else
        fprintf(out, "    %s = %s;\n", field, k->value);
}

void config_print_file(FILE *out)
{
    char text[512], allowed[128];

    fprintf(
        out,
        "# Every setting of translate-worker with its default.  What is left out keeps its default; what is unknown "
        "is\n"
        "# an error.  The environment comes after this file (kafka.group_id is TRANSLATE_WORKER_KAFKA_GROUP_ID), the\n"
        "# command line after that (--set kafka.group_id=mt).  Printed by: translate-worker config --file\n");
    for (size_t g = 0; g < config_n_groups; g++) {
        fprintf(out, "\n# %s\n%s:\n{\n", config_groups[g].help, config_groups[g].name);
        bool first = true;
        for (size_t i = 0; i < config_n_keys; i++) {
            const struct config_key *k = &config_keys[i];

            if (!in_group(k, &config_groups[g]))
                continue;
            if (!first)
                fputc('\n', out);
            first = false;
            print_comment(out, "    ", k->help);
            snprintf(text, sizeof text, "%s%s%s", config_value_allowed(k, allowed, sizeof allowed), k->unit ? ", " : "",
                     k->unit ? k->unit : "");
            text[0] = (char)toupper((unsigned char)text[0]);
            print_comment(out, "    ", text);
            print_value(out, k);
        }
        fprintf(out, "};\n");
    }
}

static void print_row(FILE *out, const struct config_key *k)
{
    char allowed[128];

    if (k->kind == CONFIG_PROPERTIES)
        fprintf(out, "| `%s` | %s | `()`", k->path, kind_name(k));
    else if (is_text(k))
        fprintf(out, "| `%s` | %s | `\"%s\"`", k->path, kind_name(k), k->value);
    else
        fprintf(out, "| `%s` | %s | `%s`", k->path, kind_name(k), k->value);
    fprintf(out, " | %s | %s | %s |\n", config_value_allowed(k, allowed, sizeof allowed), k->unit ? k->unit : "",
            k->help);
}

void config_print_markdown(FILE *out)
{
    for (size_t g = 0; g < config_n_groups; g++) {
        fprintf(out, "%s### %s\n\n%s\n\n", g ? "\n" : "", config_groups[g].name, config_groups[g].help);
        fprintf(out,
                "| key | type | default | allowed | unit | what it does |\n| --- | --- | --- | --- | --- | --- |\n");
        for (size_t i = 0; i < config_n_keys; i++)
            if (in_group(&config_keys[i], &config_groups[g]))
                print_row(out, &config_keys[i]);
    }
}
