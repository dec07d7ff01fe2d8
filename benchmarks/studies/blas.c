/* See blas.h. cuBLAS counts columns first: to it a matrix of rows is the transposed one. */
#include "benchmarks/studies/blas.h"

#include <cblas.h>
#include <math.h>
#include <stdlib.h>

#ifdef ALNICO_HAVE_CUDNN
#include "train/kernels/cudnn/library.h"
#endif

enum { NOT_HERE = 77 };

/* A way to make a product. */
struct way {
    struct way *next; /* of a library's */
    struct blas *blas;
    const struct product *product;
#ifdef ALNICO_HAVE_CUDNN
    cublasLtMatmulAlgo_t kernel;
    struct light *light; /* of cuBLASLt's kernels; NULL: the plain product */
#endif
};

struct blas {
    const struct study_device *device;
    struct way *ways;
#ifdef ALNICO_HAVE_CUDNN
    const struct cudnn_library *library;
    cublasHandle_t cublas;
    void *workspace;
    struct light *lights;
#endif
};

/* A product with one column by the function for it. */
static void host_vector(const struct product *p)
{
    const struct matrix *a = &p->a;
    if (p->rows == 1)
        *p->c.at = cblas_sdot((int)p->depth, a->at, a->transposed ? (int)a->row : 1, p->b.at,
                              p->b.transposed ? 1 : (int)p->b.row);
    else
        cblas_sgemv(CblasRowMajor, a->transposed ? CblasTrans : CblasNoTrans,
                    (int)(a->transposed ? p->depth : p->rows),
                    (int)(a->transposed ? p->rows : p->depth), 1, a->at, (int)a->row, p->b.at,
                    p->b.transposed ? 1 : (int)p->b.row, 0, p->c.at, (int)p->c.row);
}

static void host_multiply(const struct product *p)
{
    if (p->columns == 1) {
        host_vector(p);
        return;
    }
    cblas_sgemm(CblasRowMajor, p->a.transposed ? CblasTrans : CblasNoTrans,
                p->b.transposed ? CblasTrans : CblasNoTrans, (int)p->rows, (int)p->columns,
                (int)p->depth, 1, p->a.at, (int)p->a.row, p->b.at, (int)p->b.row, 0, p->c.at,
                (int)p->c.row);
}

#ifdef ALNICO_HAVE_CUDNN
enum { WORKSPACE = 32 << 20 };

static void gpu_open(struct blas *blas)
{
    blas->library = cudnn_library();
    if (!blas->library) {
        fprintf(stderr, "--device cuda: %s\n", alnico_error_detail());
        exit(NOT_HERE);
    }
    program_check(CUBLAS(blas->library, cublasCreate_v2, &blas->cublas), "cuBLAS");
    program_check(CUBLAS(blas->library, cublasSetStream_v2, blas->cublas, blas->device->stream),
                  "cuBLAS's stream");
    blas->workspace = study_put(blas->device, NULL, WORKSPACE);
    program_check(CUBLAS(blas->library, cublasSetWorkspace_v2, blas->cublas, blas->workspace,
                         (size_t)WORKSPACE),
                  "cuBLAS's workspace");
}

static cublasOperation_t gpu_operation(const struct matrix *matrix)
{
    return matrix->transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
}

static void gpu_multiply(struct blas *blas, const struct product *p)
{
    const float one = 1, zero = 0;
    program_check(CUBLAS(blas->library, cublasGemmEx, blas->cublas, gpu_operation(&p->b),
                         gpu_operation(&p->a), (int)p->columns, (int)p->rows, (int)p->depth, &one,
                         p->b.at, CUDA_R_32F, (int)p->b.row, p->a.at, CUDA_R_32F, (int)p->a.row,
                         &zero, p->c.at, CUDA_R_32F, (int)p->c.row,
                         cublas_compute(ALNICO_FLOAT32, false), CUBLAS_GEMM_DEFAULT),
                  "a product");
}

/* A product as cuBLASLt describes it. */
struct light {
    struct light *next; /* of a library's */
    cublasLtMatmulDesc_t description;
    cublasLtMatrixLayout_t a, b, c;
};

static void light_run(void *context)
{
    const struct way *way = context;
    const struct light *l = way->light;
    const struct product *p = way->product;
    const float one = 1, zero = 0;
    program_check(CUBLAS(way->blas->library, cublasLtMatmul, (cublasLtHandle_t)way->blas->cublas,
                         l->description, &one, p->b.at, l->b, p->a.at, l->a, &zero, p->c.at, l->c,
                         p->c.at, l->c, &way->kernel, way->blas->workspace, (size_t)WORKSPACE,
                         way->blas->device->stream),
                  "a product of cuBLASLt");
}

/* rows, columns: of the matrix as the product reads it. */
static cublasLtMatrixLayout_t light_layout(const struct blas *blas, const struct matrix *matrix,
                                           size_t rows, size_t columns)
{
    cublasLtMatrixLayout_t out;
    const bool turned = matrix->transposed;
    program_check(CUBLAS(blas->library, cublasLtMatrixLayoutCreate, &out, CUDA_R_32F,
                         turned ? rows : columns, turned ? columns : rows, (int64_t)matrix->row),
                  "a layout");
    return out;
}

static void light_transpose(const struct blas *blas, const struct light *l,
                            cublasLtMatmulDescAttributes_t which, const struct matrix *matrix)
{
    const cublasOperation_t operation = gpu_operation(matrix);
    program_check(CUBLAS(blas->library, cublasLtMatmulDescSetAttribute, l->description, which,
                         &operation, sizeof operation),
                  "a product");
}

static struct light *light_make(struct blas *blas, const struct product *p)
{
    struct light *l = study_memory(sizeof *l);
    l->next = blas->lights;
    blas->lights = l;
    l->a = light_layout(blas, &p->a, p->rows, p->depth);
    l->b = light_layout(blas, &p->b, p->depth, p->columns);
    l->c = light_layout(blas, &p->c, p->rows, p->columns);
    program_check(CUBLAS(blas->library, cublasLtMatmulDescCreate, &l->description,
                         cublas_compute(ALNICO_FLOAT32, false), CUDA_R_32F),
                  "a product");
    light_transpose(blas, l, CUBLASLT_MATMUL_DESC_TRANSA, &p->b);
    light_transpose(blas, l, CUBLASLT_MATMUL_DESC_TRANSB, &p->a);
    return l;
}

static int light_kernels(const struct blas *blas, const struct light *l,
                         cublasLtMatmulHeuristicResult_t *out)
{
    const struct cudnn_library *library = blas->library;
    const size_t workspace = WORKSPACE;
    cublasLtMatmulPreference_t preference;
    int count = 0;
    program_check(CUBLAS(library, cublasLtMatmulPreferenceCreate, &preference), "kernels");
    program_check(CUBLAS(library, cublasLtMatmulPreferenceSetAttribute, preference,
                         CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace),
                  "kernels");
    program_check(CUBLAS(library, cublasLtMatmulAlgoGetHeuristic, (cublasLtHandle_t)blas->cublas,
                         l->description, l->b, l->a, l->c, l->c, preference, BLAS_WAYS - 1, out,
                         &count),
                  "kernels of cuBLASLt");
    library->cublasLtMatmulPreferenceDestroy(preference);
    return count;
}

static void lights_free(const struct blas *blas)
{
    for (struct light *l = blas->lights, *next; l; l = next) {
        next = l->next;
        blas->library->cublasLtMatrixLayoutDestroy(l->a);
        blas->library->cublasLtMatrixLayoutDestroy(l->b);
        blas->library->cublasLtMatrixLayoutDestroy(l->c);
        blas->library->cublasLtMatmulDescDestroy(l->description);
        free(l);
    }
}
#endif

static bool on_host(const struct blas *blas)
{
    return blas->device->ops->kind == ALNICO_DEVICE_CPU;
}

struct blas *blas_open(const struct study_device *device)
{
    struct blas *blas = study_memory(sizeof *blas);
    blas->device = device;
    if (on_host(blas))
        return blas;
#ifdef ALNICO_HAVE_CUDNN
    gpu_open(blas);
    return blas;
#else
    fprintf(stderr, "--device cuda: this build has no cuBLAS\n");
    exit(NOT_HERE);
#endif
}

void blas_close(struct blas *blas)
{
#ifdef ALNICO_HAVE_CUDNN
    if (blas->cublas) {
        lights_free(blas);
        blas->library->cublasDestroy_v2(blas->cublas);
        blas->device->ops->free(blas->workspace);
    }
#endif
    for (struct way *way = blas->ways, *next; way; way = next) {
        next = way->next;
        free(way);
    }
    free(blas);
}

void blas_multiply(struct blas *blas, const struct product *product)
{
    if (on_host(blas))
        host_multiply(product);
#ifdef ALNICO_HAVE_CUDNN
    else
        gpu_multiply(blas, product);
#endif
}

static struct way *way_make(struct blas *blas, const struct product *product)
{
    struct way *way = study_memory(sizeof *way);
    *way = (struct way){.next = blas->ways, .blas = blas, .product = product};
    return blas->ways = way;
}

static void way_run(void *context)
{
    const struct way *way = context;
    blas_multiply(way->blas, way->product);
}

int blas_works(struct blas *blas, const struct product *product, struct study_work works[BLAS_WAYS])
{
    int count = 0;
    works[count++] = (struct study_work){.run = way_run, .context = way_make(blas, product)};
#ifdef ALNICO_HAVE_CUDNN
    cublasLtMatmulHeuristicResult_t kernels[BLAS_WAYS - 1];
    struct light *light = on_host(blas) ? NULL : light_make(blas, product);
    const int found = light ? light_kernels(blas, light, kernels) : 0;
    for (int i = 0; i < found; i++) {
        struct way *way = way_make(blas, product);
        way->light = light;
        way->kernel = kernels[i].algo;
        works[count++] = (struct study_work){.run = light_run, .context = way};
    }
#endif
    return count;
}

double blas_best_us(const struct study_work *works, int count)
{
    double best = INFINITY;
    for (int i = 0; i < count; i++)
        best = fmin(best, works[i].us);
    return best;
}
