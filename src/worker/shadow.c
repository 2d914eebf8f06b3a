#include "worker/shadow.h"

#include "base/clock.h"

#include <ctype.h>

static void put_id(FILE *out, const struct text *id)
{
    for (size_t i = 0; i < id->n; i++)
        fputc(iscntrl((unsigned char)id->s[i]) ? '?' : id->s[i], out);
    if (id->n == 0)
        fputc('-', out);
}

static const char *status_of(const struct task *t)
{
    return result_status_name(task_is_expired(t)                ? RESULT_EXPIRED
                              : t->request.finish == FINISH_EOS ? RESULT_OK
                                                                : RESULT_TRUNCATED);
}

bool shadow_job(struct shadow *s, const struct task *t)
{
    if (s->limit > 0 && s->jobs >= s->limit)
        return false;
    s->end_ns = clock_mono_ns();
    if (s->jobs++ == 0)
        s->begin_ns = t->record->received_ns;
    put_id(s->out, &t->job.job_id);
    if (t->outcome == OUTCOME_DEAD_LETTER)
        fprintf(s->out, "\tDEAD_LETTER %s", err_name(t->error.code));
    else
        fprintf(s->out, "\t%s", status_of(t));
    fprintf(s->out, "\t%s\t%d\t%d\t%.1f\n", t->to ? t->to->code : "-", t->request.n_prompt, t->request.n_output,
            (double)(s->end_ns - t->record->received_ns) / NS_PER_MS);
    return s->limit == 0 || s->jobs < s->limit;
}

void shadow_summary(const struct shadow *s, const struct stats *stats)
{
    double seconds = s->jobs > 0 ? (double)(s->end_ns - s->begin_ns) / NS_PER_S : 0;

    fprintf(s->out,
            "# %lld jobs in %.1f s (%.1f a second); nothing was published, nothing committed\n"
            "# it would have been %llu results, %llu truncated ones, %llu expired ones, %llu dead letters\n"
            "# %llu prompt tokens (%llu of them found in the cache), %llu output tokens; half of the jobs within %g s, "
            "99%% within %g s\n",
            s->jobs, seconds, seconds > 0 ? (double)s->jobs / seconds : 0,
            (unsigned long long)stats_read(&stats->jobs_ok), (unsigned long long)stats_read(&stats->jobs_truncated),
            (unsigned long long)stats_read(&stats->jobs_expired), (unsigned long long)stats_read(&stats->jobs_dead),
            (unsigned long long)stats_read(&stats->prompt_tokens),
            (unsigned long long)stats_read(&stats->cached_tokens),
            (unsigned long long)stats_read(&stats->output_tokens), histogram_quantile(&stats->total_s, 0.5),
            histogram_quantile(&stats->total_s, 0.99));
    fflush(s->out);
}
