/* layout.h -- which tensors the architecture has, under which names and in which shapes: one walk over all of them, for
 * the loader, for shapes without weights and for the digest. */
#ifndef MODEL_LAYOUT_H
#define MODEL_LAYOUT_H

#include "model/model.h"

struct layout_item {
    struct tensor *tensor; /* where it goes in the model */
    char name[96];         /* as published */
    int64_t rows, cols;
    int n_dims; /* 1: a vector, cols is 1 */
    int layer;  /* -1: none */
};

/* Calls take for every tensor of m->dims, in a fixed order, until one call fails.  m->layers is allocated; a tied head
 * is not among them. */
MUST_CHECK enum err_code layout_walk(struct model *m,
                                     enum err_code (*take)(void *ctx, const struct layout_item *item, struct err *e),
                                     void *ctx, struct err *e);

#endif
