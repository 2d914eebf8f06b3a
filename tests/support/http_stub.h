/* http_stub.h -- an HTTP server in the test's process that answers every GET with what it was told last.
 * Thread: its own one serves; the test sets answers and reads counters at any time. */
#ifndef SUPPORT_HTTP_STUB_H
#define SUPPORT_HTTP_STUB_H

#include <stdbool.h>
#include <stddef.h>

struct http_stub;

struct http_stub *http_stub_open(void); /* on a free loopback port; never NULL */
void http_stub_close(struct http_stub *s);

const char *http_stub_url(const struct http_stub *s); /* "http://127.0.0.1:PORT" */
int http_stub_port(const struct http_stub *s);

/* status 301 takes body as the place to go to.  body is copied. */
void http_stub_answer(struct http_stub *s, int status, const char *body, size_t n);
/* {"schema": TEXT} with status 200; extra is put before the closing brace. */
void http_stub_answer_schema(struct http_stub *s, const char *schema, const char *extra);

/* While held, requests are counted and get no answer; close releases. */
void http_stub_hold(struct http_stub *s, bool hold);

int http_stub_requests(struct http_stub *s);
/* Path and Authorization header ("" = none) of the last request, copied into cap bytes. */
void http_stub_last(struct http_stub *s, char *path, char *authorization, size_t cap);

/* A port that takes connections and never says a word. */
int http_stub_open_silent(int *port); /* a file descriptor to close() */

#endif
