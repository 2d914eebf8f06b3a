/* model_files.h -- the weight files of a checkpoint folder as one table of tensors: model.safetensors, or the shards
 * that model.safetensors.index.json names (the single file wins where both are there, as in the reference
 * implementation).  Index and shards must agree both ways, and no tensor may be in two shards.
 * Owns:   the mappings.  They stay valid as long as nobody truncates the files: replace a checkpoint by renaming.
 * Thread: one while tensors are taken; const after that.
 * Errors: ERR_MODEL or ERR_IO, act ERR_STOP, naming the file and the tensor. */
#ifndef MODEL_MODEL_FILES_H
#define MODEL_MODEL_FILES_H

#include "base/err.h"
#include "model/safetensors.h"

struct model_files;

MUST_CHECK enum err_code model_files_open(struct model_files **out, const char *dir, struct err *e);
void model_files_close(struct model_files *f); /* NULL is fine */

/* Sampling is over: from now on the files are read whole. */
void model_files_read_whole(struct model_files *f);

/* The tensor of that name, marked as taken, and the path of its file; NULL = not there. */
const struct st_tensor *model_files_take(struct model_files *f, const char *name, const char **path);
/* A tensor that nobody has taken; NULL = all are.  *at starts at 0 and walks. */
const struct st_tensor *model_files_left_over(const struct model_files *f, size_t *at, const char **path);

#endif
