/* See train_check.h. */
#include "tests/gpu/train/check.h"

#include "train/base/random.h"
#include "train/kernels/kernels.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

enum { SHOWN = 4 };

size_t check_count, check_failures;
bool check_tentative;

struct train_gpu check_gpu(void)
{
    const float control[CONTROLS] = {[CONTROL_RATE] = 0.1f, [CONTROL_LOSS_SCALE] = 128};
    struct train_gpu gpu = {.programmatic = train_norm_programmatic()};
    struct cudaDeviceProp properties;
    cudaStream_t stream;
    int device = 0;
    GPU(cudaGetDevice(&device));
    GPU(cudaGetDeviceProperties(&properties, device));
    gpu.multiprocessors = properties.multiProcessorCount;
    GPU(cudaStreamCreate(&stream));
    gpu.stream = stream;
    GPU(cudaMalloc(&gpu.scratch, TRAIN_SCRATCH_BYTES));
    GPU(cudaMemset(gpu.scratch, 0, TRAIN_SCRATCH_BYTES));
    GPU(cudaMalloc((void **)&gpu.control, sizeof control));
    GPU(cudaMemcpy(gpu.control, control, sizeof control, cudaMemcpyHostToDevice));
    GPU(cudaDeviceSynchronize());
    printf("%s, %d multiprocessors\n", properties.name, gpu.multiprocessors);
    return gpu;
}

/* ---- Types ---- */

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint16_t to_bfloat16(float x)
{
    const uint32_t bits = bits_of(x);
    if (x != x)
        return 0x7fc0;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static uint16_t to_float16(float x)
{
    const uint16_t sign = (uint16_t)(bits_of(x) >> 16 & 0x8000);
    const double size = fabs((double)x);
    if (x != x)
        return 0x7e00;
    if (size >= 65520)
        return sign | 0x7c00;
    if (size < 0x1p-14) /* steps of 2^-24 */
        return (uint16_t)(sign | (uint16_t)nearbyint(size * 0x1p24));
    int exponent;
    const double fraction = frexp(size, &exponent); /* 0.5 to 1 */
    const uint32_t steps = (uint32_t)nearbyint(fraction * 2048);
    return (uint16_t)(sign | (uint16_t)(((uint32_t)(exponent + 13) << 10) + steps));
}

static float from_float16(uint16_t bits)
{
    const int exponent = bits >> 10 & 31;
    const double fraction = bits & 1023, sign = bits & 0x8000 ? -1 : 1;
    if (exponent == 31)
        return (float)(fraction != 0 ? (double)NAN : sign * (double)INFINITY);
    return (float)(sign *
                   (exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24)));
}

float round_to(float x, int type)
{
    if (type == ALNICO_BFLOAT16)
        return float_of((uint32_t)to_bfloat16(x) << 16);
    return type == ALNICO_FLOAT16 ? from_float16(to_float16(x)) : x;
}

double type_epsilon(int type)
{
    return type == ALNICO_BFLOAT16 ? 0x1p-7 : type == ALNICO_FLOAT16 ? 0x1p-10 : 0x1p-23;
}

const char *type_name(int type)
{
    return type == ALNICO_BFLOAT16 ? "bf16" : type == ALNICO_FLOAT16 ? "fp16" : "fp32";
}

/* ---- Vectors ---- */

static size_t element_bytes(int type)
{
    return type == ALNICO_FLOAT32 ? sizeof(float) : sizeof(uint16_t);
}

struct vector vector_make(size_t count, int type)
{
    struct vector v = {.host = calloc(count + 1, sizeof(float)), .count = count, .type = type};
    if (!v.host) {
        fprintf(stderr, "no memory\n");
        exit(EXIT_FAILURE);
    }
    GPU(cudaMalloc(&v.gpu, (count + 1) * element_bytes(type)));
    return v;
}

void vector_free(struct vector *vector)
{
    free(vector->host);
    GPU(cudaFree(vector->gpu));
}

void vector_put(struct vector *v)
{
    uint16_t *narrow = malloc((v->count + 1) * sizeof *narrow);
    for (size_t i = 0; i < v->count; i++)
        v->host[i] = round_to(v->host[i], v->type);
    for (size_t i = 0; i < v->count; i++)
        narrow[i] = v->type == ALNICO_FLOAT16 ? to_float16(v->host[i]) : to_bfloat16(v->host[i]);
    const bool wide = v->type == ALNICO_FLOAT32;
    GPU(cudaMemcpy(v->gpu, wide ? (void *)v->host : (void *)narrow,
                   v->count * element_bytes(v->type), cudaMemcpyHostToDevice));
    free(narrow);
}

void vector_get(struct vector *v)
{
    uint16_t *narrow = malloc((v->count + 1) * sizeof *narrow);
    const bool wide = v->type == ALNICO_FLOAT32;
    GPU(cudaMemcpy(wide ? (void *)v->host : (void *)narrow, v->gpu,
                   v->count * element_bytes(v->type), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < v->count && !wide; i++)
        v->host[i] = v->type == ALNICO_FLOAT16 ? from_float16(narrow[i])
                                               : float_of((uint32_t)narrow[i] << 16);
    free(narrow);
}

struct vector vector_random(size_t count, int type, uint64_t *state, double middle, double width)
{
    struct vector v = vector_make(count, type);
    for (size_t i = 0; i < count; i++)
        v.host[i] = (float)(middle + width * (2 * random_unit(state) - 1));
    vector_put(&v);
    return v;
}

struct vector vector_padded(uint64_t *state, size_t rows, unsigned channels, unsigned padded,
                            int type, double middle)
{
    struct vector v = vector_random(rows * padded, type, state, middle, 1);
    for (size_t i = 0; i < rows * padded; i++)
        if (i % padded >= channels)
            v.host[i] = 0;
    vector_put(&v);
    return v;
}

struct vector vector_poisoned(size_t count, int type)
{
    struct vector v = vector_make(count, type);
    GPU(cudaMemset(v.gpu, 0xff, count * element_bytes(type)));
    return v;
}

/* ---- Comparing ---- */

void check_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf(check_tentative ? "     not yet: " : "FAIL ");
    vprintf(format, arguments);
    printf("\n");
    fflush(stdout);
    va_end(arguments);
    check_failures++;
}

bool check_close(const char *what, const float *got, const double *expected, size_t count,
                 double absolute, double relative)
{
    size_t wrong = 0;
    check_count++;
    for (size_t i = 0; i < count; i++) {
        const double apart = fabs(got[i] - expected[i]);
        if (apart <= absolute + relative * fabs(expected[i]))
            continue;
        if (wrong++ < SHOWN)
            printf("     %s: element %zu is %.9g, expected %.9g\n", what, i, got[i], expected[i]);
    }
    if (wrong)
        check_fail("%s: %zu of %zu elements differ", what, wrong, count);
    return !wrong;
}

bool check_distance(const char *what, const float *got, const float *expected, size_t count,
                    double most, bool loud)
{
    double apart = 0, length = 0;
    check_count++;
    for (size_t i = 0; i < count; i++) {
        apart += pow((double)got[i] - expected[i], 2);
        length += pow((double)expected[i], 2);
    }
    const double distance = sqrt(apart) / (sqrt(length) + 1e-30);
    const bool fine = distance <= most;
    if (loud)
        printf("     %s: apart by %.3g of their length\n", what, distance);
    if (!fine)
        check_fail("%s: apart by %.3g of their length, expected at most %.3g", what, distance,
                   most);
    return fine;
}

int check_ways(int count, char **arguments)
{
    if (count < 2 || strncmp(arguments[count - 1], "ways=", 5) != 0)
        return count;
    setenv("ALNICO_TRAIN_WAYS", arguments[count - 1] + 5, 1);
    printf("ways: %s\n", arguments[count - 1] + 5);
    return count - 1;
}

int check_result(const char *name)
{
    printf("%s: %zu checks, %zu failed\n", name, check_count, check_failures);
    return check_failures || !check_count ? EXIT_FAILURE : EXIT_SUCCESS;
}

void launched(void *stream, int error, const char *kernel)
{
    if (error == cudaSuccess)
        error = (int)cudaStreamSynchronize(stream);
    if (error == cudaSuccess)
        return;
    printf("FAIL %s: %s: %s\n", kernel, cudaGetErrorName((cudaError_t)error),
           cudaGetErrorString((cudaError_t)error));
    exit(EXIT_FAILURE);
}

double *doubles(size_t count)
{
    double *all = calloc(count + 1, sizeof *all);
    if (!all)
        exit(EXIT_FAILURE);
    return all;
}
