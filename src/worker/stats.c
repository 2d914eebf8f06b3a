#include "worker/stats.h"

#include <string.h>

static const double job_bounds[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};
static const double token_bounds[] = {16, 64, 256, 1024, 2048, 4096, 8192, 16384, 32768, 65536};
static const double second_bounds[] = {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5,
                                       1,     2,     5,     10,   20,   30,   60,  120, 300};

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

void stats_init(struct stats *s)
{
    struct histogram *seconds[] = {&s->record_age_s, &s->queue_s,   &s->batch_wait_s,
                                   &s->decode_s,     &s->publish_s, &s->total_s};

    memset(s, 0, sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
    histogram_init(&s->batch_jobs, job_bounds, COUNT(job_bounds));
    histogram_init(&s->batch_tokens, token_bounds, COUNT(token_bounds));
    for (int i = 0; i < COUNT(seconds); i++)
        histogram_init(seconds[i], second_bounds, COUNT(second_bounds));
}

void stats_close(struct stats *s)
{
    pthread_mutex_destroy(&s->lock);
}

void stats_set_engine(struct stats *s, const struct engine_stats *e)
{
    pthread_mutex_lock(&s->lock);
    s->engine = *e;
    pthread_mutex_unlock(&s->lock);
}

void stats_get_engine(struct stats *s, struct engine_stats *e)
{
    pthread_mutex_lock(&s->lock);
    *e = s->engine;
    pthread_mutex_unlock(&s->lock);
}
