/*
 * What a slow rank costs: steps a second of all ranks with the strategies allreduce and async, in
 * one run, while each rank sleeps for a step's time and the last one for a multiple of it. Sleeping
 * stands for a device that computes, so that ranks may outnumber cores; gradients, weights and
 * updates are real.
 *
 *     mpiexec -n 4 asynchronous --parameters 272474 --step-ms 20 --slow 2
 */
#include "tools/common/program.h"
#include "tools/common/ranks.h"
#include "train/strategies/strategy.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct options {
    size_t parameters, steps;
    double step_ms, slow;
};

struct worker {
    struct arenas arenas;
    size_t count, step, steps; /* the run's steps, and how many it has */
    struct timespec pause;
};

static const struct options defaults = {
    .parameters = 272474, .steps = 200, .step_ms = 20, .slow = 2};

/* SGD with momentum. */
static alnico_status_t update_range(void *context, const struct strategy_range *range)
{
    (void)context;
    for (size_t i = 0; i < range->count; i++) {
        range->states[0][i] = 0.9f * range->states[0][i] + range->gradients[i];
        range->parameters[i] -= range->rate * range->states[0][i];
    }
    return ALNICO_SUCCESS;
}

static alnico_status_t update(void *context)
{
    const struct worker *worker = context;
    const struct strategy_range all = {.count = worker->count,
                                       .rate = worker->arenas.control[CONTROL_RATE],
                                       .parameters = worker->arenas.parameters,
                                       .states = {worker->arenas.states[0]},
                                       .gradients = worker->arenas.gradients};
    return update_range(NULL, &all);
}

static alnico_status_t loaded(void *context)
{
    (void)context;
    return ALNICO_SUCCESS;
}

static alnico_status_t mark(void *context, enum phase ended)
{
    (void)context;
    (void)ended;
    return ALNICO_SUCCESS;
}

static struct strategy_pace pace(void *context)
{
    const struct worker *worker = context;
    return (struct strategy_pace){.step = worker->step, .until = worker->steps};
}

/* This rank's steps. */
static size_t run(const struct strategy_ops *strategy, void *self, struct worker *worker)
{
    size_t own = 0;
    for (struct strategy_round round = {0}; !round.over; own++) {
        nanosleep(&worker->pause, NULL);
        program_check(strategy->advance(self, worker->count), strategy->name);
        program_check(strategy->finish(self), strategy->name);
        round.step = worker->step + 1;
        round.over = round.step == worker->steps;
        if (strategy->share)
            program_check(strategy->share(self, &round), strategy->name);
        worker->step = round.step;
    }
    return own;
}

/* Steps a second of all ranks together. */
static double measure(const struct strategy_ops *strategy, struct worker *worker,
                      alnico_comm_t comm)
{
    const struct strategy_setup setup = {.comm = comm,
                                         .host = comm,
                                         .device = &device_cpu,
                                         .arenas = &worker->arenas,
                                         .count = worker->count,
                                         .states = 1,
                                         .type = ALNICO_FLOAT32,
                                         .wire = ALNICO_FLOAT32,
                                         .ends = &worker->count,
                                         .buckets = 1,
                                         .staleness = SIZE_MAX,
                                         .calls = {.context = worker,
                                                   .update = update,
                                                   .loaded = loaded,
                                                   .mark = mark,
                                                   .update_range = update_range,
                                                   .pace = pace}};
    void *self;
    worker->step = 0;
    program_check(strategy->create(&setup, &self), strategy->name);
    program_check(alnico_barrier(comm), strategy->name);
    const double begin = seconds_now();
    const size_t own = run(strategy, self, worker);
    double seconds = seconds_now() - begin;
    program_slowest(&seconds, 1);
    const double all = (double)worker->steps * alnico_comm_size(comm) / seconds;
    if (alnico_comm_rank(comm) == 0)
        printf("%-10s %10.1f steps/s of all ranks", strategy->name, all);
    if (alnico_comm_rank(comm) == 0 && strategy->staleness) {
        const struct strategy_staleness *staleness = strategy->staleness(self);
        const double pushes = (double)worker->steps * alnico_comm_size(comm);
        printf("; rank 0 did %zu of %zu; between pull and push %.1f updates, at most %llu", own,
               worker->steps * (size_t)alnico_comm_size(comm), (double)staleness->sum / pushes,
               (unsigned long long)staleness->most);
    }
    if (alnico_comm_rank(comm) == 0)
        puts("");
    strategy->destroy(self);
    return all;
}

static float *floats(size_t count)
{
    float *out = calloc(count + 1, sizeof *out);
    program_check(out ? ALNICO_SUCCESS : ALNICO_ERROR_MEMORY, "taking memory");
    return out;
}

static struct worker worker_make(const struct options *options, bool slow)
{
    const double seconds = 1e-3 * options->step_ms * (slow ? options->slow : 1);
    struct worker worker = {.count = options->parameters, .steps = options->steps};
    worker.arenas = (struct arenas){.parameters = floats(worker.count),
                                    .gradients = floats(worker.count),
                                    .states = {floats(worker.count)},
                                    .control = floats(CONTROLS)};
    worker.arenas.control[CONTROL_RATE] = 0.1f;
    worker.pause.tv_sec = (time_t)seconds;
    worker.pause.tv_nsec = (long)(1e9 * (seconds - (double)worker.pause.tv_sec));
    return worker;
}

static void worker_free(struct worker *worker)
{
    free(worker->arenas.parameters);
    free(worker->arenas.gradients);
    free(worker->arenas.states[0]);
    free(worker->arenas.control);
}

static int usage(FILE *file, int status)
{
    fprintf(file, "usage: asynchronous [--parameters N] [--steps N] [--step-ms MS] [--slow X]\n"
                  "  --parameters N  of the network (272474, ResNet-20)\n"
                  "  --steps N       of each rank in the mean (200)\n"
                  "  --step-ms MS    a step without communication (20)\n"
                  "  --slow X        so many times that on the last rank (2)\n");
    return status;
}

/* Returns -1 to go on, or the exit status. */
static int parse(int argc, char **argv, struct options *options)
{
    static const struct option known[] = {{"parameters", required_argument, NULL, 'p'},
                                          {"steps", required_argument, NULL, 'n'},
                                          {"step-ms", required_argument, NULL, 'm'},
                                          {"slow", required_argument, NULL, 's'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    *options = defaults;
    for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        if (option == 'p')
            options->parameters = strtoull(optarg, NULL, 10);
        else if (option == 'n')
            options->steps = strtoull(optarg, NULL, 10);
        else if (option == 'm')
            options->step_ms = strtod(optarg, NULL);
        else if (option == 's')
            options->slow = strtod(optarg, NULL);
        else
            return option == 'h' ? usage(stdout, 0) : usage(stderr, 2);
    }
    const bool valid = options->parameters > 0 && options->steps > 0 && options->step_ms >= 0 &&
                       options->slow >= 0 && optind == argc;
    return valid ? -1 : usage(stderr, 2);
}

int main(int argc, char **argv)
{
    struct options options;
    alnico_comm_t comm;
    program_start();
    const int status = parse(argc, argv, &options);
    if (status >= 0)
        return status;
    program_ranks_open();
    program_check(program_comm(ALNICO_DEVICE_CPU, NULL, &comm), "taking the ranks");
    const bool first = alnico_comm_rank(comm) == 0;
    struct worker worker =
        worker_make(&options, alnico_comm_rank(comm) == alnico_comm_size(comm) - 1);
    if (first)
        printf("# %d ranks, %zu parameters, %g ms a step, on the last rank %g times that\n",
               alnico_comm_size(comm), options.parameters, options.step_ms, options.slow);
    const double synchronous = measure(&strategy_allreduce, &worker, comm);
    const double asynchronous = measure(&strategy_async, &worker, comm);
    if (first)
        printf("async / allreduce: %.2f\n", asynchronous / synchronous);
    worker_free(&worker);
    alnico_comm_destroy(comm);
    program_ranks_close();
    return 0;
}
