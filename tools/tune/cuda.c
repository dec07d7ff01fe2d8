/* Timing ways on GPUs: two communicators, one with its buffers registered, and calls as alnico-perf
 * makes them, eager or in CUDA graphs. All ways are looked at briefly, and the fastest and the one
 * in force then compared in turns. Main thread of every rank. */
#include "tools/perf/gpu/cuda.h"
#include "tools/common/program.h"
#include "tools/tune/measure.h"

#include <stdlib.h>

enum { KEPT_MOST = 6 };

/* Ways that are slower than this at first sight are not compared any further. */
static const double far_behind = 1.25, look_seconds = 1e-3;

/* One way at one size. */
struct trial {
    struct gpu_caller caller; /* first: its functions get the trial as their context */
    const struct tuner *tuner;
    const struct tune_way *way;
    int place; /* in the size's list */
    double time_us;
};

static void prepare(void *context)
{
    struct trial *c = context;
    tune_force(c->tuner, c->caller.gpu->comm, c->way);
    caller_prepare(&c->caller);
}

/* Microseconds of a call of each, in turns. */
static void time_trials(struct trial *trials, int count, double budget)
{
    struct candidate candidates[TUNE_WAYS];
    for (int i = 0; i < count; i++)
        candidates[i] = (struct candidate){.prepare = prepare,
                                           .run = caller_run,
                                           .seconds = caller_seconds,
                                           .context = &trials[i]};
    tune_measure(candidates, count, budget);
    for (int i = 0; i < count; i++) {
        const struct perf_options *options = &trials[i].caller.gpu->bench->options;
        trials[i].time_us = candidates[i].time_us / (double)(options->graph ? options->calls : 1);
    }
}

static struct bench *bench_of(struct tuner *t, unsigned modes, size_t bytes)
{
    struct bench *bench = &t->bench[modes & MODE_REGISTERED ? 1 : 0];
    bench->options.operation = t->operation;
    bench->options.graph = modes & MODE_CAPTURED;
    bench->options.calls = bytes <= 1 << 20 ? GRAPH_CALLS : bytes <= 16 << 20 ? 8 : 3;
    return bench;
}

static bool open_trial(struct bench *bench, struct trial *c, const struct tune_size *size)
{
    c->caller = caller_make(bench->gpu, OURS, size->elements, ALNICO_FLOAT32, ALNICO_SUM);
    tune_force(c->tuner, bench->gpu->comm, c->way);
    return caller_open(&c->caller);
}

/* Every way that can do it, one after the other; returns how many. */
static int look_at_all(struct tuner *t, struct bench *bench, unsigned modes, struct tune_size *size,
                       const struct tune_size *before, struct trial *trials)
{
    int count = 0;
    for (int i = 0; i < size->count; i++) {
        struct trial *c = &trials[count];
        *c = (struct trial){.tuner = t, .way = &size->ways[i], .place = i};
        size->time_us[i] = -1;
        if (tune_is_pruned(t, modes, size, before, c->way) || !open_trial(bench, c, size))
            continue;
        time_trials(c, 1, look_seconds);
        caller_drop_graphs(&c->caller);
        size->time_us[i] = c->time_us;
        count++;
    }
    return count;
}

static int compare_times(const void *a, const void *b)
{
    double x = ((const struct trial *)a)->time_us, y = ((const struct trial *)b)->time_us;
    return (x > y) - (x < y);
}

static void measure_size(struct tuner *t, unsigned modes, struct tune_size *size,
                         const struct tune_size *before)
{
    static struct trial trials[TUNE_WAYS];
    struct bench *bench = bench_of(t, modes, size->bytes);
    int count = look_at_all(t, bench, modes, size, before, trials), kept = 0;
    if (count == 0)
        return;
    struct tune_way old = tune_way_in_force(t, modes, size);
    qsort(trials, (size_t)count, sizeof *trials, compare_times);
    double limit = trials[0].time_us * far_behind;
    for (int i = 0; i < count; i++) {
        bool in_force = tune_same_way(trials[i].way, &old, size->bytes);
        if (!in_force && (i >= KEPT_MOST || trials[i].time_us > limit))
            continue;
        trials[kept++] = trials[i];
    }
    for (int i = 0; i < kept; i++)
        if (!open_trial(bench, &trials[i], size))
            program_fail("%s can no longer do what it did", trials[i].way->algorithm->name);
    time_trials(trials, kept, t->options.seconds);
    for (int i = 0; i < kept; i++) {
        caller_drop_graphs(&trials[i].caller);
        size->time_us[trials[i].place] = trials[i].time_us;
    }
}

static void open_cuda(struct tuner *t)
{
    for (int i = 0; i < 2; i++)
        tune_open_bench(t, &t->bench[i], &bench_cuda, i == 1);
    t->comm = t->bench[0].gpu->comm;
    t->describe = t->bench[0].describe;
}

static void close_cuda(struct tuner *t)
{
    for (int i = 0; i < 2; i++)
        bench_cuda.close(&t->bench[i]);
}

const struct tune_device tune_cuda = {
    .modes = MODES, .open = open_cuda, .measure = measure_size, .close = close_cuda};
