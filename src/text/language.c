#include "text/language.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

static const struct language languages[] = {
    {"zh", "Chinese", "中文", true},
    {"en", "English", "英语", false},
    {"fr", "French", "法语", false},
    {"pt", "Portuguese", "葡萄牙语", false},
    {"es", "Spanish", "西班牙语", false},
    {"ja", "Japanese", "日语", false},
    {"tr", "Turkish", "土耳其语", false},
    {"ru", "Russian", "俄语", false},
    {"ar", "Arabic", "阿拉伯语", false},
    {"ko", "Korean", "韩语", false},
    {"th", "Thai", "泰语", false},
    {"it", "Italian", "意大利语", false},
    {"de", "German", "德语", false},
    {"vi", "Vietnamese", "越南语", false},
    {"ms", "Malay", "马来语", false},
    {"id", "Indonesian", "印尼语", false},
    {"tl", "Filipino", "菲律宾语", false},
    {"hi", "Hindi", "印地语", false},
    {"zh-Hant", "Traditional Chinese", "繁体中文", true},
    {"pl", "Polish", "波兰语", false},
    {"cs", "Czech", "捷克语", false},
    {"nl", "Dutch", "荷兰语", false},
    {"km", "Khmer", "高棉语", false},
    {"my", "Burmese", "缅甸语", false},
    {"fa", "Persian", "波斯语", false},
    {"gu", "Gujarati", "古吉拉特语", false},
    {"ur", "Urdu", "乌尔都语", false},
    {"te", "Telugu", "泰卢固语", false},
    {"mr", "Marathi", "马拉地语", false},
    {"he", "Hebrew", "希伯来语", false},
    {"bn", "Bengali", "孟加拉语", false},
    {"ta", "Tamil", "泰米尔语", false},
    {"uk", "Ukrainian", "乌克兰语", false},
    {"bo", "Tibetan", "藏语", false},
    {"kk", "Kazakh", "哈萨克语", false},
    {"mn", "Mongolian", "蒙古语", false},
    {"ug", "Uyghur", "维吾尔语", false},
    {"yue", "Cantonese", "粤语", true},
};

/* Other codes of the same languages: three-letter, deprecated, macrolanguage. */
static const struct {
    const char *alias, *code;
} aliases[] = {
    {"fil", "tl"}, {"iw", "he"}, {"in", "id"}, {"cmn", "zh"}, {"pes", "fa"}, {"zsm", "ms"}, {"khk", "mn"},
};

enum { MAX_SUBTAGS = 8, MAX_SUBTAG = 8 };

/* "zh_TW" to its parts; 0 = no such thing as a language tag. */
static int split_tag(const char *s, char sub[MAX_SUBTAGS][MAX_SUBTAG + 1])
{
    int n = 0;

    for (;; s++) {
        size_t len = 0;
        if (n == MAX_SUBTAGS)
            return 0;
        for (; isalnum((unsigned char)*s) && len < MAX_SUBTAG; s++)
            sub[n][len++] = (char)tolower((unsigned char)*s);
        sub[n++][len] = '\0';
        if (len == 0 || (*s && *s != '-' && *s != '_'))
            return 0;
        if (!*s)
            return n;
    }
}

static const struct language *by_code(const char *code)
{
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (code[0] == aliases[i].alias[0] && strcmp(code, aliases[i].alias) == 0)
            code = aliases[i].code;
    for (size_t i = 0; i < sizeof languages / sizeof *languages; i++)
        if (code[0] == languages[i].code[0] && strcmp(code, languages[i].code) == 0)
            return &languages[i];
    return NULL;
}

static bool has(char sub[MAX_SUBTAGS][MAX_SUBTAG + 1], int n, const char *tag)
{
    for (int i = 1; i < n; i++)
        if (strcmp(sub[i], tag) == 0)
            return true;
    return false;
}

/* The script decides; without one, the region. */
static const struct language *which_chinese(char sub[MAX_SUBTAGS][MAX_SUBTAG + 1], int n)
{
    if (has(sub, n, "yue"))
        return by_code("yue");
    if (has(sub, n, "hant"))
        return by_code("zh-Hant");
    if (!has(sub, n, "hans") && (has(sub, n, "tw") || has(sub, n, "hk") || has(sub, n, "mo")))
        return by_code("zh-Hant");
    return by_code("zh");
}

const struct language *language_find(const char *name)
{
    char sub[MAX_SUBTAGS][MAX_SUBTAG + 1];
    const struct language *l;
    int n;

    for (size_t i = 0; i < sizeof languages / sizeof *languages; i++)
        if (tolower((unsigned char)name[0]) == tolower((unsigned char)languages[i].english[0]) &&
            strcasecmp(name, languages[i].english) == 0)
            return &languages[i];
    n = split_tag(name, sub);
    l = n ? by_code(sub[0]) : NULL;
    return l && strcmp(l->code, "zh") == 0 ? which_chinese(sub, n) : l;
}

const struct language *language_at(size_t i)
{
    return i < sizeof languages / sizeof *languages ? &languages[i] : NULL;
}
