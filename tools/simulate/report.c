/* What alnico-simulate prints and writes. Main thread. */
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

/* Where the lines through both algorithms' times at two sizes cross. */
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

/* ---- The table ---- */

static int column_width(const char *name)
{
    int length = (int)strlen(name);
    return length < 11 ? 12 : length + 1;
}

void report_head(const struct simulate_options *options, int ranks, int ranks_per_host)
{
    const struct simulate_operation *operation = options->operation;
    bool blocks = operation->send == SIDE_BLOCKS || operation->recv == SIDE_BLOCKS;
    printf("# alnico-simulate %s %s, float32%s%s: %d ranks, %d a host, on simulated %s\n",
           alnico_version(), operation->name, operation->flags & REDUCES ? " sum" : "",
           blocks ? ", size of each rank's block" : "", ranks, ranks_per_host,
           options->machine.name);
    printf("#%11s", "size (B)");
    for (int a = 0; a < options->algorithms_count; a++)
        printf(" %*s", column_width(options->algorithms[a]->name), options->algorithms[a]->name);
    printf("  %-8s %s\n", "data", "fastest");
    fflush(stdout);
}

/* What was checked of a row: "checked", "sizes" (no elements), "part" (of the algorithms), a count
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

/* ---- JSON ---- */

static cJSON *machine_json(const struct simulate_machine *machine)
{
    static const char *const names[] = {"same_host", "same_leaf", "other_leaf"};
    const struct sim_machine *sim = &machine->sim;
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "name", machine->name);
    cJSON_AddStringToObject(json, "file", machine->path);
    cJSON_AddNumberToObject(json, "ranks_per_host", sim->ranks_per_host);
    cJSON_AddNumberToObject(json, "hosts_per_leaf", sim->hosts_per_leaf);
    for (int c = 0; c < SIM_CLASSES; c++) {
        cJSON *link = cJSON_AddObjectToObject(json, names[c]);
        cJSON_AddNumberToObject(link, "latency_us", sim->link[c].latency_us);
        cJSON_AddNumberToObject(link, "bandwidth_gbps", sim->link[c].bandwidth_gbps);
    }
    cJSON_AddNumberToObject(json, "injection_gbps", sim->injection_gbps);
    cJSON_AddNumberToObject(json, "taper", sim->taper);
    cJSON_AddNumberToObject(json, "reduce_gbps", sim->reduce_gbps);
    return json;
}

cJSON *report_json(const struct simulate_options *options, const char *command)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "program", "alnico-simulate");
    cJSON_AddStringToObject(json, "version", alnico_version());
    cJSON_AddStringToObject(json, "kind", "simulated");
    cJSON_AddStringToObject(json, "operation", options->operation->name);
    cJSON_AddStringToObject(json, "date", program_date());
    cJSON_AddStringToObject(json, "command", command);
    cJSON_AddItemToObject(json, "simulated_machine", machine_json(&options->machine));
    cJSON_AddNumberToObject(json, "chunk_bytes", (double)options->chunk);
    cJSON_AddItemToObject(json, "runs", cJSON_CreateArray());
    return json;
}

static void add_cell(cJSON *rows, const struct simulate_options *options, int size, int algorithm,
                     const struct simulate_cell *cell)
{
    cJSON *row = cJSON_CreateObject();
    cJSON_AddNumberToObject(row, "bytes", (double)options->sizes[size]);
    cJSON_AddStringToObject(row, "algorithm", options->algorithms[algorithm]->name);
    if (cell->result.time_us < 0) {
        cJSON_AddNullToObject(row, "time_us");
    } else {
        cJSON_AddNumberToObject(row, "time_us", cell->result.time_us);
        cJSON_AddNumberToObject(row, "messages", (double)cell->result.messages);
        cJSON_AddBoolToObject(row, "data", cell->data);
        if (cell->data)
            cJSON_AddNumberToObject(row, "wrong", (double)cell->result.wrong);
    }
    cJSON_AddItemToArray(rows, row);
}

void report_json_ranks(cJSON *json, const struct simulate_options *options, int ranks,
                       int ranks_per_host, const struct simulate_cell *cells,
                       const struct crossover *crossovers, int count)
{
    cJSON *run = cJSON_CreateObject();
    cJSON_AddNumberToObject(run, "ranks", ranks);
    cJSON_AddNumberToObject(run, "ranks_per_host", ranks_per_host);
    cJSON *rows = cJSON_AddArrayToObject(run, "rows");
    for (int s = 0; s < options->sizes_count; s++)
        for (int a = 0; a < options->algorithms_count; a++)
            add_cell(rows, options, s, a, &cells[s * options->algorithms_count + a]);
    cJSON *list = cJSON_AddArrayToObject(run, "crossovers");
    for (int i = 0; i < count; i++) {
        cJSON *item = cJSON_CreateObject();
        cJSON_AddNumberToObject(item, "bytes", crossovers[i].bytes);
        cJSON_AddStringToObject(item, "below", crossovers[i].below->name);
        cJSON_AddStringToObject(item, "above", crossovers[i].above->name);
        cJSON_AddItemToArray(list, item);
    }
    cJSON_AddItemToArray(cJSON_GetObjectItem(json, "runs"), run);
}
