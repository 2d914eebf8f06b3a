#include "ops/http.h"

#include <microhttpd.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One address cannot take all connections: what it opens beyond its share is closed at once instead of waiting in the
 * backlog, before the probe that asks whether this worker lives.  What it holds idle goes after TIMEOUT_S. */
enum { MAX_CONNECTIONS = 128, MAX_CONNECTIONS_AN_ADDRESS = 32, TIMEOUT_S = 3, MAX_PAGE = 1 << 20 };

struct http {
    struct MHD_Daemon *daemon;
    const struct http_route *routes;
    void *ctx;
    int port;
};

static bool page_reserve(struct page *p, size_t more)
{
    size_t cap = p->cap ? p->cap : 4096;

    while (cap < p->n + more + 1)
        cap *= 2;
    if (cap == p->cap)
        return true;
    char *s = realloc(p->s, cap);
    if (!s)
        return false;
    p->s = s;
    p->cap = cap;
    return true;
}

static const char cut_mark[] = "\n(cut at 1 MiB)\n";

void page_printf(struct page *p, const char *fmt, ...)
{
    va_list ap;

    if (p->n >= sizeof cut_mark && memcmp(p->s + p->n - (sizeof cut_mark - 1), cut_mark, sizeof cut_mark - 1) == 0)
        return; /* cut already */
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0 || !page_reserve(p, (size_t)n + sizeof cut_mark))
        return;
    if (p->n + (size_t)n > MAX_PAGE - sizeof cut_mark) {
        memcpy(p->s + p->n, cut_mark, sizeof cut_mark);
        p->n += sizeof cut_mark - 1;
        return;
    }
    va_start(ap, fmt);
    vsnprintf(p->s + p->n, (size_t)n + 1, fmt, ap);
    va_end(ap);
    p->n += (size_t)n;
}

static enum MHD_Result respond(struct MHD_Connection *c, struct page *p, const char *allow)
{
    struct MHD_Response *r;
    enum MHD_Result done;

    r = MHD_create_response_from_buffer(p->n, p->s ? p->s : "", MHD_RESPMEM_MUST_COPY);
    free(p->s);
    if (!r)
        return MHD_NO;
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, p->content_type);
    MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    if (allow)
        MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, allow);
    done = MHD_queue_response(c, (unsigned)p->status, r);
    MHD_destroy_response(r);
    return done;
}

static enum MHD_Result serve(void *cls, struct MHD_Connection *c, const char *url, const char *method,
                             const char *version, const char *body, size_t *body_size, void **state)
{
    const struct http *h = cls;
    struct page p = {.status = 200, .content_type = "text/plain; charset=utf-8"};

    (void)version, (void)body, (void)body_size, (void)state; /* the callback's type; no body is ever read */
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) {
        p.status = MHD_HTTP_METHOD_NOT_ALLOWED;
        page_printf(&p, "only GET and HEAD\n");
        return respond(c, &p, "GET, HEAD");
    }
    for (const struct http_route *r = h->routes; r->path; r++)
        if (strcmp(r->path, url) == 0) {
            r->handler(h->ctx, &p);
            return respond(c, &p, NULL);
        }
    p.status = MHD_HTTP_NOT_FOUND;
    page_printf(&p, "not found\n");
    return respond(c, &p, NULL);
}

static enum err_code start(struct http *h, const char *address, int port, struct err *e)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    unsigned flags = MHD_USE_AUTO_INTERNAL_THREAD;
    struct addrinfo *at = NULL;
    char service[16];

    snprintf(service, sizeof service, "%d", port);
    int bad = getaddrinfo(address, service, &hints, &at);
    if (bad)
        return err_set(e, ERR_CONFIG, ERR_STOP, "http.address: found \"%s\", allowed is a numeric address: %s", address,
                       gai_strerror(bad));
    if (at->ai_family == AF_INET6)
        flags |= MHD_USE_IPv6;
    h->daemon = MHD_start_daemon(flags, (uint16_t)port, NULL, NULL, serve, h, MHD_OPTION_SOCK_ADDR, at->ai_addr,
                                 MHD_OPTION_CONNECTION_LIMIT, (unsigned)MAX_CONNECTIONS,
                                 MHD_OPTION_PER_IP_CONNECTION_LIMIT, (unsigned)MAX_CONNECTIONS_AN_ADDRESS,
                                 MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)TIMEOUT_S, MHD_OPTION_END);
    freeaddrinfo(at);
    if (!h->daemon)
        return err_set(e, ERR_IO, ERR_STOP, "http: cannot listen at %s, port %d (in use, or not allowed?)", address,
                       port);
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_BIND_PORT);
    h->port = info ? info->port : port;
    return ERR_OK;
}

enum err_code http_open(struct http **out, const char *address, int port, const struct http_route *routes, void *ctx,
                        struct err *e)
{
    struct http *h = calloc(1, sizeof *h);
    enum err_code rc;

    *out = NULL;
    if (!h)
        return err_set(e, ERR_NOMEM, ERR_STOP, "http: no memory");
    h->routes = routes;
    h->ctx = ctx;
    if ((rc = start(h, address, port, e)) != ERR_OK) {
        http_close(h);
        return rc;
    }
    *out = h;
    return ERR_OK;
}

int http_port(const struct http *h)
{
    return h->port;
}

void http_close(struct http *h)
{
    if (!h)
        return;
    if (h->daemon)
        MHD_stop_daemon(h->daemon);
    free(h);
}
