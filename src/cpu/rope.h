/* rope.h -- the angles of rotary positions.
 * In double until the cosine is taken: a float product of position and frequency is off by whole radians at positions
 * of some hundred thousand. */
#ifndef CPU_ROPE_H
#define CPU_ROPE_H

/* frequency[i] = base^(-2i / head_dim), i < head_dim / 2 */
void rope_frequencies(double *frequency, double base, int head_dim);

/* cos and sin [head_dim / 2] of position * frequency[i] */
void rope_angles(float *cosines, float *sines, const double *frequency, int head_dim, int position);

#endif
