/* The machine's GPUs, whom each can reach, and the libraries that drive them. Main thread; no
 * context is made. */
#include "tools/info/gpu.h"

#ifdef ALNICO_HAVE_NCCL
#include "comm/backends/nccl/library.h"
#endif
#include "tools/common/program.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

enum { TEXT = 128 };

/* "1 2 3": the GPUs whose `attribute` towards this one is not zero. */
static void list_peers(int gpu, int count, enum cudaDeviceP2PAttr attribute, char *text)
{
    *text = '\0';
    for (int other = 0; other < count; other++) {
        int value = 0;
        size_t used = strlen(text);
        if (other == gpu || cudaDeviceGetP2PAttribute(&value, attribute, gpu, other) || !value)
            continue;
        snprintf(text + used, TEXT - used, "%s%d", used ? " " : "", other);
    }
}

static void add_gpu(cJSON *object, int gpu, int count)
{
    struct cudaDeviceProp properties;
    char text[TEXT];
    if (cudaGetDeviceProperties(&properties, gpu) != cudaSuccess)
        memset(&properties, 0, sizeof properties);
    snprintf(text, sizeof text, "%d.%d", properties.major, properties.minor);
    json_add(object, "gpu %d name %s capability %s memory_mb %zu multiprocessors %d l2_mb %d", gpu,
             properties.name, text, properties.totalGlobalMem >> 20, properties.multiProcessorCount,
             properties.l2CacheSize >> 20);
    snprintf(text, sizeof text, "%04x:%02x:%02x", (unsigned)properties.pciDomainID,
             (unsigned)properties.pciBusID, (unsigned)properties.pciDeviceID);
    json_add(object, "pci %s", text);
    list_peers(gpu, count, cudaDevP2PAttrNativeAtomicSupported, text);
    json_add(object, "atomics_on %s", text);
    list_peers(gpu, count, cudaDevP2PAttrAccessSupported, text);
    json_add(object, "reaches %s", text);
}

void info_add_gpus(cJSON *info)
{
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0)
        return;
    cJSON *gpus = cJSON_AddArrayToObject(info, "gpus");
    for (int gpu = 0; gpu < count; gpu++)
        add_gpu(json_row(gpus), gpu, count);
}

static void add_cuda_version(cJSON *libraries, const char *name, int version)
{
    char text[32];
    snprintf(text, sizeof text, "%d.%d", version / 1000, version / 10 % 100);
    cJSON_AddStringToObject(libraries, name, version ? text : "none");
}

void info_add_gpu_libraries(cJSON *libraries)
{
    int runtime = 0, driver = 0;
    cudaRuntimeGetVersion(&runtime);
    cudaDriverGetVersion(&driver);
    add_cuda_version(libraries, "CUDA runtime", runtime);
    add_cuda_version(libraries, "CUDA driver", driver);
#ifdef ALNICO_HAVE_NCCL
    char text[32] = "none";
    int nccl = nccl_version();
    if (nccl)
        snprintf(text, sizeof text, "%d.%d.%d", nccl / 10000, nccl / 100 % 100, nccl % 100);
    json_add(libraries, "NCCL %s", text);
#endif
}
