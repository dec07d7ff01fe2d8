/*
 * Launchers of the GPU's kernels: arithmetic as in cpu/math.h, and flags. Each enqueues on a
 * cudaStream_t of the current device and returns a cudaError_t. Pointers are what the GPU can use:
 * its memory, or pinned and mapped host memory.
 */
#ifndef ALNICO_DEVICE_CUDA_MATH_H
#define ALNICO_DEVICE_CUDA_MATH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* As math_reduce and math_divide, bit for bit. `type` and `op` are alnico_datatype_t and
 * alnico_op_t. */
int math_cuda_reduce(void *dst, const void *a, const void *b, size_t count, int type, int op,
                     void *stream);
int math_cuda_divide(void *dst, const void *src, size_t count, int type, int ranks, void *stream);

/* As math_scale; the factor is `bits`, or what is at `at` when the kernel runs. */
int math_cuda_scale(void *dst, const void *src, size_t count, int type, uint64_t bits,
                    const void *at, void *stream);

/* Words that host and streams share: raised to `value`, and awaited until at least `value` (modulo
 * 2^32). What was enqueued before a raise is seen by whoever saw the value. */
int flag_cuda_raise(uint32_t *word, uint32_t value, void *stream);
int flag_cuda_await(const uint32_t *word, uint32_t value, void *stream);

/* One kernel each for a short copy with a raise behind it, or an await before it. dst and src are
 * aligned alike, modulo 16. After the await nothing is copied if *skip is not 0. */
int flag_cuda_copy_raise(void *dst, const void *src, size_t bytes, uint32_t *word, uint32_t value,
                         void *stream);
int flag_cuda_await_copy(void *dst, const void *src, size_t bytes, const uint32_t *word,
                         uint32_t value, const uint32_t *skip, void *stream);

/* The GPU's clock, in ns, to pinned memory or the GPU's. */
int flag_cuda_stamp(uint64_t *out, void *stream);

/* Loads all kernels of this header onto the current device: loading one later may wait for kernels
 * that spin. */
int math_cuda_load(void);
int flag_cuda_load(void);

#ifdef __cplusplus
}
#endif

#endif
