/* Arbitrary bytes as a result's value.  What decodes must encode and decode again, in every encoding. */
#include "wire/codec.h"
#include "wire/own_schema.h"
#include "wire/schema_store.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct schema_store *store;
static struct codec *codec;
static struct arena arena, again;

static void require(int ok)
{
    if (!ok)
        abort();
}

static void open_once(void)
{
    struct codec_limits l = codec_default_limits();
    struct text own = own_schema_text(OWN_RESULT);

    if (codec)
        return;
    arena_init(&arena, 1 << 16, 1 << 24);
    arena_init(&again, 1 << 16, 1 << 24);
    require(schema_store_open(&store, NULL, NULL, 1000, NULL) == ERR_OK);
    require(schema_store_add(store, 1, own.s, own.n, NULL) == ERR_OK);
    require(codec_open(&codec, store, &l, NULL) == ERR_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct record r = {.value = data, .value_size = size};
    struct err e = {0};
    struct result q, back;
    struct text bytes;

    open_once();
    arena_reset(&arena);
    enum err_code rc = codec_decode_result(codec, &r, &q, &arena, &e);
    if (rc != ERR_OK) {
        require(e.code == rc && e.act == ERR_SKIP && e.msg[0]);
        return 0;
    }
    for (int enc = ENCODING_JSON; enc <= ENCODING_REGISTRY; enc++) {
        arena_reset(&again);
        require(codec_encode_result(codec, &q, enc, 1, &again, &bytes, NULL) == ERR_OK);
        struct record s = {.value = bytes.s, .value_size = bytes.n};
        require(codec_decode_result(codec, &s, &back, &again, NULL) == ERR_OK);
        require(back.status == q.status && back.translation.n == q.translation.n && back.seed == q.seed);
    }
    return 0;
}
