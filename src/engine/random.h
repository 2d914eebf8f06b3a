/* random.h -- the random numbers of sampling: a function of (seed, position), shared by every backend.
 * Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): key = seed, counter = position.
 * The draw: u in [0, 1) times the sum of the kept weights, walked in the order of the ids. */
#ifndef ENGINE_RANDOM_H
#define ENGINE_RANDOM_H

#include <stdint.h>

#ifdef __CUDACC__
#define RANDOM_FN static inline __host__ __device__
#else
#define RANDOM_FN static inline
#endif

/* out[4]: 128 random bits of block `counter` under `key`; stream tells independent users apart (sampling is 0). */
RANDOM_FN void random_block(uint64_t key, uint64_t counter, uint64_t stream, uint32_t out[4])
{
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32);
    uint32_t c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);

    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c0 = n0;
        c1 = (uint32_t)p1;
        c2 = n2;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* In [0, 1), 53 bits: for the token at `position` (0 = the first of the prompt) of a row with `seed`. */
RANDOM_FN double random_uniform(uint64_t seed, uint64_t position)
{
    uint32_t r[4];

    random_block(seed, position, 0, r);
    return (double)((((uint64_t)r[1] << 32) | r[0]) >> 11) * (1.0 / 9007199254740992.0);
}

#endif
