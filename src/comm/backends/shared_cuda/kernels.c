/* The table of the shared backend's kernels: which calls each can carry out, and by which grid. */
#include "comm/backends/shared_cuda/shared_cuda.h"

enum {
    FEW_THREADS = 96,
    TWO_SHOT_THREADS = 256 /* each block's flags cross the bus twice an item */
};

static int limit(int blocks)
{
    return blocks < SHARED_BLOCKS ? blocks : SHARED_BLOCKS;
}

static int one_shot_fits(const struct peer_world *world, size_t bytes)
{
    (void)world;
    return peer_divide_up(bytes, 8) * 16 <= SHARED_SLOTS_BYTES;
}

static void one_shot_grid(const struct peer_world *world, size_t bytes, int blocks,
                          struct peer_grid *out)
{
    (void)world;
    peer_grid_spread(peer_divide_up(bytes, 8), FEW_THREADS, SHARED_BLOCKS, limit(blocks), out);
}

/* Its flags count so many items. */
static int two_shot_fits(const struct peer_world *world, size_t bytes)
{
    return bytes / (size_t)world->size < (size_t)(1 << 20) * SHARED_PLACE_BYTES;
}

static void two_shot_grid(const struct peer_world *world, size_t bytes, int blocks,
                          struct peer_grid *out)
{
    peer_grid_spread(peer_divide_up(peer_divide_up(bytes, 16), (size_t)world->size),
                     TWO_SHOT_THREADS, SHARED_BLOCKS, limit(blocks), out);
}

const struct peer_kernel shared_kernels[SHARED_KERNELS] = {
    [SHARED_ONE_SHOT] = {"shared_one_shot", shared_one_shot_function, one_shot_fits, one_shot_grid},
    [SHARED_TWO_SHOT] = {"shared_two_shot", shared_two_shot_function, two_shot_fits, two_shot_grid},
};
