/* Tokens to text, a token at a time. */
#include "text/tokenizer.h"

#include <string.h>

#include "base/utf8.h"
#include "text/tokenizer_parts.h"

void decoder_init(struct decoder *d, const struct tokenizer *t)
{
    *d = (struct decoder){.t = t};
}

/* Writes the text of s[0..n) to out; unless it is the end, a beginning of a character at the end of s is left:
 * *rest of its bytes.  The bytes written, or -1 when out is too small. */
static int write_text(const char *s, size_t n, bool is_end, char *out, size_t cap, int *rest)
{
    size_t m = utf8_valid(s, n); /* nearly always all of it */

    *rest = 0;
    if (m > cap)
        return -1;
    memcpy(out, s, m);
    for (size_t i = m; i < n;) {
        const char *from = s + i;
        size_t len = (size_t)utf8_next(s + i, n - i, NULL);

        if (len == 0 && !is_end && (size_t)utf8_incomplete_tail(s + i, n - i) == n - i) {
            *rest = (int)(n - i);
            break;
        }
        i += len ? len : (size_t)utf8_invalid(s + i, n - i);
        if (len == 0) {
            from = "\xEF\xBF\xBD";
            len = 3;
        }
        if (m + len > cap)
            return -1;
        memcpy(out + m, from, len);
        m += len;
    }
    return (int)m;
}

int decoder_push(struct decoder *d, int id, char *out, size_t cap)
{
    char buf[sizeof d->pending + VOCAB_MAX_TOKEN_BYTES];
    size_t n = (size_t)d->n_pending, len;
    const unsigned char *bytes = vocab_bytes(d->t->vocab, id, &len);
    int written, rest;

    if (!bytes || tokenizer_is_special(d->t, id))
        return 0;
    memcpy(buf, d->pending, n);
    memcpy(buf + n, bytes, len);
    written = write_text(buf, n + len, false, out, cap, &rest);
    if (written < 0)
        return -1;
    memcpy(d->pending, buf + n + len - (size_t)rest, (size_t)rest);
    d->n_pending = rest;
    return written;
}

int decoder_finish(struct decoder *d, char *out, size_t cap)
{
    int rest, written = write_text((const char *)d->pending, (size_t)d->n_pending, true, out, cap, &rest);

    if (written >= 0)
        d->n_pending = 0;
    return written;
}
