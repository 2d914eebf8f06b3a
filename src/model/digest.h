/* digest.h -- a name for what a checkpoint computes: 64 bits over config.json, every tensor's name, type and shape, and
 * its first, middle and last 4 KiB.  The same weights in one file or in shards have the same digest.  It tells
 * checkpoints apart; it is no checksum of every byte (16 GB would have to be read) and not cryptographic. */
#ifndef MODEL_DIGEST_H
#define MODEL_DIGEST_H

#include "model/model.h"

#include <stddef.h>
#include <stdint.h>

struct digest {
    uint64_t h;
};

void digest_bytes(struct digest *d, const void *data, size_t n);
void digest_tensor(struct digest *d, const char *name, const struct tensor *t); /* t->data NULL: its shape alone */
void digest_print(const struct digest *d, char out[17]);

#endif
