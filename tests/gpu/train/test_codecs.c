/* The codecs on a GPU against those on the CPU: the same encoded bytes, residuals and sums, at any
 * alignment, launch by launch and by replays of a graph. Prints what part of a copy's bandwidth each
 * reaches. Prints every difference and goes on. */
#include "tests/gpu/train/check.h"
#include "tests/train/strategies/codec_cases.h"

#include "base/float16.h"

enum { PARTS = 3, AWRY = 4 /* floats before which a range may begin */ };

static uint64_t state = 2026;
static void *stream;
static struct codec_place gpu_place, cpu_place;

/* The same range on both sides; `gpu` has the GPU's pointers. */
struct bench {
    struct codec codec;
    struct codec_pass cpu, gpu;
    size_t bytes, awry;
    float *scale; /* on the GPU */
    char name[96];
};

static void *gpu_memory(size_t bytes)
{
    void *memory;
    GPU(cudaMalloc(&memory, bytes));
    GPU(cudaMemset(memory, 0xff, bytes));
    return memory;
}

static void *cpu_memory(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (!memory)
        exit(EXIT_FAILURE);
    return memory;
}

static void ran(const struct bench *b, alnico_status_t status)
{
    if (status == ALNICO_SUCCESS)
        GPU(cudaStreamSynchronize(stream));
    else
        check_fail("%s: %s", b->name, alnico_error_detail());
}

static struct bench bench_make(const char *text, enum codec_fill fill, size_t count, size_t awry)
{
    static float scale = 1024;
    struct bench b = {.awry = awry};
    snprintf(b.name, sizeof b.name, "%s of %zu, numbers %d, begin %zu", text, count, (int)fill,
             awry);
    if (codec_parse(text, &b.codec))
        exit(EXIT_FAILURE);
    b.bytes = (codec_bytes(&b.codec, count) + 3) / 4 * 4;
    b.cpu = b.gpu = (struct codec_pass){.count = count,
                                        .keep = codec_keep(&b.codec, count),
                                        .parts = PARTS,
                                        .stride = b.bytes,
                                        .factor = 1.0f / PARTS};
    b.cpu.values = cpu_memory(count * sizeof(float));
    b.cpu.residual = cpu_memory(count * sizeof(float));
    b.cpu.encoded = cpu_memory(PARTS * b.bytes);
    b.cpu.scratch = cpu_memory(codec_scratch(&b.codec, &cpu_place, &b.cpu) + 1);
    b.cpu.scale = awry % 2 ? &scale : NULL;
    b.gpu.values = (float *)gpu_memory((count + AWRY) * sizeof(float)) + awry;
    b.gpu.residual = (float *)gpu_memory((count + AWRY) * sizeof(float)) + awry;
    b.gpu.encoded = (float *)gpu_memory(PARTS * b.bytes + AWRY * sizeof(float)) + awry;
    b.gpu.scratch = gpu_memory(codec_scratch(&b.codec, &gpu_place, &b.gpu) + 1);
    b.scale = gpu_memory(sizeof scale);
    GPU(cudaMemcpy(b.scale, &scale, sizeof scale, cudaMemcpyHostToDevice));
    b.gpu.scale = b.cpu.scale ? b.scale : NULL;
    codec_fill(FILL_NORMAL, b.cpu.residual, count, &state);
    GPU(cudaMemcpy(b.gpu.residual, b.cpu.residual, count * sizeof(float), cudaMemcpyHostToDevice));
    return b;
}

static void bench_free(struct bench *b)
{
    free(b->cpu.values);
    free(b->cpu.residual);
    free(b->cpu.encoded);
    free(b->cpu.scratch);
    GPU(cudaFree(b->gpu.values - b->awry));
    GPU(cudaFree(b->gpu.residual - b->awry));
    GPU(cudaFree((float *)b->gpu.encoded - b->awry));
    GPU(cudaFree(b->gpu.scratch));
    GPU(cudaFree(b->scale));
}

/* How words are compared: by their bits, but for numbers that are none. */
enum words { WORDS_BITS, WORDS_FLOAT32, WORDS_FLOAT16, WORDS_BFLOAT16 };

static bool half_alike(uint32_t x, uint32_t y, float (*from)(uint16_t))
{
    return (uint16_t)x == (uint16_t)y || (isnan(from((uint16_t)x)) && isnan(from((uint16_t)y)));
}

static bool alike(enum words words, uint32_t x, uint32_t y)
{
    float (*const from)(uint16_t) = words == WORDS_FLOAT16 ? from_half : from_bfloat;
    if (words == WORDS_FLOAT16 || words == WORDS_BFLOAT16)
        return half_alike(x, y, from) && half_alike(x >> 16, y >> 16, from);
    return x == y || (words == WORDS_FLOAT32 && isnan(float32(x)) && isnan(float32(y)));
}

/* Of the encoded form; topk's indices are no NaNs. */
static enum words words_of(const struct codec *codec)
{
    return codec->ops == &codec_bf16   ? WORDS_BFLOAT16
           : codec->ops == &codec_fp16 ? WORDS_FLOAT16
           : codec->ops == &codec_topk ? WORDS_FLOAT32
                                       : WORDS_BITS;
}

static void compare(const struct bench *b, const char *what, enum words words, const void *cpu,
                    const void *gpu, size_t bytes)
{
    uint32_t *got = cpu_memory(bytes + sizeof *got);
    size_t wrong = 0, first = 0;
    check_count++;
    GPU(cudaMemcpy(got, gpu, bytes, cudaMemcpyDeviceToHost));
    const uint32_t *expected = cpu;
    for (size_t i = 0; i < bytes / sizeof *got; i++)
        if (!alike(words, got[i], expected[i]) && wrong++ == 0)
            first = i;
    if (wrong)
        check_fail("%s: %s: %zu words differ, the first is %zu: %08x, expected %08x", b->name, what,
                   wrong, first, got[first], expected[first]);
    free(got);
}

static void parts_check(struct bench *b, enum codec_fill fill)
{
    char *cpu = b->cpu.encoded, *gpu = b->gpu.encoded;
    for (size_t part = 0; part < PARTS; part++) {
        b->cpu.encoded = cpu + part * b->bytes;
        b->gpu.encoded = gpu + part * b->bytes;
        codec_fill(fill, b->cpu.values, b->cpu.count, &state);
        GPU(cudaMemcpy(b->gpu.values, b->cpu.values, b->cpu.count * sizeof(float),
                       cudaMemcpyHostToDevice));
        ran(b, codec_encode(&b->codec, &cpu_place, &b->cpu));
        ran(b, codec_encode(&b->codec, &gpu_place, &b->gpu));
        compare(b, "encoded", words_of(&b->codec), b->cpu.encoded, b->gpu.encoded,
                codec_bytes(&b->codec, b->cpu.count) / 4 * 4);
        compare(b, "residual", WORDS_FLOAT32, b->cpu.residual, b->gpu.residual,
                b->cpu.count * sizeof(float));
    }
    b->cpu.encoded = cpu;
    b->gpu.encoded = gpu;
    ran(b, codec_decode(&b->codec, &cpu_place, &b->cpu));
    ran(b, codec_decode(&b->codec, &gpu_place, &b->gpu));
    compare(b, "sum", WORDS_FLOAT32, b->cpu.values, b->gpu.values, b->cpu.count * sizeof(float));
}

static void check_cases(void)
{
    for (size_t t = 0; t < CODEC_TEXTS; t++)
        for (int fill = 0; fill < CODEC_FILLS; fill++)
            for (size_t i = 0; i < CODEC_COUNTS; i++) {
                struct bench b = bench_make(codec_texts[t], (enum codec_fill)fill, codec_counts[i],
                                            (i + (size_t)fill) % AWRY);
                parts_check(&b, (enum codec_fill)fill);
                bench_free(&b);
            }
}

/* Encoding and decoding captured, and replayed twice on other numbers each. */
static void check_graph(const char *text)
{
    enum { COUNT = 200003 };
    struct bench b = bench_make(text, FILL_NORMAL, COUNT, 1);
    struct device_graph *graph = NULL;
    b.cpu.parts = b.gpu.parts = 1;
    if (device_cuda.graph_begin(stream) || codec_encode(&b.codec, &gpu_place, &b.gpu) ||
        codec_decode(&b.codec, &gpu_place, &b.gpu) || device_cuda.graph_end(stream, &graph))
        check_fail("%s: capturing: %s", b.name, alnico_error_detail());
    for (int replay = 0; graph && replay < 2; replay++) {
        codec_fill(FILL_NORMAL, b.cpu.values, COUNT, &state);
        GPU(cudaMemcpy(b.gpu.values, b.cpu.values, COUNT * sizeof(float), cudaMemcpyHostToDevice));
        ran(&b, codec_encode(&b.codec, &cpu_place, &b.cpu));
        ran(&b, codec_decode(&b.codec, &cpu_place, &b.cpu));
        ran(&b, device_cuda.graph_launch(graph, stream));
        compare(&b, "sum of a replay", WORDS_FLOAT32, b.cpu.values, b.gpu.values,
                COUNT * sizeof(float));
        compare(&b, "residual of a replay", WORDS_FLOAT32, b.cpu.residual, b.gpu.residual,
                COUNT * sizeof(float));
    }
    if (graph)
        device_cuda.graph_destroy(graph);
    bench_free(&b);
}

/* Median seconds of a pass or, with no codec, of a copy. */
static double seconds_of(const struct codec *codec,
                         alnico_status_t (*run)(const struct codec *, const struct codec_place *,
                                                struct codec_pass *),
                         struct codec_pass *pass)
{
    enum { RUNS = 9 };
    float all[RUNS];
    cudaEvent_t begin, end;
    GPU(cudaEventCreate(&begin));
    GPU(cudaEventCreate(&end));
    for (int i = -2; i < RUNS; i++) {
        GPU(cudaEventRecord(begin, stream));
        if (!run)
            GPU(cudaMemcpyAsync(pass->residual, pass->values, pass->count * sizeof(float),
                                cudaMemcpyDeviceToDevice, stream));
        else if (run(codec, &gpu_place, pass))
            exit(EXIT_FAILURE);
        GPU(cudaEventRecord(end, stream));
        GPU(cudaEventSynchronize(end));
        GPU(cudaEventElapsedTime(&all[i < 0 ? 0 : i], begin, end));
    }
    for (int i = 0; i < RUNS; i++)
        for (int k = i + 1; k < RUNS; k++)
            if (all[k] < all[i]) {
                const float swap = all[i];
                all[i] = all[k];
                all[k] = swap;
            }
    GPU(cudaEventDestroy(begin));
    GPU(cudaEventDestroy(end));
    return all[RUNS / 2] * 1e-3;
}

/* Bytes that a codec has to read and write once: numbers, their encoded form and twice the
 * residual. */
static void bandwidth_print(const char *text, size_t count, double copy)
{
    struct bench b = bench_make(text, FILL_NORMAL, count, 0);
    float *numbers = cpu_memory(count * sizeof *numbers);
    codec_fill(FILL_NORMAL, numbers, count, &state);
    GPU(cudaMemcpy(b.gpu.values, numbers, count * sizeof *numbers, cudaMemcpyHostToDevice));
    const double all = (double)count * sizeof *numbers;
    double bytes = all + (double)b.bytes + (b.codec.ops->residual ? 2 * all : 0);
    double rate = bytes / seconds_of(&b.codec, codec_encode, &b.gpu);
    printf("     %s, %zu numbers: encode %.0f GB/s, %.2f of a copy", text, count, rate * 1e-9,
           rate / copy);
    for (size_t part = 1; part < PARTS; part++)
        GPU(cudaMemcpy((char *)b.gpu.encoded + part * b.bytes, b.gpu.encoded, b.bytes,
                       cudaMemcpyDeviceToDevice));
    for (b.gpu.parts = 1; b.gpu.parts <= PARTS; b.gpu.parts += PARTS - 1) {
        bytes = all + (double)(b.bytes * b.gpu.parts);
        rate = bytes / seconds_of(&b.codec, codec_decode, &b.gpu);
        printf("; decode %zu: %.0f GB/s, %.2f", b.gpu.parts, rate * 1e-9, rate / copy);
    }
    printf("\n");
    free(numbers);
    bench_free(&b);
}

static void print_bandwidths(void)
{
    const size_t counts[] = {6553600, 62378344};
    const char *const texts[] = {"bf16", "fp16", "int8", "topk:0.01", "topk:0.001"};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct bench b = bench_make("none", FILL_NORMAL, counts[i], 0);
        const double copy = 2 * (double)counts[i] * sizeof(float) / seconds_of(NULL, NULL, &b.gpu);
        printf("     copy of %zu numbers: %.0f GB/s\n", counts[i], copy * 1e-9);
        bench_free(&b);
        for (size_t t = 0; t < sizeof texts / sizeof *texts; t++)
            bandwidth_print(texts[t], counts[i], copy);
    }
}

int main(void)
{
    gpu_require(1);
    if (device_cuda.stream_create(&stream) || codec_place_make(&device_cuda, stream, &gpu_place) ||
        codec_place_make(&device_cpu, NULL, &cpu_place)) {
        printf("FAIL %s\n", alnico_error_detail());
        return EXIT_FAILURE;
    }
    check_cases();
    for (size_t t = 0; t < CODEC_TEXTS; t++)
        check_graph(codec_texts[t]);
    print_bandwidths();
    return check_result("codecs");
}
