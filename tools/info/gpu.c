/* The machine's GPUs, whom each can reach, and the libraries that drive them. Main thread; no
 * context is made. */
#include "tools/info/gpu.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>
#ifdef ALNICO_HAVE_NCCL
#include <nccl.h>
#endif

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

static cJSON *gpu_object(int gpu, int count)
{
    struct cudaDeviceProp properties;
    char text[TEXT];
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "gpu", gpu);
    if (cudaGetDeviceProperties(&properties, gpu) != cudaSuccess)
        memset(&properties, 0, sizeof properties);
    cJSON_AddStringToObject(object, "name", properties.name);
    snprintf(text, sizeof text, "%d.%d", properties.major, properties.minor);
    cJSON_AddStringToObject(object, "capability", text);
    cJSON_AddNumberToObject(object, "memory_mb", (double)(properties.totalGlobalMem >> 20));
    cJSON_AddNumberToObject(object, "multiprocessors", properties.multiProcessorCount);
    cJSON_AddNumberToObject(object, "l2_mb", properties.l2CacheSize >> 20);
    snprintf(text, sizeof text, "%04x:%02x:%02x", (unsigned)properties.pciDomainID,
             (unsigned)properties.pciBusID, (unsigned)properties.pciDeviceID);
    cJSON_AddStringToObject(object, "pci", text);
    list_peers(gpu, count, cudaDevP2PAttrNativeAtomicSupported, text);
    cJSON_AddStringToObject(object, "atomics_on", text);
    list_peers(gpu, count, cudaDevP2PAttrAccessSupported, text);
    cJSON_AddStringToObject(object, "reaches", text);
    return object;
}

void info_add_gpus(cJSON *info)
{
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0)
        return;
    cJSON *gpus = cJSON_AddArrayToObject(info, "gpus");
    for (int gpu = 0; gpu < count; gpu++)
        cJSON_AddItemToArray(gpus, gpu_object(gpu, count));
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
    char text[32];
    int nccl = 0;
    ncclGetVersion(&nccl);
    snprintf(text, sizeof text, "%d.%d.%d", nccl / 10000, nccl / 100 % 100, nccl % 100);
    cJSON_AddStringToObject(libraries, "NCCL", text);
#endif
}
