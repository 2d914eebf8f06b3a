#include "tests/support/wire_setup.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

void wire_setup_open(struct wire_setup *w)
{
    struct codec_limits l = codec_default_limits();

    memset(w, 0, sizeof *w);
    arena_init(&w->arena, 1 << 16, 64 << 20);
    cr_assert_eq(schema_store_open(&w->store, NULL, NULL, 1000, &w->e), ERR_OK, "%s", w->e.msg);
    cr_assert_eq(codec_open(&w->codec, w->store, &l, &w->e), ERR_OK, "%s", w->e.msg);
}

void wire_setup_close(struct wire_setup *w)
{
    codec_close(w->codec);
    schema_store_close(w->store);
    arena_free(&w->arena);
}

struct record wire_record(const void *value, size_t n)
{
    return (struct record){.topic = "t", .timestamp_ms = -1, .value = value, .value_size = n};
}

enum err_code wire_decode(struct wire_setup *w, const void *value, size_t n)
{
    struct record r = wire_record(value, n);

    arena_reset(&w->arena);
    w->e = (struct err){0};
    return codec_decode_request(w->codec, &r, &w->job, &w->enc, &w->arena, &w->e);
}

enum err_code wire_decode_result(struct wire_setup *w, const void *value, size_t n)
{
    struct record r = wire_record(value, n);

    arena_reset(&w->arena);
    w->e = (struct err){0};
    return codec_decode_result(w->codec, &r, &w->result, &w->arena, &w->e);
}

const char *wire_job_json(struct wire_setup *w)
{
    struct text t;
    char *s;

    cr_assert_eq(codec_encode_request(w->codec, &w->job, ENCODING_JSON, -1, &w->arena, &t, &w->e), ERR_OK, "%s",
                 w->e.msg);
    s = arena_take(&w->arena, t.n + 1);
    cr_assert(s);
    memcpy(s, t.s, t.n);
    s[t.n] = '\0';
    return s;
}

size_t wire_from_hex(const char *hex, unsigned char *out, size_t cap)
{
    size_t n = 0;
    unsigned byte;

    for (; hex[0] && hex[1]; hex += 2) {
        cr_assert_lt(n, cap);
        cr_assert_eq(sscanf(hex, "%2x", &byte), 1);
        out[n++] = (unsigned char)byte;
    }
    return n;
}

bool text_is(struct text t, const char *s)
{
    return t.s && t.n == strlen(s) && memcmp(t.s, s, t.n) == 0;
}
