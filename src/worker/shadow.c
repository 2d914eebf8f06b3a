#include "worker/shadow.h"

#include "base/clock.h"

#include <ctype.h>
#include <string.h>

static void put_id(FILE *out, const struct text *id)
{
    for (size_t i = 0; i < id->n; i++)
        fputc(iscntrl((unsigned char)id->s[i]) ? '?' : id->s[i], out);
    if (id->n == 0)
        fputc('-', out);
}

void shadow_init(struct shadow *s, FILE *out, long long limit)
{
    static const double bounds[] = {0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 300};

    memset(s, 0, sizeof *s);
    s->out = out;
    s->limit = limit;
    histogram_init(&s->job_s, bounds, sizeof bounds / sizeof bounds[0]);
}

static enum result_status status_of(const struct task *t)
{
    return task_is_expired(t) ? RESULT_EXPIRED : t->request.finish == FINISH_EOS ? RESULT_OK : RESULT_TRUNCATED;
}

static void count(struct shadow *s, const struct task *t, double seconds)
{
    const struct request *r = &t->request;

    if (t->outcome == OUTCOME_DEAD_LETTER)
        s->dead++;
    else
        s->by_status[status_of(t)]++;
    s->prompt_tokens += r->n_prompt;
    s->cached_tokens += r->n_cached;
    s->output_tokens += r->n_output;
    histogram_add(&s->job_s, seconds);
}

bool shadow_job(struct shadow *s, const struct task *t)
{
    if (s->limit > 0 && s->jobs >= s->limit)
        return false;
    s->end_ns = clock_mono_ns();
    if (s->jobs++ == 0)
        s->begin_ns = t->record->received_ns;
    double seconds = (double)(s->end_ns - t->record->received_ns) / NS_PER_S;
    count(s, t, seconds);
    put_id(s->out, &t->job.job_id);
    if (t->outcome == OUTCOME_DEAD_LETTER)
        fprintf(s->out, "\tDEAD_LETTER %s", err_name(t->error.code));
    else
        fprintf(s->out, "\t%s", result_status_name(status_of(t)));
    fprintf(s->out, "\t%s\t%d\t%d\t%.1f\n", t->to ? t->to->code : "-", t->request.n_prompt, t->request.n_output,
            seconds * 1000);
    return s->limit == 0 || s->jobs < s->limit;
}

void shadow_summary(const struct shadow *s)
{
    double seconds = (double)(s->end_ns - s->begin_ns) / NS_PER_S;

    fprintf(s->out,
            "# %lld jobs in %.1f s (%.1f a second); nothing was published, nothing committed\n"
            "# it would have been %lld results, %lld truncated ones, %lld expired ones, %lld dead letters\n"
            "# %lld prompt tokens (%lld of them found in the cache), %lld output tokens; half of the jobs within %g s, "
            "99%% within %g s\n",
            s->jobs, seconds, seconds > 0 ? (double)s->jobs / seconds : 0, s->by_status[RESULT_OK],
            s->by_status[RESULT_TRUNCATED], s->by_status[RESULT_EXPIRED], s->dead, s->prompt_tokens, s->cached_tokens,
            s->output_tokens, histogram_quantile(&s->job_s, 0.5), histogram_quantile(&s->job_s, 0.99));
    fflush(s->out);
}
