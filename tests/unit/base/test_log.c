#include "base/log.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What log_event() writes, read back through a pipe in place of stderr. */
static void capture(char *out, size_t cap, enum log_level level, const char *event, const char *value)
{
    int p[2], saved = dup(STDERR_FILENO);

    cr_assert_eq(pipe(p), 0);
    fcntl(p[0], F_SETFL, O_NONBLOCK);
    dup2(p[1], STDERR_FILENO);
    log_event(level, event, "value=%s", value);
    dup2(saved, STDERR_FILENO);
    ssize_t n = read(p[0], out, cap - 1);
    out[n > 0 ? n : 0] = '\0';
    close(p[0]);
    close(p[1]);
    close(saved);
}

Test(log, is_one_key_value_line_an_event)
{
    char line[4096], quoted[64];

    log_thread_name("tester");
    capture(line, sizeof line, LOG_WARN, "something", log_quote(quoted, sizeof quoted, "two words"));
    cr_assert_not_null(strstr(line, " level=warn thread=tester event=something value=\"two words\"\n"), "%s", line);
    cr_assert_eq(strncmp(line, "ts=20", 5), 0);
}

Test(log, keeps_quiet_below_its_level)
{
    char line[4096];

    log_set_level(LOG_WARN);
    capture(line, sizeof line, LOG_INFO, "quiet", "1");
    cr_assert_str_eq(line, "");
    log_set_level(LOG_INFO);
    capture(line, sizeof line, LOG_INFO, "loud", "1");
    cr_assert_str_neq(line, "");
}

Test(log, bounds_a_line_and_still_ends_it)
{
    char line[8192], *value = malloc(5000);

    memset(value, 'v', 4999);
    value[4999] = '\0';
    capture(line, sizeof line, LOG_ERROR, "long", value);
    cr_assert_eq(strlen(line), 2047);
    cr_assert_eq(line[2046], '\n');
    free(value);
}

Test(log, quote_escapes_and_cuts)
{
    char q[32];

    cr_assert_str_eq(log_quote(q, sizeof q, "a\"b\\c\nd\x01"), "\"a\\\"b\\\\c\\nd\\x01\"");
    cr_assert_str_eq(log_quote(q, sizeof q, NULL), "\"\"");
    cr_assert_str_eq(log_quote(q, 5, "abcdef"), "\"ab\"");
    cr_assert_str_eq(log_quote(q, 3, "abcdef"), "\"\"");
}

Test(log, level_names_go_both_ways)
{
    enum log_level level;

    for (int i = 0; i < LOG_LEVELS; i++) {
        cr_assert(log_level_parse(log_level_name((enum log_level)i), &level));
        cr_assert_eq((int)level, i);
    }
    cr_assert_not(log_level_parse("loud", &level));
}
