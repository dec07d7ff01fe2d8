/* Timing ways on GPUs: two communicators, one with its buffers registered, and calls as alnico-perf
 * makes them, eager or in CUDA graphs. All ways are looked at briefly, and the fastest and the one
 * in force then compared in turns. Main thread of every rank. */
#include "tools/perf/gpu/cuda.h"
#include "tools/common/program.h"
#include "tools/tune/measure.h"

#include <math.h>
#include <stdlib.h>

enum { FINALISTS = 6 };

/* Ways that are slower than this at first sight are not compared any further. */
static const double far_behind = 1.25, look_seconds = 1e-3;

/* One way at one size. */
struct contest {
    const struct tuner *tuner;
    const struct tune_way *way;
    struct gpu_side side;
    int place; /* in the size's list */
    double time_us;
};

static void prepare(void *context)
{
    struct contest *c = context;
    tune_force(c->tuner, c->side.gpu->comm, c->way);
    side_prepare(&c->side);
}

static void run(void *context, int calls)
{
    struct contest *c = context;
    side_run(&c->side, calls);
}

static double seconds(void *context)
{
    struct contest *c = context;
    return side_seconds(&c->side);
}

/* Microseconds of a call of each, in turns. */
static void race(struct contest *contests, int count, double budget)
{
    struct contestant contestants[TUNE_WAYS];
    for (int i = 0; i < count; i++)
        contestants[i] = (struct contestant){
            .prepare = prepare, .run = run, .seconds = seconds, .context = &contests[i]};
    tune_race(contestants, count, budget);
    for (int i = 0; i < count; i++) {
        const struct perf_options *options = &contests[i].side.gpu->bench->options;
        contests[i].time_us =
            contestants[i].time_us / (double)(options->graph ? options->calls : 1);
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

static bool open_contest(struct bench *bench, struct contest *c, const struct tune_size *size)
{
    c->side = side_make(bench->gpu, OURS, size->elements, ALNICO_FLOAT32, ALNICO_SUM);
    tune_force(c->tuner, bench->gpu->comm, c->way);
    return side_open(&c->side);
}

/* Every way that can do it, one after the other; returns how many. */
static int look_at_all(struct tuner *t, struct bench *bench, unsigned modes, struct tune_size *size,
                       const struct tune_size *before, struct contest *contests)
{
    int count = 0;
    for (int i = 0; i < size->count; i++) {
        struct contest *c = &contests[count];
        *c = (struct contest){.tuner = t, .way = &size->ways[i], .place = i};
        size->time_us[i] = -1;
        if (tune_is_hopeless(t, modes, size, before, c->way) || !open_contest(bench, c, size))
            continue;
        race(c, 1, look_seconds);
        side_drop_graphs(&c->side);
        size->time_us[i] = c->time_us;
        count++;
    }
    return count;
}

static int compare_times(const void *a, const void *b)
{
    double x = ((const struct contest *)a)->time_us, y = ((const struct contest *)b)->time_us;
    return (x > y) - (x < y);
}

static void measure_size(struct tuner *t, unsigned modes, struct tune_size *size,
                         const struct tune_size *before)
{
    static struct contest contests[TUNE_WAYS];
    struct bench *bench = bench_of(t, modes, size->bytes);
    int count = look_at_all(t, bench, modes, size, before, contests), finalists = 0;
    if (count == 0)
        return;
    struct tune_way old = tune_way_in_force(t, modes, size);
    qsort(contests, (size_t)count, sizeof *contests, compare_times);
    double limit = contests[0].time_us * far_behind;
    for (int i = 0; i < count; i++) {
        bool in_force = tune_same_way(contests[i].way, &old, size->bytes);
        if (!in_force && (i >= FINALISTS || contests[i].time_us > limit))
            continue;
        contests[finalists++] = contests[i];
    }
    for (int i = 0; i < finalists; i++)
        if (!open_contest(bench, &contests[i], size))
            program_fail("%s can no longer do what it did", contests[i].way->algorithm->name);
    race(contests, finalists, t->options.seconds);
    for (int i = 0; i < finalists; i++) {
        side_drop_graphs(&contests[i].side);
        size->time_us[contests[i].place] = contests[i].time_us;
    }
}

static void open_cuda(struct tuner *t)
{
    t->bench = calloc(2, sizeof *t->bench); /* buffers not registered, and registered */
    if (!t->bench)
        program_fail("no memory for a benchmark");
    for (int i = 0; i < 2; i++)
        tune_open_bench(t, &t->bench[i], &bench_cuda, i == 1);
    t->comm = t->bench[0].gpu->comm;
    t->describe = t->bench[0].describe;
}

static void close_cuda(struct tuner *t)
{
    for (int i = 0; i < 2; i++)
        bench_cuda.close(&t->bench[i]);
    free(t->bench);
}

const struct tune_device tune_cuda = {
    .modes = MODES, .open = open_cuda, .measure = measure_size, .close = close_cuda};
