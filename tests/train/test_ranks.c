/*
 * Training on several ranks by MPI, on the device that the argument names: they end where one rank
 * with the joined batch ends, have the same bits after 100 steps, go on from a checkpoint to the
 * same bits, fail together, and nothing in a step waits for the device. Every rank runs the same
 * tests; what fails on one ends all.
 */
#include "tests/train/input/folder.h"

#include "train/models/models.h"
#include "train/trainer/checkpoint_file.h"
#include "train/trainer/state.h"

#include <alnico/mpi.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SKIPPED = 77, BATCH = 4, SECONDS_MOST = 100 };

static const struct device_ops *device;
static int rank, size;
static char cache[96];
static const struct strategy_ops *strategy; /* of all runs */

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "FAILED on rank %d of %d: ", rank, size);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    abort();
}

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail("%s:%d: %s", __FILE__, __LINE__, #condition);                                     \
    } while (0)

static void require_success(alnico_status_t status, const char *doing)
{
    if (status != ALNICO_SUCCESS)
        fail("%s: %s: %s", doing, alnico_status_string(status), alnico_error_detail());
}

/* ---- Runs ---- */

static bool on_gpu(void)
{
    return device->kind == ALNICO_DEVICE_CUDA;
}

/* All ranks, or this one alone. On the CPU on a stream of its own if `streamed`; a GPU has one
 * anyway. */
static struct trainer_place place_open(bool alone, bool streamed)
{
    struct trainer_place place = {0};
    const MPI_Comm comm = alone ? MPI_COMM_SELF : MPI_COMM_WORLD;
    require_success(alnico_comm_create_mpi(comm, ALNICO_DEVICE_CPU, NULL, &place.host), "host");
    if (!on_gpu() && !streamed)
        return place;
    require_success(device->work_stream_create ? device->work_stream_create(&place.stream)
                                               : device->stream_create(&place.stream),
                    "a stream");
    require_success(alnico_comm_create_mpi(comm, device->kind, place.stream, &place.device),
                    "communicator");
    return place;
}

static void place_close(struct trainer_place *place)
{
    alnico_comm_destroy(place->device);
    if (place->stream)
        device->stream_destroy(place->stream);
    alnico_comm_destroy(place->host);
}

/* At a rate that does not depend on the run's length. */
static struct trainer_options options_make(const char *model, enum precision precision)
{
    static const alnico_datatype_t wires[] = {ALNICO_FLOAT32, ALNICO_BFLOAT16, ALNICO_FLOAT16};
    return (struct trainer_options){
        .model = model,
        .data = "synthetic:16x16x3",
        .kernels = kernels_default(device->kind)->name,
        .strategy = strategy->name,
        .batch = BATCH,
        .steps = 24,
        .seed = 11,
        .loaders = 2,
        .prefetch = 2,
        .compute = {.threads = 1,
                    .precision = precision,
                    .deterministic = !strategy->sharded,
                    .cache = cache},
        .optimizer = {.rate = 0.01, .momentum = 0.9, .decay = 5e-4, .drops = {1, 1, 1}},
        .wire = strategy->takes & STRATEGY_TAKES_WIRE ? wires[precision] : ALNICO_FLOAT32,
        .every = strategy->takes & STRATEGY_TAKES_EVERY ? 5 : 0,
        .rule = BUCKETS_OF_COUNT,
        .buckets = strategy->takes & STRATEGY_TAKES_BUCKETS ? 3 : 0};
}

static struct trainer_report run(const struct trainer_options *options, bool alone, bool streamed)
{
    struct trainer_report report;
    struct trainer_place place = place_open(alone, streamed);
    require_success(trainer_run(options, &place, &report), options->model);
    REQUIRE(!on_gpu() || report.graph == (strategy->capturable && !options->no_graph));
    place_close(&place);
    return report;
}

static bool has_precision(enum precision precision)
{
    return kernels_default(device->kind)->precisions & 1u << precision &&
           !(strategy->sharded && precision == PRECISION_FP16);
}

/* The same file for all ranks. */
static void file_name(char *out, size_t bytes, const char *what)
{
    int process = (int)getpid();
    MPI_Bcast(&process, 1, MPI_INT, 0, MPI_COMM_WORLD);
    snprintf(out, bytes, "/tmp/alnico-ranks-%d-%s", process, what);
}

/* ---- As one rank ---- */

static double length_between(const float *a, const float *b, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += pow((double)a[i] - (double)b[i], 2);
    return sqrt(sum);
}

/* How far apart the parameters of two checkpoints are, as a share of the way from the first
 * ones. */
static double apart(const struct trainer_options *options, const char *one, const char *other)
{
    struct checkpoint a, b;
    struct network *network;
    struct model model;
    require_success(checkpoint_read(one, &a), "the checkpoint of one rank");
    require_success(checkpoint_read(other, &b), "the checkpoint of all ranks");
    REQUIRE(model_find(options->model, &model));
    require_success(
        model_network(&model, a.run.height, a.run.width, a.run.channels, a.run.classes, &network),
        "the network");
    float *start = malloc(network->parameters * sizeof *start),
          *statistics = malloc((network->statistics + 1) * sizeof *statistics);
    REQUIRE(start && statistics && a.parameters == network->parameters);
    network_initialize(network, options->seed, start, statistics);
    const double way = length_between(a.values, start, network->parameters);
    const double distance = length_between(a.values, b.values, network->parameters);
    REQUIRE(way > 0.01);
    network_destroy(network);
    checkpoint_free(&a);
    checkpoint_free(&b);
    free(start);
    free(statistics);
    return distance / way;
}

/* How far the ranks end from where one rank with the joined batch does; on rank 0. `parts`: of the
 * images. */
static double apart_from_one(struct trainer_options options, int parts)
{
    char one[96], all[96];
    file_name(one, sizeof one, "one");
    file_name(all, sizeof all, "all");
    struct trainer_options alone = options;
    alone.save = one;
    alone.batch = (size_t)(BATCH * parts);
    alone.split = NULL;
    alone.norm = NORM_LOCAL;
    if (rank == 0)
        run(&alone, true, false);
    MPI_Barrier(MPI_COMM_WORLD);
    options.save = all;
    options.batch = BATCH;
    run(&options, false, false);
    if (rank > 0)
        return 0;
    const double share = apart(&options, one, all);
    remove(one);
    remove(all);
    return share;
}

/* Sums in another order are all that differs: at most 2e-6 of the way was seen, and 1 with a sum in
 * the place of the mean. But where a ReLU's input is that near to 0 its gradient is there or not,
 * and from then on as much as 3e-3. That depends on the seed, a mistake does not. */
static void check_joined(const char *model, bool frozen, bool late)
{
    enum { SEEDS = 6 };
    double share = 1;
    for (unsigned seed = 11; seed < 11 + SEEDS && share >= 1e-5; seed++) {
        struct trainer_options options = options_make(model, PRECISION_FP32);
        options.compute.frozen = frozen;
        options.compute.full_float = true;
        options.optimizer.rate = frozen ? 1e-3 : 1e-2; /* what no norm tames grows */
        options.late = late;
        options.every = options.every > 0;
        options.steps = 4;
        options.seed = seed;
        share = apart_from_one(options, size);
        MPI_Bcast(&share, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        if (rank == 0)
            printf("%d ranks, %s, %s%s, seed %u: apart from one by %.2g of the way\n", size,
                   strategy->name, model, late ? ", late" : "", seed, share);
    }
    REQUIRE(share < 1e-5);
}

static void ranks_train_as_one(void)
{
    check_joined("cnn", false, false);
    check_joined("resnet20", true, false);
    if (strategy->takes & STRATEGY_TAKES_OVERLAP)
        check_joined("resnet20", true, true);
}

/* Each rank has some rows of every image; on a GPU the last steps are replays of a graph. */
static void check_split(const char *model)
{
    enum { SEEDS = 6 };
    double share = 1;
    char split[16];
    snprintf(split, sizeof split, "rows=%d", size);
    for (unsigned seed = 11; seed < 11 + SEEDS && share >= 1e-5; seed++) {
        struct trainer_options options = options_make(model, PRECISION_FP32);
        options.split = split;
        options.norm = NORM_SAMPLE;
        options.compute.full_float = true;
        options.steps = 6;
        options.seed = seed;
        share = apart_from_one(options, 1);
        MPI_Bcast(&share, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        if (rank == 0)
            printf("%d ranks, %s, %s by %s, seed %u: apart from one by %.2g of the way\n", size,
                   strategy->name, model, split, seed, share);
    }
    REQUIRE(share < 1e-5);
}

static void split_networks_train_as_one(void)
{
    if (!(strategy->takes & STRATEGY_TAKES_SPLIT))
        return;
    check_split("cnn");
    check_split("resnet20");
}

/* ---- To the bit ---- */

/* Compared by MPI, not by what is tested. */
static void require_equal(uint64_t hash, const char *what)
{
    uint64_t least, most;
    MPI_Allreduce(&hash, &least, 1, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(&hash, &most, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    if (least != most)
        fail("%s: the parameters' hash is %016llx here, and not on all ranks", what,
             (unsigned long long)hash);
}

/* Split networks in all precisions, by graphs and without. */
static void parameters_of_parts_stay_equal(void)
{
    char split[16];
    snprintf(split, sizeof split, "rows=%d", size);
    for (int p = 0; p < PRECISIONS; p++)
        for (int i = 0; i < 2 && has_precision((enum precision)p); i++) {
            struct trainer_options options = options_make("resnet20", (enum precision)p);
            options.split = split;
            options.norm = NORM_SAMPLE;
            options.steps = 10;
            options.no_graph = i == 1;
            require_equal(run(&options, false, i == 1).hash, precision_name((enum precision)p));
        }
}

static void parameters_stay_equal(void)
{
    for (int p = 0; p < PRECISIONS; p++)
        for (int i = 0; i < 3 && has_precision((enum precision)p); i++) {
            struct trainer_options options = options_make("resnet20", (enum precision)p);
            options.steps = 100;
            options.late = i == 1 && strategy->takes & STRATEGY_TAKES_OVERLAP;
            options.no_graph = i == 2;
            const struct trainer_report report = run(&options, false, i == 2);
            REQUIRE(report.steps == 100 && report.ranks == size);
            require_equal(report.hash, precision_name((enum precision)p));
        }
}

/* Several batches a step, overlapped or not, by a graph or not. A GPU keeps its synthetic batch: the
 * mean of it taken twice is itself, to the bit. */
static void batches_are_added_up(void)
{
    for (int p = 0; p < PRECISIONS; p++)
        for (int i = 0; i < 3 && has_precision((enum precision)p); i++) {
            struct trainer_options options = options_make("resnet20", (enum precision)p);
            options.accumulate = 2;
            const uint64_t hash = run(&options, false, false).hash;
            options.late = i == 1;
            options.no_graph = i == 2;
            options.accumulate = on_gpu() && i == 0 ? 1 : 2;
            REQUIRE(run(&options, false, i == 2).hash == hash);
        }
}

/* Of tests, too, which a GPU takes another batch for each time. */
static void pageable_batches_are_the_same(void)
{
    struct trainer_options options = options_make("resnet20", PRECISION_FP32);
    options.tests = 64;
    const struct trainer_report pinned = run(&options, false, true);
    options.pageable = true;
    const struct trainer_report pageable = run(&options, false, true);
    REQUIRE(pageable.hash == pinned.hash);
    REQUIRE(pageable.test.images >= 64 && pageable.test.loss == pinned.test.loss);
}

/* Batches from files, which a GPU gets as bytes: prepared by any number of threads, copied ahead or
 * not, with and without graphs; some epochs, and tests whose last batch is not full. */
static void loaders_change_nothing(void)
{
    static const struct {
        size_t loaders, prefetch;
        bool pageable, no_graph, streamed;
    } ways[] = {{0, 0, false, false, true}, {1, 1, false, false, true}, {4, 3, false, false, true},
                {4, 2, false, true, true},  {4, 1, true, false, true},  {0, 0, true, true, true},
                {2, 2, false, false, false}};
    struct trainer_options options = options_make("resnet20", PRECISION_FP32);
    struct trainer_report first = {0};
    static struct folder folder;
    folder_describe(&folder);
    if (rank == 0)
        folder_write(&folder, "wb");
    MPI_Bcast(&folder, sizeof folder, MPI_BYTE, 0, MPI_COMM_WORLD);
    options.data = folder.source;
    options.tests = 1000;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        options.loaders = ways[i].loaders;
        options.prefetch = ways[i].prefetch;
        options.pageable = ways[i].pageable;
        options.no_graph = ways[i].no_graph;
        const struct trainer_report report = run(&options, false, ways[i].streamed);
        first = i ? first : report;
        REQUIRE(report.hash == first.hash);
        REQUIRE(report.test.images == TEST && report.test.loss == first.test.loss);
        REQUIRE(report.train.loss == first.train.loss);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        folder_remove(&folder);
}

/* Parameters, velocities, every rank's statistics and the control words. */
static void require_same(const char *one, const char *other)
{
    struct checkpoint a, b;
    require_success(checkpoint_read(one, &a), "a checkpoint");
    require_success(checkpoint_read(other, &b), "another checkpoint");
    REQUIRE(a.step == b.step && checkpoint_count(&a) == checkpoint_count(&b));
    REQUIRE(memcmp(a.words, b.words, sizeof a.words) == 0);
    REQUIRE(memcmp(a.values, b.values, checkpoint_count(&a) * sizeof *a.values) == 0);
    checkpoint_free(&a);
    checkpoint_free(&b);
}

static void check_resume(struct trainer_options options)
{
    char whole[96], half[96], resumed[96];
    file_name(whole, sizeof whole, "whole");
    file_name(half, sizeof half, "half");
    file_name(resumed, sizeof resumed, "resumed");
    options.save = whole;
    require_equal(run(&options, false, false).hash, "the whole run");
    options.steps = 10;
    options.save = half;
    run(&options, false, false);
    options.steps = 24;
    options.save = resumed;
    options.load = half;
    run(&options, false, false);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank > 0)
        return;
    require_same(whole, resumed);
    remove(whole);
    remove(half);
    remove(resumed);
}

static void runs_go_on_to_the_bit(void)
{
    for (int p = 0; p < 2 * PRECISIONS; p++)
        if (has_precision((enum precision)(p / 2))) {
            struct trainer_options options = options_make("resnet20", (enum precision)(p / 2));
            options.no_graph = p % 2;
            check_resume(options);
        }
}

/* Gradients in float32 that are encoded, in a graph too; residuals go on. */
static void compressed_runs_go_on_to_the_bit(void)
{
    static const char *const codecs[] = {"int8", "topk:0.05"};
    for (int p = 0; p < 2 * PRECISIONS && strategy->takes & STRATEGY_TAKES_CODEC; p++)
        if (has_precision((enum precision)(p / 2))) {
            struct trainer_options options = options_make("resnet20", (enum precision)(p / 2));
            options.wire = ALNICO_FLOAT32;
            require_success(codec_parse(codecs[p % 2], &options.codec), "a codec");
            check_resume(options);
        }
}

/* What a run in which no rank waits for another recorded, done again: the same bits, from the
 * beginning and from a checkpoint, to which it went on. */
static void interleavings_are_replayed(void)
{
    char record[96], half[96];
    file_name(record, sizeof record, "record");
    file_name(half, sizeof half, "half");
    for (int from = 0; from < 2; from++) {
        struct trainer_options options = options_make("resnet20", PRECISION_FP32);
        options.compute.deterministic = true;
        options.record = record;
        options.save = from ? NULL : half;
        options.load = from ? half : NULL;
        options.steps = from ? 24 : 10;
        const struct trainer_report first = run(&options, false, false);
        options.record = options.save = NULL;
        options.replay = record;
        const struct trainer_report again = run(&options, false, false);
        REQUIRE(first.steps == options.steps && again.steps == options.steps);
        REQUIRE(first.hash == again.hash);
        REQUIRE(memcmp(&first.staleness, &again.staleness, sizeof first.staleness) == 0);
    }
    snprintf(record + strlen(record), 8, ".%d", rank);
    remove(record);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        remove(half);
}

/* ---- Failing together ---- */

/* Every rank gets an error: `status` with `detail` on those that it is `mine` on. Returns the
 * number behind the detail. */
static size_t check_failure(const struct trainer_options *options, bool mine,
                            alnico_status_t status, const char *detail)
{
    struct trainer_report report;
    struct trainer_place place = place_open(false, false);
    const alnico_status_t got = trainer_run(options, &place, &report);
    const char *found = strstr(alnico_error_detail(), detail);
    const size_t number = found ? strtoul(found + strlen(detail), NULL, 10) : 0;
    if (got != (mine ? status : ALNICO_ERROR_ABORTED) || (mine && !found))
        fail("%s: '%s', expected %s with '%s'", alnico_status_string(got), alnico_error_detail(),
             alnico_status_string(status), detail);
    place_close(&place);
    return number;
}

static void ranks_that_disagree_say_on_what(void)
{
    struct trainer_options options = options_make("cnn", PRECISION_FP32);
    if (rank == size - 1)
        options.seed++;
    check_failure(&options, true, ALNICO_ERROR_MISMATCH, "disagree on: seed");
    options = options_make("cnn", PRECISION_FP32);
    if (rank == 0)
        options.model = "resnet20";
    check_failure(&options, true, ALNICO_ERROR_MISMATCH, "disagree on: model");
}

static size_t bytes_needed(struct trainer_options options, size_t batch)
{
    struct trainer_needs needs;
    options.batch = batch;
    require_success(trainer_measure(&options, size, &needs), "trainer_measure");
    const size_t total = needs.memory.total;
    trainer_needs_free(&needs);
    return total;
}

/* The largest batch that fits is one that fits, and the next does not. */
static void one_rank_without_memory_ends_all(void)
{
    struct trainer_options options = options_make("resnet20", PRECISION_FP32);
    const bool mine = rank == size - 1;
    const char *text = "the largest batch that fits is ";
    size_t most;
    options.batch = 256;
    options.tests = 0;
    if (mine)
        options.memory_limit = (bytes_needed(options, 1) + bytes_needed(options, 256)) / 2;
    most = check_failure(&options, mine, ALNICO_ERROR_MEMORY, text);
    MPI_Bcast(&most, 1, MPI_UNSIGNED_LONG, size - 1, MPI_COMM_WORLD);
    REQUIRE(most > 0 && most < 256);
    options.steps = 2;
    options.batch = most + 1;
    check_failure(&options, mine, ALNICO_ERROR_MEMORY, text);
    options.batch = most;
    options.no_graph = true;
    run(&options, false, false);
}

/* ---- Nothing waits ---- */

static void held_too_long(int signal)
{
    static const char text[] = "FAILED: a step waits for what the device has not done\n";
    (void)signal;
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    _exit(EXIT_FAILURE);
}

static void step_enqueue(struct trainer *trainer)
{
    struct phase_times reading;
    require_success(phase_timer_begin(trainer->timer, 0.01), "phase_timer_begin");
    require_success(phase_timer_mark(trainer->timer, PHASE_IO), "phase_timer_mark");
    require_success(trainer_launch(trainer), "a step");
    trainer->step++;
    require_success(phase_timer_end(trainer->timer, &reading), "phase_timer_end");
    REQUIRE(reading.steps == 0);
}

static void first_step(struct trainer *trainer)
{
    struct batch batch;
    require_success(data_next(trainer->train, &batch), "a batch");
    require_success(replica_load(trainer->replica, batch.images, batch.labels, batch.count),
                    "loading it");
    step_enqueue(trainer);
    require_success(replica_synchronize(trainer->replica), "the first step");
}

/* Steps launch by launch, a capture and replays, while the stream is held by a flag that rises only
 * afterwards. */
static void steps_are_only_enqueued(void)
{
    enum { HELD = 5 };
    const struct trainer_options options = options_make("cnn", PRECISION_FP32);
    struct trainer_place place = place_open(false, true);
    struct trainer trainer = trainer_make(&options, &place);
    struct device_flag *flag;
    struct device_event *passed;
    struct phase_times reading;
    require_success(trainer_open(&trainer), "opening");
    first_step(&trainer);
    require_success(device->flag_create(&flag), "a flag");
    require_success(device->event_create(&passed), "an event");
    require_success(device->stream_await(place.stream, flag, 1), "holding the stream");
    require_success(device->event_record(passed, place.stream), "an event");
    for (int i = 0; i < HELD; i++)
        step_enqueue(&trainer);
    REQUIRE(!device->event_complete(passed));
    REQUIRE(!on_gpu() || !strategy->capturable || trainer.graphs[0] || trainer.graphs[1]);
    device->flag_raise(flag, 1);
    require_success(phase_timer_pause(trainer.timer, &reading), "phase_timer_pause");
    REQUIRE(reading.steps == HELD + 1 && reading.outcome.count == (HELD + 1) * BATCH);
    device->event_destroy(passed);
    trainer_close(&trainer);
    device->flag_destroy(flag);
    place_close(&place);
}

/* ---- Many launches ---- */

/* Steps of mesh2k, whose kernels are loaded while messages between its halves are on their way: the
 * engine, which copies them, must not be kept from it. */
static void large_images_are_split(void)
{
    if (!on_gpu())
        return;
    struct trainer_options options = options_make("mesh2k", PRECISION_BF16);
    char split[32];
    snprintf(split, sizeof split, "rows=%d", size);
    options.data = "mesh:2048";
    options.split = split;
    options.batch = 1;
    options.steps = 5;
    options.optimizer.rate = 1e-4;
    const struct trainer_report report = run(&options, false, false);
    REQUIRE(isfinite(report.train.loss));
}

/* ---- Profiles ---- */

static void check_profile(enum precision precision)
{
    const struct trainer_options options = options_make("resnet20", precision);
    struct trainer_place place = place_open(true, false);
    struct trainer_times times;
    double sum = 0;
    require_success(trainer_profile(&options, place.stream, &times), "profiling");
    const struct profile *profile = &times.profile;
    for (size_t s = 0; s < times.replica->plan->count; s++)
        for (int way = 0; way < 2; way++) {
            REQUIRE(profile->us[s][way] > 0 && isfinite(profile->us[s][way]));
            sum += profile->us[s][way];
        }
    REQUIRE(profile->rates.bytes_us > 0 && isfinite(profile->rates.bytes_us));
    REQUIRE(profile->rates.flops_us > 0 && isfinite(profile->rates.flops_us));
    REQUIRE(profile->update_us > 0 && profile->update_us < profile->step_us);
    if (rank == 0)
        printf("%s: steps %.0f us, update %.0f us, together %.0f us; %.4g GB/s, %.4g TFLOP/s\n",
               precision_name(precision), sum, profile->update_us, profile->step_us,
               1e-3 * profile->rates.bytes_us, 1e-6 * profile->rates.flops_us);
    trainer_times_free(&times);
    place_close(&place);
}

static void steps_can_be_profiled(void)
{
    for (int p = 0; p < PRECISIONS; p++)
        if (has_precision((enum precision)p))
            check_profile((enum precision)p);
}

/* ---- All of them ---- */

/* With the first strategy; with those whose ranks do the same steps; with those whose ranks share
 * them; with all. */
enum whose { FIRST, SAME, SHARED, ALL };

static const struct {
    const char *name;
    void (*body)(void);
    int least; /* ranks */
    enum whose whose;
} tests[] = {{"ranks_train_as_one", ranks_train_as_one, 2, SAME},
             {"split_networks_train_as_one", split_networks_train_as_one, 2, SAME},
             {"large_images_are_split", large_images_are_split, 2, FIRST},
             {"parameters_stay_equal", parameters_stay_equal, 2, ALL},
             {"parameters_of_parts_stay_equal", parameters_of_parts_stay_equal, 2, FIRST},
             {"batches_are_added_up", batches_are_added_up, 1, FIRST},
             {"pageable_batches_are_the_same", pageable_batches_are_the_same, 1, FIRST},
             {"loaders_change_nothing", loaders_change_nothing, 1, FIRST},
             {"runs_go_on_to_the_bit", runs_go_on_to_the_bit, 1, SAME},
             {"compressed_runs_go_on_to_the_bit", compressed_runs_go_on_to_the_bit, 1, SAME},
             {"interleavings_are_replayed", interleavings_are_replayed, 1, SHARED},
             {"ranks_that_disagree_say_on_what", ranks_that_disagree_say_on_what, 2, FIRST},
             {"one_rank_without_memory_ends_all", one_rank_without_memory_ends_all, 1, ALL},
             {"steps_are_only_enqueued", steps_are_only_enqueued, 1, SAME},
             {"steps_can_be_profiled", steps_can_be_profiled, 1, FIRST}};

static bool has_part(size_t test)
{
    const enum whose whose = tests[test].whose;
    return size >= tests[test].least &&
           (whose == ALL || whose == (strategy->share ? SHARED : SAME) ||
            (whose == FIRST && strategy == strategies_all[0]));
}

static void test_run(size_t test)
{
    const double begin = MPI_Wtime();
    alarm(SECONDS_MOST);
    tests[test].body();
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("%s, %s: fine, %.1f s\n", tests[test].name, strategy->name, MPI_Wtime() - begin);
    fflush(stdout);
}

/* Ranks take GPUs in turn; ends the process if there is none. */
static void device_take(const char *name)
{
    const bool cuda = strcmp(name, "cuda") == 0;
    device = device_find(cuda ? ALNICO_DEVICE_CUDA : ALNICO_DEVICE_CPU);
    if (device && device->enter && device->enter(rank) != ALNICO_SUCCESS)
        device = NULL;
    int there = device != NULL;
    MPI_Allreduce(MPI_IN_PLACE, &there, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (there)
        return;
    if (rank == 0)
        printf("skipped: %s\n", alnico_error_detail());
    MPI_Finalize();
    exit(SKIPPED);
}

int main(int argc, char **argv)
{
    int level;
    if (argc != 2)
        return 2;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    device_take(argv[1]);
    snprintf(cache, sizeof cache, "/tmp/alnico-ranks-%d-plans", (int)getpid());
    signal(SIGALRM, held_too_long);
    for (size_t s = 0; strategies_all[s]; s++)
        for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
            strategy = strategies_all[s];
            if (has_part(i))
                test_run(i);
        }
    remove(cache);
    MPI_Finalize();
    return EXIT_SUCCESS;
}
