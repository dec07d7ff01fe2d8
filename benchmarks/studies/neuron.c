/*
 * One sigmoid neuron learns a step at 0.5 from one number a worker and step (Biswas,
 * SHM-Learn-Dist): loss curves of 1 to 16 workers, which average gradients, or weights every H
 * steps. Workers are threads. Each run is checked against a serial replay in float64.
 */
#include "benchmarks/studies/study.h"
#include "tests/support/ranks.h"
#include "train/input/data.h"
#include "train/models/models.h"
#include "train/trainer/trainer.h"

#include "base/status.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WORKERS = 5, WAYS = 3, TESTS = 10000 };

static const double tolerance = 1e-6;

struct options {
    struct study_options study;
    int steps, seed, every;
    double rate;
};

static const struct way {
    const char *name, *strategy;
    bool every;
} ways[WAYS] = {{"gradients", "allreduce", false},
                {"weights", "weights", false},
                {"weights, every H", "weights", true}};

/* Test loss after some steps. */
struct point {
    size_t step;
    double loss;
};

struct curve {
    struct point *points;
    size_t count;
};

struct run {
    struct trainer_options training;
    struct trainer_report report; /* rank 0's */
    struct curve curve;
};

static const struct option_row option_rows[] = {
    {.name = "steps",
     .value = "N",
     .help = "of each worker",
     .kind = OPTION_NUMBER,
     .initial = "10000",
     OPTION_FIELD(struct options, steps),
     .least = 100,
     .most = 1000000},
    {.name = "rate",
     .value = "R",
     .help = "learning rate",
     .kind = OPTION_POSITIVE,
     .initial = "0.5",
     OPTION_FIELD(struct options, rate),
     .high = 100},
    {.name = "every",
     .value = "H",
     .help = "steps between two averages of weights, beside 1",
     .kind = OPTION_NUMBER,
     .initial = "16",
     OPTION_FIELD(struct options, every),
     .least = 2,
     .most = 1000000},
    {.name = "seed",
     .value = "N",
     .help = "of data and first weights",
     .kind = OPTION_NUMBER,
     .initial = "1",
     OPTION_FIELD(struct options, seed),
     .most = 1 << 30},
    STUDY_OPTIONS(struct options, study),
    {0}};

static const struct option_table option_table = {
    .options = option_rows,
    .about =
        "One neuron learns a step on 1 to 16 workers, which average gradients or weights. Every "
        "run is compared with a serial replay.\v--full tests ten times as often."};

static void progress(void *context, const struct trainer_progress *progress)
{
    struct curve *curve = context;
    if (progress->tested)
        curve->points[curve->count++] = (struct point){progress->step, progress->test.loss};
}

static void work(struct rank *rank)
{
    struct run *run = rank->argument;
    struct trainer_report report;
    const struct trainer_place place = {.host = rank->size > 1 ? ranks_comm(rank, NULL) : NULL};
    program_check(trainer_run(&run->training, &place, &report), "training");
    if (rank->rank == 0)
        run->report = report;
    alnico_comm_destroy(place.host);
}

static void training_run(const struct options *options, const struct way *way, int workers,
                         struct run *run)
{
    const size_t often = options->study.full ? 10 : 100;
    run->training = (struct trainer_options){
        .model = "neuron",
        .data = "step",
        .kernels = "naive",
        .strategy = way->strategy,
        .batch = 1,
        .steps = (size_t)options->steps,
        .tests = TESTS,
        .validate_every = often,
        .seed = (uint64_t)options->seed,
        .compute = {.threads = 1},
        .optimizer = {.kind = OPTIMIZER_SGD, .rate = options->rate, .drops = {1, 1, 1}},
        .wire = ALNICO_FLOAT32,
        .rule = BUCKETS_OF_COUNT,
        .buckets = strcmp(way->strategy, "allreduce") == 0,
        .every = strcmp(way->strategy, "weights") ? 0
                 : way->every                     ? (size_t)options->every
                                                  : 1,
        .progress = progress,
        .context = &run->curve};
    /* Tests also follow each epoch, and the end. */
    const size_t most = 2 * (run->training.steps / often + 2);
    run->curve = (struct curve){.points = calloc(most, sizeof *run->curve.points)};
    program_check(run->curve.points ? ALNICO_SUCCESS : ALNICO_ERROR_MEMORY, "taking memory");
    ranks_run(workers, work, run);
}

/* ---- The replay: plain arithmetic on the same numbers ---- */

struct neuron {
    double weight, bias;
};

static struct data *numbers_open(const struct run *run, int workers, bool train)
{
    const struct data_options options = {.source = run->training.data,
                                         .batch = train ? (size_t)workers : run->training.tests,
                                         .size = 1,
                                         .seed = run->training.seed,
                                         .train = train};
    struct data *data;
    program_check(data_open(&options, &data), "opening the numbers");
    return data;
}

static struct neuron neuron_first(uint64_t seed)
{
    struct network *network;
    float parameters[2] = {0}, statistics[1];
    program_check(model_network(&model_neuron, 1, 1, 1, 2, &network), "making the neuron");
    network_initialize(network, seed, parameters, statistics);
    const struct node *sum = &network->nodes[0];
    const struct neuron out = {parameters[sum->weight.offset], parameters[sum->bias.offset]};
    network_destroy(network);
    return out;
}

static double neuron_output(const struct neuron *neuron, double x)
{
    return 1 / (1 + exp(-(neuron->weight * x + neuron->bias)));
}

static void neuron_learn(struct neuron *neuron, double x, double target, double rate)
{
    const double y = neuron_output(neuron, x);
    const double slope = 2 * (y - target) * y * (1 - y);
    neuron->weight -= rate * slope * x;
    neuron->bias -= rate * slope;
}

static double neuron_loss(const struct neuron *neuron, const struct batch *batch)
{
    double sum = 0;
    for (size_t i = 0; i < batch->count; i++)
        sum += pow(neuron_output(neuron, batch->images[i]) - batch->labels[i], 2);
    return sum / (double)batch->count;
}

static void neurons_average(struct neuron *neurons, int workers)
{
    struct neuron sum = {0};
    for (int w = 0; w < workers; w++) {
        sum.weight += neurons[w].weight;
        sum.bias += neurons[w].bias;
    }
    for (int w = 0; w < workers; w++)
        neurons[w] = (struct neuron){sum.weight / workers, sum.bias / workers};
}

/* The most that a run's losses are away from the replay's. Averaged gradients of equal neurons are
 * averaged neurons. */
static double replay_apart(const struct run *run, int workers)
{
    const struct trainer_options *training = &run->training;
    const size_t every = training->every ? training->every : 1;
    struct data *numbers = numbers_open(run, workers, true),
                *tests = numbers_open(run, workers, false);
    struct neuron neurons[1 << (WORKERS - 1)];
    struct batch batch, test;
    double apart = 0;
    program_check(data_next(tests, &test), "reading the numbers");
    for (int w = 0; w < workers; w++)
        neurons[w] = neuron_first(training->seed);
    for (size_t step = 1, p = 0; p < run->curve.count; step++) {
        const struct point *point = &run->curve.points[p];
        program_check(data_next(numbers, &batch), "reading the numbers");
        for (int w = 0; w < workers; w++)
            neuron_learn(&neurons[w], batch.images[w], batch.labels[w], training->optimizer.rate);
        if (step % every == 0 || step == point->step)
            neurons_average(neurons, workers);
        for (; p < run->curve.count && run->curve.points[p].step == step; p++)
            apart = fmax(apart, fabs(neuron_loss(neurons, &test) - run->curve.points[p].loss));
    }
    data_close(numbers);
    data_close(tests);
    return apart;
}

/* ---- What the runs show ---- */

/* Noise of the second half of the curve: the root mean square of the steps from a point to the next,
 * divided by the square root of two. */
static double curve_noise(const struct curve *curve)
{
    double sum = 0;
    const size_t begin = curve->count / 2;
    for (size_t i = begin + 1; i < curve->count; i++)
        sum += pow(curve->points[i].loss - curve->points[i - 1].loss, 2);
    return sqrt(sum / 2 / (double)(curve->count - begin - 1));
}

static void run_tell(const struct options *options, const struct way *way, int workers,
                     const struct run *run, double apart, cJSON *rows)
{
    const struct curve *curve = &run->curve;
    const double last = curve->points[curve->count - 1].loss, noise = curve_noise(curve);
    printf("%-18s %7d %10.6f %10.2e %10.1e %8.2f\n", way->name, workers, last, noise, apart,
           run->report.seconds);
    fflush(stdout);
    cJSON *row =
        json_add(json_row(rows),
                 "way %s every %d workers %d loss %g noise %g from_replay %g seconds %g", way->name,
                 way->every ? options->every : 1, workers, last, noise, apart, run->report.seconds);
    cJSON *points = cJSON_AddArrayToObject(row, "curve");
    for (size_t i = 0; i < curve->count; i++)
        json_add(json_row(points), "step %zu loss %g", curve->points[i].step,
                 curve->points[i].loss);
}

static void panel_draw(FILE *picture, const char *title, const struct run *runs)
{
    if (!picture)
        return;
    for (int i = 0; i < WORKERS; i++) {
        fprintf(picture, "$curve%d << END\n", i);
        for (size_t p = 0; p < runs[i].curve.count; p++)
            fprintf(picture, "%zu %g\n", runs[i].curve.points[p].step,
                    runs[i].curve.points[p].loss);
        fprintf(picture, "END\n");
    }
    fprintf(picture,
            "set title 'averages of %s' noenhanced\nset logscale y 2\n"
            "set xlabel 'step of a worker'\nset ylabel 'squared error'\nplot ",
            title);
    for (int i = 0; i < WORKERS; i++)
        fprintf(picture, "%s$curve%d with lines lt %d title '%d worker%s'", i ? ", " : "", i, i + 1,
                1 << i, i ? "s" : "");
    fprintf(picture, "\n");
}

/* Returns whether all runs are as their replays. */
static bool way_run(const struct options *options, const struct way *way, FILE *picture,
                    cJSON *rows)
{
    struct run runs[WORKERS] = {0};
    bool same = true;
    for (int i = 0; i < WORKERS; i++) {
        training_run(options, way, 1 << i, &runs[i]);
        const double apart = replay_apart(&runs[i], 1 << i);
        same = same && apart <= tolerance;
        run_tell(options, way, 1 << i, &runs[i], apart, rows);
    }
    panel_draw(picture, way->name, runs);
    for (int i = 0; i < WORKERS; i++)
        free(runs[i].curve.points);
    return same;
}

int main(int argc, char **argv)
{
    struct options options = {0};
    bool same = true;
    program_start();
    options_read(&option_table, argc, argv, &options);
    study_begin(&options.study);
    program_json_try(options.study.json);
    FILE *picture = study_picture_begin(&options.study, "One neuron learns a step", WAYS, 0.4);
    cJSON *report = study_report("neuron"), *rows = cJSON_AddArrayToObject(report, "rows");
    printf("# %d steps a worker, rate %g, H = %d\n%-18s %7s %10s %10s %10s %8s\n", options.steps,
           options.rate, options.every, "averages", "workers", "loss", "noise", "replay", "s");
    for (int i = 0; i < WAYS; i++)
        same = way_run(&options, &ways[i], picture, rows) && same;
    study_picture_end(picture);
    program_json_write(options.study.json, report);
    if (!same)
        program_fail("a run is more than %g from its replay", tolerance);
    return 0;
}
