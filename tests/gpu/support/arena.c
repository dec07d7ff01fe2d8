/* Device memory of tests: cudaMalloc's, or by the driver's calls for mapped memory, which are
 * looked up at run time. */
#include "tests/gpu/support/site.h"

#include <cuda.h>
#include <cudaTypedefs.h>

#include <stdio.h>
#include <stdlib.h>

/* ---- The driver ---- */

static void find(const char *name, void **function)
{
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    CUDA(cudaGetDriverEntryPointByVersion(name, function, 12000, cudaEnableDefault, &found));
    if (found != cudaDriverEntryPointSuccess || !*function)
        fprintf(stderr, "the driver has no %s\n", name);
    REQUIRE(found == cudaDriverEntryPointSuccess && *function);
}

static void require_driver(CUresult result, const char *name)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "%s returns %d\n", name, (int)result);
    REQUIRE(!"the driver's success");
}

#define DRIVER(NAME, VERSION, ...)                                                                 \
    do {                                                                                           \
        PFN_##NAME##_v##VERSION function = NULL;                                                   \
        find(#NAME, (void **)&function);                                                           \
        require_driver(function(__VA_ARGS__), #NAME);                                              \
    } while (0)

/* ---- Mapped memory ---- */

static CUmemAllocationProp properties(int device)
{
    CUmemAllocationProp p = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                             .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    p.location.id = device;
    return p;
}

static void map(struct gpu_arena *arena, size_t bytes, int device)
{
    CUmemAllocationProp p = properties(device);
    CUmemAccessDesc access = {.location = p.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;
    size_t grain;
    CUDA(cudaFree(NULL)); /* the GPU's context exists from here on */
    DRIVER(cuMemGetAllocationGranularity, 10020, &grain, &p, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    arena->mapped = (bytes + grain - 1) / grain * grain;
    DRIVER(cuMemCreate, 10020, &handle, arena->mapped, &p, 0);
    DRIVER(cuMemAddressReserve, 10020, &at, arena->mapped, grain, 0, 0);
    DRIVER(cuMemMap, 10020, at, arena->mapped, 0, handle, 0);
    DRIVER(cuMemSetAccess, 10020, at, arena->mapped, &access, 1);
    arena->handle = handle;
    arena->base = (char *)at;
}

static void unmap(struct gpu_arena *arena)
{
    CUdeviceptr at = (CUdeviceptr)arena->base;
    CUDA(cudaDeviceSynchronize());
    DRIVER(cuMemUnmap, 10020, at, arena->mapped);
    DRIVER(cuMemRelease, 10020, arena->handle);
    DRIVER(cuMemAddressFree, 10020, at, arena->mapped);
}

/* ---- Arenas ---- */

void gpu_arena_open(struct gpu_arena *arena, size_t bytes, enum gpu_memory kind, int device)
{
    *arena = (struct gpu_arena){.bytes = bytes};
    if (kind == GPU_MAPPED) {
        map(arena, bytes, device);
        return;
    }
    void *memory;
    CUDA(cudaMalloc(&memory, bytes));
    arena->base = memory;
}

void gpu_arena_close(struct gpu_arena *arena)
{
    if (arena->taken)
        fprintf(stderr, "the test took memory %d times more than it gave back\n", arena->taken);
    REQUIRE(arena->taken == 0);
    if (arena->mapped)
        unmap(arena);
    else
        CUDA(cudaFree(arena->base));
    *arena = (struct gpu_arena){0};
}

void *gpu_arena_take(struct gpu_arena *arena, size_t bytes)
{
    size_t at = arena->used;
    arena->used += (bytes + 255) / 256 * 256;
    if (arena->used > arena->bytes)
        fprintf(stderr, "the test's memory of %zu bytes is too small\n", arena->bytes);
    REQUIRE(arena->used <= arena->bytes);
    arena->taken++;
    return arena->base + at;
}

void gpu_arena_give(struct gpu_arena *arena)
{
    REQUIRE(arena->taken > 0);
    if (--arena->taken == 0)
        arena->used = 0;
}
