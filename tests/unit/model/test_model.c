#include "model/model.h"
#include "tests/support/st_writer.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Opens what c describes; the message in e on failure. */
static enum err_code open_made(struct model **m, const struct st_checkpoint *c, struct err *e)
{
    const char *dir = st_folder("model");
    enum err_code rc;

    st_write_checkpoint(dir, c);
    rc = model_open(m, dir, e);
    st_remove(dir); /* mappings outlive their names */
    return rc;
}

static void refuses(const struct st_checkpoint *c, enum err_code code, const char *message)
{
    struct err e = {0};
    struct model *m;

    cr_expect_eq(open_made(&m, c, &e), code, "%s", e.msg);
    cr_expect_null(m);
    cr_expect(strstr(e.msg, message), "\n gave: %s\n want: %s", e.msg, message);
    cr_expect_eq(e.act, ERR_STOP);
    model_close(m);
}

Test(model, opens_the_golden_folders_and_the_demonstration)
{
    static const struct {
        const char *dir, *name;
        int layers, hidden, vocab;
    } cases[] = {
        {"tests/golden/tiny-a", "tiny-a", 3, 128, 515},
        {"tests/golden/tiny-b/", "tiny-b", 3, 192, 1031},
        {"ops/demo/model", "model", 8, 384, 12006},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model *m;
        struct err e;

        cr_assert_eq(model_open(&m, cases[i].dir, &e), ERR_OK, "%s", e.msg);
        cr_expect_str_eq(m->name, cases[i].name);
        cr_expect_eq(m->dims.layers, cases[i].layers);
        cr_expect_eq(m->embed.rows, cases[i].vocab);
        cr_expect_eq(m->embed.cols, cases[i].hidden);
        cr_expect_eq(m->head.data, m->embed.data);
        cr_expect_eq(m->layers[1].q.dtype, DTYPE_BF16);
        cr_expect_not_null(m->layers[m->dims.layers - 1].down.data);
        cr_expect_eq(strlen(m->digest), 16);
        cr_expect_eq(m->generation.n_eos, 1);
        cr_expect_not(m->generation.do_sample);
        model_close(m);
    }
}

Test(model, counts_each_weight_once)
{
    struct model *m;
    struct err e;

    cr_assert_eq(model_open(&m, "tests/golden/tiny-a", &e), ERR_OK, "%s", e.msg);
    cr_expect_eq(m->weight_bytes, 1461504); /* the data of the file: head tied, not stored */
    model_close(m);
}

Test(model, the_digest_is_of_the_weights_and_not_of_their_files)
{
    struct st_checkpoint c = st_small();
    char digest[17];
    struct model *m;
    struct err e;

    cr_assert_eq(open_made(&m, &c, &e), ERR_OK, "%s", e.msg);
    memcpy(digest, m->digest, sizeof digest);
    model_close(m);
    c.shards = 5;
    cr_assert_eq(open_made(&m, &c, &e), ERR_OK, "%s", e.msg);
    cr_expect_str_eq(m->digest, digest);
    model_close(m);
    c.seed = 2;
    cr_assert_eq(open_made(&m, &c, &e), ERR_OK, "%s", e.msg);
    cr_expect_str_neq(m->digest, digest);
    model_close(m);
    c.seed = 0;
    c.config_extra = "\"use_cache\": true,";
    cr_assert_eq(open_made(&m, &c, &e), ERR_OK, "%s", e.msg);
    cr_expect_str_neq(m->digest, digest);
    model_close(m);
}

Test(model, takes_f16_and_f32_and_an_untied_head)
{
    static const char *const names[] = {"F16", "F32", "BF16"};
    static const enum dtype types[] = {DTYPE_F16, DTYPE_F32, DTYPE_BF16};

    for (int i = 0; i < 3; i++) {
        struct st_checkpoint c = st_small();
        struct model *m;
        struct err e;

        c.dtype = names[i];
        c.dims.tied = false;
        c.dims.qk_norm = false;
        cr_assert_eq(open_made(&m, &c, &e), ERR_OK, "%s", e.msg);
        cr_expect_eq(m->head.dtype, types[i]);
        cr_expect_neq(m->head.data, m->embed.data);
        cr_expect_null(m->layers[0].q_norm.data);
        cr_expect_eq(m->layers[0].k.rows, 32);
        cr_expect_eq(m->layers[0].input_norm.cols, 1);
        model_close(m);
    }
}

Test(model, a_tied_head_may_be_stored_and_the_embedding_is_used)
{
    struct st_checkpoint c = st_small();
    struct model *m;
    struct err e;

    c.store_head = true;
    cr_assert_eq(open_made(&m, &c, &e), ERR_OK, "%s", e.msg);
    cr_expect_eq(m->head.data, m->embed.data);
    model_close(m);
}

Test(model, says_once_where_a_stored_head_differs_from_a_tied_embedding)
{
    for (int differs = 0; differs < 2; differs++) {
        struct st_checkpoint c = st_small();
        const char *dir = st_folder("head");
        char path[256], text[1024] = "";
        struct model *m;
        struct err e;

        c.store_head = !differs;
        c.other_head = differs;
        st_write_checkpoint(dir, &c);
        snprintf(path, sizeof path, "%s/log", dir);
        FILE *log = freopen(path, "w+", stderr);
        cr_assert_not_null(log);
        cr_assert_eq(model_open(&m, dir, &e), ERR_OK, "%s", e.msg);
        FILE *f = fopen(path, "r");
        cr_assert_not_null(f);
        text[fread(text, 1, sizeof text - 1, f)] = '\0';
        fclose(f);
        cr_expect_eq(strstr(text, "event=tied_head_differs") != NULL, differs == 1, "%s", text);
        cr_expect(!differs || strchr(text, '\n') == text + strlen(text) - 1, "one line: %s", text);
        cr_expect_eq(m->head.data, m->embed.data);
        model_close(m);
        st_remove(dir);
    }
}

Test(model, fused_up_and_gate_are_two_halves_of_one_matrix)
{
    struct st_checkpoint c = st_small();
    struct model *m;
    struct err e;

    c.fused_mlp = true;
    cr_assert_eq(open_made(&m, &c, &e), ERR_OK, "%s", e.msg);
    const struct layer_weights *w = &m->layers[1];
    cr_expect_eq(w->gate.rows, c.dims.inter);
    cr_expect_eq(w->up.rows, c.dims.inter);
    cr_expect_eq((const char *)w->gate.data - (const char *)w->up.data, (ptrdiff_t)(c.dims.inter * c.dims.hidden * 2));
    model_close(m);
}

Test(model, old_rotary_tables_are_skipped)
{
    struct st_checkpoint c = st_small();
    struct model *m;
    struct err e;

    c.add = "model.layers.0.self_attn.rotary_emb.inv_freq";
    cr_assert_eq(open_made(&m, &c, &e), ERR_OK, "%s", e.msg);
    model_close(m);
}

Test(model, ends_are_the_union_of_both_files)
{
    struct st_checkpoint c = st_small();
    struct model *m;
    struct err e;

    c.generation = "{\"eos_token_id\":[5,2],\"do_sample\":true,\"temperature\":0.7}";
    cr_assert_eq(open_made(&m, &c, &e), ERR_OK, "%s", e.msg);
    cr_expect_eq(m->generation.n_eos, 2);
    cr_expect_eq(m->generation.eos[0], 5);
    cr_expect_eq(m->generation.eos[1], 2);
    cr_expect(m->generation.do_sample);
    model_close(m);
    c.generation = "{\"eos_token_id\":64}";
    refuses(&c, ERR_MODEL, "generation_config.json: eos_token_id: found 64, allowed are 0 to 63");
    c.generation = "{\"eos_token_id\":[10,11,12,13,14,15,16,17]}";
    refuses(&c, ERR_MODEL, "eos_token_id: more than 8 ids");
}

Test(model, names_the_tensor_that_is_missing_unknown_or_of_another_shape)
{
    struct st_checkpoint c = st_small();

    c.leave_out = "model.layers.1.mlp.up_proj.weight";
    refuses(&c, ERR_MODEL, "model.safetensors: model.layers.1.mlp.up_proj.weight: this tensor is missing");
    c.leave_out = "model.norm.weight";
    refuses(&c, ERR_MODEL, "model.norm.weight: this tensor is missing");
    c = st_small();
    c.add = "model.layers.2.input_layernorm.weight";
    refuses(&c, ERR_MODEL, "model.safetensors: model.layers.2.input_layernorm.weight: this tensor is unknown");
    c.add = "model.layers.0.self_attn.q_proj.weight_scale";
    refuses(&c, ERR_MODEL, "q_proj.weight_scale: this tensor is unknown to the architecture");
    c = st_small();
    c.leave_out = "model.layers.0.self_attn.q_proj.weight";
    c.add = "model.layers.0.self_attn.qkv_proj.weight";
    refuses(&c, ERR_UNSUPPORTED, "self_attn.qkv_proj.weight: fused q, k and v are not supported");
    c = st_small();
    c.add = "lm_head.weight";
    refuses(&c, ERR_MODEL, "lm_head.weight: shape [8], config.json asks for [64, 32]");
    c = st_small();
    c.dims.tied = false;
    c.leave_out = "lm_head.weight";
    refuses(&c, ERR_MODEL, "lm_head.weight: this tensor is missing");
}

Test(model, compares_shapes_and_types_with_config_json)
{
    const char *dir = st_folder("model");
    struct st_checkpoint c = st_small(), other = st_small();
    struct model *m;
    struct err e;

    st_write_checkpoint(dir, &c);
    other.dims.inter = 50;
    const char *second = st_folder("model");
    st_write_checkpoint(second, &other);
    char from[256], to[256];
    snprintf(from, sizeof from, "%s/config.json", second);
    snprintf(to, sizeof to, "%s/config.json", dir);
    cr_assert_eq(rename(from, to), 0);
    cr_expect_eq(model_open(&m, dir, &e), ERR_MODEL);
    cr_expect(strstr(e.msg, "model.layers.0.mlp.gate_proj.weight: shape [48, 32], config.json asks for [50, 32]"), "%s",
              e.msg);
    st_write_raw(dir, "model.safetensors",
                 "{\"model.embed_tokens.weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[64,32],\"data_offsets\":[0,2048]}}",
                 (const char[2048]){0}, 2048);
    cr_expect_eq(model_open(&m, dir, &e), ERR_UNSUPPORTED);
    cr_expect(strstr(e.msg, "model.embed_tokens.weight: dtype F8_E4M3 is not supported, allowed are BF16, F16 and F32"),
              "%s", e.msg);
    st_write_raw(dir, "model.safetensors",
                 "{\"model.embed_tokens.weight\":{\"dtype\":\"F16\",\"shape\":[64,32],\"data_offsets\":[0,4096]}}",
                 (const char[4096]){0}, 4096);
    cr_expect_eq(model_open(&m, dir, &e), ERR_UNSUPPORTED);
    cr_expect(strstr(e.msg, "its data is not aligned to its elements"), "%s", e.msg);
    st_remove(dir);
    st_remove(second);
}

Test(model, refuses_folders_that_are_none_and_files_that_are_away)
{
    const char *dir = st_folder("model");
    struct st_checkpoint c = st_small();
    struct model *m;
    struct err e;

    cr_expect_eq(model_open(&m, "", &e), ERR_MODEL);
    cr_expect_str_eq(e.msg, "model.path is not set: the folder of a checkpoint");
    cr_expect_eq(model_open(&m, "build/tmp/gone", &e), ERR_MODEL);
    cr_expect_eq(e.code, ERR_MODEL);
    cr_expect_str_eq(e.msg, "build/tmp/gone: No such file or directory");
    cr_expect_eq(model_open(&m, "tests/golden/tiny-a/config.json", &e), ERR_MODEL);
    cr_expect(strstr(e.msg, "not a folder"), "%s", e.msg);
    cr_expect_eq(model_open(&m, dir, &e), ERR_MODEL);
    cr_expect(strstr(e.msg, "no config.json there"), "%s", e.msg);
    c.shards = 3;
    st_write_checkpoint(dir, &c);
    char path[256];
    snprintf(path, sizeof path, "%s/model-00002-of-00003.safetensors", dir);
    cr_assert_eq(truncate(path, 4000), 0);
    cr_expect_eq(model_open(&m, dir, &e), ERR_MODEL);
    cr_expect(strstr(e.msg, "model-00002-of-00003.safetensors: "), "%s", e.msg);
    cr_assert_eq(unlink(path), 0);
    cr_expect_eq(model_open(&m, dir, &e), ERR_MODEL);
    cr_expect(strstr(e.msg, "model-00002-of-00003.safetensors: No such file"), "%s", e.msg);
    st_write_text(dir, "config.json",
                  "{\"model_type\":\"hunyuan_v1_dense\",\"quantization_config\":{\"quant_method\":"
                  "\"compressed-tensors\"}}");
    cr_expect_eq(model_open(&m, dir, &e), ERR_UNSUPPORTED);
    cr_expect(strstr(e.msg, "quantization_config quant_method compressed-tensors is not supported by this version; use "
                            "the bf16 checkpoint"),
              "%s", e.msg);
    st_remove(dir);
}

Test(model, shapes_open_without_weights)
{
    static const struct {
        const char *shape;
        size_t weight_bytes;
        int n_eos;
    } cases[] = {
        {"1.8b", 3582160896, 1}, /* 2 * (2,038,515,712 - 120,818 * 2,048) */
        {"7b", 15009136640, 2},
        {"tests/golden/tiny-a", 1461504, 1},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model *m;
        struct err e;

        cr_assert_eq(model_open_shape(&m, cases[i].shape, &e), ERR_OK, "%s", e.msg);
        cr_expect_null(m->embed.data);
        cr_expect_null(m->layers[0].q.data);
        cr_expect_eq(m->layers[0].q.cols, m->dims.hidden);
        cr_expect_eq(m->head.rows, m->dims.vocab);
        cr_expect_eq(m->generation.n_eos, cases[i].n_eos);
        cr_expect(fabs(m->dims.rope_base - (i < 2 ? 11158839.925 : 1e4 * pow(1000.0, 64.0 / 62))) < 1e-3);
        if (cases[i].weight_bytes)
            cr_expect_eq(m->weight_bytes, cases[i].weight_bytes, "%s: %zu", cases[i].shape, m->weight_bytes);
        cr_expect_eq(strlen(m->digest), 16);
        model_close(m);
    }
    struct model *m;
    struct err e;

    cr_expect_eq(model_open_shape(&m, "2b", &e), ERR_MODEL);
    cr_expect(strstr(e.msg, "neither 1.8b nor 7b nor a folder: 2b"), "%s", e.msg);
}

Test(model, is_named_after_its_folder)
{
    char old[512];
    struct model *m;
    struct err e;

    cr_assert_not_null(getcwd(old, sizeof old));
    cr_assert_eq(chdir("tests/golden/tiny-a"), 0);
    cr_assert_eq(model_open(&m, ".", &e), ERR_OK, "%s", e.msg);
    cr_expect_str_eq(m->name, "tiny-a");
    model_close(m);
    cr_assert_eq(model_open(&m, "..//tiny-a//", &e), ERR_OK, "%s", e.msg);
    cr_expect_str_eq(m->name, "tiny-a");
    model_close(m);
    cr_assert_eq(chdir(old), 0);
}
