#include "model/digest.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"

enum { SAMPLE_BYTES = 4096 };

void digest_bytes(struct digest *d, const void *data, size_t n)
{
    d->h = hash_bytes(data, n, d->h);
}

void digest_tensor(struct digest *d, const char *name, const struct tensor *t)
{
    const int64_t shape[3] = {t->rows, t->cols, (int64_t)t->dtype};
    size_t n = tensor_bytes(t);
    const char *p = t->data;

    digest_bytes(d, name, strlen(name));
    digest_bytes(d, shape, sizeof shape);
    if (!p)
        return;
    if (n <= 3 * SAMPLE_BYTES) {
        digest_bytes(d, p, n);
        return;
    }
    digest_bytes(d, p, SAMPLE_BYTES);
    digest_bytes(d, p + n / 2 - SAMPLE_BYTES / 2, SAMPLE_BYTES);
    digest_bytes(d, p + n - SAMPLE_BYTES, SAMPLE_BYTES);
}

void digest_print(const struct digest *d, char out[17])
{
    snprintf(out, 17, "%016" PRIx64, d->h);
}
