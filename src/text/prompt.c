#define _GNU_SOURCE /* strcasestr */
#include "text/prompt.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/utf8.h"

enum {
    MAX_TEMPLATE_BYTES = 1 << 20,
    MAX_INSTRUCTION = 256, /* bytes */
    MAX_SHARED = 256,      /* ids: one byte gives one id at most */
    LOOK_AT_BYTES = 4096,  /* of a text, to tell whether it is Chinese */
    MAX_LANGUAGES = 64,
    OPEN_PIECES =
        3 /* last pieces of an instruction that are encoded with each text anew; the last one may go on in it */
};

struct family {
    const char *name;
    const char *before[2]; /* tokens before the user's message; NULL = fewer */
    const char *after;     /* the token after it */
    const char *eos;
    size_t template_bytes; /* of the published template, and its */
    uint64_t template_hash;
};

static const struct family families[] = {
    {"1.8b",
     {"<｜hy_begin▁of▁sentence｜>", "<｜hy_User｜>"},
     "<｜hy_Assistant｜>",
     "<｜hy_place▁holder▁no▁2｜>",
     654,
     0x5A1DDF8F3D22B5ABu},
    {"7b", {"<|startoftext|>", NULL}, "<|extra_0|>", "<|eos|>", 662, 0xC5E8E584367BAE92u},
};

/* The plain instructions; %s is the language's name in the instruction's language. */
static const struct {
    const char *name, *chinese, *english;
} generations[] = {
    [PROMPT_MT] = {"mt", "把下面的文本翻译成%s，不要额外解释。\n\n",
                   "Translate the following segment into %s, without additional explanation.\n\n"},
    [PROMPT_MT15] = {"mt1.5", "将以下文本翻译为%s，注意只需要输出翻译后的结果，不要额外解释：\n\n",
                     "Translate the following segment into %s, without additional explanation.\n\n"},
    [PROMPT_MT2] = {"mt2", "将以下文本翻译为%s，注意只需要输出翻译后的结果，不要额外解释：\n\n",
                    "Translate the following text into %s. Note that you should only output the translated result "
                    "without any additional explanation:\n\n"},
};

struct instruction {
    char text[MAX_INSTRUCTION];
    size_t len;
    int32_t shared[MAX_SHARED]; /* ids that every text after it leaves as they are */
    size_t n_shared;
    size_t fixed, n_fixed; /* bytes that are not encoded again, and their ids: the first of shared */
};

struct prompt {
    enum prompt_generation generation;
    int32_t before[2], after, eos;
    size_t n_before;
    char description[64];
    struct instruction instructions[MAX_LANGUAGES][2]; /* by language_at(): English, Chinese */
};

bool prompt_generation_parse(const char *name, enum prompt_generation *out)
{
    *out = PROMPT_AUTO;
    if (strcmp(name, "auto") == 0)
        return true;
    for (enum prompt_generation g = PROMPT_MT; g <= PROMPT_MT2; g++)
        if (strcmp(name, generations[g].name) == 0) {
            *out = g;
            return true;
        }
    return false;
}

static enum prompt_generation generation_of(const char *name)
{
    if (name && strcasestr(name, "mt2"))
        return PROMPT_MT2;
    if (name && !strcasestr(name, "mt1.5") && (strcasestr(name, "mt-7b") || strcasestr(name, "mt-chimera")))
        return PROMPT_MT;
    return PROMPT_MT15;
}

/* The template's text, NUL-terminated, to be freed; NULL with ERR_OK when dir has none. */
static enum err_code read_jinja(char **out, const char *dir, struct err *e)
{
    enum err_code rc;
    char path[4096];
    bool is_missing;
    size_t n;
    FILE *f;

    *out = NULL;
    if ((size_t)snprintf(path, sizeof path, "%s/chat_template.jinja", dir) >= sizeof path)
        return err_set(e, ERR_MODEL, ERR_STOP, "%.60s...: path too long", dir);
    if ((rc = file_open(&f, path, NULL, &is_missing, e)) != ERR_OK)
        return is_missing ? ERR_OK : rc;
    *out = malloc(MAX_TEMPLATE_BYTES + 1);
    n = *out ? fread(*out, 1, MAX_TEMPLATE_BYTES, f) : 0;
    if (!*out)
        rc = err_set(e, ERR_NOMEM, ERR_STOP, "%s: out of memory", path);
    else if (ferror(f))
        rc = err_set(e, ERR_IO, ERR_STOP, "%s: %s", path, strerror(errno));
    else
        (*out)[n] = '\0';
    fclose(f);
    if (rc != ERR_OK) {
        free(*out);
        *out = NULL;
    }
    return rc;
}

/* tokenizer_config.json's chat_template: a text, or a list of named ones of which "default" counts. */
static enum err_code read_config_template(char **out, const char *dir, struct err *e)
{
    const char *text;
    char path[4096];
    json_t *root, *v, *item;
    enum err_code rc;
    size_t i;

    *out = NULL;
    if ((size_t)snprintf(path, sizeof path, "%s/tokenizer_config.json", dir) >= sizeof path)
        return err_set(e, ERR_MODEL, ERR_STOP, "%.60s...: path too long", dir);
    rc = json_load_path(&root, path, 16 * MAX_TEMPLATE_BYTES, e);
    if (rc != ERR_OK)
        return rc;
    v = json_object_get(root, "chat_template");
    text = json_string_value(v);
    json_array_foreach(v, i, item)
    {
        const char *name = json_string_value(json_object_get(item, "name"));
        if (name && strcmp(name, "default") == 0)
            text = json_string_value(json_object_get(item, "template"));
    }
    if (text && !(*out = strdup(text)))
        rc = err_set(e, ERR_NOMEM, ERR_STOP, "%s: out of memory", path);
    json_decref(root);
    return rc;
}

static uint64_t template_hash(const char *s, size_t *n)
{
    *n = strlen(s);
    if (*n && s[*n - 1] == '\n') /* as the template engine does */
        (*n)--;
    return hash_bytes(s, *n, 0);
}

/* The family whose published template this is; with force and none, NULL and ERR_OK. */
static enum err_code family_of_template(const struct family **out, const char *dir, bool force, struct err *e)
{
    char *text = NULL;
    enum err_code rc;
    uint64_t h;
    size_t n;

    *out = NULL;
    rc = read_jinja(&text, dir, e);
    if (rc == ERR_OK && !text)
        rc = read_config_template(&text, dir, e);
    if (!text && force)
        return ERR_OK;
    if (!text)
        return rc != ERR_OK ? rc
                            : err_set(e, ERR_MODEL, ERR_STOP,
                                      "%s: no chat template (force_template goes by the special tokens)", dir);
    h = template_hash(text, &n);
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (families[i].template_bytes == n && families[i].template_hash == h)
            *out = &families[i];
    free(text);
    if (!*out && !force)
        return err_set(e, ERR_UNSUPPORTED, ERR_STOP,
                       "%s: unknown chat template (%zu bytes, hash %016llx): prompts would be guesswork; "
                       "force_template goes by the special tokens",
                       dir, n, (unsigned long long)h);
    return ERR_OK;
}

static bool has_tokens(const struct family *f, const struct tokenizer *t)
{
    return tokenizer_special(t, f->before[0]) >= 0 && (!f->before[1] || tokenizer_special(t, f->before[1]) >= 0) &&
           tokenizer_special(t, f->after) >= 0 && tokenizer_special(t, f->eos) >= 0;
}

/* *out is NULL unless ERR_OK. */
static enum err_code choose_family(const struct family **out, const struct tokenizer *t, const char *dir, bool force,
                                   struct err *e)
{
    const struct family *f;
    enum err_code rc = family_of_template(&f, dir, force, e);

    *out = NULL;
    if (rc != ERR_OK)
        return rc;
    if (f && !has_tokens(f, t))
        return err_set(e, ERR_MODEL, ERR_STOP, "%s: the chat template is the %s family's, the vocabulary is not", dir,
                       f->name);
    for (size_t i = 0; !f && i < sizeof families / sizeof *families; i++)
        if (has_tokens(&families[i], t))
            f = &families[i];
    if (!f)
        return err_set(e, ERR_UNSUPPORTED, ERR_STOP, "%s: the vocabulary has the chat tokens of no known family", dir);
    *out = f;
    return ERR_OK;
}

static void take_tokens(struct prompt *p, const struct family *f, const struct tokenizer *t)
{
    for (size_t i = 0; i < 2 && f->before[i]; i++)
        p->before[p->n_before++] = tokenizer_special(t, f->before[i]);
    p->after = tokenizer_special(t, f->after);
    p->eos = tokenizer_special(t, f->eos);
}

/* What comes before all texts alike: the ids that stay whatever kind of character follows. */
static enum err_code find_shared(struct instruction *in, struct encoder *enc, struct err *e)
{
    static const char *const followers[] = {"a", "\n", " ", "1", ".", "\xE4\xB8\xAD", "\xCC\x81", "\t\n", "\x01", ""};
    int32_t ids[MAX_SHARED];
    size_t n;

    for (size_t k = 0; k < sizeof followers / sizeof *followers; k++) {
        struct text_part parts[] = {{in->text, in->len}, {followers[k], strlen(followers[k])}};
        enum err_code rc = encoder_encode_parts(enc, parts, 2, ids, MAX_SHARED, &n, e);
        if (rc != ERR_OK)
            return rc;
        if (k == 0) {
            memcpy(in->shared, ids, n * sizeof *ids);
            in->n_shared = n;
        }
        for (size_t i = 0; i < in->n_shared; i++)
            if (i >= n || ids[i] != in->shared[i])
                in->n_shared = i;
    }
    return ERR_OK;
}

/* The last ends of pieces, in bytes of the instruction. */
struct ends {
    const struct instruction *in;
    size_t last[OPEN_PIECES + 1]; /* youngest first */
    bool is_other;                /* the normalizer changes the instruction */
};

static void note_end(void *ctx, const char *s, size_t n)
{
    struct ends *x = ctx;
    size_t at = x->last[0];

    x->is_other |= at + n > x->in->len || memcmp(x->in->text + at, s, n) != 0;
    memmove(x->last + 1, x->last, OPEN_PIECES * sizeof *x->last);
    x->last[0] = at + n;
}

/* Pieces that no text reaches need not be cut and merged again with every text. */
static enum err_code find_fixed(struct instruction *in, struct encoder *enc, struct err *e)
{
    struct ends x = {.in = in};
    int32_t ids[MAX_SHARED];
    enum err_code rc = encoder_pieces(enc, in->text, in->len, note_end, &x, e);
    size_t n;

    if (rc != ERR_OK || x.is_other || x.last[0] != in->len)
        return rc;
    rc = encoder_encode(enc, in->text, x.last[OPEN_PIECES], ids, MAX_SHARED, &n, e);
    if (rc != ERR_OK || n > in->n_shared || memcmp(ids, in->shared, n * sizeof *ids) != 0)
        return rc;
    in->fixed = x.last[OPEN_PIECES];
    in->n_fixed = n;
    return ERR_OK;
}

static enum err_code write_instructions(struct prompt *p, const struct tokenizer *t, struct err *e)
{
    const struct language *l;
    struct encoder *enc;
    enum err_code rc = encoder_open(&enc, t, e);

    for (size_t i = 0; rc == ERR_OK && i < MAX_LANGUAGES && (l = language_at(i)); i++)
        for (int zh = 0; rc == ERR_OK && zh < 2; zh++) {
            struct instruction *in = &p->instructions[i][zh];
            const char *form = zh ? generations[p->generation].chinese : generations[p->generation].english;
            const char *blank = strstr(form, "%s"), *language = zh ? l->chinese : l->english;
            in->len =
                (size_t)snprintf(in->text, sizeof in->text, "%.*s%s%s", (int)(blank - form), form, language, blank + 2);
            rc = find_shared(in, enc, e);
            if (rc == ERR_OK && tokenizer_is_local(t))
                rc = find_fixed(in, enc, e);
        }
    encoder_close(enc);
    return rc;
}

enum err_code prompt_open(struct prompt **out, const struct tokenizer *t, const char *dir, const char *name,
                          enum prompt_generation g, bool force, struct err *e)
{
    struct prompt *p = calloc(1, sizeof *p);
    const struct family *f;
    enum err_code rc;

    *out = NULL;
    if (!p)
        return err_set(e, ERR_NOMEM, ERR_STOP, "prompt: out of memory");
    rc = choose_family(&f, t, dir, force, e);
    if (!f)
        goto out;
    p->generation = g == PROMPT_AUTO ? generation_of(name) : g;
    snprintf(p->description, sizeof p->description, "family %s, prompts %s", f->name, generations[p->generation].name);
    take_tokens(p, f, t);
    if ((rc = write_instructions(p, t, e)) != ERR_OK)
        goto out;
    *out = p;
    p = NULL;
out:
    prompt_close(p);
    return rc;
}

void prompt_close(struct prompt *p)
{
    free(p);
}

int prompt_eos(const struct prompt *p)
{
    return p->eos;
}

const char *prompt_describe(const struct prompt *p)
{
    return p->description;
}

static bool is_between(uint32_t c, uint32_t first, uint32_t last)
{
    return c >= first && c <= last;
}

static bool is_han(uint32_t c)
{
    return is_between(c, 0x4E00, 0x9FFF) || is_between(c, 0x3400, 0x4DBF) || is_between(c, 0x20000, 0x323AF) ||
           is_between(c, 0xF900, 0xFAFF) || c == 0x3007;
}

static bool is_kana_or_hangul(uint32_t c)
{
    return is_between(c, 0x3041, 0x309F) || is_between(c, 0x30A1, 0x30FA) || is_between(c, 0x31F0, 0x31FF) ||
           is_between(c, 0xFF66, 0xFF9F) || is_between(c, 0xAC00, 0xD7A3) || is_between(c, 0x1100, 0x11FF) ||
           is_between(c, 0x3131, 0x318E);
}

/* Latin behind ASCII, Greek, Cyrillic and the other alphabets up to Thai and Tibetan, letters or not: what counts as a
 * word's part in a text that is not Chinese. */
static bool is_other_letter(uint32_t c)
{
    return is_between(c, 0xC0, 0x1FFF);
}

bool prompt_text_is_chinese(const char *text, size_t len)
{
    size_t n = len < LOOK_AT_BYTES ? len : LOOK_AT_BYTES, han = 0, other = 0;
    uint32_t c;

    for (size_t i = 0; i < n;) {
        if ((unsigned char)text[i] < 0x80) {
            other += is_between(text[i++] | 0x20, 'a', 'z');
            continue;
        }
        int k = utf8_next(text + i, n - i, &c);
        if (k && is_kana_or_hangul(c))
            return false;
        if (k && is_han(c))
            han++;
        else if (k && is_other_letter(c))
            other++;
        i += k ? (size_t)k : 1;
    }
    return han > 0 && other <= 3 * han;
}

static const struct instruction *instruction_for(const struct prompt *p, const struct language *from,
                                                 const struct language *to, const char *text, size_t len)
{
    bool chinese = to->is_chinese || (from ? from->is_chinese : prompt_text_is_chinese(text, len));

    for (size_t i = 0; i < MAX_LANGUAGES; i++)
        if (language_at(i) == to)
            return &p->instructions[i][chinese];
    return NULL;
}

/* The instruction's and the text's ids. */
static enum err_code encode_message(const struct instruction *in, struct encoder *enc, const char *text, size_t len,
                                    int32_t *ids, size_t cap, size_t *n, struct err *e)
{
    const struct text_part parts[] = {{in->text + in->fixed, in->len - in->fixed}, {text, len}};
    enum err_code rc = ERR_TEXT_TOO_LONG;

    *n = 0;
    if (in->n_fixed <= cap) {
        memcpy(ids, in->shared, in->n_fixed * sizeof *ids);
        rc = encoder_encode_parts(enc, parts, 2, ids + in->n_fixed, cap - in->n_fixed, n, e);
        *n += in->n_fixed;
    }
    if (rc == ERR_TEXT_TOO_LONG)
        return err_set(e, rc, ERR_SKIP, "text of %zu bytes needs more than the %zu tokens that are allowed",
                       in->len + len, cap);
    return rc;
}

enum err_code prompt_build(const struct prompt *p, struct encoder *enc, const struct language *from,
                           const struct language *to, const char *text, size_t len, int32_t *ids, size_t cap, size_t *n,
                           size_t *n_prefix, struct err *e)
{
    const struct instruction *in = instruction_for(p, from, to, text, len);
    size_t m, shared = in->n_fixed;
    enum err_code rc;

    *n = *n_prefix = 0;
    if (cap < p->n_before + 1)
        return err_set(e, ERR_TEXT_TOO_LONG, ERR_SKIP, "no room for a prompt in %zu tokens", cap);
    memcpy(ids, p->before, p->n_before * sizeof *ids);
    rc = encode_message(in, enc, text, len, ids + p->n_before, cap - p->n_before - 1, &m, e);
    if (rc != ERR_OK)
        return rc;
    while (shared < in->n_shared && shared < m && ids[p->n_before + shared] == in->shared[shared])
        shared++;
    ids[p->n_before + m] = p->after;
    *n = p->n_before + m + 1;
    *n_prefix = p->n_before + shared;
    return ERR_OK;
}
