#define _GNU_SOURCE /* POLLRDHUP */
#include "ops/http.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <curl/curl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void page_hello(void *ctx, struct page *p)
{
    page_printf(p, "hello %s\n", (const char *)ctx);
}

static void page_away(void *ctx, struct page *p)
{
    (void)ctx;
    p->status = 503;
    p->content_type = "application/json";
    page_printf(p, "{}");
}

static void page_huge(void *ctx, struct page *p)
{
    (void)ctx;
    for (int i = 0; i < 300000; i++)
        page_printf(p, "line %d\n", i);
}

static void page_empty(void *ctx, struct page *p)
{
    (void)ctx, (void)p;
}

static const struct http_route routes[] = {
    {"/hello", page_hello}, {"/away", page_away}, {"/huge", page_huge}, {"/empty", page_empty}, {NULL, NULL},
};

struct reply {
    long status;
    char *body;
    size_t n;
    char type[80];
};

static size_t keep(char *data, size_t size, size_t n, void *ctx)
{
    struct reply *r = ctx;

    r->body = realloc(r->body, r->n + size * n + 1);
    memcpy(r->body + r->n, data, size * n);
    r->n += size * n;
    r->body[r->n] = '\0';
    return size * n;
}

static struct reply ask(const struct http *h, const char *method, const char *path)
{
    struct reply r = {.status = 0};
    CURL *c = curl_easy_init();
    char url[128], *type = NULL;

    snprintf(url, sizeof url, "http://127.0.0.1:%d%s", http_port(h), path);
    curl_easy_setopt(c, CURLOPT_URL, url);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, keep);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, &r);
    curl_easy_setopt(c, CURLOPT_TIMEOUT, 10L);
    curl_easy_setopt(c, CURLOPT_NOPROXY, "*");
    if (strcmp(method, "HEAD") == 0)
        curl_easy_setopt(c, CURLOPT_NOBODY, 1L);
    else
        curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, method);
    if (strcmp(method, "POST") == 0)
        curl_easy_setopt(c, CURLOPT_POSTFIELDS, "x=1");
    cr_assert_eq(curl_easy_perform(c), CURLE_OK);
    curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &r.status);
    curl_easy_getinfo(c, CURLINFO_CONTENT_TYPE, &type);
    snprintf(r.type, sizeof r.type, "%s", type ? type : "");
    curl_easy_cleanup(c);
    return r;
}

static struct http *open_server(void)
{
    static char name[] = "you";
    struct http *h;
    struct err e;

    cr_assert_eq(http_open(&h, "127.0.0.1", 0, routes, name, &e), ERR_OK, "%s", e.msg);
    cr_assert_gt(http_port(h), 0);
    return h;
}

Test(http, answers_get_and_head_with_status_and_type_of_the_page)
{
    struct http *h = open_server();
    struct reply r = ask(h, "GET", "/hello");

    cr_assert_eq(r.status, 200);
    cr_assert_str_eq(r.body, "hello you\n");
    cr_assert_str_eq(r.type, "text/plain; charset=utf-8");
    free(r.body);
    r = ask(h, "GET", "/away");
    cr_assert_eq(r.status, 503);
    cr_assert_str_eq(r.type, "application/json");
    free(r.body);
    r = ask(h, "HEAD", "/hello");
    cr_assert_eq(r.status, 200);
    cr_assert_eq(r.n, 0);
    r = ask(h, "GET", "/empty");
    cr_assert_eq(r.status, 200);
    cr_assert_eq(r.n, 0);
    http_close(h);
}

Test(http, refuses_other_methods_and_unknown_paths)
{
    struct http *h = open_server();
    static const char *const methods[] = {"POST", "PUT", "DELETE", "NONSENSE"};

    for (int i = 0; i < 4; i++) {
        struct reply r = ask(h, methods[i], "/hello");
        cr_assert_eq(r.status, 405, "%s", methods[i]);
        free(r.body);
    }
    struct reply r = ask(h, "GET", "/hello/../away");
    cr_assert_neq(r.status, 200);
    free(r.body);
    r = ask(h, "GET", "/nothing");
    cr_assert_eq(r.status, 404);
    free(r.body);
    http_close(h);
}

Test(http, cuts_and_marks_a_page_over_one_mebibyte)
{
    struct http *h = open_server();
    struct reply r = ask(h, "GET", "/huge");

    cr_assert_eq(r.status, 200);
    cr_assert_leq(r.n, 1u << 20);
    cr_assert_gt(r.n, (1u << 20) - 64);
    cr_assert(strstr(r.body, "(cut at 1 MiB)\n"));
    cr_assert_str_eq(r.body + r.n - 15, "(cut at 1 MiB)\n");
    free(r.body);
    http_close(h);
}

Test(http, says_why_it_cannot_listen)
{
    struct http *h = open_server(), *second;
    struct err e;

    cr_assert_neq(http_open(&second, "localhost", 0, routes, NULL, &e), ERR_OK);
    cr_assert(strstr(e.msg, "http.address"));
    cr_assert_null(second);
    cr_assert_eq(http_open(&second, "127.0.0.1", http_port(h), routes, NULL, &e), ERR_IO, "two cannot share a port");
    cr_assert_neq(http_open(&second, "192.0.2.1", 0, routes, NULL, &e), ERR_OK);
    cr_assert(strstr(e.msg, "192.0.2.1"));
    http_close(h);
}

/* Connections that ask for nothing: beyond an address's share they are closed at once, the others after a while. */
Test(http, answers_soon_after_a_flood_of_idle_connections, .timeout = 30)
{
    enum { FLOOD = 300 };
    struct http *h = open_server();
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)http_port(h))};
    int fds[FLOOD];
    struct reply r;

    inet_pton(AF_INET, "127.0.0.1", &at.sin_addr);
    for (int i = 0; i < FLOOD; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        cr_assert_geq(fds[i], 0);
        cr_assert_eq(connect(fds[i], (struct sockaddr *)&at, sizeof at), 0);
        (void)send(fds[i], "GET /hel", 8, MSG_NOSIGNAL); /* it may be closed already */
    }
    for (int i = 0; i < FLOOD; i++) { /* every one of them is closed by the other side */
        struct pollfd p = {.fd = fds[i], .events = POLLRDHUP};
        cr_assert_eq(poll(&p, 1, 10000), 1, "connection %d is still open", i);
    }
    r = ask(h, "GET", "/hello");
    cr_assert_eq(r.status, 200);
    free(r.body);
    for (int i = 0; i < FLOOD; i++)
        close(fds[i]);
    http_close(h);
}

Test(http, close_takes_null)
{
    http_close(NULL);
}
