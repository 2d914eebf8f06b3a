/* waiting.h -- the requests that have no row yet, in the order in which they get one.
 *
 *   1. those put back, oldest first     2. the one that was passed over too often     3. by priority, then batch by
 *                                                                                        batch, longer prompts first
 * Owns:   nothing; links the callers' requests through their own fields.
 * Thread: one. */
#ifndef ENGINE_WAITING_H
#define ENGINE_WAITING_H

#include "engine/engine.h"

struct waiting {
    struct request *put_back;        /* by order, oldest first */
    struct request *first, *last;    /* by priority and batch */
    struct request *oldest, *newest; /* the same ones by submission */
    int n;                           /* all */
};

/* A micro-batch, linked by next; its order is made here.  Linear in the waiting ones of lower priority. */
void waiting_add(struct waiting *w, struct request *batch);
void waiting_put_back(struct waiting *w, struct request *r);
void waiting_remove(struct waiting *w, struct request *r);

#endif
