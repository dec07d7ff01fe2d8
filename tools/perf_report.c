/* The table and the JSON report of alnico-perf. A row is printed as soon as it is measured. Rank 0's
 * main thread only. */
#include "perf_report.h"

#include "datatype.h"
#include "log.h"
#include "program.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct report {
    struct perf_setup setup;
    FILE *file; /* of --json; NULL without */
    cJSON *json, *rows;
    size_t wrong;
    double bus_total; /* gigabytes per second, summed over `bus_rows` rows */
    int bus_rows;
    double log_total, worst; /* of the ratios ours / peer */
    size_t worst_bytes;
    int ratios;
};

double report_overlap(const struct perf_result *result)
{
    double share = 100 - (result->overall_us - result->compute_us) / result->time_us * 100;
    return fmin(fmax(share, 0), 100);
}

static double bandwidth_gbps(size_t bytes, double time_us)
{
    return (double)bytes / time_us * 1e-3;
}

static double bus_factor(const struct report *report)
{
    return report->setup.options->operation->bus_factor(report->setup.ranks);
}

/* "the library's choice", or the name forced by option or environment, or "all". */
static const char *algorithm_text(const struct perf_options *options)
{
    if (options->all_algorithms)
        return "all";
    if (options->algorithm)
        return options->algorithm;
    return *variable_text(VARIABLE_ALLREDUCE) ? variable_text(VARIABLE_ALLREDUCE)
                                              : "the library's choice";
}

static void add_options(cJSON *json, const struct perf_options *options)
{
    cJSON *object = cJSON_AddObjectToObject(json, "options");
    cJSON_AddStringToObject(object, "device", "cpu");
    cJSON_AddStringToObject(object, "algorithm", algorithm_text(options));
    cJSON_AddBoolToObject(object, "in_place", options->in_place);
    cJSON_AddBoolToObject(object, "nonblocking", options->nonblocking);
    cJSON_AddBoolToObject(object, "overlap", options->overlap);
    cJSON_AddBoolToObject(object, "stream", options->stream);
    cJSON_AddBoolToObject(object, "check", options->check);
    cJSON_AddNumberToObject(object, "seconds", options->seconds);
    char seed[24]; /* a JSON number would lose bits */
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)options->seed);
    cJSON_AddStringToObject(object, "seed", seed);
}

static cJSON *begin_json(const struct perf_setup *setup)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "program", "alnico-perf");
    cJSON_AddStringToObject(json, "version", alnico_version());
    cJSON_AddStringToObject(json, "operation", setup->options->operation->name);
    cJSON_AddStringToObject(json, "date", program_date());
    cJSON_AddStringToObject(json, "command", setup->command);
    cJSON_AddNumberToObject(json, "ranks", setup->ranks);
    cJSON_AddNumberToObject(json, "hosts", setup->hosts);
    cJSON_AddItemToObject(json, "machine", program_machine());
    cJSON *mpi = cJSON_AddObjectToObject(json, "mpi");
    cJSON_AddStringToObject(mpi, "library", program_mpi_library());
    cJSON_AddStringToObject(mpi, "thread_level", program_mpi_level(setup->mpi_level));
    add_options(json, setup->options);
    return json;
}

static void print_setup(const struct perf_setup *setup)
{
    const struct perf_options *options = setup->options;
    printf("# alnico-perf %s %s: %d rank%s on %d host%s, device cpu, %s stream%s%s\n",
           alnico_version(), options->operation->name, setup->ranks, setup->ranks == 1 ? "" : "s",
           setup->hosts, setup->hosts == 1 ? "" : "s", options->stream ? "own" : "inline",
           options->in_place ? ", in place" : "", options->nonblocking ? ", nonblocking" : "");
    printf("# %s; %s, %s\n", program_cpu_name(), program_mpi_library(),
           program_mpi_level(setup->mpi_level));
    printf(
        "# algorithm: %s; inputs of seed %llu; time: slowest rank, median over blocks of calls\n",
        algorithm_text(options), (unsigned long long)options->seed);
    if (setup->crowded)
        printf("# More ranks than processing units: these figures measure the scheduler.\n");
}

/* A column wide enough for an algorithm's name. */
static int name_width(const char *name)
{
    int length = (int)strlen(name);
    return length < 9 ? 10 : length + 1;
}

static void print_head(const struct perf_setup *setup)
{
    const struct perf_options *options = setup->options;
    bool peer = options->versus_mpi;
    printf("#\n#%11s %12s %9s %12s %5s", "size", "count", "type", "redop", "root");
    if (options->overlap)
        printf(" %11s %11s %11s %8s", "overall", "compute", "pure", "overlap");
    else if (options->all_algorithms)
        for (int i = 0; i < setup->results; i++)
            printf(" %*s", name_width(setup->algorithms[i]), setup->algorithms[i]);
    else
        printf(" %11s %8s %8s", "time", "algbw", "busbw");
    printf(" %7s", "#wrong");
    if (peer && options->overlap)
        printf(" %11s %11s %8s", "mpi overall", "mpi pure", "overlap");
    else if (peer)
        printf(" %11s %7s", "mpi", options->all_algorithms ? "best" : "ratio");
    printf("\n#%11s %12s %9s %12s %5s", "(B)", "(elements)", "", "", "");
    if (options->overlap)
        printf(" %11s %11s %11s %8s", "(us)", "(us)", "(us)", "(%)");
    else if (options->all_algorithms)
        for (int i = 0; i < setup->results; i++)
            printf(" %*s", name_width(setup->algorithms[i]), "(us)");
    else
        printf(" %11s %8s %8s", "(us)", "(GB/s)", "(GB/s)");
    printf(" %7s", "");
    if (peer && options->overlap)
        printf(" %11s %11s %8s", "(us)", "(us)", "(%)");
    else if (peer)
        printf(" %11s %7s", "(us)", options->all_algorithms ? "ratio" : "to mpi");
    printf("\n");
    fflush(stdout);
}

struct report *report_open(const struct perf_setup *setup)
{
    struct report *report = calloc(1, sizeof *report);
    if (!report)
        return NULL;
    report->setup = *setup;
    if (setup->options->json)
        report->file = program_json_open(setup->options->json);
    report->json = begin_json(setup);
    report->rows = cJSON_AddArrayToObject(report->json, "rows");
    print_setup(setup);
    print_head(setup);
    return report;
}

/* Microseconds with about four digits. */
static void print_time(int width, double time_us)
{
    printf(" %*.*f", width, time_us < 10 ? 3 : time_us < 1000 ? 2 : 1, time_us);
}

/* The fastest of the row's results; the first if there is only one. */
static const struct perf_result *best_result(const struct perf_row *row)
{
    const struct perf_result *best = &row->result[0];
    for (int i = 1; i < row->results; i++)
        if (row->result[i].time_us < best->time_us)
            best = &row->result[i];
    return best;
}

static size_t row_wrong(const struct perf_row *row)
{
    size_t wrong = 0;
    for (int i = 0; i < row->results; i++)
        wrong += row->result[i].wrong;
    return wrong;
}

static void print_overlap(const struct perf_result *ours)
{
    print_time(11, ours->overall_us);
    print_time(11, ours->compute_us);
    print_time(11, ours->time_us);
    printf(" %8.1f", report_overlap(ours));
}

static void print_peer(const struct report *report, const struct perf_row *row)
{
    bool overlap = report->setup.options->overlap;
    if (!row->with_peer) {
        printf(overlap ? " %11s %11s %8s" : " %11s %7s", "n/a", "n/a", "n/a");
        return;
    }
    if (overlap)
        print_time(11, row->peer.overall_us);
    print_time(11, row->peer.time_us);
    if (overlap)
        printf(" %8.1f", report_overlap(&row->peer));
    else
        printf(" %7.2f", best_result(row)->time_us / row->peer.time_us);
}

static void print_row(const struct report *report, const struct perf_row *row)
{
    const struct perf_options *options = report->setup.options;
    const struct perf_result *ours = &row->result[0];
    printf(" %11zu %12zu %9s %12s %5d", row->bytes, row->count, datatype_name(row->type),
           op_name(row->op), -1);
    double algbw = bandwidth_gbps(row->bytes, ours->time_us);
    if (options->overlap)
        print_overlap(ours);
    else if (options->all_algorithms)
        for (int i = 0; i < row->results; i++)
            print_time(name_width(row->result[i].algorithm), row->result[i].time_us);
    else {
        print_time(11, ours->time_us);
        printf(" %8.2f %8.2f", algbw, algbw * bus_factor(report));
    }
    if (options->check)
        printf(" %7zu", row_wrong(row));
    else
        printf(" %7s", "N/A");
    if (options->versus_mpi)
        print_peer(report, row);
    printf("\n");
    fflush(stdout);
}

static cJSON *result_json(const struct report *report, const struct perf_row *row,
                          const struct perf_result *result)
{
    const struct perf_options *options = report->setup.options;
    cJSON *json = cJSON_CreateObject();
    cJSON_AddNumberToObject(json, "bytes", (double)row->bytes);
    cJSON_AddNumberToObject(json, "count", (double)row->count);
    cJSON_AddStringToObject(json, "type", datatype_name(row->type));
    cJSON_AddStringToObject(json, "op", op_name(row->op));
    if (result->algorithm)
        cJSON_AddStringToObject(json, "algorithm", result->algorithm);
    cJSON_AddNumberToObject(json, "time_us", result->time_us);
    cJSON_AddNumberToObject(json, "p10_us", result->low_us);
    cJSON_AddNumberToObject(json, "p90_us", result->high_us);
    double algbw = bandwidth_gbps(row->bytes, result->time_us);
    cJSON_AddNumberToObject(json, "algbw_gbps", algbw);
    cJSON_AddNumberToObject(json, "busbw_gbps", algbw * bus_factor(report));
    if (options->check)
        cJSON_AddNumberToObject(json, "wrong", (double)result->wrong);
    cJSON_AddNumberToObject(json, "calls_per_block", row->effort.block);
    cJSON_AddNumberToObject(json, "blocks", row->effort.repetitions);
    if (options->overlap) {
        cJSON_AddNumberToObject(json, "overall_us", result->overall_us);
        cJSON_AddNumberToObject(json, "compute_us", result->compute_us);
        cJSON_AddNumberToObject(json, "overlap_percent", report_overlap(result));
    }
    return json;
}

static void add_peer(cJSON *json, const struct report *report, const struct perf_row *row,
                     const struct perf_result *result)
{
    cJSON_AddNumberToObject(json, "mpi_us", row->peer.time_us);
    cJSON_AddNumberToObject(json, "mpi_p10_us", row->peer.low_us);
    cJSON_AddNumberToObject(json, "mpi_p90_us", row->peer.high_us);
    cJSON_AddNumberToObject(json, "ratio", result->time_us / row->peer.time_us);
    if (!report->setup.options->overlap)
        return;
    cJSON_AddNumberToObject(json, "mpi_overall_us", row->peer.overall_us);
    cJSON_AddNumberToObject(json, "mpi_compute_us", row->peer.compute_us);
    cJSON_AddNumberToObject(json, "mpi_overlap_percent", report_overlap(&row->peer));
}

static void add_up(struct report *report, const struct perf_row *row)
{
    const struct perf_result *best = best_result(row);
    report->wrong += row_wrong(row);
    report->bus_rows++;
    report->bus_total += bandwidth_gbps(row->bytes, best->time_us) * bus_factor(report);
    if (!row->with_peer)
        return;
    double ratio = best->time_us / row->peer.time_us;
    report->log_total += log(ratio);
    if (report->ratios++ == 0 || ratio > report->worst) {
        report->worst = ratio;
        report->worst_bytes = row->bytes;
    }
}

void report_row(struct report *report, const struct perf_row *row)
{
    print_row(report, row);
    add_up(report, row);
    for (int i = 0; i < row->results; i++) {
        cJSON *json = result_json(report, row, &row->result[i]);
        if (row->with_peer)
            add_peer(json, report, row, &row->result[i]);
        cJSON_AddItemToArray(report->rows, json);
    }
}

static void print_summary(const struct report *report, int threads)
{
    printf("# Out of bounds values : %zu %s\n", report->wrong, report->wrong ? "FAILED" : "OK");
    if (report->bus_rows)
        printf("# Avg bus bandwidth    : %.4g\n", report->bus_total / report->bus_rows);
    if (report->ratios)
        printf("# Ratio ours / mpi     : geometric mean %.3f, worst %.3f at %zu B\n",
               exp(report->log_total / report->ratios), report->worst, report->worst_bytes);
    printf("# Threads of Alnico    : %d while this was timed\n", threads);
}

static void add_summary(struct report *report, int threads)
{
    cJSON *summary = cJSON_AddObjectToObject(report->json, "summary");
    cJSON_AddNumberToObject(summary, "wrong", (double)report->wrong);
    if (report->bus_rows)
        cJSON_AddNumberToObject(summary, "busbw_gbps", report->bus_total / report->bus_rows);
    if (report->ratios) {
        cJSON_AddNumberToObject(summary, "ratio_mean", exp(report->log_total / report->ratios));
        cJSON_AddNumberToObject(summary, "ratio_worst", report->worst);
        cJSON_AddNumberToObject(summary, "ratio_worst_bytes", (double)report->worst_bytes);
    }
    cJSON_AddNumberToObject(summary, "library_threads", threads);
}

size_t report_close(struct report *report, int threads)
{
    size_t wrong = report->wrong;
    print_summary(report, threads);
    add_summary(report, threads);
    if (report->file)
        program_json_close(report->file, report->json);
    cJSON_Delete(report->json);
    free(report);
    return wrong;
}
