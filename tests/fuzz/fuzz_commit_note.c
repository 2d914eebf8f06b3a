/* Any bytes as commit metadata, at any offset: refused, or a note that encodes to itself. */
#include "kafka/commit_note.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct commit_note n, again;
    static char text[COMMIT_NOTE_MAX_BYTES + 1];
    int64_t frontier = 0;
    size_t length;

    if (size < 2)
        return 0;
    memcpy(&frontier, data, 2);
    if (commit_note_decode(&n, (const char *)data + 2, size - 2, frontier, NULL) != ERR_OK)
        return 0;
    if (commit_note_encode(&n, frontier, text, &length, NULL) != ERR_OK)
        return 0;
    if (commit_note_decode(&again, text, length, frontier, NULL) != ERR_OK || again.n_runs > n.n_runs)
        abort();
    if (again.in_work != n.in_work || again.deaths != n.deaths || again.crashes != n.crashes ||
        again.suspect != n.suspect)
        abort();
    for (size_t i = 0; i < n.n_runs; i++)
        if (!commit_note_has(&again, n.runs[i].first) || !commit_note_has(&again, n.runs[i].last))
            abort();
    return 0;
}
