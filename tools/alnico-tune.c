/* alnico-tune: measures every way to carry out an allreduce on the ranks of mpirun and puts the rows that follow into a
 * tuning file. Which ways and rows there are stands in tune_rows.c, how times are taken in perf_measure.c, the command
 * line in tune_options.c. */
#include "comm/comm.h"
#include "perf_measure.h"
#include "program.h"
#include "tune_options.h"
#include "tune_rows.h"

#include <alnico/mpi.h>
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* From here on a way that took twice as long as the best is not measured at larger sizes: latency, which may favour
 * others there, no longer counts. */
enum { PRUNE_BYTES = 1 << 20 };

struct tuner {
    struct tune_options options;
    int rank, ranks;
    alnico_comm_t comm;
    struct tuning_steps in_force; /* what the table said before */
    float *send, *recv;
    struct tune_size *sizes;
    int count;
};

/* ---- Measuring ---- */

/* One way at one size, as perf_measure times it. */
struct contest {
    const struct tuner *tuner;
    const struct tune_way *way;
    size_t count;
};

static void choose_way(void *context)
{
    const struct contest *c = context;
    const struct tuning_step only = {.backend = c->way->backend,
                                     .algorithm = c->way->algorithm,
                                     .chunk_bytes = c->way->chunk_bytes};
    tuning_steps_force(&c->tuner->comm->tuning, ALNICO_ALLREDUCE, &only);
}

static alnico_status_t call_once(const struct contest *c)
{
    return alnico_allreduce(c->tuner->send, c->tuner->recv, c->count, ALNICO_FLOAT32, ALNICO_SUM,
                            c->tuner->comm);
}

static void run_way(void *context, int calls)
{
    for (int i = 0; i < calls; i++)
        program_check(call_once(context), "alnico_allreduce");
}

/* Whether no rank says that this way does not exist here. */
static bool is_possible(struct contest *c)
{
    choose_way(c);
    alnico_status_t status = call_once(c);
    int refused = status == ALNICO_ERROR_UNSUPPORTED;
    if (!refused)
        program_check(status, "alnico_allreduce");
    MPI_Allreduce(MPI_IN_PLACE, &refused, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return !refused;
}

static bool is_hopeless(const struct tune_size *before, const struct tune_way *way)
{
    if (!before || before->bytes < PRUNE_BYTES || !tune_best(before))
        return false;
    return tune_time(before, way) > 2 * tune_time(before, tune_best(before));
}

static void measure_size(struct tuner *t, struct tune_size *size, const struct tune_size *before)
{
    static struct contest contests[TUNE_WAYS];
    static struct contestant contestants[TUNE_WAYS];
    int places[TUNE_WAYS], count = 0;
    for (int i = 0; i < size->count; i++) {
        size->time_us[i] = -1;
        contests[count] = (struct contest){t, &size->ways[i], size->bytes / sizeof(float)};
        if (is_hopeless(before, &size->ways[i]) || !is_possible(&contests[count]))
            continue;
        contestants[count] =
            (struct contestant){.prepare = choose_way, .run = run_way, .context = &contests[count]};
        places[count++] = i;
    }
    struct measure_plan plan = {.seconds = t->options.seconds, .warmup = 2};
    struct measure_effort effort;
    if (count && !measure(contestants, count, &plan, &effort))
        program_fail("no memory for the samples of %d ways", count);
    for (int i = 0; i < count; i++)
        size->time_us[places[i]] = contestants[i].time_us;
}

static struct tune_way way_in_force(const struct tuner *t, size_t bytes)
{
    const struct tuning_step *step = tuning_choose(&t->in_force, ALNICO_ALLREDUCE, 0, bytes);
    return (struct tune_way){step->backend, step->algorithm, step->chunk_bytes};
}

/* "host ring, 8192". */
static const char *way_text(const struct tune_way *way, size_t bytes, char *text, size_t room)
{
    if (tune_cuts(way, bytes))
        snprintf(text, room, "%s %s, %zu", way->backend, way->algorithm->name, way->chunk_bytes);
    else
        snprintf(text, room, "%s %s, whole", way->backend, way->algorithm->name);
    return text;
}

static void print_size(const struct tuner *t, const struct tune_size *size)
{
    char best_text[96], old_text[96];
    struct tune_way old = way_in_force(t, size->bytes);
    const struct tune_way *best = tune_best(size);
    if (!best)
        program_fail("no way can carry out an allreduce of %zu bytes", size->bytes);
    double time = tune_time(size, best), before = tune_time(size, &old);
    printf("%11zu  %-36s %11.2f  %-36s %11.2f  %5.2f\n", size->bytes,
           way_text(best, size->bytes, best_text, sizeof best_text), time,
           way_text(&old, size->bytes, old_text, sizeof old_text), before, time / before);
    fflush(stdout);
}

static void measure_all(struct tuner *t)
{
    if (t->rank == 0)
        printf("%11s  %-36s %11s  %-36s %11s  %5s\n", "bytes", "fastest (backend algorithm, chunk)",
               "us", "in force", "us", "ratio");
    for (size_t bytes = t->options.begin; t->count < TUNE_SIZES; bytes *= t->options.factor) {
        struct tune_size *size = &t->sizes[t->count];
        size->bytes = bytes / sizeof(float) * sizeof(float);
        tune_add_all(size, ALNICO_ALLREDUCE, t->options.quick);
        tune_add_way(size, way_in_force(t, bytes));
        measure_size(t, size, t->count ? size - 1 : NULL);
        t->count++;
        if (t->rank == 0)
            print_size(t, size);
        if (bytes > t->options.end / t->options.factor)
            break;
    }
}

/* ---- The file ---- */

static cJSON *describe(const struct tuner *t, const char *command)
{
    cJSON *machine = program_machine();
    cJSON_AddStringToObject(machine, "mpi", program_mpi_library());
    cJSON_AddStringToObject(machine, "alnico", alnico_version());
    cJSON_AddStringToObject(machine, "date", program_date());
    cJSON_AddStringToObject(machine, "command", command ? command : "");
    cJSON_AddNumberToObject(machine, "ranks", t->ranks);
    cJSON_AddNumberToObject(machine, "hosts", t->comm->hosts);
    return machine;
}

static bool is_number(const cJSON *object, const char *key, int value)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(item) && item->valuedouble == value;
}

/* This run's description takes the place of that of the same ranks and hosts. */
static void describe_into(const struct tuner *t, const char *command, struct tuning *tuning)
{
    cJSON *machines = tuning->machines ? cJSON_Parse(tuning->machines) : cJSON_CreateArray();
    for (int i = cJSON_GetArraySize(machines) - 1; i >= 0; i--) {
        const cJSON *machine = cJSON_GetArrayItem(machines, i);
        if (is_number(machine, "ranks", t->ranks) && is_number(machine, "hosts", t->comm->hosts))
            cJSON_DeleteItemFromArray(machines, i);
    }
    cJSON_AddItemToArray(machines, describe(t, command));
    free(tuning->machines);
    tuning->machines = cJSON_PrintUnformatted(machines);
    cJSON_Delete(machines);
}

/* What is there already; before measuring, so that a file that cannot be used fails at once. */
static void open_file(const char *path, struct tuning *tuning)
{
    memset(tuning, 0, sizeof *tuning);
    if (!path)
        return;
    if (access(path, F_OK) == 0) {
        program_check(tuning_file_read(path, tuning), "reading the table to add to");
        return;
    }
    char *copy = strdup(path);
    if (!copy || access(dirname(copy), W_OK) != 0)
        program_fail("%s: %s", path, strerror(errno));
    free(copy);
}

static void print_bound(size_t value, bool any)
{
    if (any)
        printf("  %11s", "any");
    else
        printf("  %11zu", value);
}

static void print_rows(const struct tuning_row *rows, int count)
{
    printf("\n  %11s  %11s  %11s  %-8s %-20s %11s\n", "ranks up to", "hosts up to", "bytes up to",
           "backend", "algorithm", "chunk bytes");
    for (const struct tuning_row *row = rows; row < rows + count; row++) {
        print_bound((size_t)row->ranks, row->ranks == INT_MAX);
        print_bound((size_t)row->hosts, row->hosts == INT_MAX);
        print_bound(row->bytes, row->bytes == SIZE_MAX);
        printf("  %-8s %-20s %11zu\n", row->backend, row->algorithm, row->chunk_bytes);
    }
}

static void finish_table(const struct tuner *t, const char *command, struct tuning *tuning)
{
    struct tuning_row rows[TUNE_SIZES];
    struct tuning_row like = {.collective = ALNICO_ALLREDUCE,
                              .device = ALNICO_DEVICE_CPU,
                              .ranks = t->ranks,
                              .hosts = t->comm->hosts};
    int count = tune_choose_rows(t->sizes, t->count, t->options.margin, &like, rows);
    print_rows(rows, count);
    if (!t->options.file)
        return;
    program_check(tune_merge(tuning, rows, count), t->options.file);
    describe_into(t, command, tuning);
    program_check(tuning_file_write(t->options.file, tuning), "writing the table");
    printf("\n%s: %d rows; use it by ALNICO_TUNING=%s\n", t->options.file, tuning->count,
           t->options.file);
}

/* ---- The program ---- */

static void tuner_open(struct tuner *t)
{
    program_check(alnico_comm_create_mpi(MPI_COMM_WORLD, ALNICO_DEVICE_CPU, NULL, &t->comm),
                  "alnico_comm_create_mpi");
    if (t->comm->forced || t->comm->family->settings.chunk_bytes)
        program_fail(
            "ALNICO_ALLREDUCE or ALNICO_CHUNK is set: unset them, they go before every row");
    program_check(tuning_steps_init(&t->in_force, &t->comm->family->tuning, ALNICO_DEVICE_CPU,
                                    t->ranks, t->comm->hosts),
                  "tuning_steps_init");
    size_t count = t->options.end / sizeof(float);
    t->send = calloc(count, sizeof(float));
    t->recv = calloc(count, sizeof(float));
    t->sizes = calloc(TUNE_SIZES, sizeof *t->sizes);
    if (!t->send || !t->recv || !t->sizes)
        program_fail("-e %zu: no memory for two buffers of this size", t->options.end);
    for (size_t i = 0; i < count; i++)
        t->send[i] = t->recv[i] = (float)(i % 7);
}

static void tuner_close(struct tuner *t)
{
    alnico_comm_destroy(t->comm);
    tuning_steps_finish(&t->in_force);
    free(t->send);
    free(t->recv);
    free(t->sizes);
}

static int check_file(const char *path)
{
    struct tuning tuning;
    if (tuning_file_read(path, &tuning) != ALNICO_SUCCESS) {
        fprintf(stderr, "alnico-tune: %s\n", alnico_error_detail());
        return EXIT_FAILURE;
    }
    printf("%s: good, %d rows\n", path, tuning.count);
    tuning_finish(&tuning);
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    struct tuner t = {.options = tune_options_read(argc, argv)};
    struct tuning tuning = {0};
    if (t.options.check)
        return check_file(t.options.check);
    char *command = program_command(argc, argv);
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SINGLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &t.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &t.ranks);
    if (t.ranks < 2)
        program_fail("one rank has nothing to choose: run it by mpirun -n 2 or more");
    if (t.rank == 0)
        open_file(t.options.file, &tuning);
    tuner_open(&t);
    measure_all(&t);
    if (t.rank == 0)
        finish_table(&t, command, &tuning);
    tuning_finish(&tuning);
    tuner_close(&t);
    free(command);
    MPI_Finalize();
    return EXIT_SUCCESS;
}
