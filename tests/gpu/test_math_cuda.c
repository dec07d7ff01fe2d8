/* The GPU's arithmetic by the tests of the CPU's, against the same references: every operand goes
 * through GPU memory, at the same offset from an aligned address and between margins that must stay
 * as they are. */
#include "tests/gpu/support/gpu.h"

#include "base/datatype.h"
#include "device/cpu/math.h"

#include <stdint.h>
#include <string.h>

static void gpu_reduce(void *dst, const void *a, const void *b, size_t count,
                       alnico_datatype_t type, alnico_op_t op);
static void gpu_divide(void *dst, const void *src, size_t count, alnico_datatype_t type, int ranks);
int cpu_main(void);

#define math_reduce gpu_reduce
#define math_divide gpu_divide
#define main cpu_main
#include "tests/unit/device/test_math_cpu.c"
#undef main
#undef math_reduce
#undef math_divide

enum { MARGIN = 64, ROOM = 65536 * 8 + 2 * MARGIN, AREAS = 3 };

/* One area for each operand, on the GPU and its image. */
static unsigned char *memory, *image;

static void make_areas(void)
{
    GPU(cudaMalloc((void **)&memory, AREAS * ROOM));
    GPU(cudaMallocHost((void **)&image, AREAS * ROOM));
}

/* Where an operand lies in its area: aligned as the caller's. */
static size_t place(int area, const void *operand)
{
    return (size_t)area * ROOM + MARGIN + (uintptr_t)operand % 16;
}

static void put(int area, const void *operand, size_t bytes)
{
    memset(image + (size_t)area * ROOM, POISON, bytes + 2 * MARGIN + 16);
    memcpy(image + place(area, operand), operand, bytes);
    GPU(cudaMemcpy(memory + (size_t)area * ROOM, image + (size_t)area * ROOM,
                   bytes + 2 * MARGIN + 16, cudaMemcpyHostToDevice));
}

static void get(int area, void *operand, size_t bytes)
{
    unsigned char *start = image + (size_t)area * ROOM, *data = image + place(area, operand);
    GPU(cudaMemcpy(start, memory + (size_t)area * ROOM, bytes + 2 * MARGIN + 16,
                   cudaMemcpyDeviceToHost));
    for (unsigned char *at = start; at < start + bytes + 2 * MARGIN + 16; at++)
        if ((at < data || at >= data + bytes) && *at != POISON)
            fail_msg("%td bytes from a result of %zu bytes was written", at - data, bytes);
    memcpy(operand, data, bytes);
}

static void *on_gpu(int area, const void *operand)
{
    return memory + place(area, operand);
}

/* In place stays in place. */
static void gpu_reduce(void *dst, const void *a, const void *b, size_t count,
                       alnico_datatype_t type, alnico_op_t op)
{
    size_t bytes = count * datatype_bytes(type);
    int left = 0, right = b == a ? 0 : 1, out = dst == a ? left : dst == b ? right : 2;
    put(left, a, bytes);
    if (right)
        put(right, b, bytes);
    if (out == 2)
        put(out, dst, bytes);
    assert_int_equal(device_cuda.reduce(on_gpu(out, dst), on_gpu(left, a), on_gpu(right, b), count,
                                        type, op, NULL),
                     ALNICO_SUCCESS);
    get(out, dst, bytes);
}

static void gpu_divide(void *dst, const void *src, size_t count, alnico_datatype_t type, int ranks)
{
    size_t bytes = count * datatype_bytes(type);
    int out = dst == src ? 0 : 2;
    put(0, src, bytes);
    if (out == 2)
        put(out, dst, bytes);
    assert_int_equal(device_cuda.divide(on_gpu(out, dst), on_gpu(0, src), count, type, ranks, NULL),
                     ALNICO_SUCCESS);
    get(out, dst, bytes);
}

/* Longer than a grid takes at once; against the CPU's, which the tests above are for. */
static void long_vectors_are_the_cpus(void **state)
{
    (void)state;
    enum { COUNT = 3000017 };
    float *a = malloc(COUNT * sizeof *a), *b = malloc(COUNT * sizeof *b),
          *c = malloc(COUNT * sizeof *c);
    float *x, *y;
    assert_true(a && b && c);
    fill(ALNICO_FLOAT32, a, COUNT);
    fill(ALNICO_FLOAT32, b, COUNT);
    GPU(cudaMalloc((void **)&x, COUNT * sizeof *x));
    GPU(cudaMalloc((void **)&y, COUNT * sizeof *y));
    for (size_t shift = 0; shift < 2; shift++) {
        size_t count = COUNT - 1;
        math_reduce(c, a, b, count, ALNICO_FLOAT32, ALNICO_SUM);
        GPU(cudaMemcpy(x, a, count * sizeof *x, cudaMemcpyHostToDevice));
        GPU(cudaMemcpy(y + shift, b, count * sizeof *y, cudaMemcpyHostToDevice));
        assert_int_equal(
            device_cuda.reduce(x, x, y + shift, count, ALNICO_FLOAT32, ALNICO_SUM, NULL),
            ALNICO_SUCCESS);
        float *d = malloc(count * sizeof *d);
        assert_non_null(d);
        GPU(cudaMemcpy(d, x, count * sizeof *d, cudaMemcpyDeviceToHost));
        assert_memory_equal(c, d, count * sizeof *d);
        free(d);
    }
    GPU(cudaFree(x));
    GPU(cudaFree(y));
    free(a);
    free(b);
    free(c);
}

int main(void)
{
    gpu_require(1);
    assert_int_equal(device_cuda.prepare(), ALNICO_SUCCESS);
    make_areas();
    const char *given = getenv("TEST_SEED");
    seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    generator = seed;
    printf("TEST_SEED=%llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation_of_every_type_matches_the_reference),
        cmocka_unit_test(division_matches_the_reference),
        cmocka_unit_test(integers_wrap),
        cmocka_unit_test(bits_do_not_depend_on_position_or_order),
        cmocka_unit_test(loops_convert_every_16_bit_float),
        cmocka_unit_test(long_vectors_are_the_cpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
