/* alnico-tune: measures every way to carry out an allreduce, or other operations, on the ranks of
 * mpirun and puts the rows that follow into a tuning file, or says whether the table in force takes
 * the fastest. rows.c has the ways and the rows, cpu.c and cuda.c measure a device. */
#include "comm/call.h"
#include "tools/common/program.h"
#include "tools/common/ranks.h"
#include "tools/perf/bench.h"
#include "tools/tune/measure.h"

#include <errno.h>
#include <libgen.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Whether the table knows the size of its calls. */
static bool is_sized(const struct perf_operation *operation)
{
    return !collectives[operation->collective].uneven && operation->shape != SHAPE_NONE;
}

/* The bytes that the table is asked for. */
static size_t row_bytes(const struct tuner *t, const struct tune_size *size)
{
    return is_sized(t->operation) ? size->bytes : 0;
}

static const struct tuning_step *step_of(const struct tuner *t, unsigned modes,
                                         const struct tune_size *size)
{
    return tuning_choose(&t->in_force, t->operation->collective, modes, row_bytes(t, size));
}

/* Bytes of the larger buffer of any size and operation: at least one size goes beyond -e where that
 * is small. */
static size_t capacity(const struct tuner *t)
{
    size_t least = t->options.begin > UNSIZED_BYTES ? t->options.begin : UNSIZED_BYTES;
    size_t blocks = least * (size_t)t->ranks;
    return t->options.end > blocks ? t->options.end : blocks;
}

/* The size that follows; 0 after the last. */
static size_t next_size(const struct tuner *t, size_t bytes)
{
    size_t most = perf_size(t->operation, 1, t->ranks);
    size_t room = is_sized(t->operation) ? t->options.end / most : 0;
    return bytes <= room / t->options.factor ? bytes * t->options.factor : 0;
}

void tune_open_bench(const struct tuner *t, struct bench *bench, const struct bench_ops *ops,
                     bool registered)
{
    *bench = (struct bench){.ops = ops, .rank = t->rank, .ranks = t->ranks};
    bench->options = (struct perf_options){.operation = t->options.operations[0],
                                           .device = t->options.device,
                                           .begin = t->options.begin,
                                           .end = capacity(t),
                                           .type = ALNICO_FLOAT32,
                                           .op = ALNICO_SUM,
                                           .all_algorithms = t->options.device != ALNICO_DEVICE_CPU,
                                           .registered = registered,
                                           .nccl_memory = t->options.nccl_memory,
                                           .seed = 1};
    ops->open(bench);
}

void tune_measure(struct candidate *candidates, int count, double seconds)
{
    struct measure_plan plan = {.seconds = seconds, .warmup = 2};
    struct measure_effort effort;
    if (count && !measure(candidates, count, &plan, &effort))
        program_fail("no memory for the samples of %d ways", count);
}

void tune_force(const struct tuner *t, alnico_comm_t comm, const struct tune_way *way)
{
    const struct choice only = {.backend = backend_find(way->backend, (int)t->options.device),
                                .algorithm = way->algorithm,
                                .chunk_bytes = way->chunk_bytes,
                                .blocks = way->blocks};
    tuning_steps_force(&comm->tuning, (int)t->operation->collective, &only);
}

static struct tune_way way_of(const struct tuning_step *step)
{
    const struct choice *c = &step->choice;
    return (struct tune_way){c->backend->name, c->algorithm, c->chunk_bytes, c->blocks};
}

struct tune_way tune_way_in_force(const struct tuner *t, unsigned modes,
                                  const struct tune_size *size)
{
    const struct tuning_step *step = step_of(t, modes, size);
    struct tune_way way = way_of(step);
    while (isinf(tune_time(size, &way)) && (step = tuning_next(step, row_bytes(t, size))))
        way = way_of(step);
    return way;
}

bool tune_is_pruned(const struct tuner *t, unsigned modes, const struct tune_size *size,
                    const struct tune_size *before, const struct tune_way *way)
{
    if (!before || before->bytes < PRUNE_BYTES || !tune_best(before))
        return false;
    const struct tuning_step *step;
    for (step = step_of(t, modes, size); step; step = tuning_next(step, row_bytes(t, size))) {
        struct tune_way other = way_of(step);
        if (tune_same_way(way, &other, size->bytes))
            return false;
    }
    return tune_time(before, way) > 2 * tune_time(before, tune_best(before));
}

static void measure_size(struct tuner *t, unsigned modes, int at, size_t bytes)
{
    struct tune_size *size = &t->sizes[modes][at];
    *size = (struct tune_size){.bytes = bytes / sizeof(float) * sizeof(float)};
    size->elements = t->operation->shape == SHAPE_NONE ? 0 : size->bytes / sizeof(float);
    tune_add_all(size, t->options.device, (int)t->operation->collective, t->options.quick);
    const struct tuning_step *step; /* what the table in force may take */
    for (step = step_of(t, modes, size); step; step = tuning_next(step, row_bytes(t, size)))
        tune_add_way(size, way_of(step));
    t->device->measure(t, modes, size, at ? size - 1 : NULL);
    if (!tune_best(size))
        program_fail("no way can carry out %s of %zu bytes", t->operation->name, size->bytes);
    if (t->rank == 0)
        tune_print_size(t, modes, size);
}

static size_t first_size(const struct tuner *t)
{
    if (t->operation->shape == SHAPE_NONE)
        return sizeof(float);
    if (is_sized(t->operation))
        return t->options.begin;
    bool shared =
        t->options.device == ALNICO_DEVICE_CPU && t->operation->collective != ALNICO_SENDRECV;
    return shared ? UNSIZED_SHORT_BYTES : UNSIZED_BYTES;
}

/* All sizes and kinds of calls of the operation. */
static void measure_operation(struct tuner *t)
{
    size_t bytes = first_size(t);
    if (t->rank == 0)
        tune_print_head(t);
    for (t->count = 0; bytes && t->count < TUNE_SIZES; bytes = next_size(t, bytes)) {
        int at = t->count++;
        for (unsigned modes = 0; modes < t->device->modes; modes++)
            measure_size(t, modes, at, bytes);
    }
}

static cJSON *describe(const struct tuner *t, const char *command)
{
    cJSON *machine = program_machine();
    json_add(machine, "alnico %s date %s command %s ranks %d hosts %d", alnico_version(),
             program_date(), command, t->ranks, t->comm->hosts);
    if (t->describe)
        cJSON_AddItemToObject(machine, "gpu", cJSON_Duplicate(t->describe, true));
    return machine;
}

static bool is_number(const cJSON *object, const char *key, int value)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(item) && item->valuedouble == value;
}

/* This run's description takes the place of that of the same device, ranks and hosts. */
static void describe_into(const struct tuner *t, const char *command, struct tuning *tuning)
{
    cJSON *machines = tuning->machines ? cJSON_Parse(tuning->machines) : cJSON_CreateArray();
    for (int i = cJSON_GetArraySize(machines) - 1; i >= 0; i--) {
        const cJSON *machine = cJSON_GetArrayItem(machines, i);
        bool like = cJSON_HasObjectItem(machine, "gpu") == (t->describe != NULL);
        if (like && is_number(machine, "ranks", t->ranks) &&
            is_number(machine, "hosts", t->comm->hosts))
            cJSON_DeleteItemFromArray(machines, i);
    }
    cJSON_AddItemToArray(machines, describe(t, command));
    free(tuning->machines);
    tuning->machines = cJSON_PrintUnformatted(machines);
    cJSON_Delete(machines);
}

/* Reads the file that is there; before measuring, so that one that cannot be used fails at once. */
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

/* The rows of all modes, those first that ask for more of a call. */
static int choose_rows(const struct tuner *t, struct tuning_row *rows)
{
    int count = 0;
    for (int modes = (int)t->device->modes - 1; modes >= 0; modes--) {
        struct tuning_row like = {.collective = (int)t->operation->collective,
                                  .device = t->options.device,
                                  .ranks = t->ranks,
                                  .hosts = t->comm->hosts,
                                  .modes = (unsigned)modes};
        count += tune_choose_rows(t->sizes[modes], t->count, t->options.margin / 100, &like,
                                  rows + count);
    }
    return count;
}

/* The rows of the operation, into the table if there is a file. */
static void add_rows(const struct tuner *t, struct tuning *tuning)
{
    static struct tuning_row rows[TUNE_SIZES * MODES];
    int count = choose_rows(t, rows);
    tune_print_rows(t, rows, count);
    if (t->options.file)
        program_check(tune_merge(tuning, rows, count), t->options.file);
}

static void write_table(const struct tuner *t, const char *command, struct tuning *tuning)
{
    if (!t->options.file)
        return;
    describe_into(t, command, tuning);
    program_check(tuning_file_write(t->options.file, tuning), "writing the table");
    printf("\n%s: %d rows; use it by ALNICO_TUNING=%s\n", t->options.file, tuning->count,
           t->options.file);
}

/* Measures all operations; on rank 0 what follows. Returns in how many cases --verify found a
 * faster way. */
static int tune_all(struct tuner *t, struct tuning *tuning)
{
    int slow = 0;
    for (int i = 0; i < t->options.operation_count; i++) {
        t->operation = t->options.operations[i];
        measure_operation(t);
        if (t->rank == 0 && t->options.verify)
            slow += tune_print_comparison(t);
        else if (t->rank == 0)
            add_rows(t, tuning);
    }
    return slow;
}

static void tuner_open(struct tuner *t)
{
#ifdef ALNICO_HAVE_CUDA
    t->device = t->options.device == ALNICO_DEVICE_CUDA ? &tune_cuda : &tune_cpu;
#else
    t->device = &tune_cpu;
#endif
    t->bench = calloc(2, sizeof *t->bench);
    if (!t->bench)
        program_fail("no memory for a benchmark");
    t->device->open(t);
    bool forced = t->comm->family->settings.chunk_bytes > 0;
    for (int i = 0; i < t->options.operation_count; i++)
        forced |= t->comm->forced[t->options.operations[i]->collective].algorithm != NULL;
    program_fail_together(
        forced ? "ALNICO_ALLREDUCE or ALNICO_CHUNK is set, or another operation's variable: unset "
                 "them, they go before every row"
               : NULL);
    program_check(tuning_steps_init(&t->in_force, &t->comm->family->tuning, (int)t->options.device,
                                    t->ranks, t->comm->hosts),
                  "tuning_steps_init");
    for (unsigned modes = 0; modes < t->device->modes; modes++) {
        t->sizes[modes] = calloc(TUNE_SIZES, sizeof *t->sizes[modes]);
        if (!t->sizes[modes])
            program_fail("no memory for the times of all ways");
    }
}

static void tuner_close(struct tuner *t)
{
    tuning_steps_finish(&t->in_force);
    for (unsigned modes = 0; modes < t->device->modes; modes++)
        free(t->sizes[modes]);
    t->device->close(t);
    free(t->bench);
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
    program_start();
    char *command = program_command(argc, argv); /* reading lists cuts them */
    struct tuner t = {.options = tune_options_read(argc, argv)};
    struct tuning tuning = {0};
    if (t.options.check) {
        free(command);
        return check_file(t.options.check);
    }
    program_ranks_open();
    t.rank = program_rank();
    t.ranks = program_size();
    if (t.ranks < 2)
        program_fail("one rank has nothing to choose: run it by mpirun -n 2 or more");
    if (t.rank == 0)
        open_file(t.options.file, &tuning);
    tuner_open(&t);
    int slow = tune_all(&t, &tuning);
    if (t.rank == 0 && !t.options.verify)
        write_table(&t, command, &tuning);
    program_broadcast(&slow, sizeof slow, 0);
    tuning_finish(&tuning);
    tuner_close(&t);
    free(command);
    program_ranks_close();
    return slow ? EXIT_FAILURE : EXIT_SUCCESS;
}
