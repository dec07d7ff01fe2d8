/* The table that alnico-perf prints, and what follows from a row. Rank 0's main thread only. */
#include "tools/perf/bench.h"

#include "base/datatype.h"
#include "base/log.h"
#include "tools/common/program.h"
#include "tools/perf/mpi.h"

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

const struct perf_result *row_best(const struct perf_row *row)
{
    const struct perf_result *best = &row->result[0];
    for (int i = 1; i < row->results; i++)
        if (row->result[i].time_us < best->time_us || isnan(best->time_us))
            best = &row->result[i];
    return best;
}

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
    if (bench->mpi)
        printf("# %s; %s, %s\n", program_cpu_name(), bench->mpi->library, bench->mpi->level);
    else
        printf("# %s\n", program_cpu_name());
    printf(
        "# algorithm: %s; inputs of seed %llu; time: slowest rank, median over blocks of calls\n",
        table_algorithm(options), (unsigned long long)options->seed);
    if (*bench->device)
        printf("# %s\n", bench->device);
    if (bench->oversubscribed)
        printf("# More ranks than processing units: these figures measure the scheduler.\n");
}

/* A column wide enough for a name. */
static int width_for(const char *name, int least)
{
    int length = (int)strlen(name);
    return length < least ? least : length;
}

/* A line of the table: the columns' names, their units, or a row, which is zero in the other two. */
struct line {
    const struct bench *bench;
    enum { NAMES, UNITS, ROW } kind;
    const struct perf_row *row;
};

static void print_text(const struct line *line, int width, const char *name, const char *unit,
                       const char *value)
{
    const char *texts[] = {[NAMES] = name, [UNITS] = unit, [ROW] = value};
    printf(" %*s", width, texts[line->kind]);
}

static void print_number(const struct line *line, int width, const char *name, const char *unit,
                         int digits, double value)
{
    char text[32] = "n/a";
    if (!isnan(value))
        snprintf(text, sizeof text, "%.*f", digits, value);
    print_text(line, width, name, unit, text);
}

/* Microseconds with about four digits. */
static void print_time(const struct line *line, int width, const char *name, double time_us)
{
    print_number(line, width, name, "(us)", time_us < 10 ? 3 : time_us < 1000 ? 2 : 1, time_us);
}

static void print_call(const struct line *line)
{
    const struct perf_options *options = &line->bench->options;
    const struct perf_row *row = line->row;
    char bytes[24], count[24], root[16];
    snprintf(bytes, sizeof bytes, "%zu", row->bytes);
    snprintf(count, sizeof count, "%zu", row->count);
    snprintf(root, sizeof root, "%d", table_root(options));
    printf("%c%11s", line->kind == ROW ? ' ' : '#',
           line->kind == ROW     ? bytes
           : line->kind == UNITS ? "(B)"
                                 : "size");
    print_text(line, 12, "count", "(elements)", count);
    print_text(line, 9, "type", "", datatype_name(row->type));
    print_text(line, 12, "redop", "", table_op(options, row->op));
    print_text(line, 5, "root", "", root);
}

static void print_times(const struct line *line)
{
    const struct bench *bench = line->bench;
    const struct perf_row *row = line->row;
    const struct perf_result *ours = &row->result[0];
    double algbw = table_gbps(row->bytes, ours->time_us);
    if (bench->options.overlap) {
        print_time(line, 11, "overall", ours->overall_us);
        print_time(line, 11, "compute", ours->compute_us);
        print_time(line, 11, "pure", ours->time_us);
        print_number(line, 8, "overlap", "(%)", 1, table_overlap(ours));
    } else if (bench->options.all_algorithms) {
        for (int i = 0; i < bench->results; i++)
            print_time(line, width_for(bench->algorithm[i], 10), bench->algorithm[i],
                       row->result[i].time_us);
    } else {
        print_time(line, 11, "time", ours->time_us);
        print_number(line, 8, "algbw", "(GB/s)", 2, algbw);
        print_number(line, 8, "busbw", "(GB/s)", 2,
                     algbw * perf_bus_factor(bench->options.operation, bench->ranks));
    }
}

static void print_ours(const struct line *line)
{
    const struct perf_options *options = &line->bench->options;
    const struct perf_result *ours = &line->row->result[0];
    char wrong[24] = "N/A";
    if (options->check)
        snprintf(wrong, sizeof wrong, "%zu", row_wrong(line->row));
    print_times(line);
    print_text(line, 7, "#wrong", "", wrong);
    if (options->host_time) {
        print_number(line, 8, "host", "(us)", 2, ours->host_us);
        print_number(line, 8, "launch", "(us)", 2, ours->launch_us);
    }
}

static void print_peer(const struct line *line, int peer)
{
    const struct perf_options *options = &line->bench->options;
    const struct perf_result *theirs = &line->row->peer[peer];
    const char *name = peer_table[peer].name;
    bool timed = line->row->peers & 1u << peer;
    double time_us = timed ? theirs->time_us : NAN;
    if (options->overlap) {
        char overall[32], pure[32];
        snprintf(overall, sizeof overall, "%s overall", name);
        snprintf(pure, sizeof pure, "%s pure", name);
        print_time(line, width_for(overall, 11), overall, timed ? theirs->overall_us : NAN);
        print_time(line, width_for(pure, 11), pure, time_us);
        print_number(line, 8, "overlap", "(%)", 1, timed ? table_overlap(theirs) : NAN);
    } else {
        print_time(line, width_for(name, 11), name, time_us);
        print_number(line, 7, options->all_algorithms ? "best" : "ratio", "", 2,
                     row_best(line->row)->time_us / time_us);
    }
    if (options->host_time)
        print_time(line, 8, "host", timed ? theirs->host_us : NAN);
}

static void print_line(const struct line *line)
{
    print_call(line);
    print_ours(line);
    for (int i = 0; i < PEERS; i++)
        if (line->bench->options.versus & 1u << i)
            print_peer(line, i);
    printf("\n");
}

void table_row(const struct bench *bench, const struct perf_row *row)
{
    print_line(&(struct line){bench, ROW, row});
    fflush(stdout);
}

void table_head(const struct bench *bench)
{
    static const struct perf_row none;
    print_setup(bench);
    printf("#\n");
    print_line(&(struct line){bench, NAMES, &none});
    print_line(&(struct line){bench, UNITS, &none});
    fflush(stdout);
}
