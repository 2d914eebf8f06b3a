/* Headers of a record as anybody may have written them, through two deaths: no crash, no pile. */
#include "kafka/dead_letter.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 32 };

static const char *const known[] = {"kafka_dlt-original-topic",  "kafka_dlt-original-partition",
                                    "kafka_dlt-original-offset", "kafka_dlt-original-timestamp",
                                    "kafka_dlt-exception-fqcn",  "kafka_dlt-exception-message",
                                    "kafka_dlt-attempts",        "kafka_dlt-"};

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

/* Each header: one byte that picks a known name or a free one, one byte of length (255 = null), the value. */
static size_t read_headers(struct header *h, const unsigned char *data, size_t size)
{
    size_t n = 0, at = 0;

    while (n < MOST && at + 2 <= size) {
        unsigned pick = data[at], length = data[at + 1];

        at += 2;
        h[n].name = pick < 8 ? known[pick] : pick & 1 ? "x" : "";
        h[n].value = length == 255 ? NULL : data + at;
        h[n].size = length == 255 ? 0 : length < size - at ? length : size - at;
        at += h[n].size;
        n++;
    }
    return n;
}

static void expect(int condition)
{
    if (!condition)
        abort();
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct header headers[MOST];
    struct record r = {.topic = "t", .timestamp_ms = -1, .headers = headers};
    struct err why = {.code = ERR_UNDECODABLE, .act = ERR_SKIP, .msg = "fuzz"}, e;
    struct outgoing o = {0};
    struct arena a;
    size_t before = 0;

    arena_init(&a, 1 << 16, 1 << 20);
    r.n_headers = read_headers(headers, data, size);
    for (int pass = 0; pass < 3; pass++) {
        expect(dead_letter_build(&o, &r, &why, 1, &a, &e) == ERR_OK);
        expect(o.n_headers <= r.n_headers + 7);
        expect(pass == 0 || o.n_headers == before);
        before = o.n_headers;
        r.headers = o.headers;
        r.n_headers = o.n_headers;
    }
    arena_free(&a);
    return 0;
}
