/* language.h -- the 38 languages of the published models, by code or English name. */
#ifndef TEXT_LANGUAGE_H
#define TEXT_LANGUAGE_H

#include <stdbool.h>
#include <stddef.h>

/* For messages. */
#define LANGUAGES_ALLOWED "allowed are its codes and English names, such as \"de\" or \"German\""

struct language {
    const char *code;    /* "zh-Hant" */
    const char *english; /* "Traditional Chinese" */
    const char *chinese; /* "繁体中文" */
    bool is_chinese;     /* Chinese on this side takes the Chinese prompt: zh, zh-Hant, yue */
};

/* By code ("de", "de-DE", "zh_TW", "fil", case-blind; region and script subtags fall back to the language, save
 * that zh-Hant, zh-TW, zh-HK, zh-MO are Traditional Chinese) or by English name ("German").  NULL = unknown. */
const struct language *language_find(const char *name);
const struct language *language_at(size_t i); /* NULL past the end */

#endif
