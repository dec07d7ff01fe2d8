/* Timing ways on the CPU: one communicator on the inline stream. Main thread of every rank. */
#include "tools/common/program.h"
#include "tools/perf/layout.h"
#include "tools/tune/measure.h"

#include <alnico/mpi.h>
#include <stdlib.h>

/* One way at one size, as perf_measure times it. */
struct contest {
    const struct tuner *tuner;
    const struct tune_way *way;
    struct perf_job job;
};

static void choose_way(void *context)
{
    const struct contest *c = context;
    tune_force(c->tuner, c->tuner->comm, c->way);
}

static void run_way(void *context, int calls)
{
    const struct contest *c = context;
    for (int i = 0; i < calls; i++)
        program_check(perf_call_ours(&c->job, NULL), c->job.operation->name);
}

/* Whether no rank says that this way does not exist here. */
static bool is_possible(struct contest *c)
{
    choose_way(c);
    alnico_status_t status = perf_call_ours(&c->job, NULL);
    int refused = status == ALNICO_ERROR_UNSUPPORTED;
    if (!refused)
        program_check(status, c->job.operation->name);
    MPI_Allreduce(MPI_IN_PLACE, &refused, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return !refused;
}

static struct perf_job make_job(struct tuner *t, const struct tune_size *size)
{
    blocks_set(&t->blocks, t->operation, size->elements, t->rank, t->ranks);
    struct perf_job job =
        job_make(t->operation, size->elements, false, 0, t->rank, t->ranks, &t->blocks);
    job.send = t->send;
    job.recv = t->recv;
    job.type = ALNICO_FLOAT32;
    job.op = ALNICO_SUM;
    job.comm = t->comm;
    return job;
}

static void measure_size(struct tuner *t, unsigned modes, struct tune_size *size,
                         const struct tune_size *before)
{
    static struct contest contests[TUNE_WAYS];
    static struct contestant contestants[TUNE_WAYS];
    struct perf_job job = make_job(t, size);
    int places[TUNE_WAYS], count = 0;
    for (int i = 0; i < size->count; i++) {
        size->time_us[i] = -1;
        contests[count] = (struct contest){t, &size->ways[i], job};
        if (tune_is_hopeless(t, modes, size, before, &size->ways[i]) ||
            !is_possible(&contests[count]))
            continue;
        contestants[count] =
            (struct contestant){.prepare = choose_way, .run = run_way, .context = &contests[count]};
        places[count++] = i;
    }
    struct measure_plan plan = {.seconds = t->options.seconds, .warmup = 2};
    struct measure_effort effort;
    if (count && !measure(contestants, count, &plan, &effort))
        program_fail("no memory for the samples of %d ways", count);
    for (int i = 0; i < count; i++)
        size->time_us[places[i]] = contestants[i].time_us;
}

static void open_cpu(struct tuner *t)
{
    program_check(alnico_comm_create_mpi(MPI_COMM_WORLD, ALNICO_DEVICE_CPU, NULL, &t->comm),
                  "alnico_comm_create_mpi");
    size_t count = tune_capacity(t) / sizeof(float);
    t->send = calloc(count, sizeof(float));
    t->recv = calloc(count, sizeof(float));
    if (!t->send || !t->recv || !blocks_init(&t->blocks, t->ranks))
        program_fail("-e %zu: no memory for two buffers of this size", t->options.end);
    for (size_t i = 0; i < count; i++)
        t->send[i] = t->recv[i] = (float)(i % 7);
}

static void close_cpu(struct tuner *t)
{
    alnico_comm_destroy(t->comm);
    blocks_finish(&t->blocks);
    free(t->send);
    free(t->recv);
}

const struct tune_device tune_cpu = {
    .modes = 1, .open = open_cpu, .measure = measure_size, .close = close_cpu};
