#include "worker/headers.h"

#include <criterion/criterion.h>
#include <string.h>

#define TRACE "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

static struct arena arena;

static const struct header *build(const struct header *in, size_t n, size_t *n_out, bool *bad)
{
    struct record r = {.at = {3, 1, 12345678901}, .topic = "in", .headers = in, .n_headers = n};
    const struct header *out;

    arena_init(&arena, 4096, 1 << 20);
    cr_assert_eq(headers_build(&r, &arena, &out, n_out, bad, NULL), ERR_OK);
    return out;
}

static bool is(const struct header *h, const char *name, const char *value)
{
    return strcmp(h->name, name) == 0 && h->size == strlen(value) && memcmp(h->value, value, h->size) == 0;
}

Test(headers, carry_the_requests_ones_byte_for_byte_and_in_order)
{
    static const char binary[] = "\x00\xff\xfe";
    const struct header in[] = {{"x", binary, 3}, {"null", NULL, 0}, {"x", "", 0}, {"x", "third", 5}};
    size_t n;
    bool bad;
    const struct header *out = build(in, 4, &n, &bad);

    cr_assert_eq(n, 7);
    for (int i = 0; i < 4; i++)
        cr_assert(out[i].name == in[i].name && out[i].value == in[i].value && out[i].size == in[i].size);
    cr_assert(is(&out[4], "translate-source-topic", "in"));
    cr_assert(is(&out[5], "translate-source-partition", "3"));
    cr_assert(is(&out[6], "translate-source-offset", "12345678901"));
    cr_assert_not(bad);
    arena_free(&arena);
}

Test(headers, of_ours_are_replaced_not_piled_up)
{
    struct header in[8];
    const struct header *out = NULL;
    size_t n = 0;
    bool bad;

    for (int round = 0; round < 5; round++) {
        for (size_t i = 0; i < n; i++)
            in[i] = out[i];
        struct arena before = arena; /* what in[] points to lives there */
        out = build(in, n, &n, &bad);
        cr_assert_eq(n, 3);
        arena_free(&before);
    }
    arena_free(&arena);
}

Test(headers, keep_one_trace_with_a_span_of_our_own)
{
    const struct header in[] = {{"traceparent", "junk", 4}, {"a", "1", 1}, {"traceparent", TRACE, strlen(TRACE)}};
    size_t n;
    bool bad;
    const struct header *out = build(in, 3, &n, &bad);

    cr_assert_eq(n, 5);
    cr_assert(is(&out[0], "a", "1"));
    cr_assert_str_eq(out[1].name, "traceparent");
    cr_assert_eq(out[1].size, strlen(TRACE));
    cr_assert_eq(memcmp(out[1].value, TRACE, 36), 0, "the same trace");
    cr_assert_neq(memcmp(out[1].value, TRACE, 52), 0, "another span");
    cr_assert_eq(memcmp((const char *)out[1].value + 52, "-01", 3), 0, "the same flags");
    cr_assert_not(bad);
    arena_free(&arena);
}

Test(headers, begin_a_new_trace_for_a_malformed_one)
{
    static const char *const wrong[] = {
        "",
        "junk",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
    };

    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        const struct header in = {"traceparent", wrong[i], strlen(wrong[i])};
        size_t n, again;
        bool bad;
        const struct header *out = build(&in, 1, &n, &bad);
        cr_assert(bad, "%s", wrong[i]);
        cr_assert_eq(out[0].size, strlen(TRACE));
        const struct header made = {"traceparent", out[0].value, out[0].size};
        struct arena first = arena;
        build(&made, 1, &again, &bad);
        cr_assert_not(bad, "what we make is well-formed");
        arena_free(&first);
        arena_free(&arena);
    }
}
