/* A configuration file from outside: it is accepted within every range, or refused with one line. */
#include "config/config.h"
#include "config/config_table.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
const char *__lsan_default_suppressions(void);

/* libconfig 1.5 itself loses a string in the middle of which its scanner fails; the worker exits after that. */
const char *__lsan_default_suppressions(void)
{
    return "leak:libconfig_yylex\nleak:libconfig_yyparse\nleak:strbuf_append\n";
}

static void check_ranges(const struct config *c)
{
    for (size_t i = 0; i < config_n_keys; i++) {
        const struct config_key *k = &config_keys[i];
        const char *p = (const char *)c + k->offset;
        double v = k->min;

        if (k->kind == CONFIG_INT)
            v = *(const int *)p;
        else if (k->kind == CONFIG_INT64)
            v = (double)*(const int64_t *)p;
        else if (k->kind == CONFIG_REAL)
            v = *(const double *)p;
        else if (k->kind == CONFIG_STRING)
            v = (double)strlen(*(const char *const *)p);
        if (!(v >= k->min && v <= k->max))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char *text = malloc(n + 1);
    struct config c;
    struct err e = {0};

    if (!text)
        return 0;
    memcpy(text, data, n);
    text[n] = '\0';
    if (config_parse_string(&c, text, "fuzz.cfg", &e) == ERR_OK) {
        check_ranges(&c);
        config_free(&c);
    } else if (!e.msg[0] || strchr(e.msg, '\n')) {
        abort();
    }
    free(text);
    return 0;
}
