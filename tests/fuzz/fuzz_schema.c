/* Arbitrary text as a writer's schema, up to the first NUL; what is behind it is decoded by that schema. */
#include "wire/avro_codec.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nul = memchr(data, 0, size);
    size_t n = nul ? (size_t)(nul - data) : size;
    struct codec_limits l = codec_default_limits();
    struct schema *schema;
    struct err e = {0};
    struct arena a;

    if (schema_open(&schema, (const char *)data, n, &e) != ERR_OK) {
        if (e.code != ERR_UNKNOWN_SCHEMA || e.act != ERR_SKIP || !e.msg[0])
            abort();
        return 0;
    }
    if (nul) {
        struct job j = {0};
        struct intake in = {.limits = &l, .a = &a, .e = &e, .base = &j};
        arena_init(&a, 1 << 12, 1 << 22);
        if (avro_codec_decode(&message_request, &in, schema, nul + 1, size - n - 1) != ERR_OK && e.act != ERR_SKIP)
            abort();
        arena_free(&a);
    }
    schema_close(schema);
    return 0;
}
