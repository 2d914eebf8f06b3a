/* model.h -- a checkpoint folder as published: config.json, safetensors (one file, or shards and an index),
 * generation_config.json.  The tokenizer and the chat template of the folder are text/'s.
 * Owns:   read-only mappings of the weight files; every tensor points into them.
 * Thread: const after model_open(), so any.
 * Errors: ERR_MODEL (files that are away too) or ERR_UNSUPPORTED, act ERR_STOP, one line that names the file and the
 *         key. */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum dtype { DTYPE_BF16, DTYPE_F16, DTYPE_F32 };

enum { MODEL_MAX_EOS = 8 };

/* A matrix [rows, cols], row-major, or a vector [rows] (cols = 1).  Aligned to its element, no more. */
struct tensor {
    const void *data;
    int64_t rows, cols;
    enum dtype dtype;
};

/* Bytes of its elements, whether it has data or not. */
static inline size_t tensor_bytes(const struct tensor *t)
{
    return (size_t)(t->rows * t->cols) * (t->dtype == DTYPE_F32 ? 4 : 2);
}

/* What the architecture needs of config.json.  Heads are query heads. */
struct dims {
    int hidden, layers, heads, kv_heads, head_dim, inter;
    int vocab;         /* rows of the embedding: padding rows included */
    int vocab_used;    /* ids from here on are padding rows, whose logits are noise: never to be sampled.  From
                          org_vocab_size, else vocab; whoever knows the tokenizer may lower it before backends open */
    int max_positions; /* max_position_embeddings */
    float norm_eps;
    double rope_base; /* rope_theta * alpha^(d/(d-2)): ready to use */
    bool qk_norm;
    bool tied;    /* the head is the embedding */
    int bos, pad; /* -1 = absent */
};

struct layer_weights {
    struct tensor input_norm;     /* [hidden] */
    struct tensor q, k, v;        /* [heads*d, hidden], [kv_heads*d, hidden] twice */
    struct tensor q_norm, k_norm; /* [d]; data NULL where qk_norm is false */
    struct tensor o;              /* [hidden, heads*d] */
    struct tensor post_norm;      /* [hidden] */
    struct tensor gate, up;       /* [inter, hidden] */
    struct tensor down;           /* [hidden, inter] */
};

struct generation {
    bool do_sample; /* false: greedy, whatever the temperature */
    float temperature, top_p, repetition_penalty;
    int top_k;              /* 0 = off */
    int eos[MODEL_MAX_EOS]; /* union of generation_config.json's and config.json's */
    int n_eos;
};

struct model {
    struct dims dims;
    struct generation generation;
    struct tensor embed;          /* [vocab, hidden] */
    struct tensor head;           /* [vocab, hidden]; the embedding where tied */
    struct tensor norm;           /* [hidden] */
    struct layer_weights *layers; /* [dims.layers] */
    char name[128];               /* the folder's last path component, or what the caller sets later */
    char digest[17];              /* 16 hex digits over config, tensor table and samples of the weights: two checkpoints
                              that differ have different ones; not a checksum of every byte */
    size_t weight_bytes;          /* of distinct tensors */
    struct model_files *files;
};

/* Opens and checks a folder.  *out NULL unless ERR_OK.  Logs one line where a stored head differs from a tied
 * embedding.  Release with model_close(). */
MUST_CHECK enum err_code model_open(struct model **out, const char *dir, struct err *e);

/* A model of the published shape "1.8b" or "7b", or of a folder's config.json, with no weights at all (every
 * tensor has data NULL): for `bench --random-weights` with backends that make their own. */
MUST_CHECK enum err_code model_open_shape(struct model **out, const char *shape, struct err *e);

void model_close(struct model *m); /* NULL is fine */

/* --- the parts, each tested and fuzzed alone --- */

/* Fills *d from the bytes of a config.json; where is the name for messages. */
MUST_CHECK enum err_code model_parse_config(struct dims *d, int eos[MODEL_MAX_EOS], int *n_eos, const char *json,
                                            size_t n, const char *where, struct err *e);
/* Fills *g from a generation_config.json (json NULL: none there; defaults of the reference implementation). */
MUST_CHECK enum err_code model_parse_generation(struct generation *g, const char *json, size_t n, const char *where,
                                                struct err *e);

#endif
