#include "model/model.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TYPE  "\"model_type\":\"hunyuan_v1_dense\","
#define SIZES "\"hidden_size\":256,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"intermediate_size\":512,"
#define REST  "\"vocab_size\":1000,\"max_position_embeddings\":4096,\"rms_norm_eps\":1e-5"

static enum err_code parse(const char *json, struct dims *d, int eos[MODEL_MAX_EOS], int *n, struct err *e)
{
    return model_parse_config(d, eos, n, json, strlen(json), "config.json", e);
}

static char *read_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    char *text = calloc(1, 65536);

    if (f && text)
        text[fread(text, 1, 65535, f)] = '\0';
    if (f)
        fclose(f);
    else {
        free(text);
        return NULL;
    }
    return text;
}

Test(config_json, reads_the_five_published_folders)
{
    static const struct {
        const char *folder;
        int hidden, heads, kv_heads, inter, vocab, bos, eos, pad;
    } cases[] = {
        {"HY-MT1.5-1.8B", 2048, 16, 4, 6144, 120818, 120000, 120020, 120002},
        {"Hy-MT2-1.8B", 2048, 16, 4, 6144, 120818, 120000, 120020, 120002},
        {"Hy-MT2-7B", 4096, 32, 8, 14336, 128167, 127958, 127960, 127961},
    };
    char path[256];
    struct err e;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dims d;
        int eos[MODEL_MAX_EOS], n;

        snprintf(path, sizeof path, "../shared/reference/checkpoints/%s/config.json", cases[i].folder);
        char *text = read_file(path);
        if (!text) {
            printf("skipped: published config.json files (../shared/reference/checkpoints is not there)\n");
            return;
        }
        cr_assert_eq(parse(text, &d, eos, &n, &e), ERR_OK, "%s: %s", path, e.msg);
        free(text);
        cr_expect_eq(d.hidden, cases[i].hidden);
        cr_expect_eq(d.layers, 32);
        cr_expect_eq(d.heads, cases[i].heads);
        cr_expect_eq(d.kv_heads, cases[i].kv_heads);
        cr_expect_eq(d.head_dim, 128);
        cr_expect_eq(d.inter, cases[i].inter);
        cr_expect_eq(d.vocab, cases[i].vocab);
        cr_expect_eq(d.vocab_used, cases[i].vocab);
        cr_expect_eq(d.max_positions, 262144);
        cr_expect_float_eq(d.norm_eps, 1e-5f, 1e-12f);
        cr_expect(fabs(d.rope_base - 11158839.925) < 1e-3, "%.6f", d.rope_base);
        cr_expect(d.qk_norm && d.tied);
        cr_expect_eq(d.bos, cases[i].bos);
        cr_expect_eq(d.pad, cases[i].pad);
        cr_expect_eq(n, 1);
        cr_expect_eq(eos[0], cases[i].eos);
    }
    char *text = read_file("../shared/reference/checkpoints/HY-MT1.5-1.8B-FP8/config.json");
    struct dims d;
    int eos[MODEL_MAX_EOS], n;

    cr_assert_not_null(text);
    cr_expect_eq(parse(text, &d, eos, &n, &e), ERR_UNSUPPORTED);
    cr_expect_str_eq(e.msg, "config.json: quantization_config quant_method compressed-tensors is not supported by this "
                            "version; use the bf16 checkpoint");
    free(text);
}

Test(config_json, both_spellings_of_the_rope_keys_give_the_same_base)
{
    static const struct {
        const char *rope;
        double base;
    } cases[] = {
        {"", 10000.0},
        {"\"rope_theta\":20000.0,", 20000.0},
        {"\"rope_theta\":20000,\"rope_scaling\":null,", 20000.0},
        {"\"rope_theta\":10000.0,\"rope_scaling\":{\"type\":\"dynamic\",\"alpha\":1000.0},", 0},
        {"\"rope_scaling\":{\"rope_type\":\"dynamic\",\"alpha\":1000},", 0},
        {"\"rope_parameters\":{\"rope_type\":\"dynamic\",\"type\":\"dynamic\",\"alpha\":1000.0,\"rope_theta\":10000.0}"
         ",",
         0},
        {"\"rope_parameters\":{\"type\":\"dynamic\",\"alpha\":1000.0,\"rope_theta\":10000.0},"
         "\"rope_scaling\":{\"type\":\"dynamic\",\"alpha\":1000.0},",
         0},
        {"\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":5e5},", 5e5},
        {"\"rope_theta\":10000.0,\"rope_scaling\":{\"type\":\"dynamic\",\"alpha\":100000.0},", 1200508032.0},
    };
    char json[1024];
    struct dims d;
    struct err e;
    int eos[MODEL_MAX_EOS], n;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double want = cases[i].base ? cases[i].base : 11158839.925;

        snprintf(json, sizeof json, "{" TYPE SIZES "%s\"head_dim\":128," REST "}", cases[i].rope);
        cr_assert_eq(parse(json, &d, eos, &n, &e), ERR_OK, "%s: %s", cases[i].rope, e.msg);
        cr_expect(fabs(d.rope_base - want) < 1e-7 * want, "%s: %.3f", cases[i].rope, d.rope_base);
    }
}

Test(config_json, head_dim_falls_back_to_its_twin_and_then_to_a_quotient)
{
    static const struct {
        const char *keys;
        int head_dim;
    } cases[] = {
        {"\"head_dim\":32,\"attention_head_dim\":16,", 32},     {"\"head_dim\":null,\"attention_head_dim\":32,", 32},
        {"\"attention_head_dim\":null,\"head_dim\":32,", 32},   {"\"attention_head_dim\":32,", 32},
        {"\"head_dim\":null,\"attention_head_dim\":null,", 64}, {"", 64},
    };
    char json[1024];
    struct dims d;
    struct err e;
    int eos[MODEL_MAX_EOS], n;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(json, sizeof json, "{" TYPE SIZES "%s" REST "}", cases[i].keys);
        cr_assert_eq(parse(json, &d, eos, &n, &e), ERR_OK, "%s", e.msg);
        cr_expect_eq(d.head_dim, cases[i].head_dim, "%s", cases[i].keys);
        cr_expect_eq(d.kv_heads, 4, "absent: one a query head");
    }
}

Test(config_json, absent_flags_have_the_reference_implementations_defaults)
{
    struct dims d;
    struct err e;
    int eos[MODEL_MAX_EOS], n;

    cr_assert_eq(parse("{" TYPE SIZES REST "}", &d, eos, &n, &e), ERR_OK, "%s", e.msg);
    cr_expect(d.qk_norm);
    cr_expect_not(d.tied);
    cr_expect_eq(d.bos, -1);
    cr_expect_eq(d.pad, -1);
    cr_expect_eq(d.vocab_used, 1000);
    cr_expect_eq(n, 0);
    cr_assert_eq(parse("{" TYPE SIZES REST ",\"org_vocab_size\":900,\"eos_token_id\":[5,6,5],\"eod_token_id\":3}", &d,
                       eos, &n, &e),
                 ERR_OK);
    cr_expect_eq(d.vocab_used, 900);
    cr_expect_eq(n, 2);
    cr_expect_eq(eos[0], 5);
    cr_expect_eq(eos[1], 6);
}

Test(config_json, refuses_what_is_wrong_and_says_what_is_allowed)
{
    static const struct {
        const char *json;
        enum err_code code;
        const char *message;
    } cases[] = {
        {"", ERR_MODEL, "config.json: line 1: not valid JSON"},
        {"{", ERR_MODEL, "not valid JSON"},
        {"[]", ERR_MODEL, "config.json: expected an object, found array"},
        {"{\"hidden_size\":1,\"hidden_size\":1}", ERR_MODEL, "duplicate object key"},
        {"{}", ERR_MODEL, "config.json: model_type is missing, allowed is hunyuan_v1_dense"},
        {"{\"model_type\":7}", ERR_MODEL, "config.json: model_type: expected a string, found integer"},
        {"{\"model_type\":\"hy_v3\"}", ERR_UNSUPPORTED, "model_type hy_v3 (mixture of experts) is not supported"},
        {"{\"model_type\":\"llama\"}", ERR_UNSUPPORTED,
         "model_type llama is not supported, allowed is hunyuan_v1_dense"},
        {"{" TYPE "\"architectures\":[\"HunYuanDenseV1ForSequenceClassification\"]}", ERR_UNSUPPORTED,
         "architectures HunYuanDenseV1ForSequenceClassification is not supported"},
        {"{" TYPE "\"quantization_config\":{}}", ERR_UNSUPPORTED, "quantization_config quant_method (none) is not"},
        {"{" TYPE "\"quantization_config\":{\"quant_method\":\"gptq\"}}", ERR_UNSUPPORTED, "quant_method gptq is not"},
        {"{" TYPE "\"hidden_act\":\"gelu\"}", ERR_UNSUPPORTED, "hidden_act gelu is not supported, allowed is silu"},
        {"{" TYPE "\"norm_type\":\"layer\"}", ERR_UNSUPPORTED, "norm_type layer is not supported, allowed is rms"},
        {"{" TYPE "\"use_cla\":true}", ERR_UNSUPPORTED, "use_cla true is not supported, allowed is false"},
        {"{" TYPE "\"attention_bias\":true}", ERR_UNSUPPORTED, "attention_bias true is not supported"},
        {"{" TYPE "\"mlp_bias\":true}", ERR_UNSUPPORTED, "mlp_bias true is not supported"},
        {"{" TYPE "\"mlp_bias\":1}", ERR_MODEL, "mlp_bias: expected true or false, found integer"},
        {"{" TYPE "\"use_rotary_pos_emb\":false}", ERR_UNSUPPORTED, "use_rotary_pos_emb false is not supported"},
        {"{" TYPE "\"add_classification_head\":true}", ERR_UNSUPPORTED, "add_classification_head true"},
        {"{" TYPE "\"num_experts\":8}", ERR_UNSUPPORTED, "num_experts over 1 (mixture of experts) is not supported"},
        {"{" TYPE REST "}", ERR_MODEL, "hidden_size is missing (an integer from 1 to 65536)"},
        {"{" TYPE "\"hidden_size\":0}", ERR_MODEL, "hidden_size: found 0, allowed are 1 to 65536"},
        {"{" TYPE "\"hidden_size\":4294967297}", ERR_MODEL, "hidden_size: found 4294967297, allowed are"},
        {"{" TYPE "\"hidden_size\":256.0}", ERR_MODEL, "hidden_size: expected an integer, found real number"},
        {"{" TYPE SIZES "\"vocab_size\":1000}", ERR_MODEL, "max_position_embeddings is missing"},
        {"{" TYPE SIZES "\"vocab_size\":1000,\"max_position_embeddings\":9}", ERR_MODEL, "rms_norm_eps is missing"},
        {"{" TYPE SIZES "\"num_key_value_heads\":3," REST "}", ERR_MODEL,
         "num_attention_heads 4 is no multiple of num_key_value_heads 3"},
        {"{" TYPE SIZES "\"head_dim\":33," REST "}", ERR_MODEL, "head_dim: found 33, allowed are even numbers"},
        {"{" TYPE SIZES "\"head_dim\":2," REST "}", ERR_MODEL, "head_dim: found 2, allowed are 16 to 256"},
        {"{" TYPE SIZES "\"org_vocab_size\":1001," REST "}", ERR_MODEL,
         "org_vocab_size: found 1001, allowed are 1 to 1000"},
        {"{" TYPE SIZES REST ",\"bos_token_id\":1000}", ERR_MODEL, "bos_token_id: found 1000, allowed are 0 to 999"},
        {"{" TYPE SIZES REST ",\"eos_token_id\":1000}", ERR_MODEL, "eos_token_id: found 1000, allowed are 0 to 999"},
        {"{" TYPE SIZES REST ",\"eos_token_id\":[1,\"x\"]}", ERR_MODEL,
         "eos_token_id: expected an integer or a list of them, found string"},
        {"{" TYPE SIZES REST ",\"eos_token_id\":[1,2,3,4,5,6,7,8,9]}", ERR_MODEL, "eos_token_id: more than 8 ids"},
        {"{" TYPE SIZES REST ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4.0}}", ERR_UNSUPPORTED,
         "rope_scaling: type yarn is not supported, allowed is dynamic with alpha, or default"},
        {"{" TYPE SIZES REST ",\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":4.0}}", ERR_UNSUPPORTED,
         "type dynamic without alpha"},
        {"{" TYPE SIZES REST ",\"rope_scaling\":{\"type\":\"dynamic\",\"alpha\":0}}", ERR_MODEL,
         "rope_scaling: alpha: found 0, allowed are 0.001 to 1e+09"},
        {"{" TYPE SIZES REST ",\"rope_scaling\":{\"alpha\":1000.0}}", ERR_MODEL,
         "alpha is given and type is not dynamic"},
        {"{" TYPE SIZES REST ",\"rope_scaling\":{\"type\":\"dynamic\",\"rope_type\":\"default\"}}", ERR_MODEL,
         "rope_type default and type dynamic differ"},
        {"{" TYPE SIZES REST ",\"rope_scaling\":\"dynamic\"}", ERR_MODEL,
         "rope_scaling: expected an object, found string"},
        {"{" TYPE SIZES REST ",\"rope_theta\":-1}", ERR_MODEL, "rope_theta: found -1, allowed are 1 to 1e+12"},
        {"{" TYPE SIZES REST ",\"rope_scaling\":{\"type\":\"dynamic\",\"alpha\":1000},"
         "\"rope_parameters\":{\"type\":\"dynamic\",\"alpha\":100}}",
         ERR_MODEL, "rope_scaling and rope_parameters differ"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err e = {0};
        struct dims d;
        int eos[MODEL_MAX_EOS], n;
        enum err_code rc = parse(cases[i].json, &d, eos, &n, &e);

        cr_expect_eq(rc, cases[i].code, "%s: %s", cases[i].json, e.msg);
        cr_expect(strstr(e.msg, cases[i].message), "%s\n gave: %s\n want: %s", cases[i].json, e.msg, cases[i].message);
        cr_expect(strncmp(e.msg, "config.json: ", 13) == 0, "%s", e.msg);
        cr_expect_eq(e.act, ERR_STOP);
    }
}
