/* Arbitrary bytes as a record's value, in every encoding, under our schema and two others (ids 1 to 3).  What decodes
 * must encode, and decode again to the same text, in every encoding. */
#include "wire/codec.h"
#include "wire/own_schema.h"
#include "wire/schema_store.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char renamed[] =
    "{\"type\":\"record\",\"name\":\"x.Job\",\"fields\":[{\"name\":\"more\",\"type\":{\"type\":\"map\",\"values\":"
    "[\"null\",\"long\",{\"type\":\"array\",\"items\":{\"type\":\"record\",\"name\":\"In\",\"fields\":[{\"name\":\"n\","
    "\"type\":\"null\"},{\"name\":\"f\",\"type\":{\"type\":\"fixed\",\"name\":\"F\",\"size\":3}},{\"name\":\"d\","
    "\"type\":[\"double\",\"float\",\"boolean\"]}]}}]}},{\"name\":\"format\",\"type\":{\"type\":\"enum\",\"name\":"
    "\"E\","
    "\"symbols\":[\"TAGGED\",\"HTML\",\"PLAIN\"]}},{\"name\":\"target_lang\",\"type\":[\"string\",\"null\"]},"
    "{\"name\":\"text\",\"type\":\"bytes\"},{\"name\":\"job_id\",\"type\":\"string\"},{\"name\":\"again\",\"type\":"
    "\"F\"},"
    "{\"name\":\"deadline\",\"type\":{\"type\":\"long\",\"logicalType\":\"timestamp-micros\"}}]}";
static const char odd[] =
    "{\"type\":\"record\",\"name\":\"Odd\",\"fields\":[{\"name\":\"job_id\",\"type\":[\"null\",\"string\",\"int\"]},"
    "{\"name\":\"text\",\"type\":\"string\"},{\"name\":\"target_lang\",\"type\":{\"type\":\"enum\",\"name\":\"L\","
    "\"symbols\":[\"de\",\"fr\"]}},{\"name\":\"glossary\",\"type\":[\"null\",{\"type\":\"array\",\"items\":[\"null\","
    "{\"type\":\"record\",\"name\":\"T\",\"fields\":[{\"name\":\"target\",\"type\":[\"null\",\"string\"]},"
    "{\"name\":\"source\",\"type\":\"bytes\"}]}]}]},{\"name\":\"options\",\"type\":{\"type\":\"record\",\"name\":\"O\","
    "\"fields\":[{\"name\":\"temperature\",\"type\":\"float\"},{\"name\":\"top_k\",\"type\":[\"long\",\"null\"]},"
    "{\"name\":\"seed\",\"type\":\"double\"}]}},{\"name\":\"metadata\",\"type\":{\"type\":\"map\",\"values\":"
    "[\"string\",\"null\",\"int\"]}},{\"name\":\"priority\",\"type\":\"long\"}]}";

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
    struct text own = own_schema_text(OWN_REQUEST);

    if (codec)
        return;
    l.max_text_bytes = 4096;
    l.max_glossary = 20;
    arena_init(&arena, 1 << 16, 1 << 24);
    arena_init(&again, 1 << 16, 1 << 24);
    require(schema_store_open(&store, NULL, NULL, 1000, NULL) == ERR_OK);
    require(schema_store_add(store, 1, own.s, own.n, NULL) == ERR_OK);
    require(schema_store_add(store, 2, renamed, sizeof renamed - 1, NULL) == ERR_OK);
    require(schema_store_add(store, 3, odd, sizeof odd - 1, NULL) == ERR_OK);
    require(codec_open(&codec, store, &l, NULL) == ERR_OK);
}

static void check_round_trip(const struct job *j)
{
    enum encoding got;
    struct text bytes;
    struct job k;

    for (int enc = ENCODING_JSON; enc <= ENCODING_REGISTRY; enc++) {
        arena_reset(&again);
        require(codec_encode_request(codec, j, enc, 1, &again, &bytes, NULL) == ERR_OK);
        struct record r = {.value = bytes.s, .value_size = bytes.n};
        require(codec_decode_request(codec, &r, &k, &got, &again, NULL) == ERR_OK);
        require((int)got == enc && k.text.n == j->text.n && memcmp(k.text.s, j->text.s, j->text.n) == 0);
        require(k.n_glossary == j->n_glossary && k.format == j->format && k.has_deadline == j->has_deadline);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct record r = {.value = data, .value_size = size};
    struct err e = {0};
    enum encoding enc;
    struct job j;

    open_once();
    arena_reset(&arena);
    enum err_code rc = codec_decode_request(codec, &r, &j, &enc, &arena, &e);
    if (rc == ERR_OK)
        check_round_trip(&j);
    else
        require(e.code == rc && e.act == ERR_SKIP && e.msg[0]);
    return 0;
}
