#include "text/tokenizer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "text/tokenizer_parts.h"

enum { MAX_FILE_BYTES = 256 << 20 };

/* Nothing, NFC, or a Sequence of such. */
static enum err_code read_normalizer(struct tokenizer *t, const json_t *v, const char *where, struct err *e)
{
    const char *type = json_string_value(json_object_get(v, "type"));
    const json_t *steps = json_object_get(v, "normalizers"), *step;
    bool is_sequence = type && strcmp(type, "Sequence") == 0 && json_is_array(steps);
    size_t n = is_sequence ? json_array_size(steps) : v && !json_is_null(v);

    for (size_t i = 0; i < n; i++) {
        step = is_sequence ? json_array_get(steps, i) : v;
        type = json_string_value(json_object_get(step, "type"));
        if (!type || strcmp(type, "NFC") != 0)
            return err_set(e, ERR_UNSUPPORTED, ERR_STOP, "%s: normalizer: %.40s is not supported, only NFC or none",
                           where, type ? type : json_kind(step));
        t->nfc = true;
    }
    return ERR_OK;
}

/* A part that must be ByteLevel: the post-processor then adds no token, the decoder undoes the byte alphabet. */
static enum err_code check_byte_level(const json_t *root, const char *key, bool required, const char *where,
                                      struct err *e)
{
    const json_t *v = json_object_get(root, key);
    const char *type = json_string_value(json_object_get(v, "type"));

    if (!required && (!v || json_is_null(v)))
        return ERR_OK;
    if (!type || strcmp(type, "ByteLevel") != 0)
        return err_set(e, ERR_UNSUPPORTED, ERR_STOP, "%s: %s: %.40s is not supported, only ByteLevel", where, key,
                       type ? type : json_kind(v));
    return ERR_OK;
}

static enum err_code check_keys(const json_t *root, const char *where, struct err *e)
{
    /* truncation and padding are leftovers of calibration in some published files: ignored on purpose */
    static const char *const known[] = {"version",       "truncation",     "padding", "added_tokens", "normalizer",
                                        "pre_tokenizer", "post_processor", "decoder", "model"};
    const char *key;
    json_t *v;

    if (!json_is_object(root))
        return err_set(e, ERR_MODEL, ERR_STOP, "%s: expected an object, found %s", where, json_kind(root));
    json_object_foreach((json_t *)root, key, v)
    {
        size_t i = 0;
        while (i < sizeof known / sizeof *known && strcmp(key, known[i]) != 0)
            i++;
        if (i == sizeof known / sizeof *known)
            return err_set(e, ERR_UNSUPPORTED, ERR_STOP, "%s: %.60s is not supported", where, key);
    }
    v = json_object_get(root, "model");
    if (!json_is_object(v) || !json_is_object(json_object_get(v, "vocab")))
        return err_set(e, ERR_MODEL, ERR_STOP, "%s: no model.vocab", where);
    v = json_object_get(root, "added_tokens");
    if (v && !json_is_array(v) && !json_is_null(v))
        return err_set(e, ERR_MODEL, ERR_STOP, "%s: added_tokens: expected an array, found %s", where, json_kind(v));
    return ERR_OK;
}

static enum err_code build(struct tokenizer *t, const json_t *root, const char *where, struct err *e)
{
    const json_t *model = json_object_get(root, "model");
    enum err_code rc;

    if ((rc = check_keys(root, where, e)) != ERR_OK ||
        (rc = read_normalizer(t, json_object_get(root, "normalizer"), where, e)) != ERR_OK ||
        (rc = check_byte_level(root, "post_processor", false, where, e)) != ERR_OK ||
        (rc = check_byte_level(root, "decoder", true, where, e)) != ERR_OK ||
        (rc = pretokenizer_open(&t->pretokenizer, json_object_get(root, "pre_tokenizer"), true, where, e)) != ERR_OK)
        return rc;
    rc = vocab_open(&t->vocab, json_object_get(model, "vocab"), json_object_get(root, "added_tokens"), where, e);
    return rc == ERR_OK ? bpe_open(&t->bpe, t->vocab, model, where, e) : rc;
}

enum err_code tokenizer_parse(struct tokenizer **out, const char *json, size_t n, const char *where, struct err *e)
{
    struct tokenizer *t = calloc(1, sizeof *t);
    enum err_code rc;
    json_t *root = NULL;
    json_error_t je;

    *out = NULL;
    if (!t)
        return err_set(e, ERR_NOMEM, ERR_STOP, "%s: out of memory", where);
    root = json_loadb(json, n, JSON_REJECT_DUPLICATES, &je);
    if (!root)
        rc = err_set(e, ERR_MODEL, ERR_STOP, "%s: line %d: not valid JSON: %s", where, je.line, je.text);
    else
        rc = build(t, root, where, e);
    json_decref(root);
    if (rc == ERR_OK) {
        *out = t;
        t = NULL;
    }
    tokenizer_close(t);
    return rc;
}

enum err_code tokenizer_open(struct tokenizer **out, const char *path, struct err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    enum err_code rc;
    struct stat st;
    void *map;

    *out = NULL;
    if (fd < 0)
        return err_set(e, ERR_IO, ERR_STOP, "%s: %s", path, strerror(errno));
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0 || st.st_size > MAX_FILE_BYTES) {
        close(fd);
        return err_set(e, ERR_MODEL, ERR_STOP, "%s: not a regular file of 1 to %d bytes", path, MAX_FILE_BYTES);
    }
    map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
    close(fd);
    if (map == MAP_FAILED)
        return err_set(e, ERR_IO, ERR_STOP, "%s: %s", path, strerror(errno));
    rc = tokenizer_parse(out, map, (size_t)st.st_size, path, e);
    munmap(map, (size_t)st.st_size);
    return rc;
}

void tokenizer_close(struct tokenizer *t)
{
    if (!t)
        return;
    bpe_close(t->bpe);
    vocab_close(t->vocab);
    pretokenizer_close(t->pretokenizer);
    free(t);
}

int tokenizer_size(const struct tokenizer *t)
{
    return t->vocab->size;
}

bool tokenizer_is_local(const struct tokenizer *t)
{
    return pretokenizer_is_local(t->pretokenizer);
}

int tokenizer_special(const struct tokenizer *t, const char *spelling)
{
    return vocab_find_added(t->vocab, spelling);
}

const unsigned char *tokenizer_token_bytes(const struct tokenizer *t, int id, size_t *len)
{
    return vocab_bytes(t->vocab, id, len);
}

bool tokenizer_is_special(const struct tokenizer *t, int id)
{
    return id >= 0 && id < t->vocab->size && t->vocab->token[id].is_special;
}

size_t tokenizer_max_token_bytes(const struct tokenizer *t)
{
    return t->vocab->max_len;
}
