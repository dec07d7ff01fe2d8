/* SipHash-2-4 with 128 bits: a short keyed hash that nobody without the key can foresee
 * (Aumasson, Bernstein, 2012). Any thread. */
#ifndef ALNICO_COMM_NET_SIPHASH_H
#define ALNICO_COMM_NET_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

enum { SIPHASH_BYTES = 16 };

void siphash(const uint8_t key[SIPHASH_BYTES], const void *data, size_t bytes,
             uint8_t out[SIPHASH_BYTES]);

#endif
