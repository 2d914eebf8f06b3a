#define _GNU_SOURCE /* open_memstream */
#include "text/tokenizer_bench.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/tokenizers.h"

Test(tokenizer_bench, prints_a_line_for_each_kind_of_text)
{
    struct tokenizer *t = tokenizer_must_open(DEMO_TOKENIZER);
    char *text = NULL, *latin, *chinese;
    double latin_speed, chinese_speed;
    size_t n;
    FILE *f = open_memstream(&text, &n);

    cr_assert_not_null(f);
    cr_assert_eq(tokenizer_bench(t, f, NULL), ERR_OK);
    fclose(f);
    latin = strstr(text, "Latin");
    chinese = strstr(text, "Chinese");
    cr_assert(latin && chinese, "%s", text);
    cr_expect(sscanf(latin, "Latin %lf", &latin_speed) == 1 && latin_speed > 0);
    cr_expect(sscanf(chinese, "Chinese %lf", &chinese_speed) == 1 && chinese_speed > 0);
    free(text);
    tokenizer_close(t);
}
