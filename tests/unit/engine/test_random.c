#include "engine/random.h"

#include <criterion/criterion.h>
#include <math.h>

Test(random, is_philox4x32_10_by_its_published_answers)
{
    static const uint32_t zeros[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    static const uint32_t ones[4] = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
    uint32_t r[4];

    random_block(0, 0, 0, r);
    cr_assert_arr_eq(r, zeros, sizeof r);
    random_block(UINT64_MAX, UINT64_MAX, UINT64_MAX, r);
    cr_assert_arr_eq(r, ones, sizeof r);
}

Test(random, uniform_fills_the_unit_interval_evenly_for_neighbouring_seeds_and_positions)
{
    enum { BINS = 64, SEEDS = 100, POSITIONS = 1000 };
    double expected = (double)SEEDS * POSITIONS / BINS, chi = 0;
    int bins[BINS] = {0};

    for (uint64_t seed = 0; seed < SEEDS; seed++)
        for (uint64_t position = 0; position < POSITIONS; position++) {
            double u = random_uniform(seed, position);

            cr_assert(u >= 0 && u < 1);
            bins[(int)(u * BINS)]++;
        }
    for (int i = 0; i < BINS; i++)
        chi += (bins[i] - expected) * (bins[i] - expected) / expected;
    cr_assert(chi < 120, "chi-square %g with 63 degrees of freedom", chi); /* p < 1e-5 */
}
