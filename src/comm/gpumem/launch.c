/* Grids, arguments, loading and launches: the host's side of a kernel. */
#include "comm/gpumem/kernel.h"

#include "base/datatype.h"
#include "device/cuda/driver.h"

enum { VECTOR_BYTES = 16 };

int peer_kernel_fits(const struct peer_kernel *kernel, const struct peer_world *world, size_t bytes)
{
    return bytes <= SIZE_MAX / 64 && (!kernel->fits || kernel->fits(world, bytes));
}

void peer_kernel_grid(const struct peer_kernel *kernel, const struct peer_world *world,
                      size_t bytes, int blocks, struct peer_grid *out)
{
    kernel->grid(world, bytes, blocks < PEER_BLOCKS ? blocks : PEER_BLOCKS, out);
    if (world->most_blocks > 0 && out->blocks > world->most_blocks)
        kernel->grid(world, bytes, world->most_blocks, out);
}

void peer_grid_spread(size_t threads, size_t few, int most, int blocks, struct peer_grid *out)
{
    size_t wanted = peer_divide_up(threads, few);
    if (blocks == 0)
        blocks = wanted < (size_t)most ? (int)wanted : most;
    size_t each = peer_divide_up(threads, (size_t)blocks);
    out->blocks = blocks;
    out->threads =
        each >= PEER_BLOCK_THREADS ? PEER_BLOCK_THREADS : (int)peer_divide_up(each, 32) * 32;
}

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

void peer_arguments_finish(struct peer_arguments *a, const struct peer_kernel *kernel,
                           const struct peer_grid *grid)
{
    bool scaled = a->op == ALNICO_AVERAGE;
    if (kernel->direct)
        a->aligned = all_aligned(a) ? 3 : 0;
    else if (kernel->strided_blocks && a->bytes % 8)
        a->aligned = 0;
    else
        a->aligned = is_aligned(a->send, 8) | is_aligned(a->recv, 8) << 1;
    a->scale = scaled ? 1.0 / a->world.size : 1;
    a->factor = scaled ? 1.0f / (float)a->world.size : 1;
    a->depth = kernel->depth ? kernel->depth(a, grid) : 1;
}

static int kind_of(int type, int op)
{
    if (op != ALNICO_SUM && op != ALNICO_AVERAGE)
        return PEER_KIND_ANY;
    return type == ALNICO_FLOAT32    ? PEER_KIND_FLOAT32
           : type == ALNICO_FLOAT16  ? PEER_KIND_FLOAT16
           : type == ALNICO_BFLOAT16 ? PEER_KIND_BFLOAT16
                                     : PEER_KIND_ANY;
}

/* Code that was compiled for less than compute capability 9 cannot wait for the kernel before,
 * wherever it runs. */
static cudaError_t load(const void *symbol, void **out, int *modern)
{
    struct cudaFuncAttributes attributes;
    cudaFunction_t function = NULL;
    cudaError_t error = cudaFuncGetAttributes(&attributes, symbol);
    if (error == cudaSuccess)
        error = cudaGetFuncBySymbol(&function, symbol);
    if (error == cudaSuccess)
        *modern &= attributes.ptxVersion >= 90;
    *out = function;
    return error;
}

int peer_kernels_load(const struct peer_kernel *kernels, int count, int size,
                      struct peer_functions *out, int *modern)
{
    cudaError_t error = cudaSuccess;
    *modern = true;
    for (int i = 0; i < count; i++)
        for (int kind = 0; kind < PEER_KINDS && error == cudaSuccess; kind++)
            error = load(kernels[i].function(kind, size), &out->of[i][kind], modern);
    return (int)error;
}

int peer_kernel_launch(const struct peer_functions *functions,
                       const struct peer_arguments *arguments, const struct peer_grid *grid,
                       void *stream)
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
                             .numAttrs = (unsigned)arguments->world.modern};
    int kind = kind_of(arguments->type, arguments->op);
    void *parameters[1];
    *(const void **)parameters = arguments;
    return (int)cuda_driver()->cuLaunchKernelEx(&config, functions->of[arguments->kernel][kind],
                                                parameters, NULL);
}

alnico_status_t peer_call_launch(const struct peer_functions *functions,
                                 const struct peer_kernel *kernel, struct peer_arguments *arguments,
                                 int blocks, void *stream)
{
    struct peer_grid grid;
    peer_kernel_grid(kernel, &arguments->world, arguments->bytes, blocks, &grid);
    peer_arguments_finish(arguments, kernel, &grid);
    int result = peer_kernel_launch(functions, arguments, &grid, stream);
    return cuda_driver_status((CUresult)result, "cuLaunchKernelEx");
}

int peer_scratch_clear(char *scratch, size_t bytes, uint64_t epoch)
{
    struct peer_block blocks[PEER_BLOCKS];
    for (int i = 0; i < PEER_BLOCKS; i++)
        blocks[i] = (struct peer_block){.epoch = epoch};
    cudaError_t error = cudaMemset(scratch, 0, bytes);
    if (error == cudaSuccess)
        error = cudaMemcpy(scratch + PEER_AT_BLOCKS, blocks, sizeof blocks, cudaMemcpyHostToDevice);
    if (error == cudaSuccess)
        error = cudaDeviceSynchronize();
    return (int)error;
}
