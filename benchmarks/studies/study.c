/* See study.h. */
#include "benchmarks/studies/study.h"

#include "train/base/random.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Turns of a race, runs in one, and how long one is at least. */
enum { TURNS_LEAST = 3, TURNS = 200, RUNS_MOST = 50, TURN_US = 2000 };

enum { NOT_HERE = 77, WIDTH = 900 };

/* Dark enough for paper. */
static const char *const colours[] = {"#000000", "#a04000", "#1f4e9c", "#107030",
                                      "#000000", "#a04000", "#1f4e9c", "#107030"};

static bool picture_ends(const char *path, const char *ending)
{
    const size_t length = strlen(path), end = strlen(ending);
    return length > end && strcmp(path + length - end, ending) == 0;
}

void study_begin(const struct study_options *options)
{
    const char *path = options->picture;
    if (!path)
        return;
    if (!picture_ends(path, ".svg") && !picture_ends(path, ".png")) {
        fprintf(stderr, "--picture %s: expected a name that ends with .svg or .png\n", path);
        exit(EXIT_USAGE);
    }
    if (system("gnuplot --version >/dev/null 2>&1") != 0) {
        fprintf(stderr, "--picture %s: gnuplot is not installed\n", path);
        exit(NOT_HERE);
    }
}

FILE *study_picture_begin(const struct study_options *options, const char *title, int panels,
                          double height)
{
    if (!options->picture)
        return NULL;
    FILE *picture = popen("gnuplot", "w");
    if (!picture)
        program_fail("--picture %s: gnuplot cannot be started", options->picture);
    const bool svg = picture_ends(options->picture, ".svg");
    fprintf(picture, "set terminal %s size %d,%d %s\nset output '%s'\n", svg ? "svg" : "pngcairo",
            svg ? WIDTH : WIDTH * 3 / 2, (int)((svg ? 1 : 1.5) * WIDTH * height * panels),
            svg ? "dynamic background '#ffffff' font 'sans,14'" : "font 'sans,18'",
            options->picture);
    for (size_t i = 0; i < sizeof colours / sizeof *colours; i++)
        fprintf(picture, "set linetype %zu lc rgb '%s' lw %g dt %zu pt %zu ps 0.6\n", i + 1,
                colours[i], i < 4 ? 1.5 : 3.0, i % 4 + 1, i + 4);
    fprintf(
        picture,
        "set grid\nset key outside right top\nset multiplot layout %d,1 title '%s' noenhanced\n",
        panels, title);
    return picture;
}

void study_picture_end(FILE *picture)
{
    if (!picture)
        return;
    fprintf(picture, "unset multiplot\n");
    if (pclose(picture) != 0)
        program_fail("--picture: gnuplot failed");
}

struct study_device study_device_open(alnico_device_t kind)
{
    struct study_device device = {.ops = device_find(kind)};
    if (!device.ops) {
        fprintf(stderr, "--device %s: %s\n", option_devices[kind], alnico_error_detail());
        exit(NOT_HERE);
    }
    if (!device.ops->host_accessible)
        program_check(device.ops->stream_create(&device.stream), "a stream");
    return device;
}

void *study_put(const struct study_device *device, const void *host, size_t bytes)
{
    void *memory;
    program_check(device->ops->alloc(bytes, &memory), "taking memory of the device");
    program_check(host ? device->ops->copy(memory, host, bytes, device->stream)
                       : device->ops->clear(memory, bytes, device->stream),
                  "filling memory of the device");
    program_check(device->ops->stream_synchronize(device->stream), "filling memory");
    return memory;
}

void study_get(const struct study_device *device, void *host, const void *memory, size_t bytes)
{
    program_check(device->ops->copy(host, memory, bytes, device->stream), "reading memory");
    program_check(device->ops->stream_synchronize(device->stream), "reading memory");
}

void study_library(const char *const *names, const struct study_function *functions, size_t count)
{
    static const char *const folders[] = {"", "/usr/local/cuda/lib64/"};
    void *library = NULL;
    char path[256];
    for (; !library && *names; names++)
        for (size_t i = 0; !library && i < sizeof folders / sizeof *folders; i++) {
            snprintf(path, sizeof path, "%s%s", folders[i], *names);
            library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        }
    if (!library) {
        fprintf(stderr, "--device cuda: %s\n", dlerror());
        exit(NOT_HERE);
    }
    for (size_t i = 0; i < count; i++) {
        void *found = dlsym(library, functions[i].name);
        if (!found)
            program_fail("%s has no %s", path, functions[i].name);
        memcpy(functions[i].to, &found, sizeof found);
    }
}

void *study_memory(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (!memory)
        program_fail("no memory for %zu bytes", bytes);
    return memory;
}

float *study_random(size_t count, uint64_t seed)
{
    float *out = study_memory(count * sizeof *out);
    for (size_t i = 0; i < count; i++)
        out[i] = (float)(2 * random_unit(&seed) - 1);
    return out;
}

/* One work of a race. */
struct lane {
    const struct study_device *device;
    const struct study_work *work;
    struct device_graph *graph; /* of all runs of a turn; NULL: none */
    int runs;
    double us[TURNS];
};

static void lane_repeat(const struct lane *lane)
{
    for (int i = 0; i < lane->runs; i++)
        lane->work->run(lane->work->context);
}

static double lane_turn(const struct lane *lane, uint64_t *stamps)
{
    const struct device_ops *ops = lane->device->ops;
    void *const stream = lane->device->stream;
    program_check(ops->stamp(&stamps[0], stream), "a time stamp");
    if (lane->graph)
        program_check(ops->graph_launch(lane->graph, stream), "a graph");
    else
        lane_repeat(lane);
    program_check(ops->stamp(&stamps[1], stream), "a time stamp");
    program_check(ops->stream_synchronize(stream), "waiting for the stream");
    return 1e-3 * (double)(stamps[1] - stamps[0]) / lane->runs;
}

/* The first run is not measured: it makes what later ones use. */
static void lane_begin(struct lane *lane, uint64_t *stamps)
{
    const struct study_device *device = lane->device;
    lane->runs = 1;
    lane_turn(lane, stamps);
    const double us = fmax(lane_turn(lane, stamps), 1);
    lane->runs = (int)fmin(fmax(TURN_US / us, 1), RUNS_MOST);
    if (!device->stream || !device->ops->graph_begin)
        return;
    program_check(device->ops->graph_begin(device->stream), "capturing");
    lane_repeat(lane);
    program_check(device->ops->graph_end(device->stream, &lane->graph), "capturing");
}

static int compare_times(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double study_median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare_times);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

void study_race(const struct study_device *device, struct study_work *works, int count,
                double seconds)
{
    struct lane *lanes = study_memory((size_t)count * sizeof *lanes);
    void *stamps;
    int turns = 0;
    program_check(device->ops->pinned_alloc(2 * sizeof(uint64_t), &stamps), "time stamps");
    for (int i = 0; i < count; i++) {
        lanes[i].device = device;
        lanes[i].work = &works[i];
        lane_begin(&lanes[i], stamps);
    }
    const double end = seconds_now() + seconds;
    for (; turns < TURNS && (turns < TURNS_LEAST || seconds_now() < end); turns++)
        for (int i = 0; i < count; i++)
            lanes[i].us[turns] = lane_turn(&lanes[i], stamps);
    for (int i = 0; i < count; i++) {
        works[i].us = study_median(lanes[i].us, turns);
        works[i].least_us = lanes[i].us[0]; /* sorted */
        if (lanes[i].graph)
            device->ops->graph_destroy(lanes[i].graph);
    }
    device->ops->pinned_free(stamps);
    free(lanes);
}

cJSON *study_report(const char *name)
{
    cJSON *report = json_add(cJSON_CreateObject(), "study %s date %s", name, program_date());
    cJSON_AddItemToObject(report, "machine", program_machine());
    return report;
}
