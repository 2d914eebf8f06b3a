#include "model/layout.h"

#include <stddef.h>
#include <stdio.h>

enum size { ONE, HIDDEN, INTER, HEAD_DIM, Q_ROWS, KV_ROWS };

static const struct {
    const char *name;
    size_t offset; /* in struct layer_weights */
    enum size rows, cols;
    bool qk_norm; /* only where the model norms q and k */
} in_layer[] = {
    {"input_layernorm", offsetof(struct layer_weights, input_norm), HIDDEN, ONE, false},
    {"self_attn.q_proj", offsetof(struct layer_weights, q), Q_ROWS, HIDDEN, false},
    {"self_attn.k_proj", offsetof(struct layer_weights, k), KV_ROWS, HIDDEN, false},
    {"self_attn.v_proj", offsetof(struct layer_weights, v), KV_ROWS, HIDDEN, false},
    {"self_attn.query_layernorm", offsetof(struct layer_weights, q_norm), HEAD_DIM, ONE, true},
    {"self_attn.key_layernorm", offsetof(struct layer_weights, k_norm), HEAD_DIM, ONE, true},
    {"self_attn.o_proj", offsetof(struct layer_weights, o), HIDDEN, Q_ROWS, false},
    {"post_attention_layernorm", offsetof(struct layer_weights, post_norm), HIDDEN, ONE, false},
    {"mlp.gate_proj", offsetof(struct layer_weights, gate), INTER, HIDDEN, false},
    {"mlp.up_proj", offsetof(struct layer_weights, up), INTER, HIDDEN, false},
    {"mlp.down_proj", offsetof(struct layer_weights, down), HIDDEN, INTER, false},
};

static int64_t size_of(enum size s, const struct dims *d)
{
    switch (s) {
    case ONE: return 1;
    case HIDDEN: return d->hidden;
    case INTER: return d->inter;
    case HEAD_DIM: return d->head_dim;
    case Q_ROWS: return (int64_t)d->heads * d->head_dim;
    case KV_ROWS: return (int64_t)d->kv_heads * d->head_dim;
    }
    return 0;
}

static void item_in_layer(struct layout_item *x, struct model *m, int layer, size_t i)
{
    x->tensor = (struct tensor *)((char *)&m->layers[layer] + in_layer[i].offset);
    snprintf(x->name, sizeof x->name, "model.layers.%d.%s.weight", layer, in_layer[i].name);
    x->rows = size_of(in_layer[i].rows, &m->dims);
    x->cols = size_of(in_layer[i].cols, &m->dims);
    x->n_dims = in_layer[i].cols == ONE ? 1 : 2;
    x->layer = layer;
}

enum err_code layout_walk(struct model *m,
                          enum err_code (*take)(void *ctx, const struct layout_item *item, struct err *e), void *ctx,
                          struct err *e)
{
    const struct dims *d = &m->dims;
    const struct layout_item outside[] = {
        {&m->embed, "model.embed_tokens.weight", d->vocab, d->hidden, 2, -1},
        {&m->norm, "model.norm.weight", d->hidden, 1, 1, -1},
        {&m->head, "lm_head.weight", d->vocab, d->hidden, 2, -1},
    };
    struct layout_item x;
    enum err_code rc;

    for (int i = 0; i < (d->tied ? 2 : 3); i++)
        if ((rc = take(ctx, &outside[i], e)) != ERR_OK)
            return rc;
    for (int layer = 0; layer < d->layers; layer++)
        for (size_t i = 0; i < sizeof in_layer / sizeof *in_layer; i++) {
            if (in_layer[i].qk_norm && !d->qk_norm)
                continue;
            item_in_layer(&x, m, layer, i);
            if ((rc = take(ctx, &x, e)) != ERR_OK)
                return rc;
        }
    return ERR_OK;
}
