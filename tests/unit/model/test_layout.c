#include "model/layout.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

struct seen {
    int n, stop_at;
    bool head, q_norm;
};

static enum err_code count(void *ctx, const struct layout_item *x, struct err *e)
{
    struct seen *s = ctx;

    s->head |= strcmp(x->name, "lm_head.weight") == 0;
    s->q_norm |= strcmp(x->name, "model.layers.31.self_attn.query_layernorm.weight") == 0;
    cr_assert(x->rows > 0 && x->cols > 0 && (x->n_dims == 2 || x->cols == 1));
    if (++s->n == s->stop_at)
        return err_set(e, ERR_MODEL, ERR_STOP, "here");
    return ERR_OK;
}

Test(layout, the_published_model_has_354_tensors_and_one_more_untied)
{
    struct model m = {.dims = {.hidden = 2048,
                               .layers = 32,
                               .heads = 16,
                               .kv_heads = 4,
                               .head_dim = 128,
                               .inter = 6144,
                               .vocab = 120818,
                               .qk_norm = true,
                               .tied = true}};
    struct seen s = {0};

    m.layers = calloc(32, sizeof *m.layers);
    cr_assert_eq(layout_walk(&m, count, &s, NULL), ERR_OK);
    cr_expect_eq(s.n, 354);
    cr_expect(!s.head && s.q_norm);
    m.dims.tied = false;
    m.dims.qk_norm = false;
    s = (struct seen){0};
    cr_assert_eq(layout_walk(&m, count, &s, NULL), ERR_OK);
    cr_expect_eq(s.n, 355 - 64);
    cr_expect(s.head && !s.q_norm);
    s = (struct seen){.stop_at = 7};
    cr_expect_eq(layout_walk(&m, count, &s, NULL), ERR_MODEL);
    cr_expect_eq(s.n, 7, "the first failure ends the walk");
    free(m.layers);
}
