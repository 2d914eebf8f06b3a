#include "model/eos.h"

#include <criterion/criterion.h>

Test(eos, is_a_set_with_a_limit)
{
    int eos[MODEL_MAX_EOS], n = 0;

    for (int i = 0; i < MODEL_MAX_EOS; i++) {
        cr_assert(eos_add(eos, &n, 100 + i));
        cr_assert(eos_add(eos, &n, 100 + i));
    }
    cr_assert_eq(n, MODEL_MAX_EOS);
    cr_assert_not(eos_add(eos, &n, 7));
    cr_assert(eos_add(eos, &n, 103), "one that is there needs no room");
}

Test(eos, a_number_a_list_null_and_nothing_are_all_read)
{
    static const struct {
        const char *json;
        int n;
    } cases[] = {
        {"{}", 0},
        {"{\"eos_token_id\":null}", 0},
        {"{\"eos_token_id\":[]}", 0},
        {"{\"eos_token_id\":3}", 1},
        {"{\"eos_token_id\":[3,4,3]}", 2},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *o = json_loads(cases[i].json, 0, NULL);
        int eos[MODEL_MAX_EOS], n = 0;

        cr_assert_eq(eos_read(eos, &n, o, 10, "f", NULL), ERR_OK);
        cr_expect_eq(n, cases[i].n, "%s", cases[i].json);
        json_decref(o);
    }
}
