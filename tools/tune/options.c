/* The command line of alnico-tune, by argp. */
#include "tools/tune/options.h"

#include "tools/common/program.h"
#include "tools/perf/peers.h"

#include <argp.h>
#include <stdlib.h>
#include <string.h>

enum {
    KEY_SECONDS = 256,
    KEY_MARGIN,
    KEY_QUICK,
    KEY_CHECK,
    KEY_DEVICE,
    KEY_MEMORY,
    KEY_VERIFY,
    KEY_OPERATIONS
};

static double read_number(struct argp_state *state, const char *option, const char *text,
                          double most)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value > 0 && value <= most))
        argp_error(state, "%s %s: expected a number above 0, at most %g", option, text, most);
    return value;
}

static void add_operation(struct argp_state *state, struct tune_options *options, const char *name)
{
    const struct perf_operation *operation = perf_operation_find(name);
    if (!operation || operation->id >= TUNE_OPERATIONS)
        argp_error(state, "--operations %s: expected names of collectives, as allgather, or all",
                   name);
    for (int i = 0; i < options->operation_count; i++)
        if (options->operations[i] == operation)
            argp_error(state, "--operations: %s is there twice", name);
    options->operations[options->operation_count++] = operation;
}

/* A comma list of names, or "all". */
static void read_operations(struct argp_state *state, struct tune_options *options, char *text)
{
    options->operation_count = 0;
    for (int i = 0; i < TUNE_OPERATIONS && strcmp(text, "all") == 0; i++)
        options->operations[options->operation_count++] = perf_operation_at(i);
    for (char *rest = text, *name;
         options->operation_count < TUNE_OPERATIONS && (name = strsep(&rest, ","));)
        add_operation(state, options, name);
}

/* What was not given. */
static void fill_in(struct tune_options *options)
{
    if (!options->operation_count)
        options->operations[options->operation_count++] = perf_operation_at(PERF_ALLREDUCE);
    static const struct tune_options defaults[2][2] = {
        {{.begin = 8, .end = 64 << 20, .factor = 2, .seconds = 2, .margin = 0.03},
         {.begin = 8, .end = 2 << 20, .factor = 8, .seconds = 0.2, .margin = 0.03}},
        {{.begin = 8, .end = 256 << 20, .factor = 2, .seconds = 0.2, .margin = 0.03},
         {.begin = 8, .end = 16 << 20, .factor = 8, .seconds = 0.05, .margin = 0.03}}};
    bool cuda = options->device == ALNICO_DEVICE_CUDA;
    const struct tune_options *from = &defaults[cuda][options->quick];
    options->begin = options->begin ? options->begin : from->begin;
    options->end = options->end ? options->end : from->end;
    options->factor = options->factor ? options->factor : from->factor;
    options->seconds = options->seconds > 0 ? options->seconds : from->seconds;
    options->margin = options->margin > 0 ? options->margin : from->margin;
}

static void check_together(struct argp_state *state, const struct tune_options *options)
{
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

static error_t read_option(int key, char *text, struct argp_state *state)
{
    struct tune_options *options = state->input;
    switch (key) {
    case 'b':
        options->begin = program_size(state, "-b", text, 1);
        return 0;
    case 'e':
        options->end = program_size(state, "-e", text, 1);
        return 0;
    case 'f':
        options->factor = (size_t)read_number(state, "-f", text, 1 << 20);
        if (options->factor < 2)
            argp_error(state, "-f %s: expected at least 2", text);
        return 0;
    case KEY_SECONDS:
        options->seconds = read_number(state, "--seconds", text, 3600);
        return 0;
    case KEY_MARGIN:
        options->margin = read_number(state, "--margin", text, 1000) / 100;
        return 0;
    case KEY_OPERATIONS:
        read_operations(state, options, text);
        return 0;
    case KEY_QUICK:
        options->quick = true;
        return 0;
    case KEY_DEVICE:
        options->device = program_choice(state, "--device", text, "cpu", "cuda")
                              ? ALNICO_DEVICE_CUDA
                              : ALNICO_DEVICE_CPU;
        return 0;
    case KEY_MEMORY:
        options->nccl_memory = program_choice(state, "--memory", text, "cuda", "nccl");
        return 0;
    case KEY_VERIFY:
        options->verify = true;
        return 0;
    case KEY_CHECK:
        options->check = text;
        return 0;
    case ARGP_KEY_ARG:
        if (options->file)
            argp_error(state, "%s: expected one FILE, and %s is given", text, options->file);
        options->file = text;
        return 0;
    case ARGP_KEY_END:
        fill_in(options);
        check_together(state, options);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

struct tune_options tune_options_read(int argc, char **argv)
{
    static const struct argp_option table[] = {
        {"minbytes", 'b', "SIZE", 0, "first size in bytes; 64K and 64M are understood (8)", 0},
        {"maxbytes", 'e', "SIZE", 0,
         "last size (64M, with --device cuda 256M); its row holds for all above. Sizes are those "
         "of "
         "the vector or of one rank's block; blocks of all ranks together do not go beyond -e",
         0},
        {"stepfactor", 'f', "N", 0, "from one size to the next, multiply by N (2)", 0},
        {"seconds", KEY_SECONDS, "S", 0,
         "time to spend on each size, about (2; with --device cuda 0.2 on each kind of call)", 0},
        {"margin", KEY_MARGIN, "PERCENT", 0,
         "stay with a way as long as it is no slower than the fastest by so much (3)", 0},
        {"device", KEY_DEVICE, "DEVICE", 0,
         "what to measure: cpu, or cuda, one process a GPU (cpu). On cuda sizes end at 256M, and "
         "calls "
         "in CUDA graphs and of registered buffers get rows of their own",
         0},
        {"memory", KEY_MEMORY, "KIND", 0,
         "where buffers on GPUs come from: cuda (cudaMalloc) or nccl (ncclMemAlloc) (cuda)", 0},
        {"operations", KEY_OPERATIONS, "LIST", 0,
         "what to measure: a comma list as allreduce,allgather, or all, which takes as long for "
         "each "
         "(allreduce)",
         0},
        {"verify", KEY_VERIFY, NULL, 0,
         "make no rows: say where the table in force is slower than the fastest by more than 3 % "
         "and "
         "0.2 us; exit status 0 or 1",
         0},
        {"quick", KEY_QUICK, NULL, 0,
         "few sizes and chunk sizes, a few seconds altogether: a first impression", 0},
        {"check", KEY_CHECK, "FILE", 0,
         "only say whether FILE is a good tuning file; exit status 0 or 1", 0},
        {0}};
    static const struct argp argp = {
        .options = table,
        .parser = read_option,
        .args_doc = "[FILE]",
        .doc = "Measures every backend, algorithm, chunk size and grid of an allreduce, or of the "
               "operations named (float32, sum), on the ranks of mpirun, and prints the fastest "
               "and what the table in force takes. FILE "
               "gets the rows that follow for this number of ranks and hosts; what it says about "
               "others stays."};
    struct tune_options options = {0};
    argp_err_exit_status = EXIT_USAGE;
    argp_program_version = alnico_version();
    struct program_streams streams = program_hush(program_launch_rank());
    argp_parse(&argp, argc, argv, 0, NULL, &options);
    program_unhush(streams);
    return options;
}
