/* st_writer.h -- made-up safetensors files and checkpoint folders for tests, under build/tmp/.
 * Every call that cannot do its work ends the test program with a message: a test without its files means nothing. */
#ifndef TESTS_SUPPORT_ST_WRITER_H
#define TESTS_SUPPORT_ST_WRITER_H

#include "model/model.h"

#include <stddef.h>
#include <stdint.h>

/* A new empty folder build/tmp/NAME-xxxxxx; its path, valid until the process ends.  st_remove() takes it and what is
 * in it (one level) away. */
const char *st_folder(const char *name);
void st_remove(const char *folder);

void st_write_bytes(const char *folder, const char *file, const void *data, size_t n);
void st_write_text(const char *folder, const char *file, const char *text);
/* Length, header as given, data: the header may lie. */
void st_write_raw(const char *folder, const char *file, const char *header, const void *data, size_t n);
/* The same bytes in memory; the caller frees them. */
unsigned char *st_raw(const char *header, const void *data, size_t n, size_t *total);

/* A well-formed file, tensor by tensor. */
struct st_writer;
struct st_writer *st_writer_open(void);
/* rows x cols, or a vector where cols is 0.  Values: normal with deviation 0.02 from (seed, name), or all fill where
 * seed is 0.  dtype "BF16", "F16" or "F32". */
void st_writer_add(struct st_writer *w, const char *name, const char *dtype, int64_t rows, int64_t cols, uint64_t seed,
                   float fill);
void st_writer_save(struct st_writer *w, const char *folder, const char *file); /* and closes it */

struct st_checkpoint {
    struct dims dims;  /* hidden to vocab, qk_norm, tied are used; rope base 10000 with alpha 1000 */
    int shards;        /* 0 or 1: model.safetensors; else shards and an index */
    const char *dtype; /* NULL: BF16 */
    uint64_t seed;   /* of the weights; 0 counts as 1.  The same seed gives the same weights in any number of shards */
    bool store_head; /* lm_head.weight although tied, equal to the embedding */
    bool other_head; /* the same, and different from it */
    bool fused_mlp;  /* gate_and_up_proj */
    const char *leave_out;    /* name of a tensor that is not written */
    const char *add;          /* name of a further tensor, a vector of 8 */
    const char *config_extra; /* further members of config.json, each ending in a comma: "\"use_cla\": true," */
    const char *generation;   /* text of generation_config.json; NULL: none */
};

/* Small and valid: 2 layers, hidden 32, 4 heads over 2, head_dim 16, inter 48, vocab 64, tied. */
struct st_checkpoint st_small(void);
void st_write_checkpoint(const char *folder, const struct st_checkpoint *c);

#endif
