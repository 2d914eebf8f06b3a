/* Arbitrary bytes as a tokenizer.json; where one comes out, it must encode and decode without harm. */
#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char text[] =
        "The \xE4\xB8\xAD\xE6\x96\x87 it's 1234\t \n\nab\xFF  e\xCC\x81 \xF0\x9F\x98\x80 aaaaaaaabab";
    struct tokenizer *t;
    struct encoder *enc;
    struct decoder d;
    int32_t ids[3 * sizeof text];
    struct err e;
    size_t n, cap;
    char *out;

    if (tokenizer_parse(&t, (const char *)data, size, "fuzz.json", &e) != ERR_OK) {
        if (!*e.msg || strchr(e.msg, '\n'))
            abort();
        return 0;
    }
    if (encoder_open(&enc, t, &e) == ERR_OK) {
        cap = 3 * tokenizer_max_token_bytes(t) + 3;
        out = malloc(cap);
        if (out && encoder_encode(enc, text, sizeof text - 1, ids, 3 * sizeof text, &n, &e) == ERR_OK) {
            decoder_init(&d, t);
            for (size_t i = 0; i < n; i++)
                if (ids[i] < 0 || ids[i] >= tokenizer_size(t) || decoder_push(&d, ids[i], out, cap) < 0)
                    abort();
            for (int id = -1; id <= tokenizer_size(t) && id < 1000; id++)
                if (decoder_push(&d, id, out, cap) < 0)
                    abort();
            if (decoder_finish(&d, out, cap) < 0)
                abort();
        }
        free(out);
        encoder_close(enc);
    }
    tokenizer_close(t);
    return 0;
}
