/* log.h -- one key=value line an event, to stderr.
 *
 *   ts=2026-01-31T12:00:00.123Z level=info thread=consumer event=assigned partitions=3
 *
 * Thread: any.  A line is one write(2), so lines never mix.  The level may be changed at any time, from a
 * signal handler too (it is one atomic int). */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdbool.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG, LOG_LEVELS };

void log_set_level(enum log_level level); /* async-signal-safe */
enum log_level log_get_level(void);       /* async-signal-safe */
bool log_level_parse(const char *name, enum log_level *out);
const char *log_level_name(enum log_level level);

/* Names the calling thread in its log lines and for the system's tools; at most 15 characters. */
void log_thread_name(const char *name);

/* event is a bare word; the rest is "key=value key=value", values with blanks in LOG_Q quotes by the caller
 * through %s of log_quote().  A line is cut at 2,048 bytes. */
void log_event(enum log_level level, const char *event, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Writes s into buf (cap bytes, at least 3) as a double-quoted value; quotes, backslashes and control
 * characters escaped, cut to fit.  Returns buf.  s NULL gives "". */
const char *log_quote(char *buf, unsigned cap, const char *s);

#endif
