/* The few functions of CUDA's runtime that a libnccl.so.2 and its tests use, on the CPU: memory is the host's, a stream is
 * Alnico's queue with a thread, and each of eight GPUs has a default stream. What the library asks of Alnico for a GPU it gets
 * for the CPU (made_up_alnico.c). */
#include "tests/integrations/nccl/made_up_cuda.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wunused-parameter"

#define MADE_UP __attribute__((visibility("default")))

enum { DEVICES = 8 };

static _Thread_local int current;
MADE_UP atomic_int made_up_streams, made_up_factors;
MADE_UP void *_Atomic made_up_current[DEVICES];

static pthread_once_t once = PTHREAD_ONCE_INIT;
static alnico_stream_t defaults[DEVICES];

static void make_defaults(void)
{
    for (int i = 0; i < DEVICES; i++)
        if (alnico_stream_create(&defaults[i]) != ALNICO_SUCCESS)
            abort();
}

MADE_UP void *made_up_stream(cudaStream_t stream, int device)
{
    pthread_once(&once, make_defaults);
    return stream ? (void *)stream : (void *)defaults[device];
}

MADE_UP cudaError_t cudaGetDeviceCount(int *count)
{
    *count = DEVICES;
    return cudaSuccess;
}

MADE_UP cudaError_t cudaGetDevice(int *device)
{
    *device = current;
    return cudaSuccess;
}

MADE_UP cudaError_t cudaSetDevice(int device)
{
    if (device < 0 || device >= DEVICES)
        return cudaErrorInvalidDevice;
    current = device;
    return cudaSuccess;
}

MADE_UP cudaError_t cudaMalloc(void **out, size_t bytes)
{
    *out = malloc(bytes);
    return *out ? cudaSuccess : cudaErrorMemoryAllocation;
}

MADE_UP cudaError_t cudaFree(void *memory)
{
    free(memory);
    return cudaSuccess;
}

MADE_UP cudaError_t cudaMallocAsync(void **out, size_t bytes, cudaStream_t stream)
{
    return cudaMalloc(out, bytes);
}

MADE_UP cudaError_t cudaFreeAsync(void *memory, cudaStream_t stream)
{
    alnico_stream_enqueue(made_up_stream(stream, current), free, memory);
    return cudaSuccess;
}

MADE_UP cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    alnico_stream_t stream;
    if (alnico_stream_create(&stream) != ALNICO_SUCCESS)
        return cudaErrorMemoryAllocation;
    atomic_fetch_add(&made_up_streams, 1);
    *out = (cudaStream_t)stream;
    return cudaSuccess;
}

MADE_UP cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    atomic_fetch_sub(&made_up_streams, 1);
    alnico_stream_destroy((alnico_stream_t)stream);
    return cudaSuccess;
}

MADE_UP cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    alnico_stream_synchronize(made_up_stream(stream, current));
    return cudaSuccess;
}

struct copy {
    void *to;
    const void *from;
    size_t bytes;
};

static void carry_out(void *argument)
{
    struct copy *copy = argument;
    memcpy(copy->to, copy->from, copy->bytes);
    free(copy);
}

MADE_UP cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes,
                                    enum cudaMemcpyKind kind, cudaStream_t stream)
{
    struct copy *copy = malloc(sizeof *copy);
    *copy = (struct copy){to, from, bytes};
    alnico_stream_enqueue(made_up_stream(stream, current), carry_out, copy);
    return cudaSuccess;
}
