/* The table that alnico-perf prints, and what follows from a row. Rank 0's main thread only. */
#include "tools/perf/bench.h"

#include "base/datatype.h"
#include "base/log.h"
#include "tools/common/program.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

double table_overlap(const struct perf_result *result)
{
    double share = 100 - (result->overall_us - result->compute_us) / result->time_us * 100;
    return fmin(fmax(share, 0), 100);
}

double table_gbps(size_t bytes, double time_us)
{
    return (double)bytes / time_us * 1e-3;
}

/* "the library's choice", or the name forced by option or environment, or "all". */
const char *table_algorithm(const struct perf_options *options)
{
    if (options->all_algorithms)
        return "all";
    if (options->algorithm)
        return options->algorithm;
    const char *forced =
        variable_text((enum variable)(VARIABLE_ALLREDUCE + (int)options->operation->collective));
    return *forced ? forced : "the library's choice";
}

const char *table_op(const struct perf_options *options, alnico_op_t op)
{
    return collectives[options->operation->collective].reduces ? op_name(op) : "none";
}

int table_root(const struct perf_options *options)
{
    return collectives[options->operation->collective].rooted ? options->root : -1;
}

/* The fastest of the row's results; the first if none can do it. */
const struct perf_result *row_best(const struct perf_row *row)
{
    const struct perf_result *best = &row->result[0];
    for (int i = 1; i < row->results; i++)
        if (row->result[i].time_us < best->time_us || isnan(best->time_us))
            best = &row->result[i];
    return best;
}

/* The time of the fastest peer; NAN without. */
double row_best_peer_us(const struct perf_row *row)
{
    double best = NAN;
    for (int i = 0; i < PEERS; i++)
        if (row->peers & 1u << i)
            best = fmin(best, row->peer[i].time_us);
    return best;
}

size_t row_wrong(const struct perf_row *row)
{
    size_t wrong = 0;
    for (int i = 0; i < row->results; i++)
        wrong += row->result[i].wrong;
    return wrong;
}

static void print_setup(const struct bench *bench)
{
    const struct perf_options *options = &bench->options;
    bool own = options->stream || options->device == ALNICO_DEVICE_CUDA;
    printf("# alnico-perf %s %s: %d rank%s on %d host%s, device %s, %s stream%s%s%s\n",
           alnico_version(), options->operation->name, bench->ranks, bench->ranks == 1 ? "" : "s",
           bench->hosts, bench->hosts == 1 ? "" : "s", option_devices[options->device],
           own ? "own" : "inline", options->in_place ? ", in place" : "",
           options->nonblocking ? ", nonblocking" : "", options->registered ? ", registered" : "");
    if (options->graph)
        printf("# time: of one call in a CUDA graph of %ld\n", options->calls);
    printf("# %s; %s, %s\n", program_cpu_name(), program_mpi_library(),
           program_mpi_level(bench->mpi_level));
    printf(
        "# algorithm: %s; inputs of seed %llu; time: slowest rank, median over blocks of calls\n",
        table_algorithm(options), (unsigned long long)options->seed);
    if (*bench->device)
        printf("# %s\n", bench->device);
    if (bench->oversubscribed)
        printf("# More ranks than processing units: these figures measure the scheduler.\n");
}

/* A column wide enough for an algorithm's name. */
static int name_width(const char *name)
{
    int length = (int)strlen(name);
    return length < 9 ? 10 : length + 1;
}

/* A column wide enough for a peer's name and what follows it. */
static int peer_width(const char *name, const char *what)
{
    int length = (int)(strlen(name) + strlen(what));
    return length < 11 ? 11 : length;
}

/* The columns' names, or the line of their units below. */
static void print_cell(int width, const char *name, const char *unit, bool units)
{
    printf(" %*s", width, units ? unit : name);
}

static void print_peer_head(const struct perf_options *options, const char *name, bool units)
{
    if (options->overlap) {
        char overall[32], pure[32];
        snprintf(overall, sizeof overall, "%s overall", name);
        snprintf(pure, sizeof pure, "%s pure", name);
        print_cell(peer_width(overall, ""), overall, "(us)", units);
        print_cell(peer_width(pure, ""), pure, "(us)", units);
        print_cell(8, "overlap", "(%)", units);
    } else {
        print_cell(peer_width(name, ""), name, "(us)", units);
        print_cell(7, options->all_algorithms ? "best" : "ratio", "", units);
    }
    if (options->host_time)
        print_cell(8, "host", "(us)", units);
}

static void print_our_head(const struct bench *bench, bool units)
{
    const struct perf_options *options = &bench->options;
    if (options->overlap) {
        print_cell(11, "overall", "(us)", units);
        print_cell(11, "compute", "(us)", units);
        print_cell(11, "pure", "(us)", units);
        print_cell(8, "overlap", "(%)", units);
    } else if (options->all_algorithms) {
        for (int i = 0; i < bench->results; i++)
            print_cell(name_width(bench->algorithm[i]), bench->algorithm[i], "(us)", units);
    } else {
        print_cell(11, "time", "(us)", units);
        print_cell(8, "algbw", "(GB/s)", units);
        print_cell(8, "busbw", "(GB/s)", units);
    }
    print_cell(7, "#wrong", "", units);
    if (options->host_time) {
        print_cell(8, "host", "(us)", units);
        print_cell(8, "launch", "(us)", units);
    }
}

static void print_head(const struct bench *bench, bool units)
{
    printf("#%11s", units ? "(B)" : "size");
    print_cell(12, "count", "(elements)", units);
    print_cell(9, "type", "", units);
    print_cell(12, "redop", "", units);
    print_cell(5, "root", "", units);
    print_our_head(bench, units);
    for (int i = 0; i < PEERS; i++)
        if (bench->options.versus & 1u << i)
            print_peer_head(&bench->options, peer_table[i].name, units);
    printf("\n");
}

/* Microseconds with about four digits. */
static void print_time(int width, double time_us)
{
    if (isnan(time_us))
        printf(" %*s", width, "n/a");
    else
        printf(" %*.*f", width, time_us < 10 ? 3 : time_us < 1000 ? 2 : 1, time_us);
}

static void print_overlap(const struct perf_result *ours)
{
    print_time(11, ours->overall_us);
    print_time(11, ours->compute_us);
    print_time(11, ours->time_us);
    printf(" %8.1f", table_overlap(ours));
}

static void print_peer(const struct bench *bench, const struct perf_row *row, int peer)
{
    bool overlap = bench->options.overlap, timed = row->peers & 1u << peer;
    const struct perf_result *theirs = &row->peer[peer];
    const char *name = peer_table[peer].name;
    if (overlap)
        print_time(peer_width(name, " overall"), timed ? theirs->overall_us : NAN);
    print_time(peer_width(name, overlap ? " pure" : ""), timed ? theirs->time_us : NAN);
    double ratio = timed ? row_best(row)->time_us / theirs->time_us : NAN;
    if (!timed || (!overlap && isnan(ratio)))
        printf(" %*s", overlap ? 8 : 7, "n/a");
    else if (overlap)
        printf(" %8.1f", table_overlap(theirs));
    else
        printf(" %7.2f", ratio);
    if (bench->options.host_time)
        print_time(8, timed ? theirs->host_us : NAN);
}

void table_row(const struct bench *bench, const struct perf_row *row)
{
    const struct perf_options *options = &bench->options;
    const struct perf_result *ours = &row->result[0];
    printf(" %11zu %12zu %9s %12s %5d", row->bytes, row->count, datatype_name(row->type),
           table_op(options, row->op), table_root(options));
    double algbw = table_gbps(row->bytes, ours->time_us);
    if (options->overlap)
        print_overlap(ours);
    else if (options->all_algorithms)
        for (int i = 0; i < row->results; i++)
            print_time(name_width(row->result[i].algorithm), row->result[i].time_us);
    else {
        print_time(11, ours->time_us);
        printf(" %8.2f %8.2f", algbw, algbw * perf_bus_factor(options->operation, bench->ranks));
    }
    if (options->check)
        printf(" %7zu", row_wrong(row));
    else
        printf(" %7s", "N/A");
    if (options->host_time)
        printf(" %8.2f %8.2f", ours->host_us, ours->launch_us);
    for (int i = 0; i < PEERS; i++)
        if (options->versus & 1u << i)
            print_peer(bench, row, i);
    printf("\n");
    fflush(stdout);
}

void table_head(const struct bench *bench)
{
    print_setup(bench);
    printf("#\n");
    print_head(bench, false);
    print_head(bench, true);
    fflush(stdout);
}
