/* Tables and JSON of alnico-simulate, and where the fastest algorithm changes. Main thread. */
#include "tools/simulate/report.h"

#include <stdio.h>
#include <string.h>

/* The column of the fastest algorithm; -1 if all were left out. */
static int fastest(const struct simulate_options *options, const struct simulate_cell *row)
{
    int best = -1;
    for (int a = 0; a < options->algorithms_count; a++) {
        double time_us = row[a].result.time_us;
        if (time_us >= 0 && (best < 0 || time_us < row[best].result.time_us))
            best = a;
    }
    return best;
}

/* The size at which the lines through both algorithms' times at two sizes cross. */
static double cross(double low, double high, const struct simulate_cell *before, int a,
                    const struct simulate_cell *after, int b)
{
    double lead = before[b].result.time_us - before[a].result.time_us;
    double lag = after[a].result.time_us - after[b].result.time_us;
    return lead + lag > 0 ? low + (high - low) * lead / (lead + lag) : low;
}

int crossovers_find(const struct simulate_options *options, const struct simulate_cell *cells,
                    struct crossover *out)
{
    int found = 0;
    for (int s = 1; s < options->sizes_count; s++) {
        const struct simulate_cell *after = cells + s * options->algorithms_count,
                                   *before = after - options->algorithms_count;
        int a = fastest(options, before), b = fastest(options, after);
        if (a < 0 || b < 0 || a == b)
            continue;
        out[found++] = (struct crossover){
            options->algorithms[a], options->algorithms[b],
            cross((double)options->sizes[s - 1], (double)options->sizes[s], before, a, after, b)};
    }
    return found;
}

static int column_width(const char *name)
{
    int length = (int)strlen(name);
    return length < 11 ? 12 : length + 1;
}

void report_head(const struct simulate_options *options, int ranks, int ranks_per_host)
{
    const struct collective *operation = options->operation;
    bool blocks = operation->reads == ALL_BLOCKS || operation->writes == ALL_BLOCKS;
    printf("# alnico-simulate %s %s, float32%s%s: %d ranks, %d a host, on simulated %s\n",
           alnico_version(), operation->name, operation->reduces ? " sum" : "",
           blocks ? ", size of each rank's block" : "", ranks, ranks_per_host,
           options->machine.name);
    if (options->staged)
        printf("# staged through the hosts: %s\n", options->staged);
    printf("#%11s", "size (B)");
    for (int a = 0; a < options->algorithms_count; a++)
        printf(" %*s", column_width(options->algorithms[a]->name), options->algorithms[a]->name);
    printf("  %-8s %s\n", "data", "fastest");
    fflush(stdout);
}

/* The data column of a row: "checked", "sizes" (no elements), "part" (of the algorithms), a count
 * of wrong elements, or "-" where no algorithm ran. */
static const char *data_text(const struct simulate_options *options,
                             const struct simulate_cell *row)
{
    static char text[32];
    size_t wrong = 0;
    int run = 0, checked = 0;
    for (int a = 0; a < options->algorithms_count; a++) {
        wrong += row[a].result.wrong;
        run += row[a].result.time_us >= 0;
        checked += row[a].result.time_us >= 0 && row[a].data;
    }
    if (wrong) {
        snprintf(text, sizeof text, "%zuWRONG", wrong);
        return text;
    }
    if (!run)
        return "-";
    return checked == run ? "checked" : checked ? "part" : "sizes";
}

void report_row(const struct simulate_options *options, size_t bytes,
                const struct simulate_cell *row)
{
    int best = fastest(options, row);
    printf(" %11zu", bytes);
    for (int a = 0; a < options->algorithms_count; a++) {
        int width = column_width(options->algorithms[a]->name);
        double time_us = row[a].result.time_us;
        if (time_us < 0)
            printf(" %*s", width, "-");
        else
            printf(" %*.*f", width, time_us < 1000 ? 2 : 1, time_us);
    }
    printf("  %-8s %s\n", data_text(options, row),
           best < 0 ? "-" : options->algorithms[best]->name);
    fflush(stdout);
}

void report_crossovers(const struct crossover *crossovers, int count)
{
    for (int i = 0; i < count; i++)
        printf("# crossover: %s up to %.0f B, then %s\n", crossovers[i].below->name,
               crossovers[i].bytes, crossovers[i].above->name);
    if (!count)
        printf("# crossover: none\n");
    printf("\n");
    fflush(stdout);
}

static cJSON *machine_json(const struct simulate_machine *machine)
{
    static const char *const names[] = {"same_host", "same_leaf", "other_leaf"};
    const struct sim_machine *sim = &machine->sim;
    cJSON *json =
        json_add(cJSON_CreateObject(), "name %s file %s ranks_per_host %d hosts_per_leaf %d",
                 machine->name, machine->path, sim->ranks_per_host, sim->hosts_per_leaf);
    for (int c = 0; c < SIM_CLASSES; c++)
        json_add(cJSON_AddObjectToObject(json, names[c]), "latency_us %g bandwidth_gbps %g",
                 sim->link[c].latency_us, sim->link[c].bandwidth_gbps);
    const struct simulate_staging *staging = &machine->staging;
    if (staging->bandwidth_gbps > 0)
        json_add(cJSON_AddObjectToObject(json, "staging"),
                 "latency_us %g bandwidth_gbps %g reduce_gbps %g", staging->latency_us,
                 staging->bandwidth_gbps, staging->reduce_gbps);
    return json_add(json, "injection_gbps %g taper %g reduce_gbps %g", sim->injection_gbps,
                    sim->taper, sim->reduce_gbps);
}

cJSON *report_json(const struct simulate_options *options, const char *command)
{
    cJSON *json =
        json_add(cJSON_CreateObject(),
                 "program %s version %s kind %s operation %s date %s command %s", "alnico-simulate",
                 alnico_version(), "simulated", options->operation->name, program_date(), command);
    cJSON_AddItemToObject(json, "simulated_machine", machine_json(&options->machine));
    json_add(json, "chunk_bytes %zu", options->chunk);
    if (options->staged)
        json_add(json, "staged %s", options->staged);
    cJSON_AddItemToObject(json, "runs", cJSON_CreateArray());
    return json;
}

static void add_cell(cJSON *row, const struct simulate_options *options, int size, int algorithm,
                     const struct simulate_cell *cell)
{
    json_add(row, "bytes %zu algorithm %s", options->sizes[size],
             options->algorithms[algorithm]->name);
    if (cell->result.time_us < 0) {
        cJSON_AddNullToObject(row, "time_us");
    } else {
        json_add(row, "time_us %g messages %zu data %hhd", cell->result.time_us,
                 cell->result.messages, cell->data);
        if (cell->data)
            json_add(row, "wrong %zu", cell->result.wrong);
    }
}

cJSON *report_json_ranks(cJSON *json, const struct simulate_options *options, int ranks,
                         int ranks_per_host, const struct simulate_cell *cells,
                         const struct crossover *crossovers, int count)
{
    cJSON *run = json_add(json_row(cJSON_GetObjectItem(json, "runs")), "ranks %d ranks_per_host %d",
                          ranks, ranks_per_host);
    cJSON *rows = cJSON_AddArrayToObject(run, "rows");
    for (int s = 0; s < options->sizes_count; s++)
        for (int a = 0; a < options->algorithms_count; a++)
            add_cell(json_row(rows), options, s, a, &cells[s * options->algorithms_count + a]);
    cJSON *list = cJSON_AddArrayToObject(run, "crossovers");
    for (int i = 0; i < count; i++)
        json_add(json_row(list), "bytes %g below %s above %s", crossovers[i].bytes,
                 crossovers[i].below->name, crossovers[i].above->name);
    return run;
}
