#include "tests/chaos/registry_stub.h"

#include "tests/chaos/job.h"

#include <arpa/inet.h>
#include <jansson.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct registry_stub {
    struct MHD_Daemon *daemon;
    char *answer;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    enum registry_mode mode;
    int requests;
};

static enum MHD_Result handle(void *arg, struct MHD_Connection *c, const char *url, const char *method,
                              const char *version, const char *upload, size_t *n_upload, void **state)
{
    struct registry_stub *s = arg;
    struct MHD_Response *r;
    enum MHD_Result rc;
    bool fails;

    (void)url, (void)method, (void)version, (void)upload, (void)n_upload, (void)state;
    pthread_mutex_lock(&s->lock);
    s->requests++;
    while (s->mode == REGISTRY_HANGS)
        pthread_cond_wait(&s->changed, &s->lock);
    fails = s->mode == REGISTRY_FAILS;
    pthread_mutex_unlock(&s->lock);
    r = MHD_create_response_from_buffer(fails ? 0 : strlen(s->answer), s->answer, MHD_RESPMEM_PERSISTENT);
    rc = MHD_queue_response(c, fails ? MHD_HTTP_SERVICE_UNAVAILABLE : MHD_HTTP_OK, r);
    MHD_destroy_response(r);
    return rc;
}

struct registry_stub *registry_stub_open(void)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct registry_stub *s = calloc(1, sizeof *s);
    json_t *o = json_pack("{s:s}", "schema", job_avro_schema);

    if (!s)
        return NULL;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    s->answer = json_dumps(o, JSON_COMPACT);
    json_decref(o);
    s->daemon = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL, handle, s, MHD_OPTION_SOCK_ADDR, &any,
                                 MHD_OPTION_END);
    if (s->answer && s->daemon)
        return s;
    registry_stub_close(s);
    return NULL;
}

void registry_stub_close(struct registry_stub *s)
{
    if (!s)
        return;
    registry_stub_set(s, REGISTRY_FAILS);
    if (s->daemon)
        MHD_stop_daemon(s->daemon);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s->answer);
    free(s);
}

int registry_stub_port(const struct registry_stub *s)
{
    return MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_BIND_PORT)->port;
}

void registry_stub_set(struct registry_stub *s, enum registry_mode mode)
{
    pthread_mutex_lock(&s->lock);
    s->mode = mode;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

int registry_stub_requests(struct registry_stub *s)
{
    int n;

    pthread_mutex_lock(&s->lock);
    n = s->requests;
    pthread_mutex_unlock(&s->lock);
    return n;
}
