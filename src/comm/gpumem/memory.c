/* Maps memory for the current device, and makes what can be mapped by others. */
#include "comm/gpumem/memory.h"

#include "base/status.h"
#include "device/cuda/driver.h"

#include <pthread.h>
#include <stdlib.h>

/* Driver 580 was seen to free its own records twice where several threads of a process map and
 * unmap the same memory at once. Held for one call of the driver, never across an exchange. */
static pthread_mutex_t mapping_lock = PTHREAD_MUTEX_INITIALIZER;

struct peer_keeper *peer_memory_hold(uint64_t keeper_address)
{
    struct peer_keeper *keeper = (struct peer_keeper *)(uintptr_t)keeper_address;
    if (keeper)
        atomic_fetch_add(&keeper->holders, 1);
    return keeper;
}

/* The last one frees. */
static void let_go(struct peer_keeper *keeper)
{
    if (!keeper || atomic_fetch_sub(&keeper->holders, 1) != 1)
        return;
    cudaFree(keeper->memory);
    free(keeper);
}

/* Maps a handle for the current device, with the lock held. The mapping keeps the memory. */
static alnico_status_t map_locked(CUmemGenericAllocationHandle handle, size_t bytes, int device,
                                  char **out)
{
    const struct cuda_driver *driver = cuda_driver();
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr at;
    TRY(cuda_driver_status(driver->cuMemAddressReserve(&at, bytes, 0, 0, 0),
                           "cuMemAddressReserve"));
    alnico_status_t status =
        cuda_driver_status(driver->cuMemMap(at, bytes, 0, handle, 0), "cuMemMap");
    if (status != ALNICO_SUCCESS)
        goto free_address;
    status = cuda_driver_status(driver->cuMemSetAccess(at, bytes, &access, 1), "cuMemSetAccess");
    if (status != ALNICO_SUCCESS)
        goto unmap;
    *out = (char *)(uintptr_t)at;
    return ALNICO_SUCCESS;
unmap:
    driver->cuMemUnmap(at, bytes);
free_address:
    driver->cuMemAddressFree(at, bytes);
    return status;
}

alnico_status_t peer_memory_map(CUmemGenericAllocationHandle handle, size_t bytes, int device,
                                char **out)
{
    pthread_mutex_lock(&mapping_lock);
    alnico_status_t status = map_locked(handle, bytes, device, out);
    pthread_mutex_unlock(&mapping_lock);
    return status;
}

void peer_memory_release(CUmemGenericAllocationHandle handle)
{
    pthread_mutex_lock(&mapping_lock);
    cuda_driver()->cuMemRelease(handle);
    pthread_mutex_unlock(&mapping_lock);
}

alnico_status_t peer_memory_map_descriptor(int descriptor, size_t bytes, int device, char **out)
{
    const struct cuda_driver *driver = cuda_driver();
    CUmemGenericAllocationHandle handle;
    TRY(cuda_driver_status(
        driver->cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)descriptor,
                                               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
        "cuMemImportFromShareableHandle"));
    alnico_status_t status = peer_memory_map(handle, bytes, device, out);
    peer_memory_release(handle);
    return status;
}

void peer_memory_unmap(struct peer_memory *memory)
{
    const struct cuda_driver *driver = cuda_driver();
    let_go(memory->keeper);
    memory->keeper = NULL;
    if (!memory->mapping)
        return;
    if (memory->interprocess) {
        cudaIpcCloseMemHandle(memory->mapping);
    } else {
        CUdeviceptr at = (CUdeviceptr)(uintptr_t)memory->mapping;
        pthread_mutex_lock(&mapping_lock);
        driver->cuMemUnmap(at, memory->bytes);
        driver->cuMemAddressFree(at, memory->bytes);
        pthread_mutex_unlock(&mapping_lock);
    }
    *memory = (struct peer_memory){0};
}

alnico_status_t peer_memory_create(int device, size_t bytes, struct peer_memory *out)
{
    const struct cuda_driver *driver = cuda_driver();
    CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    size_t unit;
    CUmemGenericAllocationHandle handle;
    TRY(cuda_driver_status(
        driver->cuMemGetAllocationGranularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
        "cuMemGetAllocationGranularity"));
    bytes = (bytes + unit - 1) / unit * unit;
    TRY(cuda_driver_status(driver->cuMemCreate(&handle, bytes, &properties, 0), "cuMemCreate"));
    alnico_status_t status = peer_memory_map(handle, bytes, device, &out->mapping);
    peer_memory_release(handle);
    if (status != ALNICO_SUCCESS)
        return status;
    out->at = out->mapping;
    out->bytes = bytes;
    return ALNICO_SUCCESS;
}

static bool have_attribute(CUdevice_attribute attribute, int device)
{
    const struct cuda_driver *driver = cuda_driver();
    int value = 0;
    return driver && driver->cuDeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS &&
           value;
}

bool peer_memory_can_share(int device)
{
    return have_attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device) &&
           have_attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device);
}

bool peer_memory_find(void *memory, struct peer_memory *out)
{
    const struct cuda_driver *driver = cuda_driver();
    CUmemGenericAllocationHandle handle;
    CUdeviceptr start;
    if (!driver || driver->cuMemRetainAllocationHandle(&handle, memory) != CUDA_SUCCESS)
        return false;
    peer_memory_release(handle);
    if (driver->cuMemGetAddressRange(&start, &out->bytes, (CUdeviceptr)(uintptr_t)memory) !=
        CUDA_SUCCESS)
        return false;
    out->at = out->mapping = (char *)(uintptr_t)start;
    return true;
}

alnico_status_t peer_memory_keep(size_t bytes, struct peer_memory *out)
{
    struct peer_keeper *keeper = calloc(1, sizeof *keeper);
    if (!keeper)
        return error_set(ALNICO_ERROR_MEMORY, "no memory for scratch");
    atomic_init(&keeper->holders, 1);
    alnico_status_t status =
        cuda_status(cudaMalloc(&keeper->memory, bytes), "cudaMalloc of scratch");
    if (status != ALNICO_SUCCESS) {
        free(keeper);
        return status;
    }
    out->at = keeper->memory;
    out->bytes = bytes;
    out->keeper = keeper;
    return ALNICO_SUCCESS;
}
