#include "cpu/rope.h"

#include <math.h>

void rope_frequencies(double *frequency, double base, int head_dim)
{
    for (int i = 0; i < head_dim / 2; i++)
        frequency[i] = pow(base, -2.0 * i / head_dim);
}

void rope_angles(float *cosines, float *sines, const double *frequency, int head_dim, int position)
{
    for (int i = 0; i < head_dim / 2; i++) {
        double angle = position * frequency[i];

        cosines[i] = (float)cos(angle);
        sines[i] = (float)sin(angle);
    }
}
