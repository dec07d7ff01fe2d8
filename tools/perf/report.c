/* The JSON report of alnico-perf, and its closing lines. A row is printed (perf/table.c) as soon as
 * it is measured. Rank 0's main thread only. */
#include "tools/perf/report.h"

#include "base/datatype.h"
#include "tools/common/program.h"
#include "tools/perf/table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ratios of times over the rows. */
struct ratios {
    double log_total, worst;
    size_t worst_bytes;
    int count;
};

struct report {
    struct perf_setup setup;
    FILE *file; /* of --json; NULL without */
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
    cJSON_AddStringToObject(object, "algorithm", setup_algorithm(options));
    cJSON_AddStringToObject(object, "memory",
                            options->nccl_memory ? "nccl" : setup_device(options));
    cJSON_AddNumberToObject(object, "graph_calls", options->graph ? (double)options->calls : 0);
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
    if (setup->describe)
        cJSON_AddItemToObject(json, "gpu", cJSON_Duplicate(setup->describe, true));
    return json;
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
    table_head(setup);
    return report;
}

static cJSON *result_json(const struct report *report, const struct perf_row *row,
                          const struct perf_result *result)
{
    const struct perf_options *options = report->setup.options;
    cJSON *json = cJSON_CreateObject();
    cJSON_AddNumberToObject(json, "bytes", (double)row->bytes);
    cJSON_AddNumberToObject(json, "count", (double)row->count);
    cJSON_AddStringToObject(json, "type", datatype_name(row->type));
    cJSON_AddStringToObject(json, "op", setup_op(options, row->op));
    cJSON_AddNumberToObject(json, "root", setup_root(options));
    if (result->algorithm)
        cJSON_AddStringToObject(json, "algorithm", result->algorithm);
    cJSON_AddNumberToObject(json, "time_us", result->time_us);
    cJSON_AddNumberToObject(json, "p10_us", result->low_us);
    cJSON_AddNumberToObject(json, "p90_us", result->high_us);
    double algbw = table_gbps(row->bytes, result->time_us);
    cJSON_AddNumberToObject(json, "algbw_gbps", algbw);
    cJSON_AddNumberToObject(json, "busbw_gbps", algbw * table_bus_factor(&report->setup));
    if (options->check)
        cJSON_AddNumberToObject(json, "wrong", (double)result->wrong);
    cJSON_AddNumberToObject(json, "calls_per_block", row->effort.block);
    cJSON_AddNumberToObject(json, "blocks", row->effort.repetitions);
    if (options->overlap) {
        cJSON_AddNumberToObject(json, "overall_us", result->overall_us);
        cJSON_AddNumberToObject(json, "compute_us", result->compute_us);
        cJSON_AddNumberToObject(json, "overlap_percent", report_overlap(result));
    }
    if (options->host_time) {
        cJSON_AddNumberToObject(json, "host_us", result->host_us);
        cJSON_AddNumberToObject(json, "launch_us", result->launch_us);
    }
    return json;
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
    add_number(json, key, "overlap_percent", report_overlap(theirs));
}

static void add_peers(cJSON *json, const struct report *report, const struct perf_row *row,
                      const struct perf_result *result)
{
    for (int i = 0; i < PEERS; i++)
        if (row->peers & 1u << i)
            add_peer(json, report->setup.options, peer_table[i].key, result, &row->peer[i]);
    if (row->peers)
        cJSON_AddNumberToObject(json, "ratio", result->time_us / row_best_peer_us(row));
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
    report->bus_total += table_gbps(row->bytes, best->time_us) * table_bus_factor(&report->setup);
    for (int i = 0; i < PEERS; i++)
        if (row->peers & 1u << i)
            add_ratio(&report->of[i], best->time_us / row->peer[i].time_us, row->bytes);
    if (row->peers)
        add_ratio(&report->best, best->time_us / row_best_peer_us(row), row->bytes);
}

void report_row(struct report *report, const struct perf_row *row)
{
    table_row(&report->setup, row);
    add_up(report, row);
    for (int i = 0; i < row->results; i++) {
        if (isnan(row->result[i].time_us))
            continue;
        cJSON *json = result_json(report, row, &row->result[i]);
        add_peers(json, report, row, &row->result[i]);
        cJSON_AddItemToArray(report->rows, json);
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
    cJSON_AddNumberToObject(json, "ratio_mean", exp(ratios->log_total / ratios->count));
    cJSON_AddNumberToObject(json, "ratio_worst", ratios->worst);
    cJSON_AddNumberToObject(json, "ratio_worst_bytes", (double)ratios->worst_bytes);
}

/* The ratios at the summary's own level are those to the fastest peer of each row. */
static void add_summary(struct report *report, int threads)
{
    cJSON *summary = cJSON_AddObjectToObject(report->json, "summary");
    cJSON_AddNumberToObject(summary, "wrong", (double)report->wrong);
    if (report->bus_rows)
        cJSON_AddNumberToObject(summary, "busbw_gbps", report->bus_total / report->bus_rows);
    if (report->best.count)
        add_ratios(summary, &report->best);
    for (int i = 0; i < PEERS; i++)
        if (report->of[i].count)
            add_ratios(cJSON_AddObjectToObject(summary, peer_table[i].key), &report->of[i]);
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
