#include "model/eos.h"

#include "base/json.h"

bool eos_add(int eos[MODEL_MAX_EOS], int *n, int id)
{
    for (int i = 0; i < *n; i++)
        if (eos[i] == id)
            return true;
    if (*n == MODEL_MAX_EOS)
        return false;
    eos[(*n)++] = id;
    return true;
}

static enum err_code add(int eos[MODEL_MAX_EOS], int *n, const json_t *v, int vocab, const char *where, struct err *e)
{
    if (!json_is_integer(v))
        return err_set(e, ERR_MODEL, ERR_STOP, "%s: eos_token_id: expected an integer or a list of them, found %s",
                       where, json_kind(v));
    json_int_t id = json_integer_value(v);
    if (id < 0 || id >= vocab)
        return err_set(e, ERR_MODEL, ERR_STOP, "%s: eos_token_id: found %lld, allowed are 0 to %d", where,
                       (long long)id, vocab - 1);
    if (!eos_add(eos, n, (int)id))
        return err_set(e, ERR_MODEL, ERR_STOP, "%s: eos_token_id: more than %d ids", where, MODEL_MAX_EOS);
    return ERR_OK;
}

enum err_code eos_read(int eos[MODEL_MAX_EOS], int *n, const json_t *o, int vocab, const char *where, struct err *e)
{
    const json_t *v = json_object_get(o, "eos_token_id");
    enum err_code rc = ERR_OK;

    if (!v || json_is_null(v))
        return ERR_OK;
    if (!json_is_array(v))
        return add(eos, n, v, vocab, where, e);
    for (size_t i = 0; i < json_array_size(v) && rc == ERR_OK; i++)
        rc = add(eos, n, json_array_get(v, i), vocab, where, e);
    return rc;
}
