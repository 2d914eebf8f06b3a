/* config_json.c -- config.json of a checkpoint: the published spellings, each value in its range, and by name what is
 * understood but not implemented.  Declared in model.h. */
#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "model/eos.h"

/* Generous, and small enough that no product of two of them overflows an int64_t, nor heads * head_dim an int. */
enum {
    MAX_HIDDEN = 65536,
    MAX_LAYERS = 512,
    MAX_HEADS = 1024,
    MIN_HEAD_DIM = 16,
    MAX_HEAD_DIM = 256,
    MAX_INTER = 1 << 20,
    MAX_VOCAB = 1 << 22,
    MAX_POSITIONS = 1 << 24
};

static enum err_code unsupported(struct err *e, const char *where, const char *key, const char *found,
                                 const char *allowed)
{
    return err_set(e, ERR_UNSUPPORTED, ERR_STOP, "%s: %s %.60s is not supported, allowed is %s", where, key, found,
                   allowed);
}

/* A required integer. */
static enum err_code need_int(const json_t *o, const char *where, const char *key, int min, int max, int *out,
                              struct err *e)
{
    int64_t v = 0;
    bool found;
    enum err_code rc = json_get_int(o, where, key, min, max, &v, &found, e);

    if (rc == ERR_OK && !found)
        return err_set(e, ERR_MODEL, ERR_STOP, "%s: %s is missing (an integer from %d to %d)", where, key, min, max);
    if (rc == ERR_OK)
        *out = (int)v;
    return rc;
}

static enum err_code want_int(const json_t *o, const char *where, const char *key, int min, int max, int otherwise,
                              int *out, struct err *e)
{
    int64_t v = otherwise;
    bool found;
    enum err_code rc = json_get_int(o, where, key, min, max, &v, &found, e);

    *out = (int)v;
    return rc;
}

static enum err_code want_bool(const json_t *o, const char *where, const char *key, bool otherwise, bool *out,
                               struct err *e)
{
    bool found;

    *out = otherwise;
    return json_get_bool(o, where, key, out, &found, e);
}

/* Absent counts as the one value that is implemented. */
static enum err_code only_string(const json_t *o, const char *where, const char *key, const char *allowed,
                                 struct err *e)
{
    const char *v = allowed;
    bool found;
    enum err_code rc = json_get_string(o, where, key, &v, &found, e);

    if (rc == ERR_OK && strcmp(v, allowed) != 0)
        return unsupported(e, where, key, v, allowed);
    return rc;
}

static enum err_code only_bool(const json_t *o, const char *where, const char *key, bool allowed, struct err *e)
{
    bool v;
    enum err_code rc = want_bool(o, where, key, allowed, &v, e);

    if (rc == ERR_OK && v != allowed)
        return unsupported(e, where, key, v ? "true" : "false", allowed ? "true" : "false");
    return rc;
}

static enum err_code check_kind(const json_t *o, const char *where, struct err *e)
{
    const char *type = NULL, *architecture;
    bool found;
    enum err_code rc = json_get_string(o, where, "model_type", &type, &found, e);

    if (rc != ERR_OK)
        return rc;
    if (!found)
        return err_set(e, ERR_MODEL, ERR_STOP, "%s: model_type is missing, allowed is hunyuan_v1_dense", where);
    if (strcmp(type, "hy_v3") == 0)
        return unsupported(e, where, "model_type", "hy_v3 (mixture of experts)", "hunyuan_v1_dense");
    if (strcmp(type, "hunyuan_v1_dense") != 0)
        return unsupported(e, where, "model_type", type, "hunyuan_v1_dense");
    architecture = json_string_value(json_array_get(json_object_get(o, "architectures"), 0));
    if (architecture && strcmp(architecture, "HunYuanDenseV1ForCausalLM") != 0)
        return unsupported(e, where, "architectures", architecture, "HunYuanDenseV1ForCausalLM");
    return ERR_OK;
}

static enum err_code check_quantization(const json_t *o, const char *where, struct err *e)
{
    const json_t *q = json_object_get(o, "quantization_config");
    const char *method = json_string_value(json_object_get(q, "quant_method"));

    if (!q || json_is_null(q))
        return ERR_OK;
    return err_set(e, ERR_UNSUPPORTED, ERR_STOP,
                   "%s: quantization_config quant_method %.40s is not supported by this version; use the bf16 "
                   "checkpoint",
                   where, method ? method : "(none)");
}

static enum err_code check_variant(const json_t *o, const char *where, struct err *e)
{
    int experts;
    enum err_code rc;

    if ((rc = check_kind(o, where, e)) != ERR_OK || (rc = check_quantization(o, where, e)) != ERR_OK ||
        (rc = only_string(o, where, "hidden_act", "silu", e)) != ERR_OK ||
        (rc = only_string(o, where, "norm_type", "rms", e)) != ERR_OK ||
        (rc = only_bool(o, where, "use_cla", false, e)) != ERR_OK ||
        (rc = only_bool(o, where, "attention_bias", false, e)) != ERR_OK ||
        (rc = only_bool(o, where, "mlp_bias", false, e)) != ERR_OK ||
        (rc = only_bool(o, where, "use_rotary_pos_emb", true, e)) != ERR_OK ||
        (rc = only_bool(o, where, "add_classification_head", false, e)) != ERR_OK ||
        (rc = want_int(o, where, "num_experts", 0, 1 << 20, 1, &experts, e)) != ERR_OK)
        return rc;
    if (experts > 1)
        return unsupported(e, where, "num_experts", "over 1 (mixture of experts)", "1");
    return ERR_OK;
}

static enum err_code read_head_dim(struct dims *d, const json_t *o, const char *where, struct err *e)
{
    int named, other;
    enum err_code rc;

    if ((rc = want_int(o, where, "head_dim", MIN_HEAD_DIM, MAX_HEAD_DIM, 0, &named, e)) != ERR_OK ||
        (rc = want_int(o, where, "attention_head_dim", MIN_HEAD_DIM, MAX_HEAD_DIM, 0, &other, e)) != ERR_OK)
        return rc;
    d->head_dim = named ? named : other;
    if (!d->head_dim) {
        if (d->hidden % d->heads != 0)
            return err_set(e, ERR_MODEL, ERR_STOP,
                           "%s: head_dim is missing and hidden_size %d is no multiple of num_attention_heads %d", where,
                           d->hidden, d->heads);
        d->head_dim = d->hidden / d->heads;
    }
    if (d->head_dim % 2 != 0 || d->head_dim < MIN_HEAD_DIM || d->head_dim > MAX_HEAD_DIM)
        return err_set(e, ERR_MODEL, ERR_STOP, "%s: head_dim: found %d, allowed are even numbers from %d to %d", where,
                       d->head_dim, MIN_HEAD_DIM, MAX_HEAD_DIM);
    return ERR_OK;
}

static enum err_code read_sizes(struct dims *d, const json_t *o, const char *where, struct err *e)
{
    enum err_code rc;

    if ((rc = need_int(o, where, "hidden_size", 1, MAX_HIDDEN, &d->hidden, e)) != ERR_OK ||
        (rc = need_int(o, where, "num_hidden_layers", 1, MAX_LAYERS, &d->layers, e)) != ERR_OK ||
        (rc = need_int(o, where, "num_attention_heads", 1, MAX_HEADS, &d->heads, e)) != ERR_OK ||
        (rc = want_int(o, where, "num_key_value_heads", 1, MAX_HEADS, d->heads, &d->kv_heads, e)) != ERR_OK ||
        (rc = need_int(o, where, "intermediate_size", 1, MAX_INTER, &d->inter, e)) != ERR_OK ||
        (rc = need_int(o, where, "vocab_size", 1, MAX_VOCAB, &d->vocab, e)) != ERR_OK ||
        (rc = want_int(o, where, "org_vocab_size", 1, d->vocab, d->vocab, &d->vocab_used, e)) != ERR_OK ||
        (rc = need_int(o, where, "max_position_embeddings", 1, MAX_POSITIONS, &d->max_positions, e)) != ERR_OK)
        return rc;
    if (d->heads % d->kv_heads != 0)
        return err_set(e, ERR_MODEL, ERR_STOP, "%s: num_attention_heads %d is no multiple of num_key_value_heads %d",
                       where, d->heads, d->kv_heads);
    return read_head_dim(d, o, where, e);
}

/* One of the two spellings: o has type or rope_type, alpha and perhaps rope_theta.  The base is static: alpha is
 * applied at once, whatever the length. */
static enum err_code read_scaling(double *base, const json_t *o, int head_dim, double theta, const char *where,
                                  struct err *e)
{
    const char *type = NULL, *twin = NULL;
    bool has_type, has_twin, has_alpha, found;
    double alpha = 1.0;
    enum err_code rc;

    if (!json_is_object(o))
        return err_set(e, ERR_MODEL, ERR_STOP, "%s: expected an object, found %s", where, json_kind(o));
    if ((rc = json_get_string(o, where, "rope_type", &type, &has_type, e)) != ERR_OK ||
        (rc = json_get_string(o, where, "type", &twin, &has_twin, e)) != ERR_OK ||
        (rc = json_get_double(o, where, "rope_theta", 1.0, 1e12, &theta, &found, e)) != ERR_OK ||
        (rc = json_get_double(o, where, "alpha", 1e-3, 1e9, &alpha, &has_alpha, e)) != ERR_OK)
        return rc;
    if (has_type && has_twin && strcmp(type, twin) != 0)
        return err_set(e, ERR_MODEL, ERR_STOP, "%s: rope_type %.30s and type %.30s differ", where, type, twin);
    if (!has_type)
        type = has_twin ? twin : "default";
    *base = theta;
    if (strcmp(type, "default") == 0)
        return has_alpha ? err_set(e, ERR_MODEL, ERR_STOP, "%s: alpha is given and type is not dynamic", where)
                         : ERR_OK;
    if (strcmp(type, "dynamic") != 0)
        return unsupported(e, where, "type", type, "dynamic with alpha, or default");
    if (!has_alpha)
        return err_set(e, ERR_UNSUPPORTED, ERR_STOP,
                       "%s: type dynamic without alpha (a base that changes with the length) is not supported", where);
    *base = theta * pow(alpha, (double)head_dim / (head_dim - 2));
    return ERR_OK;
}

static enum err_code read_rope(struct dims *d, const json_t *o, const char *where, struct err *e)
{
    const json_t *scaling = json_object_get(o, "rope_scaling"), *parameters = json_object_get(o, "rope_parameters");
    double theta = 10000.0, base = 0.0;
    bool found, has_scaling = scaling && !json_is_null(scaling);
    enum err_code rc;
    char at[160];

    if ((rc = json_get_double(o, where, "rope_theta", 1.0, 1e12, &theta, &found, e)) != ERR_OK)
        return rc;
    d->rope_base = theta;
    snprintf(at, sizeof at, "%.120s: rope_scaling", where);
    if (has_scaling && (rc = read_scaling(&d->rope_base, scaling, d->head_dim, theta, at, e)) != ERR_OK)
        return rc;
    if (!parameters || json_is_null(parameters))
        return ERR_OK;
    snprintf(at, sizeof at, "%.120s: rope_parameters", where);
    if ((rc = read_scaling(&base, parameters, d->head_dim, theta, at, e)) != ERR_OK)
        return rc;
    if (has_scaling && base != d->rope_base)
        return err_set(e, ERR_MODEL, ERR_STOP, "%s: rope_scaling and rope_parameters differ", where);
    d->rope_base = base;
    return ERR_OK;
}

static enum err_code read_flags(struct dims *d, const json_t *o, const char *where, struct err *e)
{
    double eps = 0;
    bool found;
    enum err_code rc;

    if ((rc = json_get_double(o, where, "rms_norm_eps", 1e-12, 1.0, &eps, &found, e)) != ERR_OK)
        return rc;
    if (!found)
        return err_set(e, ERR_MODEL, ERR_STOP, "%s: rms_norm_eps is missing (a number from 1e-12 to 1)", where);
    d->norm_eps = (float)eps;
    /* The reference implementation always norms q and k, and does not tie unless told to. */
    if ((rc = want_bool(o, where, "use_qk_norm", true, &d->qk_norm, e)) != ERR_OK ||
        (rc = want_bool(o, where, "tie_word_embeddings", false, &d->tied, e)) != ERR_OK ||
        (rc = want_int(o, where, "bos_token_id", 0, d->vocab - 1, -1, &d->bos, e)) != ERR_OK ||
        (rc = want_int(o, where, "pad_token_id", -1, d->vocab - 1, -1, &d->pad, e)) != ERR_OK)
        return rc;
    return ERR_OK;
}

enum err_code model_parse_config(struct dims *d, int eos[MODEL_MAX_EOS], int *n_eos, const char *json, size_t n,
                                 const char *where, struct err *e)
{
    json_error_t je;
    enum err_code rc;
    json_t *o = json_loadb(json, n, JSON_REJECT_DUPLICATES, &je);

    memset(d, 0, sizeof *d);
    *n_eos = 0;
    if (!o)
        return err_set(e, ERR_MODEL, ERR_STOP, "%s: line %d: not valid JSON: %s", where, je.line, je.text);
    if (!json_is_object(o)) {
        rc = err_set(e, ERR_MODEL, ERR_STOP, "%s: expected an object, found %s", where, json_kind(o));
        goto out;
    }
    if ((rc = check_variant(o, where, e)) != ERR_OK || (rc = read_sizes(d, o, where, e)) != ERR_OK ||
        (rc = read_rope(d, o, where, e)) != ERR_OK || (rc = read_flags(d, o, where, e)) != ERR_OK)
        goto out;
    rc = eos_read(eos, n_eos, o, d->vocab, where, e);
out:
    json_decref(o);
    return rc;
}
