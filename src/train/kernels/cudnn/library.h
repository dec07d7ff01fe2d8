/*
 * cuDNN 9, cuBLAS and cuBLASLt, found when they are first wanted: nothing is linked with them, so
 * that the trainer starts on a machine without. And the errors of the GPU libraries as statuses.
 * Any thread.
 */
#ifndef ALNICO_TRAIN_KERNELS_CUDNN_LIBRARY_H
#define ALNICO_TRAIN_KERNELS_CUDNN_LIBRARY_H

#include <alnico/alnico.h>

#include <cublasLt.h>
#include <cublas_api.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#define CUDNN_FUNCTIONS(F)                                                                         \
    F(cudnnGetVersion)                                                                             \
    F(cudnnGetErrorString)                                                                         \
    F(cudnnGetLastErrorString)                                                                     \
    F(cudnnCreate)                                                                                 \
    F(cudnnDestroy)                                                                                \
    F(cudnnSetStream)                                                                              \
    F(cudnnBackendCreateDescriptor)                                                                \
    F(cudnnBackendDestroyDescriptor)                                                               \
    F(cudnnBackendFinalize)                                                                        \
    F(cudnnBackendSetAttribute)                                                                    \
    F(cudnnBackendGetAttribute)                                                                    \
    F(cudnnBackendExecute)

#define CUBLAS_FUNCTIONS(F)                                                                        \
    F(cublasCreate_v2)                                                                             \
    F(cublasDestroy_v2)                                                                            \
    F(cublasSetStream_v2)                                                                          \
    F(cublasSetWorkspace_v2)                                                                       \
    F(cublasGetStatusString)                                                                       \
    F(cublasGemmEx)

#define CUBLASLT_FUNCTIONS(F)                                                                      \
    F(cublasLtGetVersion)                                                                          \
    F(cublasLtMatmul)                                                                              \
    F(cublasLtMatmulAlgoCheck)                                                                     \
    F(cublasLtMatmulAlgoGetHeuristic)                                                              \
    F(cublasLtMatmulDescCreate)                                                                    \
    F(cublasLtMatmulDescDestroy)                                                                   \
    F(cublasLtMatmulDescSetAttribute)                                                              \
    F(cublasLtMatmulPreferenceCreate)                                                              \
    F(cublasLtMatmulPreferenceDestroy)                                                             \
    F(cublasLtMatmulPreferenceSetAttribute)                                                        \
    F(cublasLtMatrixLayoutCreate)                                                                  \
    F(cublasLtMatrixLayoutDestroy)

#define CUDNN_LIBRARY_MEMBER(name) __typeof__(name) *name;
struct cudnn_library {
    CUDNN_FUNCTIONS(CUDNN_LIBRARY_MEMBER)
    CUBLAS_FUNCTIONS(CUDNN_LIBRARY_MEMBER)
    CUBLASLT_FUNCTIONS(CUDNN_LIBRARY_MEMBER)
};
#undef CUDNN_LIBRARY_MEMBER

/* All of them; NULL, with the reason as the thread's detail, where a library or a function is
 * missing, or cuDNN is older than 9.0. */
const struct cudnn_library *cudnn_library(void);

/* How cuBLAS and cuBLASLt call a type, and the products of it; `exact`: float32 is not rounded to
 * TF32. */
cudaDataType_t cublas_type(alnico_datatype_t type);
cublasComputeType_t cublas_compute(alnico_datatype_t type, bool exact);

/* Record `what` (the call, or what it was for) with the library's name and text of the error.
 * MEMORY, UNSUPPORTED (cuDNN has no engine for it) or SYSTEM; success passes. */
alnico_status_t gpu_status(int cuda_error, const char *what);
alnico_status_t cudnn_status(cudnnStatus_t error, const char *what);
alnico_status_t cublas_status(cublasStatus_t error, const char *what);

/* The status of a call, named by its function; CUBLAS: of a library's member. */
#define CUDA(function, ...) gpu_status(function(__VA_ARGS__), #function)
#define CUBLAS(library, function, ...) cublas_status((library)->function(__VA_ARGS__), #function)

#endif
