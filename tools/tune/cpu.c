/* Timing ways on the CPU: one communicator on the inline stream. Main thread of every rank. */
#include "tools/common/program.h"
#include "tools/common/ranks.h"
#include "tools/perf/bench.h"
#include "tools/tune/measure.h"

/* One way at one size, as perf_measure times it. */
struct trial {
    const struct tuner *tuner;
    const struct tune_way *way;
    struct perf_job job;
};

static void choose_way(void *context)
{
    const struct trial *c = context;
    tune_force(c->tuner, c->tuner->comm, c->way);
}

static void run_way(void *context, int calls)
{
    const struct trial *c = context;
    for (int i = 0; i < calls; i++)
        program_check(perf_call_ours(&c->job, NULL), c->job.operation->name);
}

/* Whether no rank says that this way does not exist here. */
static bool is_possible(struct trial *c)
{
    choose_way(c);
    alnico_status_t status = perf_call_ours(&c->job, NULL);
    int refused = status == ALNICO_ERROR_UNSUPPORTED;
    if (!refused)
        program_check(status, c->job.operation->name);
    program_greatest(&refused, 1);
    return !refused;
}

static struct perf_job make_job(struct tuner *t, const struct tune_size *size)
{
    t->bench->options.operation = t->operation;
    struct perf_job job = bench_job(t->bench, size->elements, ALNICO_FLOAT32, ALNICO_SUM);
    job.send = t->bench->send;
    job.recv = t->bench->recv;
    job.comm = t->comm;
    return job;
}

static void measure_size(struct tuner *t, unsigned modes, struct tune_size *size,
                         const struct tune_size *before)
{
    static struct trial trials[TUNE_WAYS];
    static struct candidate candidates[TUNE_WAYS];
    struct perf_job job = make_job(t, size);
    int places[TUNE_WAYS], count = 0;
    for (int i = 0; i < size->count; i++) {
        size->time_us[i] = -1;
        trials[count] = (struct trial){t, &size->ways[i], job};
        if (tune_is_pruned(t, modes, size, before, &size->ways[i]) || !is_possible(&trials[count]))
            continue;
        candidates[count] =
            (struct candidate){.prepare = choose_way, .run = run_way, .context = &trials[count]};
        places[count++] = i;
    }
    tune_measure(candidates, count, t->options.seconds);
    for (int i = 0; i < count; i++)
        size->time_us[places[i]] = candidates[i].time_us;
}

static void open_cpu(struct tuner *t)
{
    tune_open_bench(t, t->bench, &bench_cpu, false);
    bench_cpu.begin(t->bench, ALNICO_FLOAT32, ALNICO_SUM);
    t->comm = t->bench->comm[0];
}

static void close_cpu(struct tuner *t)
{
    bench_cpu.close(t->bench);
}

const struct tune_device tune_cpu = {
    .modes = 1, .open = open_cpu, .measure = measure_size, .close = close_cpu};
