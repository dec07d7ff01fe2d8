/*
 * Launchers of the gradient codecs on a GPU (strategies/codecs; formats: codec_pass.h). Each
 * enqueues on a stream of the current device, waits for nothing, can be captured into a graph, and
 * returns a cudaError_t. Their bits are those of the CPU's codecs, whatever not-a-number is. All
 * pointers of a pass are the GPU's memory.
 */
#ifndef ALNICO_TRAIN_KERNELS_CUDA_CODEC_H
#define ALNICO_TRAIN_KERNELS_CUDA_CODEC_H

#include "train/kernels/codec_pass.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct train_gpu;

typedef int train_codec_function(const struct train_gpu *gpu, const struct codec_pass *pass);

/* cuda/codec.cu */
train_codec_function train_bf16_encode, train_bf16_decode, train_fp16_encode, train_fp16_decode,
    train_int8_encode, train_int8_decode;

/* cuda/topk.cu */
train_codec_function train_topk_encode, train_topk_decode;
size_t train_topk_scratch(const struct codec_pass *pass);
int train_topk_load(void);

/* Loads all kernels onto the current device, and says how many multiprocessors it has and whether
 * programmatic launches work. */
int train_codec_load(int *multiprocessors, bool *programmatic);

/* The text of a cudaError_t. */
const char *train_codec_error(int error);

#ifdef __cplusplus
}
#endif

#endif
