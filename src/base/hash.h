/* hash.h -- a fast 64-bit hash for tables and digests of our own data.  Not cryptographic; seed it where
 * the keys come from outside. */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t hash_mix(uint64_t a, uint64_t b)
{
    __uint128_t m = (__uint128_t)(a ^ 0x9E3779B97F4A7C15u) * (b ^ 0xD6E8FEB86659FD93u);
    return (uint64_t)m ^ (uint64_t)(m >> 64);
}

static inline uint64_t hash_bytes(const void *data, size_t n, uint64_t seed)
{
    const unsigned char *p = data;
    uint64_t h = hash_mix(seed, n), w;

    for (; n >= sizeof w; p += sizeof w, n -= sizeof w) {
        memcpy(&w, p, sizeof w);
        h = hash_mix(h, w);
    }
    w = 0;
    if (n)
        memcpy(&w, p, n);
    return hash_mix(h ^ 0xA0761D6478BD642Fu, w);
}

#endif
