#include "kafka/commit_note.h"

#include <string.h>

/* Layout, integers as LEB128 varints, offsets as distances from the committed one:
 *   flags       bit 0: finished offsets as a bitmap; bit 1: a suspect follows; bit 2: in work; bit 3: deaths follow
 *   [deaths]
 *   [crashes, suspect - frontier]
 *   bitmap:     number of bytes, then bit i of byte k = offset frontier + 1 + 8k + i
 *   runs:       number of runs, then for each: first - end of the one before, last - first
 *   CRC-32 (IEEE) of all that, and of the frontier, little-endian
 * The frontier itself is never finished, so bit 0 is the offset after it. */

static const char prefix[] = "tw1.";

enum {
    PREFIX_BYTES = sizeof prefix - 1,
    FLAG_BITMAP = 1,
    FLAG_SUSPECT = 2,
    FLAG_IN_WORK = 4,
    FLAG_DEATHS = 8,
    FLAGS = FLAG_BITMAP | FLAG_SUSPECT | FLAG_IN_WORK | FLAG_DEATHS,
    HEAD_BYTES = 1 + 2 + 2 + 10 + 4,                                  /* flags, deaths, crashes, suspect, a count */
    PAYLOAD_MAX = (COMMIT_NOTE_MAX_BYTES - PREFIX_BYTES) / 4 * 3 + 2, /* base64 without padding */
    BODY_MAX = PAYLOAD_MAX - 4 - HEAD_BYTES - 2,
    BITMAP_MAX_SPAN = BODY_MAX * 8,
    RUN_MAX_BYTES = 7 + 2, /* a gap of less than 2^49, a length of less than 2^14: see commit_note_fits() */
    RUNS_SAFE = BODY_MAX / RUN_MAX_BYTES
};

_Static_assert(BITMAP_MAX_SPAN / 2 <= COMMIT_NOTE_MAX_RUNS, "a bitmap's runs must fit");

bool commit_note_fits(int64_t frontier, int64_t newest, size_t taken)
{
    int64_t span = newest - frontier;

    if (span <= BITMAP_MAX_SPAN)
        return true;
    return span < (int64_t)1 << 49 && taken <= RUNS_SAFE;
}

static uint32_t crc32_update(uint32_t crc, const unsigned char *p, size_t n)
{
    crc = ~crc;
    while (n--) {
        crc ^= *p++;
        for (int i = 0; i < 8; i++)
            crc = crc >> 1 ^ (0xEDB88320u & -(crc & 1));
    }
    return ~crc;
}

static uint32_t note_crc(const unsigned char *payload, size_t n, int64_t frontier)
{
    unsigned char f[8];

    for (int i = 0; i < 8; i++)
        f[i] = (unsigned char)((uint64_t)frontier >> (8 * i));
    return crc32_update(crc32_update(0, f, sizeof f), payload, n);
}

static size_t varint_size(uint64_t v)
{
    size_t n = 1;

    while (v >>= 7)
        n++;
    return n;
}

static size_t put_varint(unsigned char *p, uint64_t v)
{
    size_t n = 0;

    while (v >= 0x80) {
        p[n++] = (unsigned char)(v | 0x80);
        v >>= 7;
    }
    p[n++] = (unsigned char)v;
    return n;
}

static bool get_varint(const unsigned char **p, const unsigned char *end, uint64_t *v)
{
    *v = 0;
    for (int shift = 0; shift < 63 && *p < end; shift += 7) {
        unsigned char c = *(*p)++;
        *v |= (uint64_t)(c & 0x7F) << shift;
        if (!(c & 0x80))
            return true;
    }
    return false;
}

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

static size_t base64_put(char *out, const unsigned char *p, size_t n)
{
    size_t w = 0;

    for (size_t i = 0; i < n; i += 3) {
        size_t k = n - i < 3 ? n - i : 3;
        uint32_t v = (uint32_t)p[i] << 16 | (k > 1 ? (uint32_t)p[i + 1] << 8 : 0) | (k > 2 ? p[i + 2] : 0u);
        for (size_t j = 0; j <= k; j++)
            out[w++] = alphabet[v >> (18 - 6 * j) & 63];
    }
    out[w] = '\0';
    return w;
}

/* Bytes of the text, or -1 when it is none. */
static int base64_get(unsigned char *out, const char *s, size_t n)
{
    uint32_t v = 0;
    int w = 0;

    if (n % 4 == 1)
        return -1;
    for (size_t i = 0; i < n; i++) {
        const char *a = s[i] ? strchr(alphabet, s[i]) : NULL;
        if (!a)
            return -1;
        v = v << 6 | (uint32_t)(a - alphabet);
        if (i % 4 == 3)
            for (int k = 16; k >= 0; k -= 8)
                out[w++] = (unsigned char)(v >> k);
    }
    if (n % 4 == 2)
        out[w++] = (unsigned char)(v >> 4);
    else if (n % 4 == 3) {
        out[w++] = (unsigned char)(v >> 10);
        out[w++] = (unsigned char)(v >> 2);
    }
    return w;
}

static size_t runs_size(const struct commit_note *n, int64_t frontier)
{
    size_t size = varint_size(n->n_runs);
    int64_t end = frontier;

    for (size_t i = 0; i < n->n_runs; i++) {
        size += varint_size((uint64_t)(n->runs[i].first - end));
        size += varint_size((uint64_t)(n->runs[i].last - n->runs[i].first));
        end = n->runs[i].last;
    }
    return size;
}

static size_t put_runs(unsigned char *p, const struct commit_note *n, int64_t frontier)
{
    size_t w = put_varint(p, n->n_runs);
    int64_t end = frontier;

    for (size_t i = 0; i < n->n_runs; i++) {
        w += put_varint(p + w, (uint64_t)(n->runs[i].first - end));
        w += put_varint(p + w, (uint64_t)(n->runs[i].last - n->runs[i].first));
        end = n->runs[i].last;
    }
    return w;
}

static size_t put_bitmap(unsigned char *p, const struct commit_note *n, int64_t frontier, size_t bytes)
{
    size_t w = put_varint(p, bytes);

    memset(p + w, 0, bytes);
    for (size_t i = 0; i < n->n_runs; i++)
        for (int64_t o = n->runs[i].first; o <= n->runs[i].last; o++) {
            uint64_t bit = (uint64_t)(o - frontier - 1);
            p[w + bit / 8] |= (unsigned char)(1u << bit % 8);
        }
    return w + bytes;
}

static uint64_t count_of(int n)
{
    return n > COMMIT_NOTE_MAX_COUNT ? COMMIT_NOTE_MAX_COUNT : (uint64_t)n;
}

/* Flags, but for the bitmap's, and what they announce. */
static size_t put_head(unsigned char *p, const struct commit_note *n, int64_t frontier)
{
    bool suspect = n->suspect >= frontier;
    size_t w = 1;

    p[0] = (unsigned char)((suspect ? FLAG_SUSPECT : 0) | (n->in_work ? FLAG_IN_WORK : 0) |
                           (n->deaths > 0 ? FLAG_DEATHS : 0));
    if (n->deaths > 0)
        w += put_varint(p + w, count_of(n->deaths));
    if (suspect) {
        w += put_varint(p + w, count_of(n->crashes));
        w += put_varint(p + w, (uint64_t)(n->suspect - frontier));
    }
    return w;
}

enum err_code commit_note_encode(const struct commit_note *n, int64_t frontier, char out[COMMIT_NOTE_MAX_BYTES + 1],
                                 size_t *size, struct err *e)
{
    unsigned char payload[PAYLOAD_MAX + 8];
    size_t w = put_head(payload, n, frontier), as_runs = runs_size(n, frontier), span_bytes = 0, body;
    bool bitmap;

    *size = 0;
    out[0] = '\0';
    if (n->n_runs == 0 && payload[0] == 0)
        return ERR_OK;
    if (n->n_runs > 0)
        span_bytes = (size_t)((uint64_t)(n->runs[n->n_runs - 1].last - frontier) + 7) / 8;
    bitmap = span_bytes + varint_size(span_bytes) < as_runs;
    body = bitmap ? span_bytes + varint_size(span_bytes) : as_runs;
    payload[0] |= bitmap ? FLAG_BITMAP : 0;
    if (w + body + 4 > PAYLOAD_MAX)
        return err_set(e, ERR_BUSY, ERR_RETRY, "commit note: %zu bytes, at most %d fit", w + body + 4, PAYLOAD_MAX);
    w += bitmap ? put_bitmap(payload + w, n, frontier, span_bytes) : put_runs(payload + w, n, frontier);
    uint32_t crc = note_crc(payload, w, frontier);
    for (int i = 0; i < 4; i++)
        payload[w++] = (unsigned char)(crc >> (8 * i));
    memcpy(out, prefix, PREFIX_BYTES);
    *size = PREFIX_BYTES + base64_put(out + PREFIX_BYTES, payload, w);
    return ERR_OK;
}

static void add_finished(struct commit_note *n, int64_t offset)
{
    if (n->n_runs > 0 && n->runs[n->n_runs - 1].last == offset - 1)
        n->runs[n->n_runs - 1].last = offset;
    else
        n->runs[n->n_runs++] = (struct note_run){offset, offset};
}

static bool get_bitmap(struct commit_note *n, const unsigned char *p, const unsigned char *end, int64_t frontier)
{
    uint64_t bytes;

    if (!get_varint(&p, end, &bytes) || bytes != (uint64_t)(end - p) || bytes > BITMAP_MAX_SPAN / 8 + 1)
        return false;
    for (uint64_t bit = 0; bit < bytes * 8; bit++)
        if (p[bit / 8] >> bit % 8 & 1) {
            if (n->n_runs == COMMIT_NOTE_MAX_RUNS)
                return false;
            add_finished(n, frontier + 1 + (int64_t)bit);
        }
    return true;
}

static bool get_runs(struct commit_note *n, const unsigned char *p, const unsigned char *end, int64_t frontier)
{
    uint64_t count, gap, length;
    int64_t at = frontier;

    if (!get_varint(&p, end, &count) || count > COMMIT_NOTE_MAX_RUNS)
        return false;
    for (uint64_t i = 0; i < count; i++) {
        if (!get_varint(&p, end, &gap) || !get_varint(&p, end, &length) || gap < 1)
            return false;
        if (gap > (uint64_t)(INT64_MAX - at) || length > (uint64_t)(INT64_MAX - at) - gap)
            return false;
        n->runs[n->n_runs++] = (struct note_run){at + (int64_t)gap, at + (int64_t)(gap + length)};
        at = n->runs[n->n_runs - 1].last;
    }
    return p == end;
}

static bool get_count(const unsigned char **p, const unsigned char *end, int *n)
{
    uint64_t v;

    if (!get_varint(p, end, &v) || v > COMMIT_NOTE_MAX_COUNT)
        return false;
    *n = (int)v;
    return true;
}

static bool get_payload(struct commit_note *n, const unsigned char *p, size_t size, int64_t frontier)
{
    const unsigned char *end = p + size;
    unsigned flags = *p++;
    uint64_t distance;

    if (flags & ~(unsigned)FLAGS)
        return false;
    n->in_work = flags & FLAG_IN_WORK;
    if (flags & FLAG_DEATHS && !get_count(&p, end, &n->deaths))
        return false;
    if (flags & FLAG_SUSPECT) {
        if (!get_count(&p, end, &n->crashes) || !get_varint(&p, end, &distance) ||
            distance > (uint64_t)(INT64_MAX - frontier))
            return false;
        n->suspect = frontier + (int64_t)distance;
    }
    return flags & FLAG_BITMAP ? get_bitmap(n, p, end, frontier) : get_runs(n, p, end, frontier);
}

static void clear(struct commit_note *n)
{
    n->in_work = false;
    n->deaths = n->crashes = 0;
    n->suspect = -1;
    n->n_runs = 0;
}

enum err_code commit_note_decode(struct commit_note *n, const char *text, size_t size, int64_t frontier, struct err *e)
{
    unsigned char payload[PAYLOAD_MAX + 8];
    uint32_t crc = 0;
    int bytes;

    clear(n);
    if (size == 0)
        return ERR_OK;
    if (size < PREFIX_BYTES || memcmp(text, "tw", 2) != 0)
        return err_set(e, ERR_UNSUPPORTED, ERR_SKIP, "commit note: another program's metadata");
    if (memcmp(text, prefix, PREFIX_BYTES) != 0)
        return err_set(e, ERR_UNSUPPORTED, ERR_SKIP, "commit note: version %.4s is not known", text);
    if (size > COMMIT_NOTE_MAX_BYTES || frontier < 0 ||
        (bytes = base64_get(payload, text + PREFIX_BYTES, size - PREFIX_BYTES)) < 6)
        return err_set(e, ERR_UNDECODABLE, ERR_SKIP, "commit note: not well formed");
    for (int i = 0; i < 4; i++)
        crc |= (uint32_t)payload[bytes - 4 + i] << (8 * i);
    if (crc != note_crc(payload, (size_t)bytes - 4, frontier))
        return err_set(e, ERR_UNDECODABLE, ERR_SKIP, "commit note: its checksum does not fit offset %lld",
                       (long long)frontier);
    if (!get_payload(n, payload, (size_t)bytes - 4, frontier)) {
        clear(n);
        return err_set(e, ERR_UNDECODABLE, ERR_SKIP, "commit note: not well formed");
    }
    return ERR_OK;
}

bool commit_note_has(const struct commit_note *n, int64_t offset)
{
    size_t low = 0, high = n->n_runs;

    while (low < high) {
        size_t mid = (low + high) / 2;
        if (n->runs[mid].last < offset)
            low = mid + 1;
        else
            high = mid;
    }
    return low < n->n_runs && n->runs[low].first <= offset;
}
