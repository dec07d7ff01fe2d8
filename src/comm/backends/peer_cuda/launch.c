/* Which grid, which kernel, and the launch: the host's side of the peer kernels. */
#include "comm/backends/peer_cuda/messages.h"

#include "base/datatype.h"
#include "device/cuda/driver.h"

#include <stdbool.h>

enum {
    BLOCK_THREADS = 512, /* what the kernels are compiled for */
    FEW_THREADS = 96,
    SHARED_THREADS = 256, /* each block's flags cross the bus twice an item */
    LINE_BYTES = 128,
    LINES = PEER_LINES_BYTES / LINE_BYTES,
    SHOT_BLOCKS = 48, /* default limits */
    LINE_BLOCKS = 80,
    DIRECT_BLOCKS = 32, /* more gain 2 % at most */
    DIRECT_BLOCKS_MOST = 64,
    DIRECT_TILE = BLOCK_THREADS * 2 * 16, /* bytes of a slice that a block takes at once */
    VECTOR_BYTES = 16
};

static size_t divide_up(size_t a, size_t b)
{
    return (a + b - 1) / b;
}

static size_t lines_of(size_t bytes)
{
    return divide_up(bytes, PEER_LINE_PAYLOAD);
}

static size_t slice_lines(size_t bytes, int size)
{
    return divide_up(lines_of(bytes), (size_t)size);
}

int peer_cuda_is_direct(enum peer_kernel kernel)
{
    return kernel == PEER_TWO_SHOT_DIRECT || kernel == PEER_ALLGATHER_DIRECT ||
           kernel == PEER_ALLTOALL_DIRECT || kernel == PEER_REDUCE_SCATTER_DIRECT;
}

int peer_cuda_fits(enum peer_kernel kernel, int size, size_t bytes)
{
    size_t ranks = (size_t)size;
    if (bytes > SIZE_MAX / 64)
        return false;
    switch (kernel) {
    case PEER_ONE_SHOT:
        return ranks * divide_up(bytes, 8) * 16 <= PEER_LL_BYTES;
    case PEER_ONE_SHOT_LINE:
        return ranks * lines_of(bytes) <= LINES;
    case PEER_TWO_SHOT_LINE:
        return bytes <= 4 << 20;
    case PEER_ALLGATHER_LINE:
    case PEER_ALLTOALL_LINE:
    case PEER_BROADCAST_LINE:
    case PEER_REDUCE_SCATTER_LINE:
        return ranks * lines_of(bytes) <= LINES;
    case PEER_ALLGATHER_DIRECT:
    case PEER_ALLTOALL_DIRECT:
    case PEER_REDUCE_SCATTER_DIRECT:
        return bytes % VECTOR_BYTES == 0; /* the next block begins where this one ends */
    case PEER_RECURSIVE_DOUBLING:
        return 4 * lines_of(bytes) <= LINES;
    case SHARED_ONE_SHOT:
        return divide_up(bytes, 8) * 16 <= SHARED_SLOTS_BYTES;
    case SHARED_TWO_SHOT: /* its flags count so many items */
        return bytes / ranks < (size_t)(1 << 20) * SHARED_PLACE_BYTES;
    default:
        return true;
    }
}

/* ---- Grids ---- */

/* Small messages are fastest where a block has few warps, and large ones where no lane has more
 * than one item: blocks of 96 threads up to `most` of them, and then larger ones. */
static void spread(size_t threads, size_t few, int most, int blocks, struct peer_grid *out)
{
    size_t wanted = divide_up(threads, few);
    if (blocks == 0)
        blocks = wanted < (size_t)most ? (int)wanted : most;
    size_t each = divide_up(threads, (size_t)blocks);
    out->blocks = blocks;
    out->threads = each >= BLOCK_THREADS ? BLOCK_THREADS : (int)divide_up(each, 32) * 32;
}

/* Two shots in lines need two places for every group of lanes in both areas. */
static int two_shot_limit(int size)
{
    int blocks = LINES / (2 * size * 2) / (BLOCK_THREADS / 8);
    return blocks < PEER_CUDA_BLOCKS ? blocks : PEER_CUDA_BLOCKS;
}

static int at_most(int value, int limit)
{
    return value < limit ? value : limit;
}

void peer_cuda_grid(enum peer_kernel kernel, int size, size_t bytes, int blocks,
                    struct peer_grid *out)
{
    *out = (struct peer_grid){0};
    blocks = at_most(blocks, PEER_CUDA_BLOCKS);
    switch (kernel) {
    case PEER_ONE_SHOT:
        spread(divide_up(bytes, 8), FEW_THREADS, SHOT_BLOCKS, blocks, out);
        break;
    case PEER_ONE_SHOT_LINE:
    case PEER_RECURSIVE_DOUBLING:
    case PEER_ALLGATHER_LINE:
    case PEER_ALLTOALL_LINE:
    case PEER_BROADCAST_LINE:
    case PEER_REDUCE_SCATTER_LINE:
        spread(lines_of(bytes) * 8, FEW_THREADS, SHOT_BLOCKS, blocks, out);
        break;
    case PEER_TWO_SHOT_LINE:
    case PEER_TWO_SHOT_STAGED:
        spread(slice_lines(bytes, size) * 8, FEW_THREADS,
               at_most(LINE_BLOCKS, two_shot_limit(size)), at_most(blocks, two_shot_limit(size)),
               out);
        break;
    case SHARED_ONE_SHOT:
        spread(divide_up(bytes, 8), FEW_THREADS, SHARED_BLOCKS, at_most(blocks, SHARED_BLOCKS),
               out);
        break;
    case SHARED_TWO_SHOT:
        spread(divide_up(divide_up(bytes, 16), (size_t)size), SHARED_THREADS, SHARED_BLOCKS,
               at_most(blocks, SHARED_BLOCKS), out);
        break;
    default:
        bytes = kernel == PEER_TWO_SHOT_DIRECT ? bytes / (size_t)size + 1 : bytes;
        bytes = divide_up(bytes, DIRECT_TILE);
        out->blocks = blocks                  ? at_most(blocks, DIRECT_BLOCKS_MOST)
                      : bytes < DIRECT_BLOCKS ? (int)bytes
                                              : DIRECT_BLOCKS;
        out->threads = BLOCK_THREADS;
    }
}

/* ---- Calls ---- */

static bool is_aligned(const void *pointer, unsigned bytes)
{
    return (uintptr_t)pointer % bytes == 0;
}

static bool all_aligned(const struct peer_arguments *a)
{
    bool aligned = true;
    for (int i = 0; i < a->world.size; i++)
        aligned &= is_aligned(a->sends[i], VECTOR_BYTES) && is_aligned(a->recvs[i], VECTOR_BYTES);
    return aligned;
}

/* Block b begins at b times its bytes. */
static bool has_blocks(enum peer_kernel kernel)
{
    return kernel == PEER_ALLGATHER_LINE || kernel == PEER_ALLTOALL_LINE ||
           kernel == PEER_REDUCE_SCATTER_LINE;
}

static bool has_turns(enum peer_kernel kernel)
{
    return kernel == PEER_TWO_SHOT_LINE || kernel == PEER_TWO_SHOT_STAGED;
}

/* How many items of each group of lanes are under way: all of them, if there is room. */
static uint32_t depth_of(const struct peer_arguments *a, const struct peer_grid *grid)
{
    size_t groups = (size_t)grid->blocks * (size_t)grid->threads / 8;
    size_t items = divide_up(slice_lines(a->bytes, a->world.size), groups);
    size_t room = LINES / (2 * (size_t)a->world.size * groups);
    return (uint32_t)(items < room ? items : room);
}

void peer_cuda_arguments(struct peer_arguments *a, const struct peer_world *world,
                         enum peer_kernel kernel, const void *send, void *recv, size_t count,
                         int type, int op, const struct peer_grid *grid)
{
    bool scaled = op == ALNICO_AVERAGE;
    a->world = *world;
    a->send = send;
    a->recv = recv;
    a->bytes = count * datatype_bytes((alnico_datatype_t)type);
    a->type = type;
    a->op = op;
    a->kernel = (int32_t)kernel;
    a->aligned = is_aligned(send, 8) | is_aligned(recv, 8) << 1;
    if (peer_cuda_is_direct(kernel))
        a->aligned = all_aligned(a) ? 3 : 0;
    if (has_blocks(kernel) && a->bytes % 8)
        a->aligned = 0;
    a->root = 0;
    a->scale = scaled ? 1.0 / world->size : 1;
    a->factor = scaled ? 1.0f / (float)world->size : 1;
    a->depth = has_turns(kernel) ? depth_of(a, grid) : 1;
    a->dependent = (int32_t)grid->dependent;
}

/* ---- Launches ---- */

static int kind_of(int type, int op)
{
    if (op != ALNICO_SUM && op != ALNICO_AVERAGE)
        return PEER_KIND_ANY;
    return type == ALNICO_FLOAT32    ? PEER_KIND_FLOAT32
           : type == ALNICO_FLOAT16  ? PEER_KIND_FLOAT16
           : type == ALNICO_BFLOAT16 ? PEER_KIND_BFLOAT16
                                     : PEER_KIND_ANY;
}

static const void *function_of(int kernel, int kind, int size)
{
    switch (kernel) {
    case PEER_ONE_SHOT:
        return peer_one_shot_function(kind, size);
    case PEER_ONE_SHOT_LINE:
        return peer_one_shot_line_function(kind, size);
    case PEER_TWO_SHOT_DIRECT:
    case PEER_ALLGATHER_DIRECT:
    case PEER_ALLTOALL_DIRECT:
    case PEER_REDUCE_SCATTER_DIRECT:
        return peer_direct_function(kernel, kind, size);
    case PEER_RECURSIVE_DOUBLING:
        return peer_doubling_function(kind);
    case PEER_ALLGATHER_LINE:
    case PEER_ALLTOALL_LINE:
    case PEER_BROADCAST_LINE:
    case PEER_REDUCE_SCATTER_LINE:
        return peer_blocks_function(kernel, kind, size);
    case PEER_MESSAGES:
        return peer_messages_function(kind);
    case SHARED_ONE_SHOT:
        return shared_one_shot_function(kind, size);
    case SHARED_TWO_SHOT:
        return shared_two_shot_function(kind, size);
    default:
        return peer_two_shot_function(kind, size);
    }
}

/* Whether the kernel may be launched while the one before it ends. */
static bool overlaps(const struct peer_arguments *arguments, const struct peer_grid *grid)
{
    return arguments->world.modern && grid->dependent != PEER_SEPARATE;
}

/* What the kernel gets begins with these arguments. */
static int launch(const struct peer_arguments *arguments, int kind, const struct peer_grid *grid,
                  void *stream)
{
    cudaLaunchConfig_t config = {.gridDim = {(unsigned)grid->blocks, 1, 1},
                                 .blockDim = {(unsigned)grid->threads, 1, 1},
                                 .stream = stream};
    cudaLaunchAttribute dependent = {.id = cudaLaunchAttributeProgrammaticStreamSerialization,
                                     .val.programmaticStreamSerializationAllowed = 1};
    if (overlaps(arguments, grid)) {
        config.attrs = &dependent;
        config.numAttrs = 1;
    }
    const void *function = function_of(arguments->kernel, kind, arguments->world.size);
    void *parameters[1];
    *(const void **)parameters = arguments;
    return (int)cudaLaunchKernelExC(&config, function, parameters);
}

int peer_cuda_launch(const struct peer_arguments *arguments, const struct peer_grid *grid,
                     void *stream)
{
    return launch(arguments, kind_of(arguments->type, arguments->op), grid, stream);
}

/* Which of the two kernels of messages: the place of a kind in the tables of functions. */
static int has_many(const struct peer_messages *exchange)
{
    return exchange->messages_count > PEER_MESSAGES_FEW;
}

int peer_messages_launch(const struct peer_messages *exchange, const struct peer_grid *grid,
                         void *stream)
{
    return launch(&exchange->group.base, has_many(exchange), grid, stream);
}

int peer_cuda_functions(int size, struct peer_functions *out)
{
    for (int kernel = 0; kernel < PEER_KERNELS; kernel++)
        for (int kind = 0; kind < PEER_KINDS; kind++) {
            cudaFunction_t function = NULL;
            cudaError_t error = cudaGetFuncBySymbol(&function, function_of(kernel, kind, size));
            if (error != cudaSuccess)
                return (int)error;
            out->of[kernel][kind] = function;
        }
    return (int)cudaSuccess;
}

static int launch_by(const struct peer_functions *functions, const struct peer_arguments *arguments,
                     int kind, const struct peer_grid *grid, void *stream)
{
    CUlaunchAttribute dependent = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                   .value.programmaticStreamSerializationAllowed = 1};
    CUlaunchConfig config = {.gridDimX = (unsigned)grid->blocks,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = (unsigned)grid->threads,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = stream,
                             .attrs = &dependent,
                             .numAttrs = overlaps(arguments, grid)};
    void *parameters[1];
    *(const void **)parameters = arguments;
    return (int)cuda_driver()->cuLaunchKernelEx(&config, functions->of[arguments->kernel][kind],
                                                parameters, NULL);
}

int peer_cuda_launch_by(const struct peer_functions *functions,
                        const struct peer_arguments *arguments, const struct peer_grid *grid,
                        void *stream)
{
    return launch_by(functions, arguments, kind_of(arguments->type, arguments->op), grid, stream);
}

int peer_messages_launch_by(const struct peer_functions *functions,
                            const struct peer_messages *exchange, const struct peer_grid *grid,
                            void *stream)
{
    return launch_by(functions, &exchange->group.base, has_many(exchange), grid, stream);
}

int peer_cuda_launch_empty(void *stream)
{
    cudaLaunchConfig_t config = {.gridDim = {1, 1, 1}, .blockDim = {32, 1, 1}, .stream = stream};
    int nothing = 0;
    void *parameters[1] = {&nothing};
    return (int)cudaLaunchKernelExC(&config, peer_empty_function(), parameters);
}

static int clear(char *scratch, size_t bytes, uint64_t epoch)
{
    struct peer_block blocks[PEER_CUDA_BLOCKS];
    for (int i = 0; i < PEER_CUDA_BLOCKS; i++)
        blocks[i] = (struct peer_block){.epoch = epoch};
    cudaError_t error = cudaMemset(scratch, 0, bytes);
    if (error == cudaSuccess)
        error = cudaMemcpy(scratch + PEER_AT_BLOCKS, blocks, sizeof blocks, cudaMemcpyHostToDevice);
    if (error == cudaSuccess)
        error = cudaDeviceSynchronize();
    return (int)error;
}

int peer_cuda_clear(char *scratch, uint64_t epoch)
{
    return clear(scratch, PEER_SCRATCH_BYTES, epoch);
}

int peer_cuda_clear_own(char *own, uint64_t epoch)
{
    return clear(own, PEER_OWN_BYTES, epoch);
}

size_t peer_cuda_part_bytes(int size)
{
    return divide_up(SHARED_AT_INPUTS + (size_t)size * SHARED_AREA_BYTES, 4096) * 4096;
}

/* Code that was compiled for less than compute capability 9 cannot wait for the kernel before,
 * wherever it runs. */
static int load(int first, int end, int size, int *modern)
{
    *modern = true;
    for (int kernel = first; kernel < end; kernel++)
        for (int kind = 0; kind < PEER_KINDS; kind++) {
            struct cudaFuncAttributes attributes;
            cudaError_t error = cudaFuncGetAttributes(&attributes, function_of(kernel, kind, size));
            if (error != cudaSuccess)
                return (int)error;
            *modern &= attributes.ptxVersion >= 90;
        }
    return (int)cudaSuccess;
}

int peer_cuda_load(int size, int *modern)
{
    return load(0, PEER_KERNELS, size, modern);
}

int peer_cuda_load_shared(int size, int *modern)
{
    return load(PEER_KERNELS, SHARED_KERNELS_END, size, modern);
}
