/* bpe.h -- byte-pair merges: the bytes of one piece become tokens by merging, again and again, the adjacent pair
 * of lowest rank, the leftmost of equals.
 * Units:  a rank is the merge's place in the file.
 * Thread: struct bpe is const after open; scratch belongs to one thread. */
#ifndef TEXT_BPE_H
#define TEXT_BPE_H

#include "base/err.h"
#include "text/vocab.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bpe;

/* Where pieces are worked on.  Those longer than BPE_SHORT bytes need 28 bytes for each of theirs: memory grows as
 * needed; the owner calls bpe_scratch_free(), and may do so between any two pieces to give it back. */
enum { BPE_SHORT = 96 };
struct bpe_scratch {
    int32_t ids[BPE_SHORT];
    void *memory;
    size_t cap; /* bytes of memory */
};
void bpe_scratch_free(struct bpe_scratch *s);

/* model: the "model" of tokenizer.json.  v must outlive the result. */
MUST_CHECK enum err_code bpe_open(struct bpe **out, const struct vocab *v, const json_t *model, const char *where,
                                  struct err *e);
void bpe_close(struct bpe *b);

/* Ids of the piece s[0..n), 0 < n <= INT32_MAX: *ids is in the scratch until the next call.  Their number, or -1
 * without memory.  Bytes that no token stands for are left out, as the reference implementation does.  O(n log n). */
long bpe_encode(const struct bpe *b, struct bpe_scratch *scratch, const unsigned char *s, size_t n,
                const int32_t **ids);

#endif
