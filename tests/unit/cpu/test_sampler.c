#include "cpu/sampler.h"
#include "engine/random.h"
#include "tests/support/ref_sampler.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <string.h>

enum { VOCAB = 1200 };

static struct sampler *open_sampler(int vocab)
{
    struct sampler *s;

    cr_assert(sampler_open(&s, kernels_best(), vocab, NULL) == ERR_OK);
    return s;
}

static struct sampling plain(float temperature)
{
    return (struct sampling){.temperature = temperature, .top_p = 1, .repetition_penalty = 1};
}

/* Logits that repeat, so that ties happen everywhere. */
static void fill_logits(float *x, int n, uint64_t seed)
{
    for (int i = 0; i < n; i++)
        x[i] = (float)floor(random_uniform(seed, (uint64_t)i) * 160) * 0.1f - 8;
}

static int32_t draw(struct sampler *s, const float *x, int n, struct sampling p, const uint64_t *seen, double u)
{
    int32_t token = -7;
    float logprob;

    cr_assert(sampler_draw(s, x, n, &p, seen, u, &token, &logprob));
    return token;
}

Test(sampler, distributions_meet_the_reference_with_ties_and_every_mix_of_limits)
{
    static const int top_k[] = {0, 1, 2, 20, 700, VOCAB, 5000};
    static const float top_p[] = {1, 0.8f, 0.6f, 0.01f, 0.9999f}, penalty[] = {1, 1.05f, 2, 0.7f},
                       temperature[] = {0, 0.1f, 0.7f, 1.3f};
    struct sampler *s = open_sampler(VOCAB);
    float x[VOCAB], out[VOCAB];
    double ref[VOCAB];
    bool seen[VOCAB] = {0};
    uint64_t bits[(VOCAB + 63) / 64] = {0};

    fill_logits(x, VOCAB, 3);
    for (int i = 0; i < VOCAB; i += 3) {
        seen[i] = true;
        bits[i / 64] |= UINT64_C(1) << i % 64;
    }
    for (int a = 0; a < 7; a++)
        for (int b = 0; b < 5; b++)
            for (int c = 0; c < 4; c++)
                for (int d = 0; d < 4; d++) {
                    struct sampling p = {temperature[d], top_p[b], penalty[c], top_k[a], 0};

                    cr_assert(sampler_distribution(s, x, VOCAB, &p, bits, out));
                    ref_distribution(ref, x, VOCAB, &p, seen);
                    for (int i = 0; i < VOCAB; i++)
                        cr_assert(fabs(out[i] - ref[i]) < 2e-6, "k %d p %g penalty %g T %g: id %d has %g, not %g",
                                  p.top_k, p.top_p, p.repetition_penalty, p.temperature, i, out[i], ref[i]);
                }
    sampler_close(s);
}

Test(sampler, draws_follow_the_distribution)
{
    enum { N = 40, DRAWS = 200000 };
    struct sampler *s = open_sampler(N);
    struct sampling p = {.temperature = 1.2f, .top_p = 0.95f, .repetition_penalty = 1.1f, .top_k = 30, .seed = 99};
    uint64_t seen[1] = {0xf0f0};
    float x[N], expected[N];
    int count[N] = {0}, bins = 0;
    double chi = 0;

    for (int i = 0; i < N; i++)
        x[i] = (float)random_uniform(5, (uint64_t)i) * 4 - 2;
    for (int i = 0; i < DRAWS; i++)
        count[draw(s, x, N, p, seen, random_uniform(p.seed, (uint64_t)i))]++;
    cr_assert(sampler_distribution(s, x, N, &p, seen, expected));
    for (int i = 0; i < N; i++) {
        double want = (double)expected[i] * DRAWS;

        if (want == 0) {
            cr_assert(count[i] == 0, "id %d was cut off and drawn", i);
            continue;
        }
        chi += (count[i] - want) * (count[i] - want) / want;
        bins++;
    }
    cr_assert(bins > 20 && chi < bins + 6 * sqrt(2.0 * bins), "chi-square %g over %d ids", chi, bins);
    sampler_close(s);
}

Test(sampler, greedy_takes_the_lowest_id_of_equals)
{
    struct sampler *s = open_sampler(100);
    float x[100];

    for (int i = 0; i < 100; i++)
        x[i] = i == 41 || i == 17 || i == 99 ? 5 : -1;
    cr_assert(draw(s, x, 100, plain(0), NULL, 0) == 17);
    cr_assert(draw(s, x, 17, plain(0), NULL, 0) == 0);
    uint64_t seen[2] = {UINT64_C(1) << 17, 0};
    struct sampling p = plain(0);
    p.repetition_penalty = 1.5f;
    cr_assert(draw(s, x, 100, p, seen, 0) == 41);
    p = plain(0.7f);
    p.top_k = 1;
    cr_assert(draw(s, x, 100, p, seen, 0.999) == 17);
    sampler_close(s);
}

Test(sampler, penalty_divides_a_positive_and_multiplies_a_negative_logit_once)
{
    struct sampler *s = open_sampler(4);
    float x[4] = {2.0f, -2.0f, 1.3f, -2.9f}, out[4];
    uint64_t seen[1] = {3}; /* ids 0 and 1, in prompt or output, however often: a bit */
    struct sampling p = {.temperature = 1, .top_p = 1, .repetition_penalty = 1.5f};
    const double z[4] = {2.0 / 1.5, -3.0, 1.3, -2.9};

    cr_assert(sampler_distribution(s, x, 4, &p, seen, out));
    for (int i = 1; i < 4; i++)
        cr_assert(fabs(log((double)out[i] / (double)out[0]) - (z[i] - z[0])) < 1e-5, "id %d", i);
    p.temperature = 0;
    cr_assert(draw(s, x, 4, p, seen, 0) == 0); /* 1.333 against 1.3 */
    p.repetition_penalty = 1.6f;
    cr_assert(draw(s, x, 4, p, seen, 0) == 2); /* 1.25 against 1.3 */
    sampler_close(s);
}

Test(sampler, logprob_is_of_the_raw_logits_whatever_the_parameters)
{
    struct sampler *s = open_sampler(VOCAB);
    struct sampling p = {.temperature = 0.3f, .top_p = 0.5f, .repetition_penalty = 1.7f, .top_k = 9};
    uint64_t seen[(VOCAB + 63) / 64];
    float x[VOCAB], logprob;
    double sum = 0;
    int32_t token;

    memset(seen, 0x55, sizeof seen);
    fill_logits(x, VOCAB, 11);
    for (int i = 0; i < VOCAB; i++)
        sum += exp(x[i]);
    for (int i = 0; i < 50; i++) {
        cr_assert(sampler_draw(s, x, VOCAB, &p, seen, i / 50.0, &token, &logprob));
        cr_assert(fabs(logprob - (x[token] - log(sum))) < 1e-5);
    }
    sampler_close(s);
}

Test(sampler, extreme_values_have_a_defined_result)
{
    static const float penalty[] = {1e9f, 1e-9f, FLT_MAX, FLT_MIN}, temperature[] = {1e-30f, 1e-5f, 1e30f, FLT_MAX};
    struct sampler *s = open_sampler(VOCAB);
    uint64_t seen[(VOCAB + 63) / 64];
    float x[VOCAB], out[VOCAB];

    memset(seen, 0x33, sizeof seen);
    fill_logits(x, VOCAB, 2);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            for (int k = 0; k < 2; k++) {
                struct sampling p = {temperature[i], k ? 0.6f : 1, penalty[j], k ? 20 : 0, 0};
                double sum = 0;
                int32_t token = draw(s, x, VOCAB, p, seen, 0.999999999);

                cr_assert(token >= 0 && token < VOCAB);
                cr_assert(sampler_distribution(s, x, VOCAB, &p, seen, out));
                for (int id = 0; id < VOCAB; id++)
                    sum += out[id];
                cr_assert(fabs(sum - 1) < 1e-4, "T %g penalty %g: sum %g", p.temperature, p.repetition_penalty, sum);
                cr_assert(out[token] > 0);
            }
    sampler_close(s);
}

Test(sampler, refuses_logits_that_are_not_finite)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    struct sampler *s = open_sampler(VOCAB);
    struct sampling p = plain(0);
    float x[VOCAB], logprob, out[VOCAB];
    uint64_t seen[(VOCAB + 63) / 64] = {0};
    int32_t token;

    for (int i = 0; i < 3; i++)
        for (int at = 0; at < VOCAB; at += 599) {
            fill_logits(x, VOCAB, 2);
            x[at] = bad[i];
            cr_assert_not(sampler_draw(s, x, VOCAB, &p, seen, 0.5, &token, &logprob));
            cr_assert_not(sampler_distribution(s, x, VOCAB, &p, seen, out));
            if (at) /* behind the ids that count it is padding */
                cr_assert(sampler_draw(s, x, at, &p, seen, 0.5, &token, &logprob));
        }
    sampler_close(s);
}
