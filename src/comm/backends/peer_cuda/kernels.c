/* The table of the peer backend's kernels on CUDA: which calls each can carry out, and by which
 * grid. */
#include "comm/backends/peer_cuda/peer_cuda.h"

enum {
    FEW_THREADS = 96,
    LINE_LANES = 8,
    SHOT_BLOCKS = 48, /* default limits */
    LINE_BLOCKS = 80,
    DIRECT_BLOCKS = 32, /* more gain 2 % at most */
    DIRECT_BLOCKS_MOST = 64,
    DIRECT_TILE = PEER_BLOCK_THREADS * 2 * 16, /* bytes of a slice that a block takes at once */
    VECTOR_BYTES = 16
};

static size_t lines_of(size_t bytes)
{
    return peer_divide_up(bytes, PEER_LINE_PAYLOAD);
}

/* That a buffer holds. */
static size_t room_of(const struct peer_world *world)
{
    return world->line_bytes / 128;
}

static size_t slice_lines(size_t bytes, size_t size)
{
    return peer_divide_up(lines_of(bytes), size);
}

static int slots_fit(const struct peer_world *world, size_t bytes)
{
    return (size_t)world->size * peer_divide_up(bytes, 8) * 16 <= PEER_LL_BYTES;
}

static void slots_grid(const struct peer_world *world, size_t bytes, int blocks,
                       struct peer_grid *out)
{
    (void)world;
    peer_grid_spread(peer_divide_up(bytes, 8), FEW_THREADS, SHOT_BLOCKS, blocks, out);
}

static int lines_fit(const struct peer_world *world, size_t bytes)
{
    return (size_t)world->size * lines_of(bytes) <= room_of(world);
}

static int doubling_fits(const struct peer_world *world, size_t bytes)
{
    return 4 * lines_of(bytes) <= room_of(world); /* of each step */
}

static void lines_grid(const struct peer_world *world, size_t bytes, int blocks,
                       struct peer_grid *out)
{
    (void)world;
    peer_grid_spread(lines_of(bytes) * LINE_LANES, FEW_THREADS, SHOT_BLOCKS, blocks, out);
}

static int two_shot_fits(const struct peer_world *world, size_t bytes)
{
    (void)world;
    return bytes <= 4 << 20;
}

/* A flag has 16 bits for the times that a place is used. */
static int staged_fits(const struct peer_world *world, size_t bytes)
{
    return lines_of(bytes) / (room_of(world) / 4) < 1 << 16;
}

/* Every group of lanes needs two places in both areas. */
static int two_shot_limit(const struct peer_world *world)
{
    int blocks = (int)room_of(world) / (2 * world->size * 2) / (PEER_BLOCK_THREADS / LINE_LANES);
    return blocks < PEER_BLOCKS ? blocks : PEER_BLOCKS;
}

static int at_most(int value, int limit)
{
    return value < limit ? value : limit;
}

static void two_shot_grid(const struct peer_world *world, size_t bytes, int blocks,
                          struct peer_grid *out)
{
    int limit = two_shot_limit(world);
    peer_grid_spread(slice_lines(bytes, (size_t)world->size) * LINE_LANES, FEW_THREADS,
                     at_most(LINE_BLOCKS, limit), at_most(blocks, limit), out);
}

/* Items of each group of lanes that are under way: all of them, if there is room. */
static uint32_t two_shot_depth(const struct peer_arguments *a, const struct peer_grid *grid)
{
    size_t size = (size_t)a->world.size;
    size_t groups = (size_t)grid->blocks * (size_t)grid->threads / LINE_LANES;
    size_t items = peer_divide_up(slice_lines(a->bytes, size), groups);
    size_t room = room_of(&a->world) / (2 * size * groups);
    return (uint32_t)(items < room ? items : room);
}

/* The next block begins where this one ends. */
static int vectors_fit(const struct peer_world *world, size_t bytes)
{
    (void)world;
    return bytes % VECTOR_BYTES == 0;
}

static void direct_grid(const struct peer_world *world, size_t bytes, int blocks,
                        struct peer_grid *out)
{
    size_t tiles = peer_divide_up(bytes, DIRECT_TILE);
    (void)world;
    out->blocks = blocks                  ? at_most(blocks, DIRECT_BLOCKS_MOST)
                  : tiles < DIRECT_BLOCKS ? (int)tiles
                                          : DIRECT_BLOCKS;
    out->threads = PEER_BLOCK_THREADS;
}

static void slice_grid(const struct peer_world *world, size_t bytes, int blocks,
                       struct peer_grid *out)
{
    direct_grid(world, bytes / (size_t)world->size + 1, blocks, out);
}

const struct peer_kernel peer_cuda_kernels[PEER_CUDA_KERNELS] = {
    [PEER_CUDA_ONE_SHOT] = {"one_shot", peer_one_shot_function, slots_fit, slots_grid},
    [PEER_CUDA_ONE_SHOT_LINE] = {"one_shot_line", peer_one_shot_line_function, lines_fit,
                                 lines_grid},
    [PEER_CUDA_TWO_SHOT_LINE] = {"two_shot_line", peer_two_shot_function, two_shot_fits,
                                 two_shot_grid, two_shot_depth},
    [PEER_CUDA_TWO_SHOT_STAGED] = {"two_shot_staged", peer_two_shot_function, staged_fits,
                                   two_shot_grid, two_shot_depth},
    [PEER_CUDA_TWO_SHOT_DIRECT] = {"two_shot_direct", peer_two_shot_direct_function, NULL,
                                   slice_grid, .direct = 1},
    [PEER_CUDA_RECURSIVE_DOUBLING] = {"peer_recursive_doubling", peer_doubling_function,
                                      doubling_fits, lines_grid},
    [PEER_CUDA_ALLGATHER_LINE] = {"allgather_line", peer_allgather_line_function, lines_fit,
                                  lines_grid, .strided_blocks = 1},
    [PEER_CUDA_ALLTOALL_LINE] = {"alltoall_line", peer_alltoall_line_function, lines_fit,
                                 lines_grid, .strided_blocks = 1},
    [PEER_CUDA_BROADCAST_LINE] = {"broadcast_line", peer_broadcast_line_function, lines_fit,
                                  lines_grid},
    [PEER_CUDA_REDUCE_SCATTER_LINE] = {"reduce_scatter_line", peer_reduce_scatter_line_function,
                                       lines_fit, lines_grid, .strided_blocks = 1},
    [PEER_CUDA_ALLGATHER_DIRECT] = {"allgather_direct", peer_move_direct_function, vectors_fit,
                                    direct_grid, .direct = 1},
    [PEER_CUDA_ALLTOALL_DIRECT] = {"alltoall_direct", peer_move_direct_function, vectors_fit,
                                   direct_grid, .direct = 1},
    [PEER_CUDA_REDUCE_SCATTER_DIRECT] = {"reduce_scatter_direct",
                                         peer_reduce_scatter_direct_function, vectors_fit,
                                         direct_grid, .direct = 1},
    [PEER_CUDA_MESSAGES_FEW] = {"exchange", peer_messages_few_function},
    [PEER_CUDA_MESSAGES_MANY] = {"exchange", peer_messages_many_function},
};
