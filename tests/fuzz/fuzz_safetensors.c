/* A weight file from outside: whatever its header says, every tensor that is handed out lies in the file. */
#include "model/safetensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct safetensors *s;
    struct err e;
    size_t covered = 0;
    unsigned seen = 0;

    if (safetensors_parse(&s, data, n, "fuzz.safetensors", &e) != ERR_OK) {
        if (s || !e.msg[0] || strchr(e.msg, '\n'))
            abort();
        return 0;
    }
    for (size_t i = 0; i < safetensors_count(s); i++) {
        const struct st_tensor *t = safetensors_at(s, i);
        const unsigned char *p = t->data;

        if (safetensors_find(s, t->name) != t || p < data || p + t->bytes > data + n)
            abort();
        for (size_t k = 0; k < t->bytes; k++)
            seen |= p[k];
        covered += t->bytes;
    }
    if (covered > n - 8 || seen > 255)
        abort();
    safetensors_close(s);
    return 0;
}
