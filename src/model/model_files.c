#include "model/model_files.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"

enum { MAX_SHARDS = 512, MAX_INDEX_BYTES = 64 << 20 };
static const char single_name[] = "model.safetensors";
static const char index_name[] = "model.safetensors.index.json";

struct entry {
    const struct st_tensor *tensor;
    const struct safetensors *file;
    bool taken;
};

struct model_files {
    struct safetensors *shards[MAX_SHARDS];
    int n_shards;
    struct entry *entries; /* sorted by name */
    size_t n;
};

static int compare_entries(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    return strcmp(x->tensor->name, y->tensor->name);
}

static struct entry *find(const struct model_files *f, const char *name)
{
    struct st_tensor t = {.name = name};
    struct entry key = {.tensor = &t};

    return bsearch(&key, f->entries, f->n, sizeof key, compare_entries);
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static enum err_code join(char path[PATH_MAX], const char *dir, const char *name, struct err *e)
{
    if (snprintf(path, PATH_MAX, "%s/%s", dir, name) >= PATH_MAX)
        return err_set(e, ERR_IO, ERR_STOP, "%.60s...: the path is too long", dir);
    return ERR_OK;
}

static enum err_code add_shard(struct model_files *f, const char *dir, const char *name, struct err *e)
{
    char path[PATH_MAX];
    enum err_code rc;

    for (int i = 0; i < f->n_shards; i++)
        if (strcmp(base_name(safetensors_path(f->shards[i])), name) == 0)
            return ERR_OK;
    if (!*name || strchr(name, '/') || strcmp(name, "..") == 0)
        return err_set(e, ERR_MODEL, ERR_STOP, "%s: weight_map: '%.80s' is not the name of a file in the folder",
                       index_name, name);
    if (f->n_shards == MAX_SHARDS)
        return err_set(e, ERR_MODEL, ERR_STOP, "%s: weight_map: more than %d files", index_name, MAX_SHARDS);
    if ((rc = join(path, dir, name, e)) != ERR_OK ||
        (rc = safetensors_open(&f->shards[f->n_shards], path, e)) != ERR_OK)
        return rc;
    f->n_shards++;
    return ERR_OK;
}

static enum err_code merge(struct model_files *f, struct err *e)
{
    size_t n = 0;

    for (int i = 0; i < f->n_shards; i++)
        n += safetensors_count(f->shards[i]);
    f->entries = calloc(n + 1, sizeof *f->entries);
    if (!f->entries)
        return err_set(e, ERR_NOMEM, ERR_STOP, "model: out of memory");
    for (int i = 0; i < f->n_shards; i++)
        for (size_t k = 0; k < safetensors_count(f->shards[i]); k++)
            f->entries[f->n++] = (struct entry){safetensors_at(f->shards[i], k), f->shards[i], false};
    qsort(f->entries, f->n, sizeof *f->entries, compare_entries);
    for (size_t i = 1; i < f->n; i++)
        if (compare_entries(&f->entries[i - 1], &f->entries[i]) == 0)
            return err_set(e, ERR_MODEL, ERR_STOP, "%s: tensor '%.80s' is in %.40s too",
                           base_name(safetensors_path(f->entries[i].file)), f->entries[i].tensor->name,
                           base_name(safetensors_path(f->entries[i - 1].file)));
    return ERR_OK;
}

/* Both ways: what the index names is where it says, and what the shards hold is in the index. */
static enum err_code check_index(const struct model_files *f, const json_t *map, struct err *e)
{
    const char *name;
    json_t *v;

    json_object_foreach((json_t *)map, name, v)
    { /* jansson's macro wants it writable; nothing is written */
        const struct entry *x = find(f, name);

        if (!x || strcmp(base_name(safetensors_path(x->file)), json_string_value(v)) != 0)
            return err_set(e, ERR_MODEL, ERR_STOP, "%s: weight_map: tensor '%.80s' is not in %.60s", index_name, name,
                           json_string_value(v));
    }
    for (size_t i = 0; i < f->n; i++)
        if (!json_object_get(map, f->entries[i].tensor->name))
            return err_set(e, ERR_MODEL, ERR_STOP, "%s: tensor '%.80s' is not in the weight_map of %s",
                           base_name(safetensors_path(f->entries[i].file)), f->entries[i].tensor->name, index_name);
    return ERR_OK;
}

static enum err_code open_shards(struct model_files *f, const char *dir, const char *index_path, struct err *e)
{
    json_t *index = NULL, *map, *v;
    const char *name;
    enum err_code rc;

    if ((rc = json_load_path(&index, index_path, MAX_INDEX_BYTES, e)) != ERR_OK)
        return rc;
    map = json_object_get(index, "weight_map");
    if (!json_is_object(map)) {
        rc =
            err_set(e, ERR_MODEL, ERR_STOP, "%s: weight_map: expected an object, found %s", index_name, json_kind(map));
        goto out;
    }
    json_object_foreach(map, name, v)
    {
        if (!json_is_string(v)) {
            rc = err_set(e, ERR_MODEL, ERR_STOP, "%s: weight_map: '%.80s': expected a file name, found %s", index_name,
                         name, json_kind(v));
            goto out;
        }
        if ((rc = add_shard(f, dir, json_string_value(v), e)) != ERR_OK) {
            err_prefix(e, "%s", index_name);
            goto out;
        }
    }
    if ((rc = merge(f, e)) != ERR_OK)
        goto out;
    rc = check_index(f, map, e);
out:
    json_decref(index);
    return rc;
}

static enum err_code open_any(struct model_files *f, const char *dir, struct err *e)
{
    char single[PATH_MAX], index[PATH_MAX];
    struct stat st;
    enum err_code rc;

    if ((rc = join(single, dir, single_name, e)) != ERR_OK || (rc = join(index, dir, index_name, e)) != ERR_OK)
        return rc;
    if (lstat(single, &st) == 0) {
        if ((rc = add_shard(f, dir, single_name, e)) != ERR_OK)
            return rc;
        return merge(f, e);
    }
    if (lstat(index, &st) == 0)
        return open_shards(f, dir, index, e);
    return err_set(e, ERR_IO, ERR_STOP, "%.120s: no %s and no %s there", dir, single_name, index_name);
}

enum err_code model_files_open(struct model_files **out, const char *dir, struct err *e)
{
    struct model_files *f = calloc(1, sizeof *f);
    enum err_code rc;

    *out = NULL;
    if (!f)
        return err_set(e, ERR_NOMEM, ERR_STOP, "model: out of memory");
    if ((rc = open_any(f, dir, e)) != ERR_OK) {
        model_files_close(f);
        return rc;
    }
    *out = f;
    return ERR_OK;
}

void model_files_close(struct model_files *f)
{
    if (!f)
        return;
    for (int i = 0; i < f->n_shards; i++)
        safetensors_close(f->shards[i]);
    free(f->entries);
    free(f);
}

void model_files_read_whole(struct model_files *f)
{
    for (int i = 0; i < f->n_shards; i++)
        safetensors_read_whole(f->shards[i]);
}

const struct st_tensor *model_files_take(struct model_files *f, const char *name, const char **path)
{
    struct entry *x = find(f, name);

    if (!x)
        return NULL;
    x->taken = true;
    *path = safetensors_path(x->file);
    return x->tensor;
}

const struct st_tensor *model_files_left_over(const struct model_files *f, size_t *at, const char **path)
{
    for (; *at < f->n; ++*at)
        if (!f->entries[*at].taken) {
            *path = safetensors_path(f->entries[*at].file);
            return f->entries[(*at)++].tensor;
        }
    return NULL;
}
