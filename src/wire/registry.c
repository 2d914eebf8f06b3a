#include "wire/registry.h"

#include <curl/curl.h>
#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct registry {
    CURL *curl;
    char *base;  /* without credentials and trailing slash: for requests and messages */
    char *login; /* "user:password", or NULL */
    char *answer;
    size_t n_answer;
    char error[CURL_ERROR_SIZE];
    atomic_bool cancelled;
};

static size_t take_answer(char *data, size_t size, size_t n, void *arg)
{
    struct registry *r = arg;

    n *= size;
    if (n > REGISTRY_MAX_ANSWER - r->n_answer)
        return 0; /* ends the transfer with CURLE_WRITE_ERROR */
    memcpy(r->answer + r->n_answer, data, n);
    r->n_answer += n;
    return n;
}

static int is_cancelled(void *arg, curl_off_t total, curl_off_t now, curl_off_t up_total, curl_off_t up_now)
{
    struct registry *r = arg;

    (void)total, (void)now, (void)up_total, (void)up_now; /* libcurl's progress, of no interest */
    return atomic_load(&r->cancelled);
}

static char *join_login(const char *user, const char *password)
{
    size_t n = strlen(user) + strlen(password) + 2;
    char *login = malloc(n);

    if (login)
        snprintf(login, n, "%s:%s", user, password);
    return login;
}

/* Splits url into base and login.  Errors do not show the URL: it may hold a password. */
static enum err_code parse_url(struct registry *r, const char *url, struct err *e)
{
    char *scheme = NULL, *user = NULL, *password = NULL, *query = NULL, *clean = NULL;
    enum err_code rc = ERR_OK;
    CURLU *u = curl_url();
    CURLUcode uc;

    if (!u)
        return err_set(e, ERR_NOMEM, ERR_STOP, "registry: out of memory");
    uc = curl_url_set(u, CURLUPART_URL, url, 0);
    if (uc != CURLUE_OK) {
        rc = err_set(e, ERR_CONFIG, ERR_STOP, "wire.registry_url: not a valid URL: %s", curl_url_strerror(uc));
        goto out;
    }
    curl_url_get(u, CURLUPART_SCHEME, &scheme, 0);
    if (!scheme || (strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0)) {
        rc = err_set(e, ERR_CONFIG, ERR_STOP, "wire.registry_url: found %.20s, allowed are http and https",
                     scheme ? scheme : "no scheme");
        goto out;
    }
    if (curl_url_get(u, CURLUPART_QUERY, &query, 0) == CURLUE_OK) {
        rc = err_set(e, ERR_CONFIG, ERR_STOP, "wire.registry_url: a query (\"?...\") is not allowed");
        goto out;
    }
    curl_url_get(u, CURLUPART_USER, &user, CURLU_URLDECODE);
    curl_url_get(u, CURLUPART_PASSWORD, &password, CURLU_URLDECODE);
    curl_url_set(u, CURLUPART_USER, NULL, 0);
    curl_url_set(u, CURLUPART_PASSWORD, NULL, 0);
    curl_url_set(u, CURLUPART_FRAGMENT, NULL, 0);
    if (curl_url_get(u, CURLUPART_URL, &clean, 0) != CURLUE_OK || !(r->base = strdup(clean)) ||
        (user && !(r->login = join_login(user, password ? password : "")))) {
        rc = err_set(e, ERR_NOMEM, ERR_STOP, "registry: out of memory");
        goto out;
    }
    for (size_t n = strlen(r->base); n > 0 && r->base[n - 1] == '/'; n--)
        r->base[n - 1] = '\0';
out:
    curl_free(scheme);
    curl_free(user);
    curl_free(password);
    curl_free(query);
    curl_free(clean);
    curl_url_cleanup(u);
    return rc;
}

static enum err_code set_options(struct registry *r, int timeout_ms, struct err *e)
{
    CURL *c = r->curl;
    bool ok = curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
              curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)timeout_ms) == CURLE_OK &&
              curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, (long)timeout_ms) == CURLE_OK &&
              curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK &&
              curl_easy_setopt(c, CURLOPT_REDIR_PROTOCOLS_STR, "http,https") == CURLE_OK &&
              curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 1L) == CURLE_OK &&
              curl_easy_setopt(c, CURLOPT_MAXREDIRS, 3L) == CURLE_OK &&
              curl_easy_setopt(c, CURLOPT_PROXY, "") == CURLE_OK &&
              curl_easy_setopt(c, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED) == CURLE_OK &&
              curl_easy_setopt(c, CURLOPT_MAXFILESIZE, (long)REGISTRY_MAX_ANSWER) == CURLE_OK &&
              curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, take_answer) == CURLE_OK &&
              curl_easy_setopt(c, CURLOPT_WRITEDATA, r) == CURLE_OK &&
              curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L) == CURLE_OK &&
              curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, is_cancelled) == CURLE_OK &&
              curl_easy_setopt(c, CURLOPT_XFERINFODATA, r) == CURLE_OK &&
              curl_easy_setopt(c, CURLOPT_ERRORBUFFER, r->error) == CURLE_OK &&
              curl_easy_setopt(c, CURLOPT_USERAGENT, "translate-worker") == CURLE_OK;

    if (ok && r->login)
        ok = curl_easy_setopt(c, CURLOPT_USERPWD, r->login) == CURLE_OK;
    return ok ? ERR_OK : err_set(e, ERR_UNSUPPORTED, ERR_STOP, "registry: this libcurl lacks an option");
}

enum err_code registry_open(struct registry **out, const char *url, int timeout_ms, struct err *e)
{
    struct registry *r = calloc(1, sizeof *r);
    enum err_code rc;

    *out = NULL;
    if (!r || curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        free(r);
        return err_set(e, ERR_NOMEM, ERR_STOP, "registry: out of memory");
    }
    if ((rc = parse_url(r, url, e)) != ERR_OK)
        goto out;
    r->answer = malloc(REGISTRY_MAX_ANSWER);
    r->curl = curl_easy_init();
    if (!r->answer || !r->curl) {
        rc = err_set(e, ERR_NOMEM, ERR_STOP, "registry: out of memory");
        goto out;
    }
    if ((rc = set_options(r, timeout_ms, e)) != ERR_OK)
        goto out;
    *out = r;
    r = NULL; /* moved to the caller */
out:
    registry_close(r);
    return rc;
}

void registry_close(struct registry *r)
{
    if (!r)
        return;
    curl_easy_cleanup(r->curl);
    curl_global_cleanup();
    free(r->answer);
    free(r->login);
    free(r->base);
    free(r);
}

void registry_cancel(struct registry *r)
{
    atomic_store(&r->cancelled, true);
}

static enum err_code parse_answer(struct registry *r, int32_t id, char **text, size_t *n, struct err *e)
{
    json_t *root = json_loadb(r->answer, r->n_answer, JSON_REJECT_DUPLICATES, NULL);
    const json_t *schema = json_object_get(root, "schema"), *type = json_object_get(root, "schemaType");
    enum err_code rc = ERR_OK;

    if (!json_is_string(schema) || (type && !json_is_null(type) && !json_is_string(type)))
        rc = err_set(e, ERR_REGISTRY, ERR_RETRY, "registry %.80s: schema %d: the answer is no JSON with a \"schema\"",
                     r->base, (int)id);
    else if (json_is_string(type) && strcmp(json_string_value(type), "AVRO") != 0)
        rc = err_set(e, ERR_UNKNOWN_SCHEMA, ERR_SKIP, "schema %d: schemaType %.40s is not supported, only AVRO is",
                     (int)id, json_string_value(type));
    else if (json_array_size(json_object_get(root, "references")) > 0)
        rc = err_set(e, ERR_UNKNOWN_SCHEMA, ERR_SKIP, "schema %d: references to other schemas are not supported",
                     (int)id);
    else if (!(*text = strdup(json_string_value(schema))))
        rc = err_set(e, ERR_NOMEM, ERR_RETRY, "registry: out of memory");
    else
        *n = json_string_length(schema);
    json_decref(root);
    return rc;
}

enum err_code registry_fetch(struct registry *r, int32_t id, char **text, size_t *n, struct err *e)
{
    enum err_code rc;
    size_t cap = strlen(r->base) + 40;
    long status = 0;
    char *url = malloc(cap);

    *text = NULL;
    *n = 0;
    if (!url)
        return err_set(e, ERR_NOMEM, ERR_RETRY, "registry: out of memory");
    snprintf(url, cap, "%s/schemas/ids/%d", r->base, (int)id);
    r->n_answer = 0;
    r->error[0] = '\0';
    CURLcode cc = curl_easy_setopt(r->curl, CURLOPT_URL, url);
    if (cc == CURLE_OK)
        cc = curl_easy_perform(r->curl);
    free(url);
    curl_easy_getinfo(r->curl, CURLINFO_RESPONSE_CODE, &status);
    if (cc == CURLE_WRITE_ERROR || cc == CURLE_FILESIZE_EXCEEDED)
        rc = err_set(e, ERR_REGISTRY, ERR_RETRY, "registry %.80s: schema %d: the answer is over %d bytes", r->base,
                     (int)id, REGISTRY_MAX_ANSWER);
    else if (cc != CURLE_OK)
        rc = err_set(e, ERR_REGISTRY, ERR_RETRY, "registry %.80s: schema %d: %.120s", r->base, (int)id,
                     r->error[0] ? r->error : curl_easy_strerror(cc));
    else if (status == 404)
        rc = err_set(e, ERR_UNKNOWN_SCHEMA, ERR_RETRY, "registry %.80s: schema %d: unknown (404)", r->base, (int)id);
    else if (status != 200)
        rc = err_set(e, ERR_REGISTRY, ERR_RETRY, "registry %.80s: schema %d: status %ld", r->base, (int)id, status);
    else
        rc = parse_answer(r, id, text, n, e);
    return rc;
}
