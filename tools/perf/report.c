/* The JSON report of alnico-perf, and its closing lines. A row is printed (perf/table.c) as soon as
 * it is measured. Rank 0's main thread only. */
#include "tools/perf/bench.h"

#include "base/datatype.h"
#include "tools/common/program.h"
#include "tools/perf/mpi.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Ratios of times over the rows. */
struct ratios {
    double log_total, worst;
    size_t worst_bytes;
    int count;
};

struct report {
    const struct bench *bench;
    cJSON *json, *rows;
    size_t wrong;
    double bus_total; /* gigabytes per second, summed over `bus_rows` rows */
    int bus_rows;
    struct ratios of[PEERS], best; /* ours / peer, and ours / the row's fastest peer */
};

static void add_options(cJSON *json, const struct perf_options *options)
{
    cJSON *object = cJSON_AddObjectToObject(json, "options");
    perf_options_json(options, object);
    char seed[24]; /* a JSON number would lose bits */
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)options->seed);
    json_add(object, "algorithm %s memory %s graph_calls %g seed %s", table_algorithm(options),
             options->nccl_memory ? "nccl" : option_devices[options->device],
             options->graph ? (double)options->calls : 0, seed);
}

static cJSON *begin_json(const struct bench *bench)
{
    cJSON *json =
        json_add(cJSON_CreateObject(),
                 "program %s version %s operation %s date %s command %s ranks %d hosts %d",
                 "alnico-perf", alnico_version(), bench->options.operation->name, program_date(),
                 bench->command, bench->ranks, bench->hosts);
    cJSON_AddItemToObject(json, "machine", program_machine());
    if (bench->mpi)
        json_add(cJSON_AddObjectToObject(json, "mpi"), "library %s thread_level %s",
                 bench->mpi->library, bench->mpi->level);
    add_options(json, &bench->options);
    if (bench->describe)
        cJSON_AddItemToObject(json, "gpu", cJSON_Duplicate(bench->describe, true));
    return json;
}

struct report *report_open(const struct bench *bench)
{
    struct report *report = calloc(1, sizeof *report);
    if (!report)
        program_fail("no memory for the report");
    report->bench = bench;
    program_json_try(bench->options.json);
    report->json = begin_json(bench);
    report->rows = cJSON_AddArrayToObject(report->json, "rows");
    table_head(bench);
    return report;
}

static void add_result(cJSON *json, const struct report *report, const struct perf_row *row,
                       const struct perf_result *result)
{
    const struct perf_options *options = &report->bench->options;
    json_add(json, "bytes %zu count %zu type %s op %s root %d", row->bytes, row->count,
             datatype_name(row->type), table_op(options, row->op), table_root(options));
    if (result->algorithm)
        json_add(json, "algorithm %s", result->algorithm);
    double algbw = table_gbps(row->bytes, result->time_us);
    json_add(json, "time_us %g p10_us %g p90_us %g algbw_gbps %g busbw_gbps %g", result->time_us,
             result->low_us, result->high_us, algbw,
             algbw * perf_bus_factor(report->bench->options.operation, report->bench->ranks));
    if (options->check)
        json_add(json, "wrong %zu", result->wrong);
    json_add(json, "calls_per_block %d blocks %d", row->effort.block, row->effort.repetitions);
    if (options->overlap)
        json_add(json, "overall_us %g compute_us %g overlap_percent %g", result->overall_us,
                 result->compute_us, table_overlap(result));
    if (options->host_time)
        json_add(json, "host_us %g launch_us %g", result->host_us, result->launch_us);
}

/* A number named KEY_WHAT. */
static void add_number(cJSON *json, const char *key, const char *what, double value)
{
    char name[64];
    snprintf(name, sizeof name, "%s_%s", key, what);
    cJSON_AddNumberToObject(json, name, value);
}

static void add_peer(cJSON *json, const struct perf_options *options, const char *key,
                     const struct perf_result *ours, const struct perf_result *theirs)
{
    add_number(json, key, "us", theirs->time_us);
    add_number(json, key, "p10_us", theirs->low_us);
    add_number(json, key, "p90_us", theirs->high_us);
    add_number(json, key, "ratio", ours->time_us / theirs->time_us);
    if (options->host_time)
        add_number(json, key, "host_us", theirs->host_us);
    if (!options->overlap)
        return;
    add_number(json, key, "overall_us", theirs->overall_us);
    add_number(json, key, "compute_us", theirs->compute_us);
    add_number(json, key, "overlap_percent", table_overlap(theirs));
}

static void add_peers(cJSON *json, const struct report *report, const struct perf_row *row,
                      const struct perf_result *result)
{
    for (int i = 0; i < PEERS; i++)
        if (row->peers & 1u << i)
            add_peer(json, &report->bench->options, peer_table[i].key, result, &row->peer[i]);
    if (row->peers)
        json_add(json, "ratio %g", result->time_us / row_best_peer_us(row));
}

static void add_ratio(struct ratios *ratios, double ratio, size_t bytes)
{
    ratios->log_total += log(ratio);
    if (ratios->count++ == 0 || ratio > ratios->worst) {
        ratios->worst = ratio;
        ratios->worst_bytes = bytes;
    }
}

static void add_up(struct report *report, const struct perf_row *row)
{
    const struct perf_result *best = row_best(row);
    report->wrong += row_wrong(row);
    if (isnan(best->time_us))
        return;
    report->bus_rows++;
    report->bus_total += table_gbps(row->bytes, best->time_us) *
                         perf_bus_factor(report->bench->options.operation, report->bench->ranks);
    for (int i = 0; i < PEERS; i++)
        if (row->peers & 1u << i)
            add_ratio(&report->of[i], best->time_us / row->peer[i].time_us, row->bytes);
    if (row->peers)
        add_ratio(&report->best, best->time_us / row_best_peer_us(row), row->bytes);
}

void report_row(struct report *report, const struct perf_row *row)
{
    table_row(report->bench, row);
    add_up(report, row);
    for (int i = 0; i < row->results; i++) {
        if (isnan(row->result[i].time_us))
            continue;
        cJSON *json = json_row(report->rows);
        add_result(json, report, row, &row->result[i]);
        add_peers(json, report, row, &row->result[i]);
    }
}

static void print_summary(const struct report *report, int threads)
{
    printf("# Out of bounds values : %zu %s\n", report->wrong, report->wrong ? "FAILED" : "OK");
    if (report->bus_rows)
        printf("# Avg bus bandwidth    : %.4g\n", report->bus_total / report->bus_rows);
    for (int i = 0; i < PEERS; i++) {
        const struct ratios *ratios = &report->of[i];
        if (ratios->count)
            printf("# Ratio ours / %-8s: geometric mean %.3f, worst %.3f at %zu B\n",
                   peer_table[i].name, exp(ratios->log_total / ratios->count), ratios->worst,
                   ratios->worst_bytes);
    }
    printf("# Threads of Alnico    : %d while this was timed\n", threads);
}

static void add_ratios(cJSON *json, const struct ratios *ratios)
{
    json_add(json, "ratio_mean %g ratio_worst %g ratio_worst_bytes %zu",
             exp(ratios->log_total / ratios->count), ratios->worst, ratios->worst_bytes);
}

/* The ratios at the summary's own level are those to the fastest peer of each row. */
static void add_summary(struct report *report, int threads)
{
    cJSON *summary = cJSON_AddObjectToObject(report->json, "summary");
    json_add(summary, "wrong %zu", report->wrong);
    if (report->bus_rows)
        json_add(summary, "busbw_gbps %g", report->bus_total / report->bus_rows);
    if (report->best.count)
        add_ratios(summary, &report->best);
    for (int i = 0; i < PEERS; i++)
        if (report->of[i].count)
            add_ratios(cJSON_AddObjectToObject(summary, peer_table[i].key), &report->of[i]);
    json_add(summary, "library_threads %d", threads);
}

size_t report_close(struct report *report, int threads)
{
    size_t wrong = report->wrong;
    print_summary(report, threads);
    add_summary(report, threads);
    program_json_write(report->bench->options.json, report->json);
    free(report);
    return wrong;
}
