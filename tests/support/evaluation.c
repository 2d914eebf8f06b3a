#include "tests/support/evaluation.h"

#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>

static int32_t *ids(const json_t *array, int *n)
{
    int32_t *out = calloc(json_array_size(array) + 1, sizeof *out);

    *n = (int)json_array_size(array);
    for (int i = 0; out && i < *n; i++)
        out[i] = (int32_t)json_integer_value(json_array_get(array, (size_t)i));
    if (!out)
        abort();
    return out;
}

struct evaluation evaluation_load(const char *path)
{
    struct evaluation v = {0};
    struct err e = {0};
    json_t *root = NULL;
    const json_t *cases;

    if (json_load_path(&root, path, 64 << 20, &e) != ERR_OK)
        fprintf(stderr, "%s\n", e.msg);
    cases = json_object_get(root, "cases");
    v.n = (int)json_array_size(cases);
    v.cases = calloc((size_t)v.n + 1, sizeof *v.cases);
    if (v.n == 0 || !v.cases)
        abort();
    for (int i = 0; i < v.n; i++) {
        const json_t *c = json_array_get(cases, (size_t)i);
        struct evaluation_case *to = &v.cases[i];

        to->prompt = ids(json_object_get(c, "prompt_ids"), &to->n_prompt);
        to->output = ids(json_object_get(c, "output_ids"), &to->n_output);
        if (to->n_prompt == 0)
            abort();
    }
    json_decref(root);
    return v;
}

void evaluation_free(struct evaluation *v)
{
    for (int i = 0; i < v->n; i++) {
        free(v->cases[i].prompt);
        free(v->cases[i].output);
    }
    free(v->cases);
}
