#include "tests/chaos/verdict.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { LINES_OF_A_KIND = 10 };

/* What is known of one job. */
struct fate {
    int64_t offset, sequence;
    int32_t key;
    int16_t partition;
    uint8_t kind;
    bool acknowledged, unsure, aborted;
    uint16_t written, results, dead; /* written: an idempotent producer that had to begin anew may write a job twice */
    uint16_t cut;                    /* records of it that were in a part of the log that was cut away */
    uint64_t text_hash;              /* of the first result */
};

struct places { /* of one partition: the job at each offset, -1 = none */
    int64_t *number;
    int64_t n, cap;
    int64_t committed, judged; /* newest seen; up to where outcomes are known to be there */
};

struct verdict {
    FILE *out;
    struct fate *jobs;
    int64_t n, cap;
    int64_t unsettled;
    struct places places[VERDICT_PARTITIONS];
    int64_t last_of_key[VERDICT_KEYS]; /* offset of its newest job with a result */
    int64_t disorder;                  /* counted always, found where asked for */
    char first_disorder[160];
    struct verdict_figures f;
};

const char *finding_name(enum finding f)
{
    static const char *const names[FINDINGS] = {
        "lost",          "unwritten", "both",     "twice",       "too_many_repeats", "stranger", "garbled",
        "wrong_outcome", "different", "disorder", "commit_back", "commit_early",     "lag",      "unproven",
    };

    return names[f];
}

static void __attribute__((format(printf, 4, 5)))
found(struct verdict *v, enum finding f, int64_t n, const char *fmt, ...)
{
    va_list ap;

    v->f.found[f] += n;
    if (!v->out || v->f.found[f] > LINES_OF_A_KIND)
        return;
    fprintf(v->out, "found %s: ", finding_name(f));
    va_start(ap, fmt);
    vfprintf(v->out, fmt, ap);
    va_end(ap);
    fputc('\n', v->out);
    fflush(v->out);
}

/* Growth by doubling; a checker without memory can say nothing, so it ends. */
static void *grown(void *p, int64_t *cap, int64_t need, size_t size)
{
    int64_t n = *cap ? *cap : 4096;

    while (n <= need)
        n *= 2;
    p = realloc(p, (size_t)n * size);
    if (!p) {
        fprintf(stderr, "verdict: no memory for %lld entries\n", (long long)n);
        abort();
    }
    memset((char *)p + (size_t)*cap * size, 0, (size_t)(n - *cap) * size);
    *cap = n;
    return p;
}

struct verdict *verdict_open(FILE *findings)
{
    struct verdict *v = calloc(1, sizeof *v);

    if (!v)
        return NULL;
    v->out = findings;
    for (int i = 0; i < VERDICT_PARTITIONS; i++)
        v->places[i].committed = -1;
    for (int i = 0; i < VERDICT_KEYS; i++)
        v->last_of_key[i] = -1;
    return v;
}

void verdict_close(struct verdict *v)
{
    if (!v)
        return;
    for (int i = 0; i < VERDICT_PARTITIONS; i++)
        free(v->places[i].number);
    free(v->jobs);
    free(v);
}

static struct fate *fate_of(struct verdict *v, int64_t number)
{
    static struct fate nowhere;
    enum { MOST = 1 << 28 };

    if (number < 0 || number >= MOST) {
        nowhere = (struct fate){.partition = -1};
        return &nowhere;
    }
    if (number >= v->cap)
        v->jobs = grown(v->jobs, &v->cap, number, sizeof *v->jobs);
    if (number >= v->n)
        v->n = number + 1;
    return &v->jobs[number];
}

static struct places *places_of(struct verdict *v, int partition)
{
    return partition >= 0 && partition < VERDICT_PARTITIONS ? &v->places[partition] : NULL;
}

static bool is_settled(const struct fate *j)
{
    return j->results + j->dead + j->cut > 0;
}

void verdict_request(struct verdict *v, int partition, int64_t offset, const struct numbered *j)
{
    struct places *p = places_of(v, partition);
    struct fate *fate;

    if (!p || offset < p->n)
        return;
    if (offset >= p->cap)
        p->number = grown(p->number, &p->cap, offset, sizeof *p->number);
    while (p->n < offset)
        p->number[p->n++] = -1;
    p->number[p->n++] = j ? j->number : -1;
    if (!j)
        return;
    v->f.requests++;
    fate = fate_of(v, j->number);
    if (fate->written++ > 0) {
        v->f.written_twice++;
        return;
    }
    fate->partition = (int16_t)partition;
    fate->offset = offset;
    fate->key = j->key;
    fate->sequence = j->sequence;
    fate->kind = (uint8_t)j->kind;
    if (!is_settled(fate))
        v->unsettled++;
}

void verdict_cut(struct verdict *v, int partition, int64_t from, int64_t to)
{
    const struct places *p = places_of(v, partition);

    for (int64_t i = from > 0 ? from : 0; p && i < to && i < p->n; i++) {
        struct fate *fate;

        if (p->number[i] < 0)
            continue;
        fate = fate_of(v, p->number[i]);
        if (!is_settled(fate))
            v->unsettled--;
        fate->cut += fate->cut < UINT16_MAX;
    }
}

/* Requests and outcomes are read side by side: an outcome may be read before its request.  What needs both is checked
 * in verdict_judge(). */
static struct fate *outcome(struct verdict *v, const struct numbered *j, int partition, int64_t offset)
{
    struct fate *fate = fate_of(v, j->number);
    const struct places *p = places_of(v, partition);

    if (fate->written && !is_settled(fate))
        v->unsettled--;
    if (!p || offset < 0 || (offset < p->n && p->number[offset] != j->number))
        found(v, FOUND_GARBLED, 1, "outcome of job %" PRId64 " says it comes from partition %d offset %" PRId64,
              j->number, partition, offset);
    return fate;
}

/* The order of a key is that of its jobs on the topic; all are in one partition. */
static void check_order(struct verdict *v, const struct numbered *j, int64_t offset)
{
    int64_t *last;

    if (j->key < 0 || j->key >= VERDICT_KEYS || offset < 0)
        return;
    last = &v->last_of_key[j->key];
    if (offset < *last) {
        if (v->disorder++ == 0)
            snprintf(v->first_disorder, sizeof v->first_disorder,
                     "job %" PRId64 " of key %d, from offset %" PRId64 ", comes after one from offset %" PRId64,
                     j->number, j->key, offset, *last);
    } else {
        *last = offset;
    }
}

void verdict_result(struct verdict *v, const struct numbered *j, uint64_t text_hash, int source_partition,
                    int64_t source_offset)
{
    struct fate *fate = outcome(v, j, source_partition, source_offset);

    v->f.results++;
    if (fate->results == 0) {
        fate->text_hash = text_hash;
        check_order(v, j, source_offset);
    } else if (fate->text_hash != text_hash && j->kind != JOB_LATE) { /* a late one may expire at its second try */
        found(v, FOUND_DIFFERENT, 1, "job %" PRId64 " has two results that differ", j->number);
    }
    fate->results += fate->results < UINT16_MAX;
    if (j->kind == JOB_BAD || j->kind == JOB_GARBAGE)
        found(v, FOUND_WRONG_OUTCOME, 1, "job %" PRId64 " of kind %s has a result", j->number, job_kind_name(j->kind));
}

void verdict_dead_letter(struct verdict *v, const struct numbered *j, bool crashed, int source_partition,
                         int64_t source_offset)
{
    struct fate *fate = outcome(v, j, source_partition, source_offset);

    v->f.dead_letters++;
    v->f.crashed += crashed;
    fate->dead += fate->dead < UINT16_MAX;
    if (j->kind == JOB_PLAIN_TEXT || j->kind == JOB_LONG || crashed != (j->kind == JOB_CRASH))
        found(v, FOUND_WRONG_OUTCOME, 1, "job %" PRId64 " of kind %s is a dead letter%s", j->number,
              job_kind_name(j->kind), crashed ? ": CRASHED" : "");
}

void verdict_garbled(struct verdict *v, const char *topic, int partition, int64_t offset)
{
    found(v, FOUND_GARBLED, 1, "%s, partition %d, offset %" PRId64 " is no outcome of ours", topic, partition, offset);
}

void verdict_committed_raw(struct verdict *v, int partition, int64_t offset)
{
    struct places *p = places_of(v, partition);

    if (!p)
        return;
    v->f.commits_seen += offset > p->committed;
    if (offset < p->committed)
        found(v, FOUND_COMMIT_BACK, 1, "partition %d: %" PRId64 " after %" PRId64, partition, offset, p->committed);
    p->committed = offset;
}

void verdict_committed(struct verdict *v, int partition, int64_t offset)
{
    struct places *p = places_of(v, partition);

    for (; p && p->judged < offset && p->judged < p->n; p->judged++) {
        int64_t number = p->number[p->judged];

        if (number >= 0 && !is_settled(fate_of(v, number)))
            found(v, FOUND_COMMIT_EARLY, 1,
                  "partition %d: committed %" PRId64 ", and job %" PRId64 " at %" PRId64 " has no outcome", partition,
                  offset, number, p->judged);
    }
}

void verdict_unproven(struct verdict *v, int64_t samples)
{
    if (samples > 0)
        found(v, FOUND_UNPROVEN, samples, "%" PRId64 " samples of committed offsets were never judged", samples);
}

void verdict_acknowledged(struct verdict *v, int64_t number)
{
    v->f.acknowledged++;
    fate_of(v, number)->acknowledged = true;
}

void verdict_unsure(struct verdict *v, int64_t number)
{
    v->f.unsure++;
    fate_of(v, number)->unsure = true;
}

void verdict_aborted(struct verdict *v, int64_t number)
{
    v->f.aborted++;
    fate_of(v, number)->aborted = true;
}

int64_t verdict_unsettled(const struct verdict *v)
{
    return v->unsettled;
}

bool verdict_is_settled(const struct verdict *v)
{
    if (v->unsettled > 0)
        return false;
    for (int64_t i = 0; i < v->n; i++)
        if (v->jobs[i].acknowledged && !is_settled(&v->jobs[i]))
            return false;
    return true;
}

void verdict_end(struct verdict *v, int partition, int64_t committed, int64_t end)
{
    if (committed != end && !(committed < 0 && end == 0))
        found(v, FOUND_LAG, 1, "partition %d: committed %" PRId64 ", end %" PRId64, partition, committed, end);
}

static void judge_job(struct verdict *v, int64_t number, const struct verdict_rules *r)
{
    const struct fate *j = &v->jobs[number];
    int outcomes = j->results + j->dead, repeats = outcomes > j->written ? outcomes - j->written : 0;

    v->f.cut += j->cut > 0 && outcomes < j->written;
    if (j->written && (outcomes + j->cut == 0 || (r->exactly_once && outcomes + j->cut < j->written)))
        found(v, FOUND_LOST, 1,
              "job %" PRId64 " (%s) at partition %d offset %" PRId64 " has no outcome, or one too few", number,
              job_kind_name((enum job_kind)j->kind), j->partition, j->offset);
    if (j->acknowledged && !j->written)
        found(v, FOUND_UNWRITTEN, 1, "job %" PRId64 " was acknowledged and is not on the topic", number);
    if (!j->written && outcomes > 0)
        found(v, FOUND_STRANGER, 1, "job %" PRId64 " has an outcome and is not on the topic%s", number,
              j->aborted ? ": it was aborted" : "");
    if (j->results > 0 && j->dead > 0 && (r->exactly_once || j->kind != JOB_LATE))
        found(v, FOUND_BOTH, 1, "job %" PRId64 " (%s) has %d results and %d dead letters", number,
              job_kind_name((enum job_kind)j->kind), j->results, j->dead);
    if (repeats > 0 && j->written) {
        v->f.repeats += repeats;
        if (r->exactly_once)
            found(v, FOUND_TWICE, 1,
                  "job %" PRId64 " at partition %d offset %" PRId64 " has %d results and %d dead letters", number,
                  j->partition, j->offset, j->results, j->dead);
    }
}

bool verdict_judge(struct verdict *v, const struct verdict_rules *r, struct verdict_figures *out)
{
    int64_t sum = 0;

    for (int64_t i = 0; i < v->n; i++)
        judge_job(v, i, r);
    if (!r->exactly_once && v->f.repeats > r->max_repeats)
        found(v, FOUND_REPEATS, v->f.repeats, "%" PRId64 " repeats, the faults of this run allow %" PRId64,
              v->f.repeats, r->max_repeats);
    if (r->order_by_key && v->disorder > 0)
        found(v, FOUND_DISORDER, v->disorder, "%s", v->first_disorder);
    for (int i = 0; i < FINDINGS; i++)
        sum += v->f.found[i];
    *out = v->f;
    return sum == 0;
}
