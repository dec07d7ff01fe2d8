/* The batch that a block size of Linpack names (Shivdikar, Paneri, Kaeli): the power of two that is
 * nearest to the images, 32 bits a number, in a tile of the fastest block x block of 64 bits. */
#ifndef ALNICO_TOOLS_COMMON_TILE_BATCH_H
#define ALNICO_TOOLS_COMMON_TILE_BATCH_H

#include <math.h>
#include <stddef.h>

/* numbers: of an image, > 0; block > 0. At least 1. */
static inline size_t tile_batch(size_t block, size_t numbers)
{
    const double images = (double)block * (double)block * 64 / (32 * (double)numbers);
    return images > 1 ? (size_t)1 << lround(log2(images)) : 1;
}

#endif
