/* err.h -- one small error type.
 * The code says what failed; act says what may be done about it, so that the worker's loop alone decides
 * on retry, dead letter or shutdown.  The text lives on the caller's stack.  Nothing below main exits. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#define MUST_CHECK __attribute__((warn_unused_result))

enum err_code {
    ERR_OK = 0,
    /* the machine and the installation */
    ERR_NOMEM,
    ERR_IO,          /* a file or socket could not be opened, read or written */
    ERR_CONFIG,      /* configuration: unknown key, wrong type, out of range */
    ERR_MODEL,       /* a checkpoint that cannot be used as it is */
    ERR_UNSUPPORTED, /* understood, and not implemented here */
    ERR_KAFKA,
    ERR_REGISTRY, /* the schema registry is away or refuses */
    ERR_DEVICE,   /* the backend failed */
    ERR_BUSY,     /* a bounded thing is full; try again later */
    ERR_TIMEOUT,
    ERR_CLOSED, /* the queue or module is shutting down */
    ERR_USAGE,  /* command line */
    ERR_FENCED, /* another instance has taken this one's identity */
    ERR_POISON, /* too many dead letters: stopped on purpose */
    /* one job: what its dead letter or result says.  err_name() is the name on the wire. */
    ERR_UNDECODABLE,    /* bytes that are no request: bad framing, bad Avro, bad JSON, empty */
    ERR_UNKNOWN_SCHEMA, /* a schema id or fingerprint that nobody knows */
    ERR_MISSING_FIELD,
    ERR_INVALID_FIELD, /* present, and out of its range or of the wrong kind */
    ERR_INVALID_UTF8,
    ERR_UNKNOWN_LANGUAGE,
    ERR_EMPTY_TEXT,
    ERR_TEXT_TOO_LONG,
    ERR_DEADLINE_PASSED,
    ERR_NUMERICAL,        /* logits that are not finite */
    ERR_RESULT_TOO_LARGE, /* the broker's limit refuses the result */
    ERR_RESULT_REFUSED,   /* the broker calls it invalid */
    ERR_RETRIES_EXHAUSTED,
    ERR_CRASHED, /* it ended its worker, again and again */
    ERR_CODES    /* how many there are */
};

enum err_act {
    ERR_RETRY, /* transient: try again later */
    ERR_SKIP,  /* this one can never succeed: dead-letter it, go on */
    ERR_STOP   /* drain and exit */
};

struct err {
    enum err_code code;
    enum err_act act;
    char msg[256];
};

/* Fills *e (NULL is allowed) and returns code, so that callers can say: return err_set(e, ...).
 * The message is cut at its buffer, never in the middle of a UTF-8 character, and is one line: control characters
 * that came from outside become '?'. */
enum err_code err_set(struct err *e, enum err_code code, enum err_act act, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Puts "text: " before the message that *e holds, and keeps code and act. */
enum err_code err_prefix(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Stable upper-case name of a code, e.g. "TEXT_TOO_LONG".  Never NULL. */
const char *err_name(enum err_code code);

#endif
