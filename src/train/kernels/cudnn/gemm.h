/*
 * Convolutions by windows of one pixel, without stride and padding, as matrix products of cuBLASLt,
 * whose kernels for such shapes may be faster than cuDNN's engines. Called by
 * cudnn/engine_search.c, and by cudnn/engine_cache.c for what it remembers, on the thread that
 * trains; running one enqueues.
 */
#ifndef ALNICO_TRAIN_KERNELS_CUDNN_GEMM_H
#define ALNICO_TRAIN_KERNELS_CUDNN_GEMM_H

#include "train/kernels/cudnn/graph.h"

/* One direction of such a convolution, and the kernel for it: c = a b, or added to. */
struct gemm {
    cublasLtMatmulDesc_t description;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
    enum convolution_direction direction;
    bool accumulate;
};

/* Bytes of a kernel as text, the end included. */
enum { GEMM_TEXT_BYTES = 129 };

bool gemm_possible(const struct convolution *convolution);

/* Without a kernel as yet. `exact`: float32 is not rounded to TF32. Errors: MEMORY, what cuBLAS
 * says. */
alnico_status_t gemm_make(const struct cudnn_handle *handle, const struct convolution *convolution,
                          bool exact, struct gemm **out);

/* NULL is fine. */
void gemm_destroy(const struct cudnn_handle *handle, struct gemm *gemm);

/* The kernels that cuBLASLt's heuristics name for at most so much workspace, *count of them, 0
 * perhaps. Products are summed in float32 to the end. */
alnico_status_t gemm_kernels(const struct cudnn_handle *handle, const struct gemm *gemm,
                             size_t workspace, int most, cublasLtMatmulHeuristicResult_t *out,
                             int *count);

alnico_status_t gemm_run(const struct cudnn_handle *handle, const struct gemm *gemm,
                         const struct convolution_memory *memory, void *workspace,
                         size_t workspace_bytes);

/* The kernel as text, and back, for the same version of cuBLASLt: *workspace is what it wants.
 * Errors: UNSUPPORTED if cuBLASLt has no such kernel here. */
void gemm_text(const struct gemm *gemm, char out[GEMM_TEXT_BYTES]);
alnico_status_t gemm_restore(const struct cudnn_handle *handle, struct gemm *gemm, const char *text,
                             size_t *workspace);

#endif
