/*
 * See cudnn/gemm.h. cuBLAS counts rows first in memory: to it x is channels by pixels, w
 * channels by filters, y filters by pixels.
 */
#include "train/kernels/cudnn/gemm.h"

#include "base/status.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = sizeof(cublasLtMatmulAlgo_t) / sizeof(uint64_t) };

_Static_assert(WORDS * 16 + 1 == GEMM_TEXT_BYTES, "a kernel is so many words");

bool gemm_possible(const struct convolution *c)
{
    return c->rows == 1 && c->columns == 1 && c->stride == 1 && c->pad_rows == 0 &&
           c->pad_columns == 0 && !c->sums;
}

static alnico_status_t layout(const struct cudnn_handle *handle, const struct convolution *c,
                              size_t rows, size_t columns, cublasLtMatrixLayout_t *out)
{
    return CUBLAS(handle->library, cublasLtMatrixLayoutCreate, out, cublas_type(c->type), rows,
                  columns, (int64_t)rows);
}

static alnico_status_t transpose(const struct cudnn_handle *handle, struct gemm *gemm,
                                 cublasLtMatmulDescAttributes_t which)
{
    const cublasOperation_t operation = CUBLAS_OP_T;
    return CUBLAS(handle->library, cublasLtMatmulDescSetAttribute, gemm->description, which,
                  &operation, sizeof operation);
}

static alnico_status_t describe(const struct cudnn_handle *handle, const struct convolution *c,
                                bool exact, struct gemm *gemm)
{
    const size_t pixels = c->batch * c->height * c->width;
    cublasLtMatrixLayout_t *const x = c->direction == CONVOLUTION_FORWARD ? &gemm->b
                                      : c->direction == CONVOLUTION_DATA  ? &gemm->c
                                                                          : &gemm->a;
    cublasLtMatrixLayout_t *const w = c->direction == CONVOLUTION_WEIGHTS ? &gemm->c : &gemm->a;
    cublasLtMatrixLayout_t *const y = c->direction == CONVOLUTION_FORWARD ? &gemm->c : &gemm->b;
    TRY(CUBLAS(handle->library, cublasLtMatmulDescCreate, &gemm->description,
               cublas_compute(c->type, exact), CUDA_R_32F));
    TRY(layout(handle, c, c->channels, pixels, x));
    TRY(layout(handle, c, c->channels, c->filters, w));
    TRY(layout(handle, c, c->filters, pixels, y));
    if (c->direction == CONVOLUTION_FORWARD)
        return transpose(handle, gemm, CUBLASLT_MATMUL_DESC_TRANSA);
    if (c->direction == CONVOLUTION_WEIGHTS)
        return transpose(handle, gemm, CUBLASLT_MATMUL_DESC_TRANSB);
    return ALNICO_SUCCESS;
}

alnico_status_t gemm_make(const struct cudnn_handle *handle, const struct convolution *c,
                          bool exact, struct gemm **out)
{
    struct gemm *gemm = calloc(1, sizeof *gemm);
    *out = NULL;
    if (!gemm)
        return error_set(ALNICO_ERROR_MEMORY, "cuDNN kernels: no memory");
    gemm->direction = c->direction;
    gemm->accumulate = c->accumulate;
    const alnico_status_t status = describe(handle, c, exact, gemm);
    if (status != ALNICO_SUCCESS)
        gemm_destroy(handle, gemm);
    else
        *out = gemm;
    return status;
}

void gemm_destroy(const struct cudnn_handle *handle, struct gemm *gemm)
{
    if (!gemm)
        return;
    cublasLtMatrixLayout_t const layouts[] = {gemm->a, gemm->b, gemm->c};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (layouts[i])
            handle->library->cublasLtMatrixLayoutDestroy(layouts[i]);
    if (gemm->description)
        handle->library->cublasLtMatmulDescDestroy(gemm->description);
    free(gemm);
}

static alnico_status_t prefer(const struct cudnn_handle *handle,
                              cublasLtMatmulPreference_t preference, size_t workspace)
{
    const uint32_t alignment = 16, sums = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        const void *value;
        size_t bytes;
    } attributes[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &sums, sizeof sums},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &alignment, sizeof alignment},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &alignment, sizeof alignment},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &alignment, sizeof alignment},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &alignment, sizeof alignment},
    };
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        TRY(CUBLAS(handle->library, cublasLtMatmulPreferenceSetAttribute, preference,
                   attributes[i].name, attributes[i].value, attributes[i].bytes));
    return ALNICO_SUCCESS;
}

alnico_status_t gemm_kernels(const struct cudnn_handle *handle, const struct gemm *gemm,
                             size_t workspace, int most, cublasLtMatmulHeuristicResult_t *out,
                             int *count)
{
    const struct cudnn_library *library = handle->library;
    cublasLtMatmulPreference_t preference;
    *count = 0;
    TRY(CUBLAS(library, cublasLtMatmulPreferenceCreate, &preference));
    const alnico_status_t status = prefer(handle, preference, workspace);
    if (status == ALNICO_SUCCESS &&
        library->cublasLtMatmulAlgoGetHeuristic((cublasLtHandle_t)handle->cublas, gemm->description,
                                                gemm->a, gemm->b, gemm->c, gemm->c, preference,
                                                most, out, count) != CUBLAS_STATUS_SUCCESS)
        *count = 0;
    library->cublasLtMatmulPreferenceDestroy(preference);
    return status;
}

alnico_status_t gemm_run(const struct cudnn_handle *handle, const struct gemm *gemm,
                         const struct convolution_memory *memory, void *workspace,
                         size_t workspace_bytes)
{
    const float alpha = 1, beta = gemm->accumulate ? 1 : 0;
    const bool forward = gemm->direction == CONVOLUTION_FORWARD,
               weights = gemm->direction == CONVOLUTION_WEIGHTS;
    const void *a = weights ? memory->x : memory->w, *b = forward ? memory->x : memory->y;
    void *c = forward ? memory->y : weights ? memory->w : memory->x;
    return CUBLAS(handle->library, cublasLtMatmul, (cublasLtHandle_t)handle->cublas,
                  gemm->description, &alpha, a, gemm->a, b, gemm->b, &beta, c, gemm->c, c, gemm->c,
                  &gemm->algorithm, workspace, workspace_bytes, handle->stream);
}

void gemm_text(const struct gemm *gemm, char out[GEMM_TEXT_BYTES])
{
    for (size_t i = 0; i < WORDS; i++)
        snprintf(out + 16 * i, 17, "%016" PRIx64, gemm->algorithm.data[i]);
}

alnico_status_t gemm_restore(const struct cudnn_handle *handle, struct gemm *gemm, const char *text,
                             size_t *workspace)
{
    cublasLtMatmulHeuristicResult_t found = {.state = CUBLAS_STATUS_SUCCESS};
    bool good = strlen(text) == GEMM_TEXT_BYTES - 1;
    for (size_t i = 0; good && i < WORDS; i++)
        good = sscanf(text + 16 * i, "%16" SCNx64, &gemm->algorithm.data[i]) == 1;
    good = good && handle->library->cublasLtMatmulAlgoCheck(
                       (cublasLtHandle_t)handle->cublas, gemm->description, gemm->a, gemm->b,
                       gemm->c, gemm->c, &gemm->algorithm, &found) == CUBLAS_STATUS_SUCCESS;
    *workspace = found.workspaceSize;
    return good && found.state == CUBLAS_STATUS_SUCCESS
               ? ALNICO_SUCCESS
               : error_set(ALNICO_ERROR_UNSUPPORTED, "cuBLASLt has no such kernel");
}
