#include "tests/support/http_stub.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <jansson.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

struct http_stub {
    struct MHD_Daemon *daemon;
    char url[64];
    int port;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t released;
    bool held;
    int status, requests;
    char *body;
    size_t n_body;
    char path[256], authorization[256];
};

static enum MHD_Result handle(void *arg, struct MHD_Connection *c, const char *url, const char *method,
                              const char *version, const char *upload, size_t *n_upload, void **state)
{
    const char *auth = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Authorization");
    struct http_stub *s = arg;
    struct MHD_Response *r;
    enum MHD_Result rc;

    (void)method, (void)version, (void)upload, (void)n_upload, (void)state;
    pthread_mutex_lock(&s->lock);
    s->requests++;
    snprintf(s->path, sizeof s->path, "%s", url);
    snprintf(s->authorization, sizeof s->authorization, "%s", auth ? auth : "");
    while (s->held)
        pthread_cond_wait(&s->released, &s->lock);
    r = MHD_create_response_from_buffer(s->n_body, s->body, MHD_RESPMEM_MUST_COPY);
    if (s->status == 301)
        MHD_add_response_header(r, "Location", s->body);
    rc = MHD_queue_response(c, (unsigned)s->status, r);
    MHD_destroy_response(r);
    pthread_mutex_unlock(&s->lock);
    return rc;
}

struct http_stub *http_stub_open(void)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct http_stub *s = calloc(1, sizeof *s);

    cr_assert(s);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->released, NULL);
    http_stub_answer(s, 404, "", 0);
    s->daemon = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL, handle, s, MHD_OPTION_SOCK_ADDR, &any,
                                 MHD_OPTION_END);
    cr_assert(s->daemon);
    s->port = MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_BIND_PORT)->port;
    snprintf(s->url, sizeof s->url, "http://127.0.0.1:%d", s->port);
    return s;
}

void http_stub_close(struct http_stub *s)
{
    http_stub_hold(s, false);
    MHD_stop_daemon(s->daemon);
    pthread_cond_destroy(&s->released);
    pthread_mutex_destroy(&s->lock);
    free(s->body);
    free(s);
}

const char *http_stub_url(const struct http_stub *s)
{
    return s->url;
}

int http_stub_port(const struct http_stub *s)
{
    return s->port;
}

void http_stub_answer(struct http_stub *s, int status, const char *body, size_t n)
{
    char *copy = malloc(n + 1);

    cr_assert(copy);
    memcpy(copy, body, n);
    copy[n] = '\0';
    pthread_mutex_lock(&s->lock);
    free(s->body);
    s->body = copy;
    s->n_body = n;
    s->status = status;
    pthread_mutex_unlock(&s->lock);
}

void http_stub_answer_schema(struct http_stub *s, const char *schema, const char *extra)
{
    json_t *text = json_string(schema);
    char *quoted = json_dumps(text, JSON_ENCODE_ANY), *body;
    size_t cap = strlen(quoted) + strlen(extra) + 32;

    body = malloc(cap);
    cr_assert(body);
    int n = snprintf(body, cap, "{\"schema\":%s%s}", quoted, extra);
    http_stub_answer(s, 200, body, (size_t)n);
    free(body);
    free(quoted);
    json_decref(text);
}

void http_stub_hold(struct http_stub *s, bool hold)
{
    pthread_mutex_lock(&s->lock);
    s->held = hold;
    pthread_cond_broadcast(&s->released);
    pthread_mutex_unlock(&s->lock);
}

int http_stub_requests(struct http_stub *s)
{
    pthread_mutex_lock(&s->lock);
    int n = s->requests;
    pthread_mutex_unlock(&s->lock);
    return n;
}

void http_stub_last(struct http_stub *s, char *path, char *authorization, size_t cap)
{
    pthread_mutex_lock(&s->lock);
    snprintf(path, cap, "%s", s->path);
    snprintf(authorization, cap, "%s", s->authorization);
    pthread_mutex_unlock(&s->lock);
}

int http_stub_open_silent(int *port)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof any;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    cr_assert_geq(fd, 0);
    cr_assert_eq(bind(fd, (struct sockaddr *)&any, sizeof any), 0);
    cr_assert_eq(listen(fd, 8), 0);
    cr_assert_eq(getsockname(fd, (struct sockaddr *)&any, &n), 0);
    *port = ntohs(any.sin_port);
    return fd;
}
