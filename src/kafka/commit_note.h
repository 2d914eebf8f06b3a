/* commit_note.h -- what travels in the metadata of an offset commit, so that a restart or a rebalance neither repeats
 * nor waits: which offsets past the committed one are finished already, and whether work is under way that may end its
 * worker (caution.h).
 *
 *   "tw1." base64url( flags, deaths, crashes, suspect, the finished offsets as a bitmap or as runs, CRC-32 )
 *
 * The text is plain ASCII: brokers hold metadata as a string.  A note that is damaged, newer, or another program's is
 * refused as a whole: nothing is ever skipped on its word.
 * Limits: Kafka's default offset.metadata.max.bytes, 4,096; commit_note_fits() says beforehand whether every state that
 * a window can reach will fit, so that encoding cannot fail later. */
#ifndef KAFKA_COMMIT_NOTE_H
#define KAFKA_COMMIT_NOTE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    COMMIT_NOTE_MAX_BYTES = 4096, /* of the text, without its NUL */
    COMMIT_NOTE_MAX_RUNS = 12288, /* a bitmap of the widest window, every second offset finished */
    COMMIT_NOTE_MAX_COUNT = 255   /* of deaths, of crashes; more are written as so many */
};

/* Offsets first to last, both finished, and every record between them too. */
struct note_run {
    int64_t first, last;
};

struct commit_note {
    bool in_work;    /* its owner may have jobs in work: a note that is found so was left by one that died */
    int deaths;      /* of owners with many jobs in work, since the committed offset last moved */
    int crashes;     /* of owners with the suspect alone in work */
    int64_t suspect; /* offset of the job that is run alone; -1 = none */
    size_t n_runs;
    struct note_run runs[COMMIT_NOTE_MAX_RUNS]; /* ascending, apart, all above the committed offset */
};

/* May the window behind committed offset frontier reach to newest (an offset), with taken records in it, whatever the
 * order in which they finish? */
bool commit_note_fits(int64_t frontier, int64_t newest, size_t taken);

/* Writes the text of *n, committed together with offset frontier, and its NUL; returns its length.  0 = an empty text:
 * nothing to note.  ERR_BUSY (-1 is never returned for a window that commit_note_fits() allowed). */
MUST_CHECK enum err_code commit_note_encode(const struct commit_note *n, int64_t frontier,
                                            char out[COMMIT_NOTE_MAX_BYTES + 1], size_t *size, struct err *e);

/* Reads a text back.  Empty: an empty note.  ERR_UNSUPPORTED (another program's, a newer version) or ERR_UNDECODABLE
 * (damaged): *n is empty then, act ERR_SKIP. */
MUST_CHECK enum err_code commit_note_decode(struct commit_note *n, const char *text, size_t size, int64_t frontier,
                                            struct err *e);

/* Is this offset finished according to the note? */
bool commit_note_has(const struct commit_note *n, int64_t offset);

#endif
