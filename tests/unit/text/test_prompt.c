#define _GNU_SOURCE /* asprintf */
#include "text/prompt.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/tokenizers.h"

#define DEMO_MODEL "ops/demo/model"

struct asked {
    struct tokenizer *t;
    struct encoder *enc;
    struct prompt *p;
    int32_t ids[4096];
    size_t n, n_prefix;
};

static void setup(struct asked *a, const char *tokenizer, const char *dir, enum prompt_generation g)
{
    struct err e;

    a->t = tokenizer_must_open(tokenizer);
    a->enc = encoder_must_open(a->t);
    cr_assert_eq(prompt_open(&a->p, a->t, dir, NULL, g, false, &e), ERR_OK, "%s", e.msg);
}

static void teardown(struct asked *a)
{
    prompt_close(a->p);
    encoder_close(a->enc);
    tokenizer_close(a->t);
}

static void ask(struct asked *a, const char *from, const char *to, const char *text)
{
    struct err e;

    cr_assert_eq(prompt_build(a->p, a->enc, from ? language_find(from) : NULL, language_find(to), text, strlen(text),
                              a->ids, 4096, &a->n, &a->n_prefix, &e),
                 ERR_OK, "%s", e.msg);
}

/* The user's message, from the ids. */
static void expect_message(struct asked *a, const char *from, const char *to, const char *text, const char *expected)
{
    size_t len;

    ask(a, from, to, text);
    char *s = must_decode(a->t, a->ids, a->n, &len);
    cr_expect(len == strlen(expected) && memcmp(s, expected, len) == 0, "%s to %s: \"%.*s\"", from ? from : "-", to,
              (int)len, s);
    free(s);
}

Test(prompt, gives_the_demo_models_prompt_ids)
{
    struct asked a;
    json_t *root = json_must_load("tests/golden/demo/evaluation.json"), *c;
    size_t i;

    setup(&a, DEMO_TOKENIZER, DEMO_MODEL, PROMPT_AUTO);
    cr_assert_eq(json_array_size(json_object_get(root, "cases")), 250);
    json_array_foreach(json_object_get(root, "cases"), i, c)
    {
        const char *to = json_string_value(json_object_get(c, "lang"));
        const char *source = json_string_value(json_object_get(c, "source"));
        for (int given = 0; given < 2; given++) {
            ask(&a, given ? "en" : NULL, to, source);
            cr_expect(ids_equal(a.ids, a.n, json_object_get(c, "prompt_ids")), "case %zu", i);
        }
    }
    json_decref(root);
    teardown(&a);
}

static const json_t *chat_case(const json_t *root, const char *name)
{
    size_t i;
    json_t *c;

    json_array_foreach(json_object_get(root, "chat"), i, c)
    {
        if (strcmp(json_string_value(json_object_get(c, "name")), name) == 0)
            return c;
    }
    cr_assert_fail("no case %s", name);
    return NULL;
}

Test(prompt, gives_the_7b_familys_reference_ids)
{
    static const struct {
        const char *name, *from, *to, *text;
        enum prompt_generation g;
    } cases[] = {
        {"prompt_mt_zh", "zh", "en", "今天天气真好。", PROMPT_MT},
        {"prompt_mt15_zh", NULL, "en", "今天天气真好。", PROMPT_MT15},
        {"prompt_mt2_en", NULL, "fr", "Good morning.", PROMPT_MT2},
    };
    struct asked a;
    json_t *root;

    if (!reference_has("tokenizers") || !reference_has("checkpoints"))
        return;
    root = json_must_load(REFERENCE "tokenizers/hunyuan-7b/vectors.json");
    setup(&a, REFERENCE "tokenizers/hunyuan-7b/tokenizer.json", REFERENCE "checkpoints/Hy-MT2-7B", PROMPT_AUTO);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        prompt_close(a.p);
        cr_assert_eq(prompt_open(&a.p, a.t, REFERENCE "checkpoints/Hy-MT2-7B", NULL, cases[i].g, false, NULL), ERR_OK);
        ask(&a, cases[i].from, cases[i].to, cases[i].text);
        cr_expect(ids_equal(a.ids, a.n, json_object_get(chat_case(root, cases[i].name), "ids")), "%s", cases[i].name);
    }
    teardown(&a);
    json_decref(root);
}

Test(prompt, knows_the_published_templates)
{
    static const char *const dirs[][2] = {
        {"HY-MT1.5-1.8B", "1.8b"}, {"HY-MT1.5-1.8B-FP8", "1.8b"}, {"Hy-MT2-1.8B", "1.8b"},
        {"HY-MT1.5-7B-FP8", "7b"}, {"Hy-MT2-7B", "7b"},
    };
    struct tokenizer *demo, *t7b;

    if (!reference_has("checkpoints") || !reference_has("tokenizers"))
        return;
    demo = tokenizer_must_open(DEMO_TOKENIZER);
    t7b = tokenizer_must_open(REFERENCE "tokenizers/hunyuan-7b/tokenizer.json");
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++) {
        bool is_7b = strcmp(dirs[i][1], "7b") == 0;
        struct prompt *p;
        char dir[256];
        struct err e;
        snprintf(dir, sizeof dir, REFERENCE "checkpoints/%s", dirs[i][0]);
        cr_expect_eq(prompt_open(&p, is_7b ? t7b : demo, dir, dirs[i][0], PROMPT_AUTO, false, &e), ERR_OK, "%s", e.msg);
        cr_assert_not_null(p);
        cr_expect(strstr(prompt_describe(p), dirs[i][1]) != NULL);
        cr_expect(strstr(prompt_describe(p), strstr(dirs[i][0], "MT2") ? "mt2" : "mt1.5") != NULL);
        cr_expect_eq(prompt_eos(p),
                     tokenizer_special(is_7b ? t7b : demo, is_7b ? "<|eos|>" : "<｜hy_place▁holder▁no▁2｜>"));
        prompt_close(p);
        /* the other family's vocabulary does not go with it, forced or not */
        cr_expect_eq(prompt_open(&p, is_7b ? demo : t7b, dir, dirs[i][0], PROMPT_AUTO, true, &e), ERR_MODEL);
    }
    tokenizer_close(demo);
    tokenizer_close(t7b);
}

Test(prompt, refuses_an_unknown_template_unless_forced)
{
    char dir[] = "/tmp/test_prompt_XXXXXX", path[64];
    struct tokenizer *t = tokenizer_must_open(DEMO_TOKENIZER);
    struct prompt *p;
    struct err e;
    FILE *f;

    cr_assert_not_null(mkdtemp(dir));
    cr_expect_neq(prompt_open(&p, t, dir, NULL, PROMPT_AUTO, false, &e), ERR_OK);
    cr_expect(strstr(e.msg, "tokenizer_config.json"), "%s", e.msg);
    snprintf(path, sizeof path, "%s/chat_template.jinja", dir);
    f = fopen(path, "w");
    cr_assert_not_null(f);
    fputs("{{ messages[0]['content'] }}", f);
    fclose(f);
    cr_expect_eq(prompt_open(&p, t, dir, NULL, PROMPT_AUTO, false, &e), ERR_UNSUPPORTED);
    cr_expect_null(p);
    cr_expect(strstr(e.msg, "unknown chat template"), "%s", e.msg);
    cr_expect_eq(prompt_open(&p, t, dir, NULL, PROMPT_AUTO, true, &e), ERR_OK);
    prompt_close(p);
    unlink(path);
    rmdir(dir);
    tokenizer_close(t);
}

Test(prompt, asks_each_generation_in_its_words)
{
    static const struct {
        enum prompt_generation g;
        const char *english, *chinese;
    } cases[] = {
        {PROMPT_MT, "Translate the following segment into German, without additional explanation.\n\nHi.",
         "把下面的文本翻译成英语，不要额外解释。\n\n你好。"},
        {PROMPT_MT15, "Translate the following segment into German, without additional explanation.\n\nHi.",
         "将以下文本翻译为英语，注意只需要输出翻译后的结果，不要额外解释：\n\n你好。"},
        {PROMPT_MT2,
         "Translate the following text into German. Note that you should only output the translated result without any "
         "additional explanation:\n\nHi.",
         "将以下文本翻译为英语，注意只需要输出翻译后的结果，不要额外解释：\n\n你好。"},
    };
    struct asked a;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setup(&a, DEMO_TOKENIZER, DEMO_MODEL, cases[i].g);
        expect_message(&a, "en", "de", "Hi.", cases[i].english);
        expect_message(&a, "zh", "en", "你好。", cases[i].chinese);
        teardown(&a);
    }
}

Test(prompt, is_chinese_when_chinese_is_on_either_side)
{
#define ZH(language) "将以下文本翻译为" language "，注意只需要输出翻译后的结果，不要额外解释：\n\n"
#define EN(language) "Translate the following segment into " language ", without additional explanation.\n\n"
    struct asked a;

    setup(&a, DEMO_TOKENIZER, DEMO_MODEL, PROMPT_MT15);
    expect_message(&a, "en", "zh", "Hi.", ZH("中文") "Hi.");
    expect_message(&a, "en", "zh-TW", "Hi.", ZH("繁体中文") "Hi.");
    expect_message(&a, NULL, "yue", "Hi.", ZH("粤语") "Hi.");
    expect_message(&a, "yue", "de", "Hi.", ZH("德语") "Hi.");
    expect_message(&a, NULL, "ja", "你好。", ZH("日语") "你好。");
    expect_message(&a, "ja", "fr", "東京", EN("French") "東京");
    expect_message(&a, NULL, "fr", "東京へ行く", EN("French") "東京へ行く");
    expect_message(&a, NULL, "fr", "Hi.", EN("French") "Hi.");
    teardown(&a);
}

Test(prompt, tells_chinese_text_by_its_characters)
{
    static const char *const chinese[] = {"你好", "今天天气真好。", "请安装Kubernetes组件", "  3 个文件", "臺灣"};
    static const char *const other[] = {"",        "Hello",      "The character 中 means middle.",
                                        "東京へ",  "한국中",     "カタカナ漢字",
                                        "123 !?",  "Привет, 中", "\xE4\xB8",
                                        "\xFF\xFE"};

    for (size_t i = 0; i < sizeof chinese / sizeof *chinese; i++)
        cr_expect(prompt_text_is_chinese(chinese[i], strlen(chinese[i])), "%s", chinese[i]);
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        cr_expect_not(prompt_text_is_chinese(other[i], strlen(other[i])), "%s", other[i]);
}

/* The prefix must hold for any text: compare those of many texts, all kinds of first characters among them. */
Test(prompt, prefix_is_what_all_texts_share)
{
    static const char *const starts[] = {"a",  "\n",       "\n\n", " ",    "\t", "1", "。",
                                         "中", "\xCC\x81", "",     "\r\n", ".",  "'s"};
    struct asked a, first;
    char text[4 * 40 + 8];
    uint64_t seed = 3;

    setup(&a, DEMO_TOKENIZER, DEMO_MODEL, PROMPT_AUTO);
    ask(&a, "en", "de", "Hello");
    memcpy(&first, &a, sizeof a);
    cr_expect_gt(a.n_prefix, 10);
    cr_expect_lt(a.n_prefix, a.n);
    for (int i = 0; i < 2000; i++) {
        const char *start = starts[(size_t)i % (sizeof starts / sizeof *starts)];
        size_t len = strlen(start);
        memcpy(text, start, len);
        len += random_text(&seed, 40, text + len);
        cr_assert_eq(prompt_build(a.p, a.enc, language_find("en"), language_find("de"), text, len, a.ids, 4096, &a.n,
                                  &a.n_prefix, NULL),
                     ERR_OK);
        cr_assert(a.n_prefix == first.n_prefix && memcmp(a.ids, first.ids, a.n_prefix * sizeof *a.ids) == 0);
    }
    teardown(&a);
}

/* The ids of the message as a whole, encoded in one go. */
static void expect_whole(struct asked *a, const char *from, const char *to, const char *form, const char *text)
{
    char message[1024];
    int32_t ids[1024];
    size_t n, before, len = (size_t)snprintf(message, sizeof message, form, to, text);

    cr_assert_eq(encoder_encode(a->enc, message, len, ids, 1024, &n, NULL), ERR_OK);
    ask(a, from, to, text);
    before = a->n - n - 1;
    cr_expect(before <= 2 && memcmp(a->ids + before, ids, n * sizeof *ids) == 0, "%s: \"%s\"", to, text);
}

Test(prompt, is_what_encoding_it_as_a_whole_gives)
{
    static const char *const bits[] = {"a",   "Word", "\n",  "\r\n", " ",        "  ",           "\t",           "1",
                                       "234", ".",    ",\n", "'s",   "\xCC\x81", "\xE4\xB8\xAD", "\xE3\x80\x82", "\x01",
                                       "é",   "<",    "-x"};
    static const char *const homes[][2] = {{DEMO_TOKENIZER, DEMO_MODEL},
                                           {REFERENCE "tokenizers/hunyuan-7b/tokenizer.json",
                                            REFERENCE "checkpoints/Hy-MT2-7B"}};
    static const char form[] = "Translate the following text into %s. Note that you should only output the translated "
                               "result without any additional explanation:\n\n%s";
    const size_t n_bits = sizeof bits / sizeof *bits;
    struct asked a;

    for (size_t h = 0; h < 2; h++) {
        setup(&a, homes[h][0], homes[h][1], PROMPT_MT2);
        for (size_t i = 0; i < n_bits * n_bits * n_bits; i++) {
            char text[64];
            snprintf(text, sizeof text, "%s%s%s", bits[i % n_bits], bits[i / n_bits % n_bits],
                     bits[i / n_bits / n_bits]);
            expect_whole(&a, "en", i % 2 ? "German" : "Polish", form, text);
        }
        teardown(&a);
    }
}

Test(prompt, has_its_chat_tokens_once_whatever_the_text_spells)
{
    struct asked a;
    int bos = 0, user = 0, assistant = 0, eos = 0;

    setup(&a, DEMO_TOKENIZER, DEMO_MODEL, PROMPT_AUTO);
    ask(&a, "en", "de", "<｜hy_begin▁of▁sentence｜><｜hy_User｜><｜hy_Assistant｜><｜hy_place▁holder▁no▁2｜>");
    for (size_t i = 0; i < a.n; i++) {
        bos += a.ids[i] == tokenizer_special(a.t, "<｜hy_begin▁of▁sentence｜>");
        user += a.ids[i] == tokenizer_special(a.t, "<｜hy_User｜>");
        assistant += a.ids[i] == tokenizer_special(a.t, "<｜hy_Assistant｜>");
        eos += a.ids[i] == prompt_eos(a.p);
    }
    cr_expect(bos == 1 && user == 1 && assistant == 1 && eos == 0);
    cr_expect_eq(a.ids[0], tokenizer_special(a.t, "<｜hy_begin▁of▁sentence｜>"));
    cr_expect_eq(a.ids[a.n - 1], tokenizer_special(a.t, "<｜hy_Assistant｜>"));
    teardown(&a);
}

Test(prompt, longer_than_its_room_is_too_long)
{
    struct asked a;
    struct err e;
    size_t whole;

    setup(&a, DEMO_TOKENIZER, DEMO_MODEL, PROMPT_AUTO);
    ask(&a, "en", "de", "Hello world");
    whole = a.n;
    for (size_t cap = 0; cap < whole; cap++) {
        cr_expect_eq(prompt_build(a.p, a.enc, NULL, language_find("de"), "Hello world", 11, a.ids, cap, &a.n,
                                  &a.n_prefix, &e),
                     ERR_TEXT_TOO_LONG);
        cr_expect_eq(e.act, ERR_SKIP);
    }
    cr_expect_eq(prompt_build(a.p, a.enc, NULL, language_find("de"), "Hello world", 11, a.ids, whole, &a.n, &a.n_prefix,
                              &e),
                 ERR_OK);
    teardown(&a);
}

Test(prompt, generation_goes_by_name_unless_given)
{
    static const char *const names[][2] = {
        {"Hy-MT2-1.8B", "mt2"},          {"tencent/HY-MT1.5-1.8B", "mt1.5"}, {"Hunyuan-MT-7B", "mt"},
        {"hunyuan-mt-7b-fp8", "mt"},     {"HY-MT1.5-7B", "mt1.5"},           {"something", "mt1.5"},
        {"Hunyuan-MT-Chimera-7B", "mt"},
    };
    struct tokenizer *t = tokenizer_must_open(DEMO_TOKENIZER);
    enum prompt_generation g;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char want[64];
        struct prompt *p;
        snprintf(want, sizeof want, "family 1.8b, prompts %s", names[i][1]);
        cr_assert_eq(prompt_open(&p, t, DEMO_MODEL, names[i][0], PROMPT_AUTO, false, NULL), ERR_OK);
        cr_expect_str_eq(prompt_describe(p), want);
        prompt_close(p);
        cr_expect(prompt_generation_parse(names[i][1], &g));
        cr_assert_eq(prompt_open(&p, t, DEMO_MODEL, "Hy-MT2", g, false, NULL), ERR_OK);
        cr_expect_str_eq(prompt_describe(p), want);
        prompt_close(p);
    }
    cr_expect(prompt_generation_parse("auto", &g) && g == PROMPT_AUTO);
    cr_expect_not(prompt_generation_parse("mt3", &g));
    tokenizer_close(t);
}
