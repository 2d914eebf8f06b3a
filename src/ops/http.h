/* http.h -- the worker's one HTTP port: a few GET pages from one thread of libmicrohttpd's.
 *   /live      200 while every loop turns, else 503 and which one does not
 *   /ready     200 once the model is loaded and the group joined, else 503 and why
 *   /metrics   Prometheus text format
 *   /status    JSON;  /  the status page for people
 * Limits: 32 connections, 10 s each, no request bodies. */
#ifndef OPS_HTTP_H
#define OPS_HTTP_H

#include "base/err.h"

#include <stddef.h>

struct http;

/* A growing text buffer for pages; cut (and marked) at 1 MiB. */
struct page {
    char *s;
    size_t n, cap;
    int status;               /* 200 unless the handler sets it */
    const char *content_type; /* "text/plain; charset=utf-8" unless set */
};
void page_printf(struct page *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

struct http_route {
    const char *path;
    void (*handler)(void *ctx, struct page *p); /* called on the HTTP thread */
};

/* routes end with path NULL and must outlive the server. */
MUST_CHECK enum err_code http_open(struct http **out, const char *address, int port, const struct http_route *routes,
                                   void *ctx, struct err *e);
int http_port(const struct http *h); /* the real one */
void http_close(struct http *h);

#endif
