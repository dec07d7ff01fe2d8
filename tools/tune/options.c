/* The command line of alnico-tune: its table of options, and which of them go together. */
#include "tools/tune/options.h"

#include "tools/common/options.h"

#include <string.h>

static void add_operation(struct argp_state *state, struct tune_options *options, const char *name)
{
    const struct perf_operation *operation = perf_operation_find(name);
    if (!operation || perf_operation_id(operation) >= TUNE_OPERATIONS)
        argp_error(state, "--operations %s: expected names of collectives, as allgather, or all",
                   name);
    for (int i = 0; i < options->operation_count; i++)
        if (options->operations[i] == operation)
            argp_error(state, "--operations: %s is there twice", name);
    options->operations[options->operation_count++] = operation;
}

/* A comma list of names, or "all". */
static void read_operations(struct argp_state *state, char *text, void *out)
{
    struct tune_options *options = out;
    options->operation_count = 0;
    for (int i = 0; i < TUNE_OPERATIONS && strcmp(text, "all") == 0; i++)
        options->operations[options->operation_count++] = perf_operation_at(i);
    for (char *rest = text, *name;
         options->operation_count < TUNE_OPERATIONS && (name = strsep(&rest, ","));)
        add_operation(state, options, name);
}

static void check_factor(struct argp_state *state, char *text, void *out)
{
    struct tune_options *options = out;
    if (options->step < 2)
        argp_error(state, "-f %s: expected at least 2", text);
    options->factor = (size_t)options->step;
}

static void read_file(struct argp_state *state, char *text, void *out)
{
    struct tune_options *options = out;
    if (options->file)
        argp_error(state, "%s: expected one FILE, and %s is given", text, options->file);
    options->file = text;
}

/* Sets what was not given: it depends on the device and --quick. */
static void fill_in(struct tune_options *options)
{
    if (!options->operation_count)
        options->operations[options->operation_count++] = perf_operation_at(ALNICO_ALLREDUCE);
    static const struct tune_options defaults[2][2] = {
        {{.begin = 8, .end = 64 << 20, .factor = 2, .seconds = 2},
         {.begin = 8, .end = 2 << 20, .factor = 8, .seconds = 0.2}},
        {{.begin = 8, .end = 256 << 20, .factor = 2, .seconds = 0.2},
         {.begin = 8, .end = 16 << 20, .factor = 8, .seconds = 0.05}}};
    bool cuda = options->device == ALNICO_DEVICE_CUDA;
    const struct tune_options *from = &defaults[cuda][options->quick];
    options->begin = options->begin ? options->begin : from->begin;
    options->end = options->end ? options->end : from->end;
    options->factor = options->factor ? options->factor : from->factor;
    options->seconds = options->seconds > 0 ? options->seconds : from->seconds;
}

static void finish(struct argp_state *state, void *out)
{
    struct tune_options *options = out;
    fill_in(options);
    bool cuda = options->device == ALNICO_DEVICE_CUDA;
    if (cuda && !peer_all(ALNICO_DEVICE_CUDA))
        argp_error(state, "--device cuda: this build has no CUDA device; use --device cpu");
    if (options->nccl_memory && (!cuda || !peer_table[PEER_NCCL].built))
        argp_error(state, "--memory nccl: needs --device cuda, and a build with NCCL");
    if (options->verify && options->file)
        argp_error(state, "--verify: takes no file, and %s is given; the table is ALNICO_TUNING's",
                   options->file);
    if (options->check && options->file)
        argp_error(state, "--check: takes no other file, and %s is given", options->file);
    if (options->begin < sizeof(float) || options->end > (size_t)1 << 40)
        argp_error(state, "-b %zu -e %zu: expected sizes from %zu bytes to 1024G", options->begin,
                   options->end, sizeof(float));
    if (options->begin > options->end)
        argp_error(state, "-b %zu: above -e %zu", options->begin, options->end);
}

#define FIELD(member) OPTION_FIELD(struct tune_options, member)

static const struct option_row table[] = {
    {"minbytes", 'b', "SIZE", "first size in bytes; 64K and 64M are understood (8)", OPTION_SIZE,
     FIELD(begin), .least = 1},
    {"maxbytes", 'e', "SIZE",
     "last size (64M, with --device cuda 256M); its row holds for all above. Sizes are those of "
     "the vector or of one rank's block; blocks of all ranks together do not go beyond -e",
     OPTION_SIZE, FIELD(end), .least = 1},
    {"stepfactor", 'f', "N", "from one size to the next, multiply by N (2)", OPTION_POSITIVE,
     FIELD(step), .high = 1 << 20, .read = check_factor},
    {"seconds", 0, "S",
     "time to spend on each size, about (2; with --device cuda 0.2 on each kind of call)",
     OPTION_POSITIVE, FIELD(seconds), .high = 3600},
    {"margin", 0, "PERCENT",
     "keep an algorithm as long as it is no slower than the fastest by so much", OPTION_POSITIVE,
     .initial = "3", FIELD(margin), .high = 1000},
    {"device", 0, "DEVICE",
     "what to measure: cpu, or cuda, one process a GPU. On cuda sizes end at 256M, and calls in "
     "CUDA graphs and of registered buffers get rows of their own",
     OPTION_CHOICE, .initial = "cpu", FIELD(device), .choices = option_devices},
    {"memory", 0, "KIND",
     "where buffers on GPUs come from: cuda (cudaMalloc) or nccl (ncclMemAlloc)", OPTION_CHOICE,
     .initial = "cuda", FIELD(nccl_memory), .choices = option_memories},
    {"operations", 0, "LIST",
     "what to measure: a comma list as allreduce,allgather, or all, which takes as long for each "
     "(allreduce)",
     OPTION_OTHER, .read = read_operations},
    {"verify", 0, NULL,
     "make no rows: say where the table in force is slower than the fastest by more than 3 % and "
     "0.2 us; exit status 0 or 1",
     OPTION_FLAG, FIELD(verify)},
    {"quick", 0, NULL, "few sizes and chunk sizes, a few seconds altogether: a first impression",
     OPTION_FLAG, FIELD(quick)},
    {"check", 0, "FILE", "only say whether FILE is a good tuning file; exit status 0 or 1",
     OPTION_TEXT, FIELD(check)},
    {0}};

struct tune_options tune_options_read(int argc, char **argv)
{
    static const struct option_table program = {
        .options = table,
        .arguments = "[FILE]",
        .about = "Measures every backend, algorithm, chunk size and grid of an allreduce, or of "
                 "the operations named (float32, sum), on the ranks of mpirun, srun or "
                 "torchrun, and prints the "
                 "fastest and what the table in force takes. FILE gets the rows that follow for "
                 "this number of ranks and hosts; what it says about others stays.",
        .argument = read_file,
        .finish = finish};
    struct tune_options options = {0};
    options_read(&program, argc, argv, &options);
    return options;
}
