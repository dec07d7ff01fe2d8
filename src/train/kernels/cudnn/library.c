/* See cudnn/library.h. Loaded under a once, then only read. */
#include "train/kernels/cudnn/library.h"

#include "base/status.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static struct {
    pthread_once_t once;
    bool complete;
    char reason[512];
    struct cudnn_library functions;
} found = {.once = PTHREAD_ONCE_INIT};

struct entry {
    const char *name;
    size_t offset;
};

#define ENTRY(name) {#name, offsetof(struct cudnn_library, name)},
#define ENTRIES(table) (sizeof table / sizeof *table)
static const struct entry cudnn_entries[] = {CUDNN_FUNCTIONS(ENTRY)};
static const struct entry cublas_entries[] = {CUBLAS_FUNCTIONS(ENTRY)};
static const struct entry cublaslt_entries[] = {CUBLASLT_FUNCTIONS(ENTRY)};

/* The library as the loader finds it, then where the toolkit puts it. */
static void *library_open(const char *name)
{
    static const char *const folders[] = {"", "/usr/local/cuda/lib64/", "/usr/local/cuda/lib/"};
    char path[256];
    found.reason[0] = '\0';
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        snprintf(path, sizeof path, "%s%s", folders[i], name);
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library)
            return library;
        const char *error = dlerror();
        if (!found.reason[0])
            snprintf(found.reason, sizeof found.reason, "%s", error ? error : name);
    }
    return NULL;
}

static bool find_entries(void *library, const char *name, const struct entry *entries, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        void *function = dlsym(library, entries[i].name);
        if (!function) {
            snprintf(found.reason, sizeof found.reason, "%s has no %s", name, entries[i].name);
            return false;
        }
        memcpy((char *)&found.functions + entries[i].offset, &function, sizeof function);
    }
    return true;
}

/* cuBLASLt is what the cuBLAS of its version stands on. */
static bool find_cublas(void)
{
    char name[32];
    for (int major = CUDART_VERSION / 1000; major >= 12; major--) {
        snprintf(name, sizeof name, "libcublas.so.%d", major);
        void *library = library_open(name);
        if (!library)
            continue;
        if (!find_entries(library, name, cublas_entries, ENTRIES(cublas_entries)))
            return false;
        snprintf(name, sizeof name, "libcublasLt.so.%d", major);
        library = library_open(name);
        return library && find_entries(library, name, cublaslt_entries, ENTRIES(cublaslt_entries));
    }
    return false;
}

/* The libraries stay loaded for the process's life. */
static void find_all(void)
{
    void *library = library_open("libcudnn.so.9");
    if (!library || !find_entries(library, "libcudnn.so.9", cudnn_entries, ENTRIES(cudnn_entries)))
        return;
    const size_t version = found.functions.cudnnGetVersion();
    if (version < 90000) {
        snprintf(found.reason, sizeof found.reason, "cuDNN is of version %zu, expected 90000",
                 version);
        return;
    }
    found.complete = find_cublas();
}

const struct cudnn_library *cudnn_library(void)
{
    pthread_once(&found.once, find_all);
    if (found.complete)
        return &found.functions;
    error_set(ALNICO_ERROR_UNSUPPORTED, "cuDNN kernels: %s", found.reason);
    return NULL;
}

cudaDataType_t cublas_type(alnico_datatype_t type)
{
    return type == ALNICO_BFLOAT16 ? CUDA_R_16BF : type == ALNICO_FLOAT16 ? CUDA_R_16F : CUDA_R_32F;
}

cublasComputeType_t cublas_compute(alnico_datatype_t type, bool exact)
{
    if (type != ALNICO_FLOAT32)
        return CUBLAS_COMPUTE_32F;
    return exact ? CUBLAS_COMPUTE_32F_PEDANTIC : CUBLAS_COMPUTE_32F_FAST_TF32;
}

alnico_status_t gpu_status(int cuda_error, const char *what)
{
    const cudaError_t error = (cudaError_t)cuda_error;
    if (error == cudaSuccess)
        return ALNICO_SUCCESS;
    cudaGetLastError();
    return error_set(error == cudaErrorMemoryAllocation ? ALNICO_ERROR_MEMORY : ALNICO_ERROR_SYSTEM,
                     "%s: %s: %s", what, cudaGetErrorName(error), cudaGetErrorString(error));
}

static alnico_status_t cudnn_category(cudnnStatus_t error)
{
    if (error == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
        error == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
        return ALNICO_ERROR_MEMORY;
    return CUDNN_STATUS_CATEGORY(error) == CUDNN_STATUS_NOT_SUPPORTED ? ALNICO_ERROR_UNSUPPORTED
                                                                      : ALNICO_ERROR_SYSTEM;
}

alnico_status_t cudnn_status(cudnnStatus_t error, const char *what)
{
    char text[512] = "";
    if (error == CUDNN_STATUS_SUCCESS)
        return ALNICO_SUCCESS;
    found.functions.cudnnGetLastErrorString(text, sizeof text);
    return error_set(cudnn_category(error), "%s: %s: %s", what,
                     found.functions.cudnnGetErrorString(error), text);
}

alnico_status_t cublas_status(cublasStatus_t error, const char *what)
{
    if (error == CUBLAS_STATUS_SUCCESS)
        return ALNICO_SUCCESS;
    return error_set(error == CUBLAS_STATUS_ALLOC_FAILED ? ALNICO_ERROR_MEMORY
                                                         : ALNICO_ERROR_SYSTEM,
                     "%s: %s", what, found.functions.cublasGetStatusString(error));
}
