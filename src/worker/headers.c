#include "worker/headers.h"

#include "base/hash.h"
#include "wire/json_writer.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { OWN = 3, TRACE_BYTES = 55 }; /* 00-TRACE(32)-SPAN(16)-FLAGS(2) */

static const char *const own_names[OWN] = {"translate-source-topic", "translate-source-partition",
                                           "translate-source-offset"};

static bool is_own(const char *name)
{
    for (int i = 0; i < OWN; i++)
        if (strcmp(name, own_names[i]) == 0)
            return true;
    return false;
}

static bool is_hex(const char *s, size_t n)
{
    bool zero = true;

    for (size_t i = 0; i < n; i++) {
        if (!((s[i] >= '0' && s[i] <= '9') || (s[i] >= 'a' && s[i] <= 'f')))
            return false;
        zero = zero && s[i] == '0';
    }
    return !zero;
}

static bool is_trace(const struct header *h)
{
    const char *s = h->value;

    /* version ff is invalid; a later version may be longer and keeps these fields */
    return s && h->size >= TRACE_BYTES && (h->size == TRACE_BYTES || (s[0] != '0' || s[1] != '0')) &&
           strncmp(s, "ff", 2) != 0 && s[2] == '-' && s[35] == '-' && s[52] == '-' &&
           (is_hex(s, 2) || strncmp(s, "00", 2) == 0) && is_hex(s + 3, 32) && is_hex(s + 36, 16) &&
           (is_hex(s + 53, 2) || strncmp(s + 53, "00", 2) == 0);
}

/* A span of our own is a function of the record: a result that is published twice has the same one. */
static enum err_code build_trace(struct header *out, const struct header *in, const struct record *r, struct arena *a,
                                 bool *bad, struct err *e)
{
    uint64_t place = hash_mix((uint64_t)r->at.offset, (uint64_t)r->at.partition);
    uint64_t span = hash_bytes(r->topic, strlen(r->topic), place) | 1; /* zero is invalid */
    char *s = arena_take(a, TRACE_BYTES + 1);

    if (!s)
        return err_set(e, ERR_NOMEM, ERR_SKIP, "headers: over the memory of one job");
    if (is_trace(in)) {
        snprintf(s, TRACE_BYTES + 1, "00-%.32s-%016" PRIx64 "-%.2s", (const char *)in->value + 3, span,
                 (const char *)in->value + 53);
    } else {
        *bad = true;
        snprintf(s, TRACE_BYTES + 1, "00-%016" PRIx64 "%016" PRIx64 "-%016" PRIx64 "-00",
                 hash_mix(span, (uint64_t)r->timestamp_ms), span, hash_mix(span, 1) | 1);
    }
    *out = (struct header){in->name, s, TRACE_BYTES};
    return ERR_OK;
}

static enum err_code add_number(struct header *h, const char *name, int64_t value, struct arena *a, struct err *e)
{
    struct json_writer w = {.buf = arena_take(a, 24), .cap = 24}; /* a number is written there as it is here */

    if (!w.buf)
        return err_set(e, ERR_NOMEM, ERR_SKIP, "headers: over the memory of one job");
    json_put_int(&w, value);
    *h = (struct header){name, w.buf, w.n};
    return ERR_OK;
}

enum err_code headers_build(const struct record *r, struct arena *a, const struct header **out, size_t *n,
                            bool *bad_trace, struct err *e)
{
    struct header *h = arena_take(a, (r->n_headers + OWN) * sizeof *h);
    const struct header *trace = record_find_header(r, "traceparent");
    enum err_code rc;
    size_t k = 0;

    *bad_trace = false;
    if (!h)
        return err_set(e, ERR_NOMEM, ERR_SKIP, "headers: over the memory of one job");
    for (size_t i = 0; i < r->n_headers; i++) {
        const struct header *in = &r->headers[i];
        if (is_own(in->name) || (strcmp(in->name, "traceparent") == 0 && in != trace))
            continue;
        if (in != trace)
            h[k++] = *in;
        else if ((rc = build_trace(&h[k++], in, r, a, bad_trace, e)) != ERR_OK)
            return rc;
    }
    h[k++] = (struct header){own_names[0], r->topic, strlen(r->topic)};
    if ((rc = add_number(&h[k++], own_names[1], r->at.partition, a, e)) != ERR_OK ||
        (rc = add_number(&h[k++], own_names[2], r->at.offset, a, e)) != ERR_OK)
        return rc;
    *out = h;
    *n = k;
    return ERR_OK;
}
