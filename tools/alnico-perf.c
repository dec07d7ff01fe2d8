/* alnico-perf: measures and checks a collective on the ranks of mpirun, and compares it with MPI's in
 * the same process. What is measured stands in perf_operations.c, how in perf_bench.c and
 * perf_measure.c, what must come out in perf_check.c, what is printed in perf_report.c. */
#include "datatype.h"
#include "device/topology.h"
#include "perf_bench.h"
#include "perf_check.h"
#include "perf_measure.h"
#include "program.h"

#include <alnico/mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The size after `bytes`; 0 after the last. */
static size_t next_size(const struct perf_options *options, size_t bytes)
{
    size_t left = options->end - bytes;
    if (options->step)
        return left >= options->step ? bytes + options->step : 0;
    return bytes <= options->end / options->factor ? bytes * options->factor : 0;
}

/* All sizes of one type and operation; sizes below one element are raised to one. */
static void bench_sizes(struct bench *bench, struct report *report, alnico_datatype_t type,
                        alnico_op_t op)
{
    const struct perf_options *options = &bench->options;
    size_t element = datatype_bytes(type), most = options->end / element, last = 0;
    struct check check = {options->seed, bench->ranks, type, op};
    check_fill(&check, bench->rank, bench->send, most ? most : 1);
    memset(bench->recv, 0xFF, options->end);
    for (size_t bytes = options->begin; bytes; bytes = next_size(options, bytes)) {
        size_t count = bytes < element ? 1 : bytes / element;
        if (count == last)
            continue;
        last = count;
        struct perf_row row = {.bytes = count * element, .count = count, .type = type, .op = op};
        bench_row(bench, &row);
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

/* Memory of at least `bytes`, aligned to a cache line; check_fill and memset touch every page. */
static void *allocate(size_t bytes)
{
    size_t rounded = (bytes + 8 + 63) / 64 * 64;
    void *memory = rounded < bytes ? NULL : aligned_alloc(64, rounded);
    if (!memory)
        program_fail("-e %zu: no memory for two buffers of this size", bytes);
    return memory;
}

/* A communicator with an algorithm, or the library's choice if `name` is NULL. One that cannot be used
 * here is left out if it is optional. */
static void bench_add(struct bench *bench, const char *name, bool optional)
{
    alnico_comm_t *comm = &bench->comm[bench->results];
    program_check(alnico_comm_create_mpi(MPI_COMM_WORLD, ALNICO_DEVICE_CPU, bench->stream, comm),
                  "alnico_comm_create_mpi");
    alnico_status_t status = ALNICO_SUCCESS;
    if (name)
        status = alnico_comm_set_algorithm(*comm, bench->options.operation->collective, name);
    if (status == ALNICO_ERROR_UNSUPPORTED && optional) {
        alnico_comm_destroy(*comm);
        return;
    }
    program_check(status, "alnico_comm_set_algorithm");
    bench->algorithm[bench->results++] = name;
}

/* One communicator, or one for each algorithm, on the inline stream or on one of its own. */
static void bench_open(struct bench *bench)
{
    const struct perf_options *options = &bench->options;
    bench->threads_before = bench->threads = program_threads();
    if (options->stream)
        program_check(alnico_stream_create(&bench->stream), "alnico_stream_create");
    bench->results = 0;
    if (!options->all_algorithms)
        bench_add(bench, options->algorithm, false);
    for (int i = 0; options->all_algorithms && bench->results < PERF_RESULTS; i++) {
        const char *name = options->operation->algorithm(i);
        if (!name)
            break;
        bench_add(bench, name, true);
    }
    bench->send = allocate(options->end);
    bench->recv = allocate(options->end);
}

static void bench_close(struct bench *bench)
{
    for (int i = 0; i < bench->results; i++)
        alnico_comm_destroy(bench->comm[i]);
    alnico_stream_destroy(bench->stream);
    free(bench->send);
    free(bench->recv);
}

/* How many hosts the ranks are on, and whether one of them has more ranks than units. */
static void count_hosts(struct perf_setup *setup)
{
    struct topology topology;
    program_check(topology_read(&topology), "topology_read");
    uint64_t *ids = calloc((size_t)setup->ranks, sizeof *ids);
    if (!ids)
        program_fail("no memory for the hosts of %d ranks", setup->ranks);
    MPI_Allgather(&topology.host_id, 1, MPI_UINT64_T, ids, 1, MPI_UINT64_T, MPI_COMM_WORLD);
    int here = 0, crowded;
    for (int i = 0; i < setup->ranks; i++) {
        bool seen = false;
        for (int j = 0; j < i; j++)
            seen |= ids[j] == ids[i];
        setup->hosts += !seen;
        here += ids[i] == topology.host_id;
    }
    crowded = here > topology.units;
    MPI_Allreduce(MPI_IN_PLACE, &crowded, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    setup->crowded = crowded;
    free(ids);
}

static struct report *open_report(struct bench *bench, int level, const char *command)
{
    struct perf_setup setup = {.options = &bench->options,
                               .ranks = bench->ranks,
                               .mpi_level = level,
                               .results = bench->results,
                               .command = command};
    memcpy(setup.algorithms, bench->algorithm, sizeof setup.algorithms);
    count_hosts(&setup);
    if (bench->rank != 0)
        return NULL;
    struct report *report = report_open(&setup);
    if (!report)
        program_fail("no memory for the report");
    return report;
}

int main(int argc, char **argv)
{
    struct bench bench = {0};
    char *command = program_command(argc, argv);
    perf_options_read(argc, argv, &bench.options);
    int wanted = bench.options.multiple ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, level;
    MPI_Init_thread(&argc, &argv, wanted, &level);
    if (level < wanted)
        program_fail("MPI gives %s, and these options need %s", program_mpi_level(level),
                     program_mpi_level(wanted));
    MPI_Comm_rank(MPI_COMM_WORLD, &bench.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &bench.ranks);
    if (!bench.options.seed_given)
        bench.options.seed = (uint64_t)(measure_now() * 1e6);
    MPI_Bcast(&bench.options.seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    bench_open(&bench);
    struct report *report = open_report(&bench, level, command);
    bench_all(&bench, report);
    int own = bench.threads - bench.threads_before;
    MPI_Allreduce(MPI_IN_PLACE, &own, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    uint64_t wrong = report ? report_close(report, own) : 0;
    MPI_Bcast(&wrong, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    bench_close(&bench);
    free(command);
    MPI_Finalize();
    return wrong ? EXIT_FAILURE : EXIT_SUCCESS;
}
