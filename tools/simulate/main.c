/* alnico-simulate: the library's algorithms in virtual time on a machine of thousands of ranks. The
 * cases are handed out to a few threads in order; the main thread prints each row when it is
 * complete. */
#include "tools/simulate/steps.h"

#include <pthread.h>
#include <stdlib.h>

/* All cases at one number of ranks. */
struct sweep {
    const struct simulate_options *options;
    struct sim_machine machine; /* with ranks_per_host as --hosts has it */
    struct host_map *map;
    int ranks, cases;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t finished;
    int next;
    bool *done;
    struct simulate_cell *cells;
    alnico_status_t status; /* the first failure */
    char detail[256];
};

/* Simulates one case, with data if its share of --memory allows. */
static alnico_status_t run_cell(const struct sweep *sweep, int number, struct simulate_cell *cell)
{
    const struct simulate_options *options = sweep->options;
    int size = number / options->algorithms_count, algorithm = number % options->algorithms_count;
    struct simulate_case what = {
        .machine = &sweep->machine,
        .algorithm = options->algorithms[algorithm],
        .ranks = sweep->ranks,
        .map = sweep->map,
        .staging = options->is_staged[algorithm] ? &options->machine.staging : NULL,
        .count = options->sizes[size] / sizeof(float),
        .chunk_count = options->chunk / sizeof(float),
        .operation = options->operation};
    *cell = (struct simulate_cell){.result = {.time_us = -1}};
    if (simulate_rounds(&what) > (double)options->rounds)
        return ALNICO_SUCCESS;
    what.data = simulate_data_bytes(&what) <= (double)options->memory / options->threads;
    cell->data = what.data;
    return simulate_run(&what, &cell->result);
}

static void *work(void *argument)
{
    struct sweep *sweep = argument;
    pthread_mutex_lock(&sweep->lock);
    while (sweep->next < sweep->cases) {
        struct simulate_cell cell;
        int number = sweep->next++;
        pthread_mutex_unlock(&sweep->lock);
        alnico_status_t status = run_cell(sweep, number, &cell);
        pthread_mutex_lock(&sweep->lock);
        sweep->cells[number] = cell;
        sweep->done[number] = true;
        if (status != ALNICO_SUCCESS && sweep->status == ALNICO_SUCCESS) {
            sweep->status = status;
            snprintf(sweep->detail, sizeof sweep->detail, "%s: %s", alnico_status_string(status),
                     alnico_error_detail());
        }
        pthread_cond_signal(&sweep->finished);
    }
    pthread_mutex_unlock(&sweep->lock);
    return NULL;
}

/* Prints the rows in order, each as soon as it is there. */
static size_t print_rows(struct sweep *sweep)
{
    const struct simulate_options *options = sweep->options;
    size_t wrong = 0;
    for (int s = 0; s < options->sizes_count; s++) {
        int first = s * options->algorithms_count;
        pthread_mutex_lock(&sweep->lock);
        for (int a = 0; a < options->algorithms_count; a++)
            while (!sweep->done[first + a])
                pthread_cond_wait(&sweep->finished, &sweep->lock);
        pthread_mutex_unlock(&sweep->lock);
        if (sweep->status != ALNICO_SUCCESS)
            program_fail("%s", sweep->detail);
        report_row(options, options->sizes[s], &sweep->cells[first]);
        for (int a = 0; a < options->algorithms_count; a++)
            wrong += sweep->cells[first + a].result.wrong;
    }
    return wrong;
}

static size_t run_threads(struct sweep *sweep)
{
    pthread_t threads[256];
    for (int t = 0; t < sweep->options->threads; t++)
        if (pthread_create(&threads[t], NULL, work, sweep) != 0)
            program_fail("cannot start thread %d", t + 1);
    size_t wrong = print_rows(sweep);
    for (int t = 0; t < sweep->options->threads; t++)
        pthread_join(threads[t], NULL);
    return wrong;
}

/* Everything at one number of ranks; returns the wrong elements. */
static size_t run_sweep(const struct simulate_options *options, int ranks, cJSON *json)
{
    struct sweep sweep = {.options = options, .machine = options->machine.sim, .ranks = ranks};
    if (options->hosts)
        sweep.machine.ranks_per_host = (ranks - 1) / options->hosts + 1;
    sweep.cases = options->sizes_count * options->algorithms_count;
    pthread_mutex_init(&sweep.lock, NULL);
    pthread_cond_init(&sweep.finished, NULL);
    sweep.done = calloc((size_t)sweep.cases, sizeof *sweep.done);
    sweep.cells = calloc((size_t)sweep.cases, sizeof *sweep.cells);
    int per_host = sweep.machine.ranks_per_host;
    sweep.map = simulate_map(ranks, per_host);
    if (!sweep.done || !sweep.cells || !sweep.map)
        program_fail("no memory for %d cases of %d ranks", sweep.cases, ranks);
    report_head(options, ranks, per_host);
    size_t wrong = run_threads(&sweep);
    struct crossover crossovers[SIMULATE_LIST];
    int count = crossovers_find(options, sweep.cells, crossovers);
    report_crossovers(crossovers, count);
    cJSON *run = report_json_ranks(json, options, ranks, per_host, sweep.cells, crossovers, count);
    if (options->profile)
        steps_report(options, ranks, sweep.cells, run);
    free(sweep.map);
    free(sweep.done);
    free(sweep.cells);
    pthread_cond_destroy(&sweep.finished);
    pthread_mutex_destroy(&sweep.lock);
    return wrong;
}

int main(int argc, char **argv)
{
    static struct simulate_options options;
    char *command = program_command(argc, argv);
    program_start();
    simulate_options_read(argc, argv, &options);
    program_json_try(options.json);
    cJSON *json = report_json(&options, command);
    size_t wrong = 0;
    for (int i = 0; i < options.ranks_count; i++)
        wrong += run_sweep(&options, options.ranks[i], json);
    program_json_write(options.json, json);
    free(command);
    step_parts_free(&options.steps);
    return wrong ? EXIT_FAILURE : EXIT_SUCCESS;
}
