/*
 * How fast the CPU's reductions move memory: every type's sum beside a plain loop that adds floats
 * (as in STREAM), out of place and in place. Both take turns in one run, and medians are compared;
 * each moves three words an element: two reads, one write. Checks every element once.
 */
#include "base/datatype.h"
#include "base/replace.h"
#include "device/cpu/math.h"
#include "tools/common/program.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { VALUES = 32, LEFT = 7, RIGHT = 9, ALIGNMENT = 4096 };

struct options {
    size_t bytes; /* of one array */
    int repetitions;
    const char *json;
};

/* Arrays of `bytes` bytes: the plain loop's, and the reduction's. */
struct arrays {
    float *plain_out, *plain_a, *plain_b;
    unsigned char *out, *a, *b;
};

struct result {
    const char *type;
    bool in_place;
    double plain_gbps, sum_gbps;
};

/* The thread's own seconds: what else the machine does takes turns with us, and does not count. */
static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static __attribute__((noinline)) void plain_add(float *restrict out, const float *restrict a,
                                                const float *restrict b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[i] = a[i] + b[i];
}

static __attribute__((noinline)) void plain_add_to(float *restrict a, const float *restrict b,
                                                   size_t count)
{
    for (size_t i = 0; i < count; i++)
        a[i] += b[i];
}

/* The small number `value` as an element of the type. */
static void encode(alnico_datatype_t type, int value, void *element)
{
    uint8_t u8 = (uint8_t)value;
    uint32_t u32 = (uint32_t)value;
    uint64_t u64 = (uint64_t)value;
    float f32 = (float)value;
    double f64 = value;
    uint16_t half, bfloat;
    uint8_t e4m3, e5m2;
    math_narrow(&half, &f32, 1, ALNICO_FLOAT16);
    math_narrow(&bfloat, &f32, 1, ALNICO_BFLOAT16);
    math_narrow(&e4m3, &f32, 1, ALNICO_FLOAT8_E4M3);
    math_narrow(&e5m2, &f32, 1, ALNICO_FLOAT8_E5M2);
    const void *const from[DATATYPES] = {
        [ALNICO_INT8] = &u8,      [ALNICO_UINT8] = &u8,         [ALNICO_INT32] = &u32,
        [ALNICO_UINT32] = &u32,   [ALNICO_INT64] = &u64,        [ALNICO_UINT64] = &u64,
        [ALNICO_FLOAT16] = &half, [ALNICO_BFLOAT16] = &bfloat,  [ALNICO_FLOAT32] = &f32,
        [ALNICO_FLOAT64] = &f64,  [ALNICO_FLOAT8_E4M3] = &e4m3, [ALNICO_FLOAT8_E5M2] = &e5m2,
    };
    memcpy(element, from[type], datatype_bytes(type));
}

static void fill(unsigned char *array, size_t count, alnico_datatype_t type, int period)
{
    size_t width = datatype_bytes(type);
    for (size_t i = 0; i < count; i++)
        encode(type, (int)(i % (size_t)period), array + i * width);
}

static bool check(const unsigned char *array, size_t count, alnico_datatype_t type)
{
    unsigned char expected[VALUES][8];
    size_t width = datatype_bytes(type);
    for (int value = 0; value < VALUES; value++)
        encode(type, value, expected[value]);
    for (size_t i = 0; i < count; i++)
        if (memcmp(array + i * width, expected[i % LEFT + i % RIGHT], width) != 0) {
            fprintf(stderr, "reduce_bandwidth: %s: element %zu is wrong\n", datatype_name(type), i);
            return false;
        }
    return true;
}

static int compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare_doubles);
    return values[count / 2];
}

/* Times both loops in turn; seconds[0] are the plain loop's, seconds[1] the reduction's. */
static void time_both(const struct options *options, const struct arrays *arrays, void *out,
                      alnico_datatype_t type, double *seconds[2])
{
    size_t floats = options->bytes / sizeof(float), count = options->bytes / datatype_bytes(type);
    for (int i = 0; i < options->repetitions; i++) {
        double start = now();
        if (out == arrays->a)
            plain_add_to(arrays->plain_a, arrays->plain_b, floats);
        else
            plain_add(arrays->plain_out, arrays->plain_a, arrays->plain_b, floats);
        double middle = now();
        math_reduce(out, arrays->a, arrays->b, count, type, ALNICO_SUM);
        seconds[0][i] = middle - start;
        seconds[1][i] = now() - middle;
    }
}

/* Measures one type; false if a value was wrong or memory is short. */
static bool measure(const struct options *options, const struct arrays *arrays,
                    alnico_datatype_t type, bool in_place, struct result *result)
{
    size_t count = options->bytes / datatype_bytes(type);
    void *out = in_place ? arrays->a : arrays->out;
    fill(arrays->a, count, type, LEFT);
    fill(arrays->b, count, type, RIGHT);
    memset(arrays->out, 0xff, options->bytes);
    math_reduce(out, arrays->a, arrays->b, count, type, ALNICO_SUM);
    if (!check(out, count, type))
        return false;
    double *times = malloc(2 * (size_t)options->repetitions * sizeof *times);
    if (!times)
        return false;
    double *seconds[2] = {times, times + options->repetitions};
    time_both(options, arrays, out, type, seconds);
    double gigabytes = 3e-9 * (double)options->bytes;
    *result = (struct result){datatype_name(type), in_place,
                              gigabytes / median(seconds[0], options->repetitions),
                              gigabytes / median(seconds[1], options->repetitions)};
    free(times);
    return true;
}

static void write_json(const struct options *options, const struct result *results, int count)
{
    struct replacement json;
    program_check(replacement_begin(options->json, REPLACEMENT_ANY, &json), "--json");
    fprintf(json.file, "{\"bytes\": %zu, \"repetitions\": %d, \"results\": [", options->bytes,
            options->repetitions);
    for (int i = 0; i < count; i++)
        fprintf(json.file,
                "%s\n  {\"type\": \"%s\", \"in_place\": %s, \"plain_gbps\": %.3f, "
                "\"sum_gbps\": %.3f, \"ratio\": %.3f}",
                i ? "," : "", results[i].type, results[i].in_place ? "true" : "false",
                results[i].plain_gbps, results[i].sum_gbps,
                results[i].sum_gbps / results[i].plain_gbps);
    fprintf(json.file, "\n]}\n");
    program_check(replacement_finish(&json), "--json");
}

/* Six arrays in one block, touched once; the caller frees plain_out. */
static bool allocate(size_t bytes, struct arrays *arrays)
{
    unsigned char *block = aligned_alloc(ALIGNMENT, 6 * bytes);
    if (!block)
        return false;
    memset(block, 0, 6 * bytes);
    *arrays = (struct arrays){.plain_out = (float *)block,
                              .plain_a = (float *)(block + bytes),
                              .plain_b = (float *)(block + 2 * bytes),
                              .out = block + 3 * bytes,
                              .a = block + 4 * bytes,
                              .b = block + 5 * bytes};
    return true;
}

static int usage(FILE *file, int status)
{
    fprintf(file, "usage: reduce_bandwidth [--bytes N] [--repetitions N] [--json FILE]\n"
                  "  --bytes N        bytes of each array, a multiple of 4096 (16777216)\n"
                  "  --repetitions N  timed passes, of which the median counts (31)\n"
                  "  --json FILE      also write the figures to FILE\n");
    return status;
}

/* Returns -1 to go on, or the exit status. */
static int parse(int argc, char **argv, struct options *options)
{
    static const struct option known[] = {
        {"bytes", required_argument, NULL, 'b'},
        {"repetitions", required_argument, NULL, 'r'},
        {"json", required_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        if (option == 'b')
            options->bytes = strtoull(optarg, NULL, 10);
        else if (option == 'r')
            options->repetitions = (int)strtol(optarg, NULL, 10);
        else if (option == 'j')
            options->json = optarg;
        else
            return option == 'h' ? usage(stdout, 0) : usage(stderr, 2);
    }
    bool valid = options->bytes > 0 && options->bytes % ALIGNMENT == 0 &&
                 options->bytes <= (size_t)1 << 32 && options->repetitions > 0;
    return valid && optind == argc ? -1 : usage(stderr, 2);
}

int main(int argc, char **argv)
{
    struct options options = {.bytes = 16 << 20, .repetitions = 31};
    struct result results[2 * DATATYPES];
    struct arrays arrays;
    program_start();
    int status = parse(argc, argv, &options), count = 0;
    if (status >= 0)
        return status;
    if (!allocate(options.bytes, &arrays)) {
        fprintf(stderr, "reduce_bandwidth: out of memory\n");
        return 1;
    }
    printf("# arrays of %zu bytes, median of %d\n", options.bytes, options.repetitions);
    printf("%-12s %-8s %12s %12s %7s\n", "type", "in place", "plain GB/s", "sum GB/s", "ratio");
    bool right = true;
    for (int i = 0; i < 2 * DATATYPES && right; i++) {
        struct result *result = &results[i];
        right = measure(&options, &arrays, (alnico_datatype_t)(i / 2), i % 2, result);
        if (right)
            printf("%-12s %-8s %12.2f %12.2f %7.2f\n", result->type,
                   result->in_place ? "yes" : "no", result->plain_gbps, result->sum_gbps,
                   result->sum_gbps / result->plain_gbps);
        count += right;
    }
    if (options.json)
        write_json(&options, results, count);
    free(arrays.plain_out);
    return right ? 0 : 1;
}
