#include "cpu/sampler.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct sampler {
    const struct kernels *k;
    float *z;      /* [vocab] logits after the penalty */
    float *weight; /* [vocab, padded] exp((z - max z) / temperature) */
    int32_t *kept; /* [vocab] the ids that may be drawn, rising */
    int n_kept;
};

/* --- opening --- */

static size_t padded(int vocab)
{
    return ((size_t)vocab / KERNEL_MAX_LANES + 1) * KERNEL_MAX_LANES;
}

size_t sampler_bytes(int vocab)
{
    return 3 * padded(vocab) * sizeof(float);
}

enum err_code sampler_open(struct sampler **out, const struct kernels *k, int vocab, struct err *e)
{
    struct sampler *s = calloc(1, sizeof *s);

    *out = NULL;
    if (s) {
        s->k = k;
        s->z = calloc(padded(vocab), sizeof *s->z);
        s->weight = calloc(padded(vocab), sizeof *s->weight);
        s->kept = calloc(padded(vocab), sizeof *s->kept);
    }
    if (!s || !s->z || !s->weight || !s->kept) {
        sampler_close(s);
        return err_set(e, ERR_NOMEM, ERR_STOP, "cpu: out of memory");
    }
    *out = s;
    return ERR_OK;
}

void sampler_close(struct sampler *s)
{
    if (!s)
        return;
    free(s->z);
    free(s->weight);
    free(s->kept);
    free(s);
}

/* --- the penalty --- */

static void penalize(struct sampler *s, const float *logits, int n, float penalty, const uint64_t *seen)
{
    memcpy(s->z, logits, (size_t)n * sizeof *s->z);
    if (penalty == 1.0f)
        return;
    for (int w = 0; w * 64 < n; w++)
        for (uint64_t bits = seen[w]; bits; bits &= bits - 1) {
            int id = w * 64 + __builtin_ctzll(bits);
            float z;

            if (id >= n)
                return;
            z = s->z[id] < 0 ? s->z[id] * penalty : s->z[id] / penalty;
            s->z[id] = fminf(fmaxf(z, -FLT_MAX), FLT_MAX); /* a huge penalty stays a number */
        }
}

/* --- the most likely k: a heap whose root is the least of them --- */

static bool less_likely(const float *z, int32_t a, int32_t b)
{
    return z[a] < z[b] || (z[a] == z[b] && a > b);
}

static void sift_down(const float *z, int32_t *heap, int n, int i)
{
    for (int child; (child = 2 * i + 1) < n; i = child) {
        int32_t t = heap[i];

        if (child + 1 < n && less_likely(z, heap[child + 1], heap[child]))
            child++;
        if (!less_likely(z, heap[child], t))
            return;
        heap[i] = heap[child];
        heap[child] = t;
    }
}

/* out[0..k): the k most likely ids, the most likely first */
static void most_likely(const float *z, int n, int k, int32_t *out)
{
    for (int i = 0; i < k; i++)
        out[i] = i;
    for (int i = k / 2 - 1; i >= 0; i--)
        sift_down(z, out, k, i);
    for (int id = k; id < n; id++)
        if (z[id] > z[out[0]]) { /* an equal one has a higher id than all that are in */
            out[0] = id;
            sift_down(z, out, k, 0);
        }
    for (int end = k - 1; end > 0; end--) {
        int32_t t = out[0];

        out[0] = out[end];
        out[end] = t;
        sift_down(z, out, end, 0);
    }
}

/* How many of ids (most likely first) it takes to reach `enough`; more than n when all of them do not. */
static int reach(const struct sampler *s, const int32_t *ids, int n, double enough)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        if ((sum += s->weight[ids[i]]) >= enough)
            return i + 1;
    return n + 1;
}

static int by_id(const void *a, const void *b)
{
    return *(const int32_t *)a - *(const int32_t *)b;
}

/* Fills weight and kept from z. */
static void keep(struct sampler *s, int n, const struct sampling *p)
{
    int k = p->top_k > 0 && p->top_k < n ? p->top_k : n;
    double all;

    memcpy(s->weight, s->z, (size_t)n * sizeof *s->weight);
    all = s->k->softmax(s->weight, n, 1.0f / p->temperature);
    s->n_kept = k;
    if (k == n && p->top_p >= 1.0f) {
        for (int i = 0; i < n; i++)
            s->kept[i] = i;
        return;
    }
    if (k < n) { /* top-p counts within the k */
        most_likely(s->z, n, k, s->kept);
        all = 0;
        for (int i = 0; i < k; i++)
            all += s->weight[s->kept[i]];
    }
    if (p->top_p < 1.0f) {
        int have = k < n ? k : 64, used;

        for (;; have *= 8) { /* without top-k nobody knows how many it takes: look at more and more of them */
            have = have < k ? have : k;
            if (k == n)
                most_likely(s->z, n, have, s->kept);
            used = reach(s, s->kept, have, p->top_p * all);
            if (used <= have || have == k)
                break;
        }
        s->n_kept = used < have ? used : have;
    }
    qsort(s->kept, (size_t)s->n_kept, sizeof *s->kept, by_id);
}

static double kept_sum(const struct sampler *s)
{
    double sum = 0;

    for (int i = 0; i < s->n_kept; i++)
        sum += s->weight[s->kept[i]];
    return sum;
}

static int32_t largest(const float *z, int n)
{
    int best = 0;

    for (int i = 1; i < n; i++)
        if (z[i] > z[best])
            best = i;
    return best;
}

static int32_t draw(const struct sampler *s, double u)
{
    double target = u * kept_sum(s), sum = 0;
    int32_t last = s->kept[0];

    for (int i = 0; i < s->n_kept; i++) {
        float w = s->weight[s->kept[i]];

        if (w > 0)
            last = s->kept[i];
        if ((sum += w) > target)
            break;
    }
    return last;
}

bool sampler_draw(struct sampler *s, const float *logits, int n, const struct sampling *p, const uint64_t *seen,
                  double u, int32_t *token, float *logprob)
{
    float max, sum;

    if (!s->k->log_sum(logits, n, &max, &sum))
        return false;
    if (p->temperature < SAMPLER_GREEDY && p->repetition_penalty == 1.0f) {
        for (*token = 0; logits[*token] != max; ++*token) {
        }
    } else {
        penalize(s, logits, n, p->repetition_penalty, seen);
        if (p->temperature < SAMPLER_GREEDY) {
            *token = largest(s->z, n);
        } else {
            keep(s, n, p);
            *token = draw(s, u);
        }
    }
    *logprob = logits[*token] - max - logf(sum);
    return true;
}

bool sampler_distribution(struct sampler *s, const float *logits, int n, const struct sampling *p, const uint64_t *seen,
                          float *out)
{
    float max, sum;
    double all;

    if (!s->k->log_sum(logits, n, &max, &sum))
        return false;
    memset(out, 0, (size_t)n * sizeof *out);
    penalize(s, logits, n, p->repetition_penalty, seen);
    if (p->temperature < SAMPLER_GREEDY) {
        out[largest(s->z, n)] = 1;
        return true;
    }
    keep(s, n, p);
    all = kept_sum(s);
    for (int i = 0; i < s->n_kept; i++)
        out[s->kept[i]] = (float)(s->weight[s->kept[i]] / all);
    return true;
}
