#include "tests/chaos/job.h"

#include "base/clock.h"
#include "base/hash.h"

#include <inttypes.h>
#include <jansson.h>
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
             j->number, text, deadline, seed_of(j), j->kind == JOB_LONG || j->kind == JOB_LATE ? 300 : 24, j->key,
             j->sequence, (int)j->kind, sum_of(j));
}

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
    return (unsigned)j->kind < JOB_KINDS && strtoull(sum, NULL, 16) == sum_of(j);
}

bool job_read(struct numbered *j, const void *value, size_t n)
{
    if (!value || n == 0)
        return false;
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
