/* alnico-perf: measures and checks an operation on the ranks of mpirun, and compares it with MPI's
 * in the same process. operations.c has the operations, bench.c and gpu/cuda.c measure on a device,
 * measure.c times, values.h has the right results, table.c and report.c print. */
#include "base/datatype.h"
#include "device/topology.h"
#include "tools/common/program.h"
#include "tools/perf/bench.h"
#include "tools/perf/measure.h"

#include <alnico/mpi.h>
#include <stdlib.h>

/* The size after `bytes`; 0 after the last. */
static size_t next_size(const struct perf_options *options, size_t bytes)
{
    size_t left = options->end - bytes;
    if (options->step)
        return left >= options->step ? bytes + options->step : 0;
    return bytes <= options->end / options->factor ? bytes * options->factor : 0;
}

/* All sizes of one type and operation; sizes below one element, or one of each block, are raised to
 * that. */
static void bench_sizes(struct bench *bench, struct report *report, alnico_datatype_t type,
                        alnico_op_t op)
{
    const struct perf_options *options = &bench->options;
    const struct perf_operation *operation = options->operation;
    size_t element = datatype_bytes(type), last = SIZE_MAX;
    if (bench->ops->begin)
        bench->ops->begin(bench, type, op);
    for (size_t bytes = options->begin; bytes; bytes = next_size(options, bytes)) {
        size_t count = perf_count(operation, bytes / element, bench->ranks);
        if (count == last)
            continue;
        last = count;
        struct perf_row row = {.bytes = perf_size(operation, count, bench->ranks) * element,
                               .count = count,
                               .type = type,
                               .op = op};
        bench->ops->row(bench, &row);
        if (report)
            report_row(report, &row);
    }
}

static void bench_all(struct bench *bench, struct report *report)
{
    const struct perf_options *options = &bench->options;
    for (int type = 0; type < DATATYPES; type++)
        for (int op = 0; op < OPS; op++)
            if ((options->type == PERF_ALL || options->type == type) &&
                (options->op == PERF_ALL || options->op == op) &&
                op_supports((alnico_op_t)op, (alnico_datatype_t)type))
                bench_sizes(bench, report, (alnico_datatype_t)type, (alnico_op_t)op);
}

/* Options that the number of ranks decides on. */
static void check_ranks(const struct bench *bench)
{
    const struct perf_options *options = &bench->options;
    if (options->root >= bench->ranks)
        program_refuse("-r %d: expected a rank below %d, the number of ranks", options->root,
                       bench->ranks);
    if (bench->ranks < options->operation->ranks_least)
        program_refuse("%s: needs %d ranks", options->operation->name,
                       options->operation->ranks_least);
}

/* Counts the hosts, and sees whether one of them has more ranks than processing units. */
static void count_hosts(struct bench *bench)
{
    struct topology topology;
    program_check(topology_read(&topology), "topology_read");
    uint64_t *ids = calloc((size_t)bench->ranks, sizeof *ids);
    if (!ids)
        program_fail("no memory for the hosts of %d ranks", bench->ranks);
    MPI_Allgather(&topology.host_id, 1, MPI_UINT64_T, ids, 1, MPI_UINT64_T, MPI_COMM_WORLD);
    int here = 0, oversubscribed;
    for (int i = 0; i < bench->ranks; i++) {
        bool seen = false;
        for (int j = 0; j < i; j++)
            seen |= ids[j] == ids[i];
        bench->hosts += !seen;
        here += ids[i] == topology.host_id;
    }
    oversubscribed = here > topology.units;
    MPI_Allreduce(MPI_IN_PLACE, &oversubscribed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    bench->oversubscribed = oversubscribed;
    free(ids);
}

int main(int argc, char **argv)
{
    struct bench bench = {.command = program_command(argc, argv)};
    program_start();
    perf_options_read(argc, argv, &bench.options);
    int wanted = bench.options.multiple ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE;
    MPI_Init_thread(&argc, &argv, wanted, &bench.mpi_level);
    if (bench.mpi_level < wanted)
        program_fail("MPI gives %s, and these options need %s", program_mpi_level(bench.mpi_level),
                     program_mpi_level(wanted));
    MPI_Comm_rank(MPI_COMM_WORLD, &bench.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &bench.ranks);
    check_ranks(&bench);
    if (!bench.options.seed_given)
        bench.options.seed = (uint64_t)(measure_now() * 1e6);
    MPI_Bcast(&bench.options.seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
#ifdef ALNICO_HAVE_CUDA
    bench.ops = bench.options.device == ALNICO_DEVICE_CUDA ? &bench_cuda : &bench_cpu;
#else
    bench.ops = &bench_cpu;
#endif
    bench.threads_before = bench.threads = program_threads();
    bench.ops->open(&bench);
    count_hosts(&bench);
    struct report *report = bench.rank == 0 ? report_open(&bench) : NULL;
    bench_all(&bench, report);
    int own = bench.threads - bench.threads_before;
    MPI_Allreduce(MPI_IN_PLACE, &own, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    uint64_t wrong = report ? report_close(report, own) : 0;
    MPI_Bcast(&wrong, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    bench.ops->close(&bench);
    free(bench.command);
    MPI_Finalize();
    return wrong ? EXIT_FAILURE : EXIT_SUCCESS;
}
