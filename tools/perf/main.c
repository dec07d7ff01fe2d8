/* alnico-perf: measures and checks an operation on the ranks of mpirun, and compares it with MPI's
 * in the same process. operations.c has the operations, bench.c and gpu/cuda.c measure on a device,
 * measure.c times, values.h has the right results, table.c and report.c print. */
#include "base/datatype.h"
#include "device/topology.h"
#include "tools/common/program.h"
#include "tools/common/ranks.h"
#include "tools/perf/bench.h"
#include "tools/perf/measure.h"
#include "tools/perf/mpi.h"

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
    program_gather(&topology.host_id, ids, sizeof *ids);
    int here = 0, oversubscribed;
    for (int i = 0; i < bench->ranks; i++) {
        bool seen = false;
        for (int j = 0; j < i; j++)
            seen |= ids[j] == ids[i];
        bench->hosts += !seen;
        here += ids[i] == topology.host_id;
    }
    oversubscribed = here > topology.units;
    program_greatest(&oversubscribed, 1);
    bench->oversubscribed = oversubscribed;
    free(ids);
}

/* Only for what compares with it. */
static void open_mpi(struct bench *bench)
{
    if (!(bench->options.versus & (1u << PEER_MPI | 1u << PEER_STAGED)))
        return;
    bench->mpi = perf_mpi_open(bench->options.multiple);
    if (!bench->mpi)
        program_fail("%s", alnico_error_detail());
    program_on_failure(bench->mpi->abort);
}

int main(int argc, char **argv)
{
    struct bench bench = {.command = program_command(argc, argv)};
    program_start();
    perf_options_read(argc, argv, &bench.options);
    program_ranks_open();
    open_mpi(&bench);
    bench.rank = program_rank();
    bench.ranks = program_size();
    check_ranks(&bench);
    if (!bench.options.seed_given)
        bench.options.seed = (uint64_t)(measure_now() * 1e6);
    program_broadcast(&bench.options.seed, sizeof bench.options.seed, 0);
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
    program_greatest(&own, 1);
    uint64_t wrong = report ? report_close(report, own) : 0;
    program_broadcast(&wrong, sizeof wrong, 0);
    bench.ops->close(&bench);
    free(bench.command);
    program_ranks_close();
    if (bench.mpi)
        bench.mpi->close();
    return wrong ? EXIT_FAILURE : EXIT_SUCCESS;
}
