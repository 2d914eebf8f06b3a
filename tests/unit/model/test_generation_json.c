#include "model/model.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static enum err_code parse(const char *json, struct generation *g, struct err *e)
{
    return model_parse_generation(g, json, json ? strlen(json) : 0, "generation_config.json", e);
}

Test(generation_json, without_a_file_it_is_greedy_with_the_reference_implementations_defaults)
{
    static const char *const texts[] = {NULL, "{}", "{\"do_sample\":false}"};

    for (int i = 0; i < 3; i++) {
        struct generation g;

        cr_assert_eq(parse(texts[i], &g, NULL), ERR_OK);
        cr_expect_not(g.do_sample);
        cr_expect_eq(g.temperature, 1.0f);
        cr_expect_eq(g.top_k, 50);
        cr_expect_eq(g.top_p, 1.0f);
        cr_expect_eq(g.repetition_penalty, 1.0f);
        cr_expect_eq(g.n_eos, 0);
    }
}

Test(generation_json, reads_what_is_published)
{
    static const char *const folders[] = {"HY-MT1.5-1.8B", "HY-MT1.5-1.8B-FP8", "HY-MT1.5-7B-FP8", "Hy-MT2-1.8B",
                                          "Hy-MT2-7B"};

    for (int i = 0; i < 5; i++) {
        char path[256], text[4096];
        struct generation g;
        struct err e;

        snprintf(path, sizeof path, "../shared/reference/checkpoints/%s/generation_config.json", folders[i]);
        FILE *f = fopen(path, "rb");
        if (!f) {
            printf("skipped: published generation_config.json files (../shared/reference/checkpoints is not there)\n");
            return;
        }
        text[fread(text, 1, sizeof text - 1, f)] = '\0';
        fclose(f);
        cr_assert_eq(parse(text, &g, &e), ERR_OK, "%s: %s", path, e.msg);
        cr_expect(g.do_sample);
        cr_expect_float_eq(g.temperature, 0.7f, 1e-6f);
        cr_expect_eq(g.top_k, 20);
        cr_expect_float_eq(g.top_p, 0.8f, 1e-6f);
        cr_expect_float_eq(g.repetition_penalty, 1.05f, 1e-6f);
        bool small = strstr(folders[i], "1.8B") != NULL;
        cr_expect_eq(g.n_eos, small ? 1 : 2);
        cr_expect_eq(g.eos[0], small ? 120020 : 127960);
        cr_expect(small || g.eos[1] == 127967);
    }
}

Test(generation_json, null_switches_top_k_off_and_temperature_zero_is_greedy)
{
    struct generation g;

    cr_assert_eq(parse("{\"do_sample\":true,\"top_k\":null,\"top_p\":null}", &g, NULL), ERR_OK);
    cr_expect(g.do_sample);
    cr_expect_eq(g.top_k, 0);
    cr_expect_eq(g.top_p, 1.0f);
    cr_assert_eq(parse("{\"do_sample\":true,\"temperature\":0}", &g, NULL), ERR_OK);
    cr_expect_not(g.do_sample);
}

Test(generation_json, refuses_values_out_of_range_and_of_the_wrong_kind)
{
    static const struct {
        const char *json, *message;
    } cases[] = {
        {"", "not valid JSON"},
        {"[]", "expected an object, found array"},
        {"{\"do_sample\":1}", "do_sample: expected true or false, found integer"},
        {"{\"temperature\":-0.5}", "temperature: found -0.5, allowed are 0 to 100"},
        {"{\"temperature\":1e9}", "temperature: found 1e+09"},
        {"{\"temperature\":\"hot\"}", "temperature: expected a number, found string"},
        {"{\"top_p\":0}", "top_p: found 0, allowed are 1e-06 to 1"},
        {"{\"top_p\":1.5}", "top_p: found 1.5"},
        {"{\"top_k\":-1}", "top_k: found -1, allowed are 0 to"},
        {"{\"top_k\":2.5}", "top_k: expected an integer, found real number"},
        {"{\"repetition_penalty\":0}", "repetition_penalty: found 0, allowed are 0.01 to 100"},
        {"{\"eos_token_id\":-1}", "eos_token_id: found -1"},
        {"{\"eos_token_id\":{}}", "eos_token_id: expected an integer or a list of them, found object"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct generation g;
        struct err e = {0};

        cr_expect_eq(parse(cases[i].json, &g, &e), ERR_MODEL, "%s", cases[i].json);
        cr_expect(strstr(e.msg, cases[i].message), "%s\n gave: %s\n want: %s", cases[i].json, e.msg, cases[i].message);
        cr_expect(strncmp(e.msg, "generation_config.json: ", 24) == 0, "%s", e.msg);
    }
}
