/*
 * How long a training step takes on one GPU, without data, communication and the trainer's loop:
 * forward, backward and update on one random batch, launch by launch or as one CUDA graph; and with
 * --profile each step of the plan by itself.
 *
 *   train_step --model resnet50 --image 224 --classes 1000 --batch 256 --precision bf16 --graph --profile
 */
#include "tools/train/profile.h"

#include "base/log.h"
#include "base/replace.h"
#include "device/device.h"
#include "tools/common/program.h"
#include "train/base/random.h"
#include "train/kernels/methods.h"
#include "train/models/models.h"
#include "train/replica/replica.h"

#include <cuda_runtime_api.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS_MOST = 10000, NUMBER_MOST = 1000000 };

struct options {
    const char *model, *json;
    size_t image, classes; /* 0: as the model is usually trained on */
    size_t batch, steps;
    struct kernels_options kernels;
    alnico_datatype_t wire;
    bool graph, profile;
};

struct bench {
    const struct options *options;
    struct model_images images;
    struct network *network;
    struct replica *replica;
    cudaStream_t stream;
    cudaEvent_t *marks; /* between steps */
    cudaGraphExec_t graph;
    double *us; /* of each step */
};

static const struct optimizer_options optimizer = {.rate = 0.1, .momentum = 0.9, .decay = 5e-5};

static void require(alnico_status_t status, const char *doing)
{
    if (status == ALNICO_SUCCESS)
        return;
    fprintf(stderr, "train_step: %s: %s: %s\n", doing, alnico_status_string(status),
            alnico_error_detail());
    exit(EXIT_FAILURE);
}

static void gpu(cudaError_t error, const char *doing)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "train_step: %s: %s: %s\n", doing, cudaGetErrorName(error),
            cudaGetErrorString(error));
    exit(EXIT_FAILURE);
}

/* ---- The network and its batch ---- */

static void bench_load(struct bench *bench)
{
    const struct options *o = bench->options;
    const size_t each = tensor_elements(&bench->network->tensors[0]),
                 count = o->batch * bench->network->labels;
    float *images = malloc(o->batch * each * sizeof *images);
    int32_t *labels = malloc(count * sizeof *labels);
    uint64_t state = 1;
    if (!images || !labels)
        exit(EXIT_FAILURE);
    for (size_t i = 0; i < o->batch * each; i++)
        images[i] = (float)(2 * random_unit(&state) - 1);
    for (size_t i = 0; i < count; i++)
        labels[i] = (int32_t)(random_next(&state) % bench->images.classes);
    require(replica_load(bench->replica, images, labels, o->batch), "loading the batch");
    free(images);
    free(labels);
}

static void bench_open(struct bench *bench)
{
    const struct options *o = bench->options;
    const float rate = 1e-3f; /* random labels: no network diverges */
    struct model model;
    void *stream;
    if (!model_find(o->model, &model)) {
        fprintf(stderr, "train_step: there is no model '%s'\n", o->model);
        exit(EXIT_FAILURE);
    }
    bench->images = model.images;
    if (o->image)
        bench->images.height = bench->images.width = o->image;
    if (o->classes)
        bench->images.classes = o->classes;
    require(model_network(&model, bench->images.height, bench->images.width, bench->images.channels,
                          bench->images.classes, &bench->network),
            "the model");
    require(device_cuda.work_stream_create(&stream), "a stream");
    bench->stream = stream;
    const struct replica_setup setup = {.kernels = &kernels_cudnn,
                                        .batch = o->batch,
                                        .seed = 1,
                                        .options = o->kernels,
                                        .gradient_type = o->wire,
                                        .stream = bench->stream};
    require(replica_create(bench->network, &setup, &bench->replica), "making the replica");
    require(replica_write(bench->replica, &bench->replica->arenas.control[CONTROL_RATE], &rate,
                          sizeof rate),
            "setting the rate");
    bench_load(bench);
    require(replica_synchronize(bench->replica), "loading");
}

/* ---- Steps ---- */

static void step_enqueue(struct bench *bench)
{
    require(replica_forward(bench->replica, true), "forward");
    require(replica_backward(bench->replica, NULL, NULL), "backward");
    require(replica_update(bench->replica, &optimizer), "update");
}

static void bench_capture(struct bench *bench)
{
    cudaGraph_t graph;
    step_enqueue(bench); /* what is loaded when it is first used is loaded now */
    require(replica_synchronize(bench->replica), "a step");
    gpu(cudaStreamBeginCapture(bench->stream, cudaStreamCaptureModeThreadLocal), "capturing");
    step_enqueue(bench);
    gpu(cudaStreamEndCapture(bench->stream, &graph), "capturing");
    gpu(cudaGraphInstantiate(&bench->graph, graph, cudaGraphInstantiateFlagUseNodePriority),
        "instantiating the graph");
    gpu(cudaGraphDestroy(graph), "cudaGraphDestroy");
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Half of the steps again as many come before, unmeasured. */
static void bench_run(struct bench *bench)
{
    const size_t steps = bench->options->steps, first = steps / 2 + 3;
    for (size_t i = 0; i <= steps; i++)
        gpu(cudaEventCreate(&bench->marks[i]), "an event");
    for (size_t i = 0; i < first + steps; i++) {
        if (i >= first)
            gpu(cudaEventRecord(bench->marks[i - first], bench->stream), "cudaEventRecord");
        if (bench->graph)
            gpu(cudaGraphLaunch(bench->graph, bench->stream), "cudaGraphLaunch");
        else
            step_enqueue(bench);
    }
    gpu(cudaEventRecord(bench->marks[steps], bench->stream), "cudaEventRecord");
    require(replica_synchronize(bench->replica), "running");
    for (size_t i = 0; i < steps; i++) {
        float ms;
        gpu(cudaEventElapsedTime(&ms, bench->marks[i], bench->marks[i + 1]), "a time");
        bench->us[i] = ms * 1000.0;
    }
    qsort(bench->us, steps, sizeof *bench->us, compare);
}

static void bench_profile(struct bench *bench)
{
    struct profile profile;
    require(profile_create(bench->replica, &optimizer, &profile_h200, &profile), "profiling");
    train_profile_print(&profile);
    profile_free(&profile);
}

/* ---- Report ---- */

static void bench_print(struct bench *bench)
{
    const struct options *o = bench->options;
    const double median = bench->us[o->steps / 2];
    char ways[128];
    methods_list(ways, sizeof ways);
    const struct replica_memory memory = replica_memory(bench->replica);
    size_t left = 0, total = 0;
    double score[SCORES];
    require(replica_read(bench->replica, bench->replica->arenas.score, score, sizeof score),
            "the score");
    gpu(cudaMemGetInfo(&left, &total), "cudaMemGetInfo");
    printf("%s batch %zu %s%s, ways '%s': median %.1f us, best %.1f us, %.0f images/s; mean loss "
           "%.4f; "
           "planned %.0f MiB, the device has %.0f MiB in use\n",
           o->model, o->batch, precision_name(o->kernels.precision), o->graph ? " graph" : "", ways,
           median, bench->us[0], (double)o->batch / median * 1e6,
           score[SCORE_LOSS] / score[SCORE_TERMS], (double)memory.total / 1048576,
           (double)(total - left) / 1048576);
    struct replacement json;
    if (!o->json)
        return;
    require(replacement_begin(o->json, REPLACEMENT_ANY, &json), "--json");
    fprintf(json.file,
            "{\"program\": \"train_step\", \"model\": \"%s\", \"image\": %zu, \"batch\": %zu, "
            "\"precision\": \"%s\", \"ways\": \"%s\", \"graph\": %s, \"steps\": %zu, "
            "\"median_us\": %.1f, "
            "\"best_us\": %.1f, \"images_per_second\": %.1f, \"planned_bytes\": %zu}\n",
            o->model, bench->images.height, o->batch, precision_name(o->kernels.precision), ways,
            o->graph ? "true" : "false", o->steps, median, bench->us[0],
            (double)o->batch / median * 1e6, memory.total);
    require(replacement_finish(&json), "--json");
}

/* ---- Arguments ---- */

static size_t number(const char *name, const char *text)
{
    char *end;
    const long value = strtol(text, &end, 10);
    if (value > 0 && value <= NUMBER_MOST && !*end)
        return (size_t)value;
    fprintf(stderr, "train_step: --%s %s: expected a number from 1 to %d\n", name, text,
            NUMBER_MOST);
    exit(2);
}

static enum precision precision_find(const char *text)
{
    for (int p = 0; p < PRECISIONS; p++)
        if (strcmp(precision_name((enum precision)p), text) == 0)
            return (enum precision)p;
    fprintf(stderr, "train_step: --precision %s: expected fp32, bf16 or fp16\n", text);
    exit(2);
}

static void usage(FILE *out)
{
    fprintf(out, "Usage: train_step [--model NAME] [--image PIXELS] [--classes N] [--batch N] "
                 "[--steps N] [--precision fp32|bf16|fp16] [--graph] [--profile] "
                 "[--deterministic] [--no-tf32] [--fp32-wire] [--plans FILE] [--json FILE]\n");
}

static struct options options_read(int count, char **arguments)
{
    static const struct option names[] = {{"model", required_argument, NULL, 'm'},
                                          {"image", required_argument, NULL, 'i'},
                                          {"classes", required_argument, NULL, 'c'},
                                          {"batch", required_argument, NULL, 'b'},
                                          {"precision", required_argument, NULL, 'p'},
                                          {"steps", required_argument, NULL, 'n'},
                                          {"plans", required_argument, NULL, 'f'},
                                          {"json", required_argument, NULL, 'j'},
                                          {"graph", no_argument, NULL, 'g'},
                                          {"profile", no_argument, NULL, 'P'},
                                          {"deterministic", no_argument, NULL, 'd'},
                                          {"no-tf32", no_argument, NULL, 't'},
                                          {"fp32-wire", no_argument, NULL, 'w'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    struct options o = {.model = "resnet50", .batch = 256, .steps = 30};
    bool wide = false;
    for (int at, c; (c = getopt_long(count, arguments, "", names, &at)) != -1;)
        switch (c) {
        case 'm':
            o.model = optarg;
            break;
        case 'j':
            o.json = optarg;
            break;
        case 'i':
            o.image = number("image", optarg);
            break;
        case 'c':
            o.classes = number("classes", optarg);
            break;
        case 'b':
            o.batch = number("batch", optarg);
            break;
        case 'n':
            o.steps = number("steps", optarg);
            break;
        case 'p':
            o.kernels.precision = precision_find(optarg);
            break;
        case 'f':
            o.kernels.cache = optarg;
            break;
        case 'g':
            o.graph = true;
            break;
        case 'P':
            o.profile = true;
            break;
        case 'd':
            o.kernels.deterministic = true;
            break;
        case 't':
            o.kernels.full_float = true;
            break;
        case 'w':
            wide = true;
            break;
        case 'h':
            usage(stdout);
            exit(EXIT_SUCCESS);
        default:
            usage(stderr);
            exit(2);
        }
    if (optind < count) {
        fprintf(stderr, "train_step: %s: expected options only\n", arguments[optind]);
        exit(2);
    }
    if (o.steps > STEPS_MOST)
        o.steps = STEPS_MOST;
    o.wire = wide || o.kernels.precision == PRECISION_FP32 ? ALNICO_FLOAT32
             : o.kernels.precision == PRECISION_BF16       ? ALNICO_BFLOAT16
                                                           : ALNICO_FLOAT16;
    return o;
}

int main(int count, char **arguments)
{
    program_start();
    const struct options options = options_read(count, arguments);
    struct bench bench = {.options = &options};
    if (!device_find(ALNICO_DEVICE_CUDA)) {
        fprintf(stderr, "train_step: %s\n", alnico_error_detail());
        return 77;
    }
    bench.marks = calloc(options.steps + 2, sizeof *bench.marks);
    bench.us = calloc(options.steps + 1, sizeof *bench.us);
    if (!bench.marks || !bench.us)
        return EXIT_FAILURE;
    bench_open(&bench);
    if (options.graph)
        bench_capture(&bench);
    bench_run(&bench);
    bench_print(&bench);
    if (options.profile)
        bench_profile(&bench);
    replica_destroy(bench.replica);
    network_destroy(bench.network);
    return EXIT_SUCCESS;
}
