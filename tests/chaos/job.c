#include "tests/chaos/job.h"

#include "base/clock.h"
#include "base/hash.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const words[] = {"the",   "river", "carries", "a",     "small", "boat",  "past",   "old",
                                    "house", "where", "nobody",  "lives", "since", "years", "winter", "snow"};
enum { WORDS = sizeof words / sizeof *words, LATEST_MS = 400 };

const char *job_kind_name(enum job_kind k)
{
    static const char *const names[JOB_KINDS] = {"plain", "crash", "bad", "long", "garbage", "late"};

    return names[k];
}

static uint64_t sum_of(const struct numbered *j)
{
    const int64_t all[] = {j->number, j->key, j->sequence, (int64_t)j->kind};

    return hash_bytes(all, sizeof all, 2026) >> 16;
}

static uint64_t seed_of(const struct numbered *j)
{
    return (uint64_t)j->number << 8 | (uint64_t)j->kind;
}

static void write_text(const struct numbered *j, char *out, size_t cap)
{
    uint64_t h = sum_of(j);
    size_t n = 0;

    for (int i = 0; i < 3 + (int)(h % 12) && n < cap; i++) {
        h = hash_mix(h, (uint64_t)i);
        n += (size_t)snprintf(out + n, cap - n, "%s%s", i ? " " : "", words[h % WORDS]);
    }
}

static int most_tokens(const struct numbered *j)
{
    return j->kind == JOB_LONG || j->kind == JOB_LATE ? 300 : 24;
}

void job_write(const struct numbered *j, char *key, size_t key_cap, char *value, size_t value_cap)
{
    char text[256], deadline[64] = "";

    snprintf(key, key_cap, "k%d", j->key);
    if (j->kind == JOB_GARBAGE) {
        snprintf(value, value_cap, "garbage %" PRId64 " %d %" PRId64 " %" PRIx64, j->number, j->key, j->sequence,
                 sum_of(j));
        return;
    }
    write_text(j, text, sizeof text);
    if (j->kind == JOB_LATE)
        snprintf(deadline, sizeof deadline, "\"deadline\":%" PRId64 ",",
                 clock_wall_ms() + (int64_t)(sum_of(j) % LATEST_MS));
    snprintf(value, value_cap,
             "{\"job_id\":\"%" PRId64 "\",\"text\":\"%s\",\"target_lang\":\"de\",%s"
             "\"options\":{\"seed\":%" PRIu64 ",\"max_output_tokens\":%d},"
             "\"metadata\":{\"key\":\"%d\",\"sequence\":\"%" PRId64 "\",\"kind\":\"%d\",\"sum\":\"%" PRIx64 "\"}}",
             j->number, text, deadline, seed_of(j), most_tokens(j), j->key, j->sequence, (int)j->kind, sum_of(j));
}

/* ---- Avro ---- */

const char job_avro_schema[] =
    "{\"type\":\"record\",\"name\":\"Job\",\"fields\":["
    "{\"name\":\"job_id\",\"type\":\"string\"},{\"name\":\"text\",\"type\":\"string\"},"
    "{\"name\":\"target_lang\",\"type\":\"string\"},"
    "{\"name\":\"options\",\"type\":[\"null\",{\"type\":\"record\",\"name\":\"Options\",\"fields\":["
    "{\"name\":\"max_output_tokens\",\"type\":[\"null\",\"int\"]},{\"name\":\"seed\",\"type\":[\"null\",\"long\"]}]}]},"
    "{\"name\":\"metadata\",\"type\":{\"type\":\"map\",\"values\":\"string\"}}]}";

struct bytes {
    unsigned char *at, *end;
};

static void put_long(struct bytes *b, int64_t x)
{
    uint64_t z = x < 0 ? ~((uint64_t)x << 1) : (uint64_t)x << 1;

    for (; b->at < b->end && z >= 0x80; z >>= 7)
        *b->at++ = (unsigned char)(z | 0x80);
    if (b->at < b->end)
        *b->at++ = (unsigned char)z;
}

static void put_string(struct bytes *b, const char *s)
{
    size_t n = strlen(s);

    put_long(b, (int64_t)n);
    for (size_t i = 0; i < n && b->at < b->end; i++)
        *b->at++ = (unsigned char)s[i];
}

static void __attribute__((format(printf, 3, 4))) put_pair(struct bytes *b, const char *key, const char *fmt, ...)
{
    char text[32];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    put_string(b, key);
    put_string(b, text);
}

size_t job_write_avro(const struct numbered *j, int32_t schema_id, char *key, size_t key_cap, void *value, size_t cap)
{
    struct bytes b = {value, (unsigned char *)value + cap};
    char text[256], number[32];

    snprintf(key, key_cap, "k%d", j->key);
    write_text(j, text, sizeof text);
    snprintf(number, sizeof number, "%" PRId64, j->number);
    for (int shift = 32; shift >= 0; shift -= 8) /* the magic byte is 0, like the id's fifth */
        *b.at++ = (unsigned char)((uint64_t)schema_id >> shift);
    put_string(&b, number);
    put_string(&b, text);
    put_string(&b, "de");
    put_long(&b, 1); /* of the unions: not null */
    put_long(&b, 1);
    put_long(&b, most_tokens(j));
    put_long(&b, 1);
    put_long(&b, (int64_t)seed_of(j));
    put_long(&b, 4);
    put_pair(&b, "key", "%d", j->key);
    put_pair(&b, "sequence", "%" PRId64, j->sequence);
    put_pair(&b, "kind", "%d", (int)j->kind);
    put_pair(&b, "sum", "%" PRIx64, sum_of(j));
    put_long(&b, 0);
    return (size_t)(b.at - (unsigned char *)value);
}

static bool take_long(struct bytes *b, int64_t *out)
{
    uint64_t z = 0;

    for (int shift = 0; b->at < b->end && shift < 64; shift += 7) {
        unsigned char c = *b->at++;
        z |= (uint64_t)(c & 0x7F) << shift;
        if (!(c & 0x80)) {
            *out = (int64_t)(z >> 1) ^ -(int64_t)(z & 1);
            return true;
        }
    }
    return false;
}

/* false too where it does not fit. */
static bool take_string(struct bytes *b, char *out, size_t cap)
{
    int64_t n;

    if (!take_long(b, &n) || n < 0 || n >= (int64_t)cap || n > b->end - b->at)
        return false;
    memcpy(out, b->at, (size_t)n);
    out[n] = '\0';
    b->at += n;
    return true;
}

static bool is_of_kind(const struct numbered *j, const char *sum)
{
    return (unsigned)j->kind < JOB_KINDS && strtoull(sum, NULL, 16) == sum_of(j);
}

static bool read_avro(struct numbered *j, const void *value, size_t n)
{
    struct bytes b = {(unsigned char *)value + 5, (unsigned char *)value + n};
    static const char *const names[] = {"key", "sequence", "kind", "sum"};
    char id[32], text[256], name[16], pair[4][32];
    int64_t x;

    if (n < 5 || !take_string(&b, id, sizeof id) || !take_string(&b, text, sizeof text) ||
        !take_string(&b, text, sizeof text))
        return false;
    for (int i = 0; i < 6; i++) /* the unions' branches and what they hold, the count of pairs */
        if (!take_long(&b, &x))
            return false;
    for (int i = 0; i < 4; i++)
        if (!take_string(&b, name, sizeof name) || strcmp(name, names[i]) != 0 ||
            !take_string(&b, pair[i], sizeof pair[i]))
            return false;
    *j = (struct numbered){.number = strtoll(id, NULL, 10),
                           .key = atoi(pair[0]),
                           .sequence = strtoll(pair[1], NULL, 10),
                           .kind = (enum job_kind)atoi(pair[2])};
    return is_of_kind(j, pair[3]);
}

/* ---- reading ---- */

static bool read_garbage(struct numbered *j, const void *value, size_t n)
{
    char z[128];
    uint64_t sum;

    if (n >= sizeof z)
        return false;
    memcpy(z, value, n);
    z[n] = '\0';
    *j = (struct numbered){.kind = JOB_GARBAGE};
    return sscanf(z, "garbage %" SCNd64 " %d %" SCNd64 " %" SCNx64, &j->number, &j->key, &j->sequence, &sum) == 4 &&
           sum == sum_of(j);
}

static bool read_tree(struct numbered *j, const json_t *o)
{
    const char *id, *key, *sequence, *kind, *sum;

    if (json_unpack((json_t *)o, "{s:s, s:{s:s, s:s, s:s, s:s}}", "job_id", &id, "metadata", "key", &key, "sequence",
                    &sequence, "kind", &kind, "sum", &sum) != 0)
        return false;
    *j = (struct numbered){.number = strtoll(id, NULL, 10),
                           .key = atoi(key),
                           .sequence = strtoll(sequence, NULL, 10),
                           .kind = (enum job_kind)atoi(kind)};
    return is_of_kind(j, sum);
}

bool job_read(struct numbered *j, const void *value, size_t n)
{
    if (!value || n == 0)
        return false;
    if (*(const char *)value == '\0')
        return read_avro(j, value, n);
    if (*(const char *)value != '{')
        return read_garbage(j, value, n);
    json_t *o = json_loadb(value, n, 0, NULL);
    bool ours = o && read_tree(j, o);
    json_decref(o);
    return ours;
}

/* The fake engine's tokens may be any bytes of the vocabulary, a NUL among them. */
bool job_read_result(struct numbered *j, uint64_t *text_hash, const void *value, size_t n)
{
    json_t *o = value ? json_loadb(value, n, JSON_ALLOW_NUL, NULL) : NULL;
    const char *status, *text = "";
    json_t *translation = NULL;
    bool ours = o && read_tree(j, o) &&
                json_unpack(o, "{s:s, s?o}", "status", &status, "translation", &translation) == 0 &&
                (json_is_string(translation) || ((!translation || json_is_null(translation)) && j->kind == JOB_LATE));

    if (ours && json_is_string(translation))
        text = json_string_value(translation);
    if (ours)
        *text_hash = hash_bytes(text, json_string_length(translation), hash_bytes(status, strlen(status), 0));
    json_decref(o);
    return ours;
}
