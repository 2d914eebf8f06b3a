#include "base/clock.h"
#include "tests/support/http_stub.h"
#include "wire/registry.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char schema[] =
    "{\"type\":\"record\",\"name\":\"R\",\"fields\":[{\"name\":\"job_id\",\"type\":\"string\"}]}";

static enum err_code fetch(const char *url, int timeout_ms, struct err *e)
{
    struct registry *r;
    enum err_code rc;
    char *text;
    size_t n;

    cr_assert_eq(registry_open(&r, url, timeout_ms, e), ERR_OK, "%s", e->msg);
    rc = registry_fetch(r, 7, &text, &n, e);
    if (rc == ERR_OK)
        cr_assert_str_eq(text, schema);
    else
        cr_assert_null(text);
    free(text);
    registry_close(r);
    return rc;
}

Test(registry, fetches_a_schema_by_id)
{
    struct http_stub *s = http_stub_open();
    char path[256], auth[256], url[128];
    struct err e;

    http_stub_answer_schema(s, schema, "");
    cr_assert_eq(fetch(http_stub_url(s), 2000, &e), ERR_OK, "%s", e.msg);
    http_stub_last(s, path, auth, sizeof path);
    cr_assert_str_eq(path, "/schemas/ids/7");
    cr_assert_str_eq(auth, "");

    http_stub_answer_schema(s, schema, ",\"schemaType\":\"AVRO\",\"references\":[]");
    snprintf(url, sizeof url, "%s/apis/ccompat/v7//", http_stub_url(s));
    cr_assert_eq(fetch(url, 2000, &e), ERR_OK, "%s", e.msg);
    http_stub_last(s, path, auth, sizeof path);
    cr_assert_str_eq(path, "/apis/ccompat/v7/schemas/ids/7");
    http_stub_close(s);
}

Test(registry, logs_in_with_the_urls_user_and_never_shows_the_password)
{
    struct http_stub *s = http_stub_open();
    char path[256], auth[256], url[128];
    struct err e;

    http_stub_answer_schema(s, schema, "");
    snprintf(url, sizeof url, "http://us%%40er:s3cret@127.0.0.1:%d", http_stub_port(s));
    cr_assert_eq(fetch(url, 2000, &e), ERR_OK, "%s", e.msg);
    http_stub_last(s, path, auth, sizeof path);
    cr_assert_str_eq(auth, "Basic dXNAZXI6czNjcmV0"); /* us@er:s3cret */
    http_stub_answer(s, 401, "", 0);
    cr_assert_eq(fetch(url, 2000, &e), ERR_REGISTRY);
    cr_assert_null(strstr(e.msg, "s3cret"), "%s", e.msg);
    cr_assert(strstr(e.msg, "status 401"), "%s", e.msg);
    http_stub_close(s);
}

Test(registry, answers_become_errors_with_the_right_act)
{
    static const struct {
        int status;
        const char *body;
        enum err_code code;
        enum err_act act;
        const char *says;
    } cases[] = {
        {404, "{\"error_code\":40403}", ERR_UNKNOWN_SCHEMA, ERR_RETRY, "404"},
        {500, "oops", ERR_REGISTRY, ERR_RETRY, "status 500"},
        {503, "", ERR_REGISTRY, ERR_RETRY, "status 503"},
        {403, "", ERR_REGISTRY, ERR_RETRY, "status 403"},
        {204, "", ERR_REGISTRY, ERR_RETRY, "status 204"},
        {200, "", ERR_REGISTRY, ERR_RETRY, "no JSON"},
        {200, "<html>", ERR_REGISTRY, ERR_RETRY, "no JSON"},
        {200, "[1]", ERR_REGISTRY, ERR_RETRY, "no JSON"},
        {200, "{\"schema\":3}", ERR_REGISTRY, ERR_RETRY, "no JSON"},
        {200, "{\"schema\":\"\\\"int\\\"\",\"schemaType\":7}", ERR_REGISTRY, ERR_RETRY, "no JSON"},
        {200, "{\"schema\":\"a\",\"schema\":\"b\"}", ERR_REGISTRY, ERR_RETRY, "no JSON"},
        {200, "{\"schema\":\"x\",\"schemaType\":\"PROTOBUF\"}", ERR_UNKNOWN_SCHEMA, ERR_SKIP, "PROTOBUF"},
        {200, "{\"schema\":\"x\",\"references\":[{\"name\":\"a\"}]}", ERR_UNKNOWN_SCHEMA, ERR_SKIP, "references"},
        {301, "file:///etc/passwd", ERR_REGISTRY, ERR_RETRY, "rotocol"},
    };
    struct http_stub *s = http_stub_open();
    struct err e;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        http_stub_answer(s, cases[i].status, cases[i].body, strlen(cases[i].body));
        cr_assert_eq(fetch(http_stub_url(s), 2000, &e), cases[i].code, "%d %s: %s", cases[i].status, cases[i].body,
                     e.msg);
        cr_assert_eq(e.act, cases[i].act, "%s", e.msg);
        cr_assert(strstr(e.msg, cases[i].says), "%s", e.msg);
    }
    http_stub_close(s);
}

Test(registry, a_redirect_without_end_is_given_up)
{
    struct http_stub *s = http_stub_open();
    struct err e;

    http_stub_answer(s, 301, "/schemas/ids/7", 14);
    cr_assert_eq(fetch(http_stub_url(s), 2000, &e), ERR_REGISTRY);
    cr_assert_leq(http_stub_requests(s), 4);
    http_stub_close(s);
}

Test(registry, a_huge_answer_is_cut_off)
{
    struct http_stub *s = http_stub_open();
    size_t n = 4 << 20;
    char *body = malloc(n);
    struct err e;

    memset(body, 'x', n);
    http_stub_answer(s, 200, body, n);
    cr_assert_eq(fetch(http_stub_url(s), 5000, &e), ERR_REGISTRY);
    cr_assert(strstr(e.msg, "over 1048576 bytes"), "%s", e.msg);
    free(body);
    http_stub_close(s);
}

Test(registry, silence_ends_at_the_time_limit)
{
    int port, fd = http_stub_open_silent(&port);
    int64_t t0 = clock_mono_ns();
    char url[64];
    struct err e;

    snprintf(url, sizeof url, "http://127.0.0.1:%d", port);
    cr_assert_eq(fetch(url, 150, &e), ERR_REGISTRY);
    cr_assert_eq(e.act, ERR_RETRY);
    cr_assert_geq(clock_mono_ns() - t0, 140 * NS_PER_MS);
    cr_assert_leq(clock_mono_ns() - t0, 2000 * NS_PER_MS);
    close(fd);
    cr_assert_eq(fetch(url, 2000, &e), ERR_REGISTRY, "nobody listens");
}

Test(registry, refuses_urls_that_are_none)
{
    static const char *const urls[] = {"ftp://x/", "file:///etc/passwd", "http://", "not a url", "http://h/?q=1"};
    struct registry *r;
    struct err e;

    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        cr_assert_eq(registry_open(&r, urls[i], 1000, &e), ERR_CONFIG, "%s", urls[i]);
        cr_assert_null(r);
        cr_assert(strstr(e.msg, "wire.registry_url"), "%s", e.msg);
    }
}

Test(registry, proxies_of_the_environment_are_not_used)
{
    struct http_stub *s = http_stub_open();
    struct err e;

    setenv("http_proxy", "http://127.0.0.1:1", 1);
    setenv("ALL_PROXY", "http://127.0.0.1:1", 1);
    http_stub_answer_schema(s, schema, "");
    cr_assert_eq(fetch(http_stub_url(s), 2000, &e), ERR_OK, "%s", e.msg);
    http_stub_close(s);
}
