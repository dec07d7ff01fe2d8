/* SipHash-2-4 with 128 bits, as in the paper's section 2 and its authors' variant of double length. */
#include "comm/net/siphash.h"

#include <endian.h>
#include <string.h>

static uint64_t rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static void mix(uint64_t v[4], int rounds)
{
    for (int i = 0; i < rounds; i++) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = rotate(v[1], 13) ^ v[0];
        v[3] = rotate(v[3], 16) ^ v[2];
        v[0] = rotate(v[0], 32) + v[3];
        v[2] += v[1];
        v[3] = rotate(v[3], 21) ^ v[0];
        v[1] = rotate(v[1], 17) ^ v[2];
        v[2] = rotate(v[2], 32);
    }
}

static uint64_t load(const uint8_t *from, size_t bytes)
{
    uint64_t word = 0;
    memcpy(&word, from, bytes);
    return le64toh(word);
}

static void take(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    mix(v, 2);
    v[0] ^= word;
}

static void give(uint64_t v[4], uint8_t *out)
{
    mix(v, 4);
    uint64_t word = htole64(v[0] ^ v[1] ^ v[2] ^ v[3]);
    memcpy(out, &word, sizeof word);
}

void siphash(const uint8_t key[SIPHASH_BYTES], const void *data, size_t bytes,
             uint8_t out[SIPHASH_BYTES])
{
    const uint8_t *from = data, *end = from + bytes / 8 * 8;
    const uint64_t k0 = load(key, 8), k1 = load(key + 8, 8);
    uint64_t v[4] = {k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d ^ 0xee,
                     k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573};
    for (; from < end; from += 8)
        take(v, load(from, 8));
    take(v, (uint64_t)bytes << 56 | load(from, bytes % 8));
    v[2] ^= 0xee;
    give(v, out);
    v[1] ^= 0xdd;
    give(v, out + 8);
}
