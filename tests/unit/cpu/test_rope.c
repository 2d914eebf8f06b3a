#include "cpu/rope.h"

#include <criterion/criterion.h>
#include <math.h>

Test(rope, angles_are_right_to_the_last_bit_of_a_float_at_large_positions)
{
    static const int positions[] = {0, 1, 255, 4095, 32767, 262143};
    static const double bases[] = {11158839.925, 1200508032.0, 10000.0};
    double frequency[64];
    float c[64], s[64];

    for (int b = 0; b < 3; b++) {
        rope_frequencies(frequency, bases[b], 128);
        for (int p = 0; p < 6; p++) {
            rope_angles(c, s, frequency, 128, positions[p]);
            for (int i = 0; i < 64; i++) {
                long double angle = positions[p] * powl(bases[b], -2.0L * i / 128);

                cr_assert(fabsl(c[i] - cosl(angle)) < 6.1e-8L, "position %d, pair %d", positions[p], i);
                cr_assert(fabsl(s[i] - sinl(angle)) < 6.1e-8L, "position %d, pair %d", positions[p], i);
            }
        }
    }
}
