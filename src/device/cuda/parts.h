/* The parts of the CUDA device that have files of their own: slots of struct device_ops, as
 * device.h describes them. */
#ifndef ALNICO_DEVICE_CUDA_PARTS_H
#define ALNICO_DEVICE_CUDA_PARTS_H

#include "device/device.h"

#include <cuda_runtime_api.h>

static inline enum cudaStreamCaptureMode cuda_mode_exchange(enum cudaStreamCaptureMode mode)
{
    cudaThreadExchangeStreamCaptureMode(&mode);
    return mode;
}

/* Evaluates a call in the relaxed mode. */
#define RELAXED(ERROR, CALL)                                                                       \
    do {                                                                                           \
        enum cudaStreamCaptureMode before_ = cuda_mode_exchange(cudaStreamCaptureModeRelaxed);     \
        ERROR = (CALL);                                                                            \
        cuda_mode_exchange(before_);                                                               \
    } while (0)

/* ---- cuda/memory.c ---- */

alnico_status_t cuda_alloc(size_t bytes, void **out);
void cuda_free(void *memory);
alnico_status_t cuda_memory(size_t *available, size_t *total);

/* ---- cuda/pinned.c ---- */

alnico_status_t cuda_pinned_alloc(size_t bytes, void **out);
void cuda_pinned_free(void *memory);

/* Some blocks of common sizes are there from then on. Once for the process, whoever calls. */
alnico_status_t cuda_pinned_reserve(void);

/* ---- cuda/flags.c ---- */

alnico_status_t cuda_flag_create(struct device_flag **out);
void cuda_flag_destroy(struct device_flag *flag);
void cuda_flag_raise(struct device_flag *flag, uint32_t value);
uint32_t cuda_flag_read(const struct device_flag *flag);
void cuda_flag_wait(struct device_flag *flag, uint32_t value);
alnico_status_t cuda_stream_raise(void *stream, struct device_flag *flag, uint32_t value);
alnico_status_t cuda_stream_await(void *stream, struct device_flag *flag, uint32_t value);
alnico_status_t cuda_copy_raise(void *dst, const void *src, size_t bytes, struct device_flag *flag,
                                uint32_t value, void *stream);
alnico_status_t cuda_await_copy(void *dst, const void *src, size_t bytes, struct device_flag *flag,
                                uint32_t value, struct device_flag *skip, void *stream);

#endif
