/* The driver's functions and CUDA's errors. Resolved under a once, then only read. */
#include "device/cuda/driver.h"

#include "base/status.h"

#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

alnico_status_t cuda_status(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return ALNICO_SUCCESS;
    cudaGetLastError();
    alnico_status_t status =
        error == cudaErrorMemoryAllocation ? ALNICO_ERROR_MEMORY : ALNICO_ERROR_SYSTEM;
    return error_set(status, "%s: %s: %s", what, cudaGetErrorName(error),
                     cudaGetErrorString(error));
}

alnico_status_t cuda_driver_status(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return ALNICO_SUCCESS;
    const struct cuda_driver *driver = cuda_driver();
    const char *name = NULL, *text = NULL;
    if (driver) {
        driver->cuGetErrorName(result, &name);
        driver->cuGetErrorString(result, &text);
    }
    alnico_status_t status =
        result == CUDA_ERROR_OUT_OF_MEMORY ? ALNICO_ERROR_MEMORY : ALNICO_ERROR_SYSTEM;
    return error_set(status, "%s: %s: %s", what, name ? name : "CUDA error",
                     text ? text : "unknown");
}

alnico_status_t cuda_probe(void)
{
    int version = 0, runtime = 0, count = 0;
    cudaDriverGetVersion(&version);
    cudaRuntimeGetVersion(&runtime);
    if (version == 0)
        return error_set(ALNICO_ERROR_UNSUPPORTED, "this machine has no CUDA driver");
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess)
        cudaGetLastError();
    if (error == cudaErrorInsufficientDriver)
        return error_set(
            ALNICO_ERROR_UNSUPPORTED,
            "the CUDA driver is too old: it is of CUDA %d.%d, and this build needs %d.%d",
            version / 1000, version % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0))
        return error_set(ALNICO_ERROR_UNSUPPORTED, "the CUDA driver sees no GPU");
    if (error != cudaSuccess)
        return error_set(ALNICO_ERROR_UNSUPPORTED, "the CUDA driver does not start: %s: %s",
                         cudaGetErrorName(error), cudaGetErrorString(error));
    return ALNICO_SUCCESS;
}

atomic_bool cuda_driver_found;

static struct {
    pthread_once_t once;
    char reason[256];
    struct cuda_driver functions;
} found = {.once = PTHREAD_ONCE_INIT};

struct entry {
    const char *name;
    unsigned version;
    size_t offset;
};

#define ENTRY(name, version) {#name, version, offsetof(struct cuda_driver, name)},
static const struct entry entries[] = {CUDA_DRIVER_FUNCTIONS(ENTRY)};

static bool find_one(const struct entry *entry)
{
    enum cudaDriverEntryPointQueryResult result;
    void *function = NULL;
    cudaError_t error = cudaGetDriverEntryPointByVersion(entry->name, &function, entry->version,
                                                         cudaEnableDefault, &result);
    if (error != cudaSuccess)
        cudaGetLastError();
    if (error != cudaSuccess || result != cudaDriverEntryPointSuccess || !function) {
        snprintf(found.reason, sizeof found.reason, "the CUDA driver has no %s of CUDA %u.%u",
                 entry->name, entry->version / 1000, entry->version % 1000 / 10);
        return false;
    }
    memcpy((char *)&found.functions + entry->offset, &function, sizeof function);
    return true;
}

static void find_all(void)
{
    if (cuda_probe() != ALNICO_SUCCESS) {
        snprintf(found.reason, sizeof found.reason, "%s", alnico_error_detail());
        return;
    }
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
        if (!find_one(&entries[i]))
            return;
    atomic_store_explicit(&cuda_driver_found, true, memory_order_release);
}

const struct cuda_driver *cuda_driver(void)
{
    if (cuda_in_use())
        return &found.functions;
    pthread_once(&found.once, find_all);
    if (cuda_in_use())
        return &found.functions;
    error_set(ALNICO_ERROR_UNSUPPORTED, "%s", found.reason);
    return NULL;
}

CUresult cuda_pointer_find(const void *memory, struct cuda_pointer *out)
{
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                        CU_POINTER_ATTRIBUTE_IS_MANAGED};
    void *values[] = {&out->type, &out->owner, &out->managed};
    *out = (struct cuda_pointer){.owner = -1};
    return found.functions.cuPointerGetAttributes(3, attributes, values,
                                                  (CUdeviceptr)(uintptr_t)memory);
}

/* The host can read managed memory, and memory that is unknown to the driver. */
alnico_status_t cuda_refuse_memory(const void *memory, const char *name, const char *who)
{
    struct cuda_pointer pointer;
    CUresult result = cuda_pointer_find(memory, &pointer);
    if (result != CUDA_SUCCESS || pointer.type != CU_MEMORYTYPE_DEVICE || pointer.managed)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT,
                     "%s: %s %p is memory of GPU %d, and the communicator is on the CPU", who, name,
                     memory, pointer.owner);
}
