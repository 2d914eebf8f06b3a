#include "wire/json_reader.h"

#include "base/hash.h"
#include "base/utf8.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_same_text(struct text a, struct text b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.s, b.s, a.n) == 0);
}

/* What is taken is what jansson takes, with the same values; returns whether it is. */
static bool check(const char *s, size_t n)
{
    struct json_node nodes[JSON_USUAL_NODES], want[JSON_USUAL_NODES];
    json_error_t je;

    if (utf8_valid(s, n) != n || !json_read_usual(nodes, s, n))
        return false;
    json_t *root = json_loadb(s, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &je);
    cr_assert_not_null(root, "jansson refuses %.*s: %s", (int)n, s, je.text);
    cr_assert_eq(json_count_tree(root), nodes[0].end);
    json_read_tree(want, root);
    for (size_t i = 0; i < nodes[0].end; i++) {
        const struct json_node *a = &nodes[i], *b = &want[i];
        cr_assert(a->type == b->type && is_same_text(a->key, b->key) && is_same_text(a->text, b->text) &&
                      a->integer == b->integer && memcmp(&a->real, &b->real, sizeof a->real) == 0 && a->end == b->end &&
                      a->size == b->size,
                  "node %zu of %.*s", i, (int)n, s);
    }
    json_decref(root);
    return true;
}

static const char usual[] =
    "{\"job_id\": \"j-1\",\"text\":\"Caf\xC3\xA9, {a: [1]}\", \"options\" : {\"seed\":-12, \"t\":0.7,"
    "\"p\":-0.0,\"k\":20, \"e\":{}},\"l\":[ ], \"g\":[{\"source\":\"a\",\"target\":\"b\"},1,\"x\"],"
    "\"n\":null,\"y\":true,\"f\":false}\n";

Test(json_reader, reads_usual_objects_as_jansson_does)
{
    static const char *const cases[] = {usual,
                                        "{}",
                                        " { } ",
                                        "{\"a\":999999999999999999}",
                                        "{\"a\":-0}",
                                        "{\"a\":0.1,\"b\":123456789.123456,\"c\":0.00000000000001}",
                                        "{\"a\":{\"b\":{\"a\":1}},\"b\":1}",
                                        "{\"\":\"\"}"};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        cr_assert(check(cases[i], strlen(cases[i])), "%s", cases[i]);
}

Test(json_reader, leaves_the_rest_to_jansson)
{
    static const char *const cases[] = {"",
                                        "[]",
                                        "1",
                                        "{",
                                        "{\"a\"",
                                        "{\"a\":",
                                        "{\"a\":1",
                                        "{\"a\":1,}",
                                        "{,}",
                                        "{\"a\":1}}",
                                        "{\"a\":1} x",
                                        "{\"a\":1,\"a\":2}",
                                        "{\"o\":{\"a\":1,\"b\":[],\"a\":2}}",
                                        "{\"a\":\"\\n\"}",
                                        "{\"a\":\"\n\"}",
                                        "{\"a\":01}",
                                        "{\"a\":-}",
                                        "{\"a\":1.}",
                                        "{\"a\":.5}",
                                        "{\"a\":1.2.3}",
                                        "{\"a\":1e5}",
                                        "{\"a\":1.5e5}",
                                        "{\"a\":0x1}",
                                        "{\"a\":1234567890123456789}",
                                        "{\"a\":99999999999999999999}",
                                        "{\"a\":0.1234567890123456}",
                                        "{\"a\":123456789012345.6}",
                                        "{\"a\":NaN}",
                                        "{\"a\":nul}",
                                        "{\"a\":truex}",
                                        "{\"a\" 1}",
                                        "{a:1}",
                                        "{'a':1}",
                                        "{\"a\":[1,]}",
                                        "{\"a\":[1}",
                                        "{\"a\":[[[[1]]]]}"};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        cr_assert_not(check(cases[i], strlen(cases[i])), "%s", cases[i]);
}

Test(json_reader, takes_as_many_values_as_it_has_nodes_for)
{
    char s[1000] = "{\"a\":[0";

    for (int i = 3; i < JSON_USUAL_NODES; i++)
        strcat(s, ",0");
    strcat(s, "]}");
    cr_assert(check(s, strlen(s)));
    strcpy(s + strlen(s) - 2, ",0]}");
    cr_assert_not(check(s, strlen(s)));
}

Test(json_reader, numbers_are_rounded_as_strtod_rounds)
{
    char s[80];

    for (uint64_t i = 0; i < 300000; i++) {
        uint64_t h = hash_mix(i, 1), k = hash_mix(h, 2);
        int part = 1 + (int)(k % 13);
        uint64_t scale = 1;
        for (int j = 0; j < part; j++)
            scale *= 10;
        snprintf(s, sizeof s, "{\"a\":%s%llu.%0*llu}", k & 1024 ? "-" : "", (unsigned long long)(h % 100), part,
                 (unsigned long long)((h >> 8) % scale));
        cr_assert(check(s, strlen(s)), "%s", s);
    }
}

/* Damaged in every place: whatever is still taken, jansson takes too. */
Test(json_reader, takes_nothing_that_jansson_refuses)
{
    static const char bytes[] = "{}[]\",: \\0123456789.-eEtfnu\n\x01\x7f\xC3";
    char s[sizeof usual];
    size_t n = sizeof usual - 1, taken = 0;

    for (size_t i = 0; i < n; i++) {
        for (size_t b = 0; b < sizeof bytes; b++) { /* the NUL too */
            memcpy(s, usual, n);
            s[i] = bytes[b];
            taken += check(s, n);
        }
        taken += check(usual, i);
        memcpy(s, usual, i);
        memcpy(s + i, usual + i + 1, n - i - 1);
        taken += check(s, n - 1);
    }
    for (uint64_t i = 0; i < 200000; i++) {
        uint64_t h = hash_mix(i, 3);
        memcpy(s, usual, n);
        for (int k = 0; k < 3; k++, h = hash_mix(h, 4))
            s[h % n] = bytes[(h >> 20) % sizeof bytes];
        taken += check(s, n);
    }
    cr_assert_gt(taken, 1000);
}
