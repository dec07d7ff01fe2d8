/* Timing ways on the CPU: one communicator on the inline stream. Main thread of every rank. */
#include "program.h"
#include "tune_measure.h"

#include <alnico/mpi.h>
#include <stdlib.h>

/* One way at one size, as perf_measure times it. */
struct contest {
    const struct tuner *tuner;
    const struct tune_way *way;
    size_t count;
};

static void choose_way(void *context)
{
    const struct contest *c = context;
    tune_force(c->tuner->comm, c->way);
}

static alnico_status_t call_once(const struct contest *c)
{
    return alnico_allreduce(c->tuner->send, c->tuner->recv, c->count, ALNICO_FLOAT32, ALNICO_SUM,
                            c->tuner->comm);
}

static void run_way(void *context, int calls)
{
    for (int i = 0; i < calls; i++)
        program_check(call_once(context), "alnico_allreduce");
}

/* Whether no rank says that this way does not exist here. */
static bool is_possible(struct contest *c)
{
    choose_way(c);
    alnico_status_t status = call_once(c);
    int refused = status == ALNICO_ERROR_UNSUPPORTED;
    if (!refused)
        program_check(status, "alnico_allreduce");
    MPI_Allreduce(MPI_IN_PLACE, &refused, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return !refused;
}

static void measure_size(struct tuner *t, unsigned modes, struct tune_size *size,
                         const struct tune_size *before)
{
    static struct contest contests[TUNE_WAYS];
    static struct contestant contestants[TUNE_WAYS];
    int places[TUNE_WAYS], count = 0;
    for (int i = 0; i < size->count; i++) {
        size->time_us[i] = -1;
        contests[count] = (struct contest){t, &size->ways[i], size->bytes / sizeof(float)};
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
    size_t count = t->options.end / sizeof(float);
    t->send = calloc(count, sizeof(float));
    t->recv = calloc(count, sizeof(float));
    if (!t->send || !t->recv)
        program_fail("-e %zu: no memory for two buffers of this size", t->options.end);
    for (size_t i = 0; i < count; i++)
        t->send[i] = t->recv[i] = (float)(i % 7);
}

static void close_cpu(struct tuner *t)
{
    alnico_comm_destroy(t->comm);
    free(t->send);
    free(t->recv);
}

const struct tune_device tune_cpu = {
    .modes = 1, .open = open_cpu, .measure = measure_size, .close = close_cpu};
