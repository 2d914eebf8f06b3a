#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 2048 };

static _Atomic int current_level = LOG_INFO;
static _Thread_local char thread_name[16] = "main";

static const char *const level_names[LOG_LEVELS] = {"error", "warn", "info", "debug"};

void log_set_level(enum log_level level)
{
    atomic_store_explicit(&current_level, (int)level, memory_order_relaxed);
}

enum log_level log_get_level(void)
{
    return (enum log_level)atomic_load_explicit(&current_level, memory_order_relaxed);
}

bool log_level_parse(const char *name, enum log_level *out)
{
    for (int i = 0; i < LOG_LEVELS; i++)
        if (strcmp(name, level_names[i]) == 0) {
            *out = (enum log_level)i;
            return true;
        }
    return false;
}

const char *log_level_name(enum log_level level)
{
    return (unsigned)level < LOG_LEVELS ? level_names[level] : "?";
}

void log_thread_name(const char *name)
{
    snprintf(thread_name, sizeof thread_name, "%s", name);
    prctl(PR_SET_NAME, thread_name);
}

void log_event(enum log_level level, const char *event, const char *fmt, ...)
{
    char line[LINE_MAX_BYTES];
    struct timespec now;
    struct tm tm;
    va_list ap;
    int n;

    if ((int)level > atomic_load_explicit(&current_level, memory_order_relaxed))
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    n = (int)strftime(line, sizeof line, "ts=%Y-%m-%dT%H:%M:%S", &tm);
    n += snprintf(line + n, sizeof line - (size_t)n, ".%03ldZ level=%s thread=%s event=%s", now.tv_nsec / 1000000,
                  level_names[level], thread_name, event);
    if (fmt && *fmt && n + 2 < (int)sizeof line) {
        line[n++] = ' ';
        va_start(ap, fmt);
        int m = vsnprintf(line + n, sizeof line - (size_t)n, fmt, ap);
        va_end(ap);
        if (m > 0)
            n += m;
    }
    if (n > (int)sizeof line - 2)
        n = (int)sizeof line - 2;
    line[n++] = '\n';
    for (int done = 0; done < n;) {
        ssize_t w = write(STDERR_FILENO, line + done, (size_t)(n - done));
        if (w <= 0)
            return; /* a full disk or a closed pipe must not stop the worker */
        done += (int)w;
    }
}

const char *log_quote(char *buf, unsigned cap, const char *s)
{
    static const char hex[] = "0123456789abcdef";
    unsigned n = 0;

    buf[n++] = '"';
    for (; s && *s; s++) {
        unsigned char c = (unsigned char)*s;
        bool escaped = c == '"' || c == '\\' || c == '\n' || c == '\t' || c == '\r';
        unsigned need = escaped ? 2 : c < 0x20 || c == 0x7F ? 4 : 1;

        if (n + need + 2 > cap)
            break;
        if (escaped) {
            buf[n++] = '\\';
            buf[n++] = c == '\n' ? 'n' : c == '\t' ? 't' : c == '\r' ? 'r' : (char)c;
        } else if (need == 4) {
            buf[n++] = '\\';
            buf[n++] = 'x';
            buf[n++] = hex[c >> 4];
            buf[n++] = hex[c & 15];
        } else {
            buf[n++] = (char)c;
        }
    }
    buf[n++] = '"';
    buf[n] = '\0';
    return buf;
}
