/* The ways of ways.h on a GPU: products by cuBLAS in float32, transforms by cuFFT, what
 * lies between them by kernels.h. On the device's stream, capturable. */
#include "benchmarks/studies/convolutions/kernels.h"
#include "benchmarks/studies/convolutions/winograd.h"
#include "benchmarks/studies/study.h"

#include <cublas_api.h>
#include <cufft.h>
#include <stdlib.h>

enum { WORKSPACE = 32 << 20 };

#define CUBLAS_FUNCTIONS(F)                                                                        \
    F(cublasCreate_v2)                                                                             \
    F(cublasDestroy_v2)                                                                            \
    F(cublasSetStream_v2)                                                                          \
    F(cublasSetWorkspace_v2)                                                                       \
    F(cublasSgemmStridedBatched)                                                                   \
    F(cublasCgemmStridedBatched)
#define CUFFT_FUNCTIONS(F)                                                                         \
    F(cufftPlanMany)                                                                               \
    F(cufftSetStream)                                                                              \
    F(cufftExecR2C)                                                                                \
    F(cufftExecC2R)                                                                                \
    F(cufftDestroy)

static struct {
    CUBLAS_FUNCTIONS(STUDY_FUNCTION)
    CUFFT_FUNCTIONS(STUDY_FUNCTION)
} lib;

struct way_memory {
    const struct study_device *device;
    struct shape shape;
    cublasHandle_t cublas;
    void *workspace;
    float *columns; /* im2col: convolution_columns */
    /* FFT: planes of rows x rows, and their spectra [frequency][plane]. */
    size_t rows;
    float *planes;
    cufftComplex *spectra_x, *spectra_w, *spectra_y;
    cufftHandle plan_x, plan_w, plan_y;
    float *u, *v, *m; /* Winograd */
};

static void require(int error, const char *what)
{
    if (error)
        program_fail("%s failed with status %d", what, error);
}

static void libraries_find(void)
{
    static const char *const cublas_names[] = {"libcublas.so.13", "libcublas.so.12", NULL},
                             *const cufft_names[] = {"libcufft.so.12", "libcufft.so.11", NULL};
#define FIND(name) {#name, &lib.name},
    static const struct study_function cublas[] = {CUBLAS_FUNCTIONS(FIND)},
                                       cufft[] = {CUFFT_FUNCTIONS(FIND)};
#undef FIND
    study_library(cublas_names, cublas, sizeof cublas / sizeof *cublas);
    study_library(cufft_names, cufft, sizeof cufft / sizeof *cufft);
}

static struct way_memory *memory_open(const struct study_device *device, const struct shape *shape)
{
    struct way_memory *memory = study_memory(sizeof *memory);
    if (!lib.cufftDestroy)
        libraries_find();
    memory->device = device;
    memory->shape = *shape;
    memory->workspace = study_put(device, NULL, WORKSPACE);
    require(lib.cublasCreate_v2(&memory->cublas), "cublasCreate");
    require(lib.cublasSetStream_v2(memory->cublas, device->stream), "cublasSetStream");
    require(lib.cublasSetWorkspace_v2(memory->cublas, memory->workspace, WORKSPACE),
            "cublasSetWorkspace");
    return memory;
}

static void memory_close(struct way_memory *memory)
{
    void *const all[] = {memory->workspace, memory->columns,   memory->planes,
                         memory->spectra_x, memory->spectra_w, memory->spectra_y,
                         memory->u,         memory->v,         memory->m};
    require(lib.cublasDestroy_v2(memory->cublas), "cublasDestroy");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        memory->device->ops->free(all[i]);
    free(memory);
}

static float *numbers_take(const struct way_memory *memory, size_t count)
{
    return study_put(memory->device, NULL, count * sizeof(float));
}

/* A product of matrices of rows: c (rows x columns) = a (rows x depth) b (depth x columns), so many
 * times. To cuBLAS a matrix of rows is the transposed one. */
static void multiply(const struct way_memory *memory, size_t rows, size_t columns, size_t depth,
                     const float *a, size_t a_step, const float *b, float *c, size_t times)
{
    const float one = 1, zero = 0;
    require(lib.cublasSgemmStridedBatched(
                memory->cublas, CUBLAS_OP_N, CUBLAS_OP_N, (int)columns, (int)rows, (int)depth, &one,
                b, (int)columns, (long long)(depth * columns), a, (int)depth, (long long)a_step,
                &zero, c, (int)columns, (long long)(rows * columns), (int)times),
            "cublasSgemmStridedBatched");
}

/* ---- A product of matrices ---- */

static size_t depth_of(const struct shape *s)
{
    return s->channels * s->window * s->window;
}

static struct way_memory *im2col_open(const struct study_device *device, const struct shape *s)
{
    struct way_memory *memory = memory_open(device, s);
    memory->columns = numbers_take(memory, s->images * depth_of(s) * s->side * s->side);
    return memory;
}

static void im2col_run(struct way_memory *memory, const float *x, const float *w, float *y)
{
    const struct shape *s = &memory->shape;
    require(convolution_columns(s, x, memory->columns, memory->device->stream), "im2col");
    multiply(memory, s->filters, s->side * s->side, depth_of(s), w, 0, memory->columns, y,
             s->images);
}

/* ---- Transforms ---- */

/* Transforms of so many planes to spectra, or back. */
static cufftHandle plan_make(const struct way_memory *memory, cufftType type, size_t planes)
{
    int side = (int)memory->rows, half = side / 2 + 1, count = (int)planes;
    int sides[] = {side, side}, halves[] = {side, half};
    const bool forward = type == CUFFT_R2C;
    cufftHandle plan;
    require(lib.cufftPlanMany(&plan, 2, sides, forward ? sides : halves, forward ? 1 : count,
                              forward ? side * side : 1, forward ? halves : sides,
                              forward ? count : 1, forward ? 1 : side * side, type, count),
            "cufftPlanMany");
    require(lib.cufftSetStream(plan, memory->device->stream), "cufftSetStream");
    return plan;
}

static cufftComplex *spectra_take(const struct way_memory *memory, size_t planes)
{
    return study_put(memory->device, NULL,
                     planes * memory->rows * (memory->rows / 2 + 1) * sizeof(cufftComplex));
}

static struct way_memory *fft_open(const struct study_device *device, const struct shape *s)
{
    struct way_memory *memory = memory_open(device, s);
    const size_t of_x = s->images * s->channels, of_w = s->filters * s->channels,
                 of_y = s->images * s->filters, most = of_x > of_w ? of_x : of_w;
    memory->rows = convolution_fft_side(s);
    memory->planes =
        numbers_take(memory, (most > of_y ? most : of_y) * memory->rows * memory->rows);
    memory->spectra_x = spectra_take(memory, of_x);
    memory->spectra_w = spectra_take(memory, of_w);
    memory->spectra_y = spectra_take(memory, of_y);
    memory->plan_x = plan_make(memory, CUFFT_R2C, of_x);
    memory->plan_w = plan_make(memory, CUFFT_R2C, of_w);
    memory->plan_y = plan_make(memory, CUFFT_C2R, of_y);
    return memory;
}

static void fft_close(struct way_memory *memory)
{
    const cufftHandle plans[] = {memory->plan_x, memory->plan_w, memory->plan_y};
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++)
        require(lib.cufftDestroy(plans[i]), "cufftDestroy");
    memory_close(memory);
}

/* y = x conj(w)^T at each frequency: a correlation. */
static void spectra_multiply(const struct way_memory *memory)
{
    const struct shape *s = &memory->shape;
    const size_t frequencies = memory->rows * (memory->rows / 2 + 1);
    const cuComplex share = {1 / (float)(memory->rows * memory->rows), 0}, zero = {0, 0};
    const int images = (int)s->images, filters = (int)s->filters, channels = (int)s->channels;
    require(lib.cublasCgemmStridedBatched(
                memory->cublas, CUBLAS_OP_C, CUBLAS_OP_N, filters, images, channels, &share,
                memory->spectra_w, channels, (long long)filters * channels, memory->spectra_x,
                channels, (long long)images * channels, &zero, memory->spectra_y, filters,
                (long long)images * filters, (int)frequencies),
            "cublasCgemmStridedBatched");
}

static void fft_run(struct way_memory *memory, const float *x, const float *w, float *y)
{
    const struct shape *s = &memory->shape;
    void *const stream = memory->device->stream;
    require(convolution_pad(x, s->images * s->channels, s->side, 0, memory->rows, memory->planes,
                            stream),
            "padding images");
    require(lib.cufftExecR2C(memory->plan_x, memory->planes, memory->spectra_x), "cufftExecR2C");
    require(convolution_pad(w, s->filters * s->channels, s->window, s->window / 2, memory->rows,
                            memory->planes, stream),
            "padding weights");
    require(lib.cufftExecR2C(memory->plan_w, memory->planes, memory->spectra_w), "cufftExecR2C");
    spectra_multiply(memory);
    require(lib.cufftExecC2R(memory->plan_y, memory->spectra_y, memory->planes), "cufftExecC2R");
    require(
        convolution_crop(memory->planes, s->images * s->filters, memory->rows, s->side, y, stream),
        "cropping");
}

/* ---- Winograd ---- */

static struct way_memory *winograd_open(const struct study_device *device, const struct shape *s)
{
    struct way_memory *memory = memory_open(device, s);
    memory->u = numbers_take(memory, WINOGRAD_PRODUCTS * s->filters * s->channels);
    memory->v = numbers_take(memory, WINOGRAD_PRODUCTS * s->channels * shape_tiles(s));
    memory->m = numbers_take(memory, WINOGRAD_PRODUCTS * s->filters * shape_tiles(s));
    return memory;
}

static void winograd_run(struct way_memory *memory, const float *x, const float *w, float *y)
{
    const struct shape *s = &memory->shape;
    void *const stream = memory->device->stream;
    require(convolution_winograd_weights(s, w, memory->u, stream), "Winograd's weights");
    require(convolution_winograd_pixels(s, x, memory->v, stream), "Winograd's pixels");
    multiply(memory, s->filters, shape_tiles(s), s->channels, memory->u, s->filters * s->channels,
             memory->v, memory->m, WINOGRAD_PRODUCTS);
    require(convolution_winograd_results(s, memory->m, y, stream), "Winograd's results");
}

const struct convolution_way convolution_ways_gpu[CONVOLUTION_WAYS] = {
    {.name = "im2col", .open = im2col_open, .close = memory_close, .run = im2col_run},
    {.name = "FFT", .open = fft_open, .close = fft_close, .run = fft_run},
    {.name = "Winograd",
     .window = 3,
     .open = winograd_open,
     .close = memory_close,
     .run = winograd_run}};
