#include "base/clock.h"
#include "worker/shadow.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static const struct language german = {.code = "de"};
static struct record record = {.received_ns = 1};

static struct task done(const char *id, enum outcome outcome, enum finish finish)
{
    return (struct task){.record = &record,
                         .job.job_id = {id, strlen(id)},
                         .to = &german,
                         .outcome = outcome,
                         .request = {.finish = finish, .n_prompt = 12, .n_output = 7}};
}

Test(shadow, prints_a_line_a_job_until_the_limit)
{
    struct task ok = done("a\tb", OUTCOME_RESULT, FINISH_EOS), cut = done("c", OUTCOME_RESULT, FINISH_LENGTH),
                late = done("d", OUTCOME_RESULT, FINISH_DEADLINE), dead = done("", OUTCOME_DEAD_LETTER, FINISH_NONE);
    char *text = NULL;
    size_t n = 0;
    struct shadow s;

    shadow_init(&s, open_memstream(&text, &n), 4);
    dead.error.code = ERR_UNDECODABLE;
    dead.to = NULL;
    cr_assert(shadow_job(&s, &ok));
    cr_assert(shadow_job(&s, &cut));
    cr_assert(shadow_job(&s, &late));
    cr_assert_not(shadow_job(&s, &dead), "that was the last one");
    cr_assert_not(shadow_job(&s, &ok), "and this one is not printed");
    shadow_summary(&s);
    fclose(s.out);
    cr_assert_eq(strncmp(text, "a?b\tOK\tde\t12\t7\t", 15), 0, "%s", text);
    cr_assert(strstr(text, "\nc\tTRUNCATED\tde\t12\t7\t") && strstr(text, "\nd\tEXPIRED\tde\t12\t7\t"), "%s", text);
    cr_assert(strstr(text, "\n-\tDEAD_LETTER UNDECODABLE\t-\t12\t7\t"), "%s", text);
    cr_assert(strstr(text, "# 4 jobs in "), "%s", text);
    cr_assert(strstr(text, " 1 results, 1 truncated ones, 1 expired ones, 1 dead letters\n"), "%s", text);
    free(text);
}
