#include "wire/codec.h"

#include "wire/avro_codec.h"
#include "wire/json_codec.h"
#include "wire/message.h"
#include "wire/own_schema.h"
#include "wire/schema_store.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { REGISTRY_HEAD = 5, SINGLE_OBJECT_HEAD = 10 };

struct codec {
    struct schema_store *store;
    struct codec_limits limits;
    struct schema *request, *result; /* ours, for encoding: the codec's own, so that no thread shares them */
};

const char *encoding_name(enum encoding enc)
{
    switch (enc) {
    case ENCODING_JSON: return "json";
    case ENCODING_SINGLE_OBJECT: return "avro";
    case ENCODING_REGISTRY: return "registry";
    }
    return "?";
}

struct codec_limits codec_default_limits(void)
{
    return (struct codec_limits){.max_value_bytes = 16 << 20,
                                 .max_text_bytes = 1 << 20,
                                 .max_context_bytes = 1 << 20,
                                 .max_glossary = 1000,
                                 .max_metadata = 100,
                                 .max_field_bytes = 4096};
}

static enum err_code open_own(struct schema **out, enum own_schema which, struct err *e)
{
    struct text t = own_schema_text(which);
    enum err_code rc = schema_open(out, t.s, t.n, e);

    if (rc != ERR_OK)
        err_prefix(e, "%s", own_schema_file(which));
    return rc;
}

enum err_code codec_open(struct codec **out, struct schema_store *store, const struct codec_limits *l, struct err *e)
{
    struct codec *c = calloc(1, sizeof *c);
    enum err_code rc;

    *out = NULL;
    if (!c)
        return err_set(e, ERR_NOMEM, ERR_STOP, "codec: out of memory");
    c->store = store;
    c->limits = *l;
    if ((rc = open_own(&c->request, OWN_REQUEST, e)) != ERR_OK || (rc = open_own(&c->result, OWN_RESULT, e)) != ERR_OK)
        goto out;
    *out = c;
    c = NULL; /* moved to the caller */
out:
    codec_close(c);
    return rc;
}

void codec_close(struct codec *c)
{
    if (!c)
        return;
    schema_close(c->request);
    schema_close(c->result);
    free(c);
}

static uint64_t read_le64(const unsigned char *p)
{
    uint64_t v = 0;

    for (int i = 7; i >= 0; i--)
        v = v << 8 | p[i];
    return v;
}

static uint32_t read_be32(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* What the first bytes say.  *head is their number before the payload. */
static enum err_code detect(const struct record *r, enum encoding *enc, size_t *head, struct err *e)
{
    const unsigned char *p = r->value;
    size_t n = r->value_size;

    if (!p)
        return err_set(e, ERR_UNDECODABLE, ERR_SKIP, "the value is null (a tombstone), not a job");
    if (record_find_header(r, "__value_schema_id"))
        return err_set(e, ERR_UNDECODABLE, ERR_SKIP, "schema id in header not supported (header __value_schema_id)");
    if (n == 0)
        return err_set(e, ERR_UNDECODABLE, ERR_SKIP, "the value has 0 bytes");
    if (p[0] == '{') {
        *enc = ENCODING_JSON;
        *head = 0;
    } else if (p[0] == 0x00) {
        *enc = ENCODING_REGISTRY;
        *head = REGISTRY_HEAD;
        if (n < REGISTRY_HEAD)
            return err_set(e, ERR_UNDECODABLE, ERR_SKIP, "a registry frame of %zu bytes, shorter than its head of %d",
                           n, REGISTRY_HEAD);
    } else if (p[0] == 0xC3 && (n == 1 || p[1] == 0x01)) {
        *enc = ENCODING_SINGLE_OBJECT;
        *head = SINGLE_OBJECT_HEAD;
        if (n < SINGLE_OBJECT_HEAD)
            return err_set(e, ERR_UNDECODABLE, ERR_SKIP,
                           "an Avro single object of %zu bytes, shorter than its head of %d", n, SINGLE_OBJECT_HEAD);
    } else {
        return err_set(e, ERR_UNDECODABLE, ERR_SKIP,
                       "unknown magic byte 0x%02X, allowed are 0x00 (registry), 0xC3 0x01 (Avro), '{' (JSON)", p[0]);
    }
    return ERR_OK;
}

static enum err_code find_writer(struct codec *c, const unsigned char *p, enum encoding enc, const struct schema **out,
                                 struct err *e)
{
    if (enc == ENCODING_REGISTRY)
        return schema_store_by_id(c->store, (int32_t)read_be32(p + 1), out, e);
    return schema_store_by_fingerprint(c->store, read_le64(p + 2), out, e);
}

static enum err_code decode(struct codec *c, const struct message *m, const struct record *r, void *base,
                            enum encoding *enc, struct arena *a, struct err *e)
{
    struct intake in = {.limits = &c->limits, .a = a, .e = e, .base = base};
    const unsigned char *p = r->value;
    const struct schema *writer;
    enum err_code rc;
    size_t head = 0;

    if (r->value && r->value_size > c->limits.max_value_bytes)
        return err_set(e, ERR_TEXT_TOO_LONG, ERR_SKIP, "the value has %zu bytes, at most %zu are decoded",
                       r->value_size, c->limits.max_value_bytes);
    if ((rc = detect(r, enc, &head, e)) != ERR_OK)
        return rc;
    if (*enc == ENCODING_JSON) {
        rc = json_codec_decode(m, &in, (const char *)p, r->value_size);
    } else {
        if ((rc = find_writer(c, p, *enc, &writer, e)) != ERR_OK)
            return rc;
        rc = avro_codec_decode(m, &in, writer, p + head, r->value_size - head);
    }
    return rc == ERR_OK ? message_check_required(m, base, e) : rc;
}

static enum err_code encode(const struct message *m, const struct schema *own, const void *base, enum encoding enc,
                            int32_t schema_id, struct arena *a, struct text *out, struct err *e)
{
    size_t head = enc == ENCODING_REGISTRY ? REGISTRY_HEAD : SINGLE_OBJECT_HEAD;
    enum err_code rc;
    char *p;

    *out = (struct text){0};
    if ((rc = message_check_required(m, base, e)) != ERR_OK)
        return rc;
    if (enc == ENCODING_JSON)
        return json_codec_encode(m, base, a, out, e);
    if (enc == ENCODING_REGISTRY && schema_id < 0)
        return err_set(e, ERR_CONFIG, ERR_STOP, "registry framing of a %s needs its schema id, which is not configured",
                       m->name);
    if ((rc = avro_codec_encode(m, own, base, head, a, out, e)) != ERR_OK)
        return rc;
    p = (char *)out->s;
    if (enc == ENCODING_REGISTRY) {
        for (int i = 0; i < 4; i++)
            p[1 + i] = (char)((uint32_t)schema_id >> (24 - 8 * i));
        p[0] = 0x00;
    } else {
        p[0] = (char)0xC3;
        p[1] = 0x01;
        for (int i = 0; i < 8; i++)
            p[2 + i] = (char)(own->fingerprint >> (8 * i));
    }
    return ERR_OK;
}

enum err_code codec_decode_request(struct codec *c, const struct record *r, struct job *j, enum encoding *enc,
                                   struct arena *a, struct err *e)
{
    enum err_code rc;

    *j = (struct job){0};
    *enc = ENCODING_JSON;
    rc = decode(c, &message_request, r, j, enc, a, e);
    return rc == ERR_OK ? job_check(j, e) : rc;
}

enum err_code codec_decode_result(struct codec *c, const struct record *r, struct result *res, struct arena *a,
                                  struct err *e)
{
    enum encoding enc = ENCODING_JSON;

    *res = (struct result){.mean_logprob = NAN,
                           .min_logprob = NAN,
                           .queue_ms = NAN,
                           .batch_wait_ms = NAN,
                           .decode_ms = NAN,
                           .attempts = 1};
    return decode(c, &message_result, r, res, &enc, a, e);
}

enum err_code codec_encode_request(struct codec *c, const struct job *j, enum encoding enc, int32_t schema_id,
                                   struct arena *a, struct text *out, struct err *e)
{
    return encode(&message_request, c->request, j, enc, schema_id, a, out, e);
}

enum err_code codec_encode_result(struct codec *c, const struct result *res, enum encoding enc, int32_t schema_id,
                                  struct arena *a, struct text *out, struct err *e)
{
    return encode(&message_result, c->result, res, enc, schema_id, a, out, e);
}
