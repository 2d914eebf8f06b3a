#include "tests/support/ref_sampler.h"

#include <math.h>
#include <stdlib.h>

struct candidate {
    double z, p;
    int id;
};

static int more_likely(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;

    if (x->z != y->z)
        return x->z > y->z ? -1 : 1;
    return x->id - y->id;
}

static double normalize(struct candidate *c, int n, double temperature)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += c[i].p = exp((c[i].z - c[0].z) / temperature);
    for (int i = 0; i < n; i++)
        c[i].p /= sum;
    return sum;
}

void ref_distribution(double *out, const float *logits, int n, const struct sampling *s, const bool *seen)
{
    struct candidate *c = calloc((size_t)n, sizeof *c);
    int kept = s->top_k > 0 && s->top_k < n ? s->top_k : n;
    double before = 0;

    if (!c)
        abort();
    for (int i = 0; i < n; i++) {
        double z = logits[i];

        if (seen[i])
            z = z < 0 ? z * s->repetition_penalty : z / s->repetition_penalty;
        c[i] = (struct candidate){.z = z, .id = i};
        out[i] = 0;
    }
    qsort(c, (size_t)n, sizeof *c, more_likely);
    if (s->temperature == 0) {
        out[c[0].id] = 1;
        free(c);
        return;
    }
    normalize(c, kept, s->temperature);
    for (int i = 0; i < kept; i++) {
        if (before >= s->top_p && i > 0)
            kept = i;
        else
            before += c[i].p;
    }
    normalize(c, kept, s->temperature);
    for (int i = 0; i < kept; i++)
        out[c[i].id] = c[i].p;
    free(c);
}
