/*
 * CUDA's errors as statuses, and the driver's own functions, which the runtime finds: nothing is
 * linked with the driver, so that a build with CUDA starts on a machine that has none. Any thread.
 */
#ifndef ALNICO_DEVICE_CUDA_DRIVER_H
#define ALNICO_DEVICE_CUDA_DRIVER_H

#include <alnico/alnico.h>

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <stdatomic.h>
#include <stdbool.h>

/* Records `what` (the call, or what it was for) with CUDA's name and text of the error; MEMORY or
 * SYSTEM. SUCCESS passes. The thread's last CUDA error, which the call left, is taken back. */
alnico_status_t cuda_status(cudaError_t error, const char *what);
alnico_status_t cuda_driver_status(CUresult result, const char *what);

/* Each with the CUDA version that its type here is of. */
#define CUDA_DRIVER_FUNCTIONS(F)                                                                   \
    F(cuGetErrorName, 6000)                                                                        \
    F(cuGetErrorString, 6000)                                                                      \
    F(cuDeviceGet, 2000)                                                                           \
    F(cuDeviceGetAttribute, 2000)                                                                  \
    F(cuDevicePrimaryCtxRetain, 7000)                                                              \
    F(cuCtxGetCurrent, 4000)                                                                       \
    F(cuLaunchKernelEx, 11060)                                                                     \
    F(cuPointerGetAttributes, 7000)                                                                \
    F(cuStreamWriteValue32, 11070)                                                                 \
    F(cuStreamWaitValue32, 11070)                                                                  \
    F(cuMemGetAddressRange, 3020)                                                                  \
    F(cuMemGetAllocationGranularity, 10020)                                                        \
    F(cuMemGetAllocationPropertiesFromHandle, 10020)                                               \
    F(cuMemRetainAllocationHandle, 11000)                                                          \
    F(cuMemExportToShareableHandle, 10020)                                                         \
    F(cuMemImportFromShareableHandle, 10020)                                                       \
    F(cuMemAddressReserve, 10020)                                                                  \
    F(cuMemAddressFree, 10020)                                                                     \
    F(cuMemCreate, 10020)                                                                          \
    F(cuMemRelease, 10020)                                                                         \
    F(cuMemMap, 10020)                                                                             \
    F(cuMemUnmap, 10020)                                                                           \
    F(cuMemSetAccess, 10020)

#define CUDA_DRIVER_MEMBER(name, version) PFN_##name##_v##version name;
struct cuda_driver {
    CUDA_DRIVER_FUNCTIONS(CUDA_DRIVER_MEMBER)
};
#undef CUDA_DRIVER_MEMBER

/* All of them, found once; NULL, with the reason as the thread's detail, where there is no driver
 * or it lacks one. */
const struct cuda_driver *cuda_driver(void);

/* Whether somebody has asked for the driver's functions, and got them. Loads no driver. */
extern atomic_bool cuda_driver_found;
static inline bool cuda_in_use(void)
{
    return atomic_load_explicit(&cuda_driver_found, memory_order_acquire);
}

/* Memory as the driver knows it; once cuda_driver() is there. */
struct cuda_pointer {
    CUmemorytype type;
    int owner; /* the GPU; -1: unknown */
    int managed;
};
CUresult cuda_pointer_find(const void *memory, struct cuda_pointer *out);

/* Refuses memory of a GPU, for a public call `who` on the CPU to which it is `name`; only where
 * cuda_in_use. */
alnico_status_t cuda_refuse_memory(const void *memory, const char *name, const char *who);

/* Whether there is a driver that is new enough, and a GPU. UNSUPPORTED says which of them is
 * missing. */
alnico_status_t cuda_probe(void);

#endif
