/* The command line of alnico-perf, by argp: one function for each kind of value, and a check of
 * what does not go together at the end. */
#include "tools/perf/options.h"

#include "base/datatype.h"
#include "tools/common/program.h"
#include "tools/perf/help.h"

#include <argp.h>
#include <stdlib.h>
#include <string.h>

/* Names that nccl-tests uses. */
static const struct {
    const char *name;
    int value;
} type_aliases[] = {{"half", ALNICO_FLOAT16},
                    {"float", ALNICO_FLOAT32},
                    {"double", ALNICO_FLOAT64}},
  op_aliases[] = {{"prod", ALNICO_PRODUCT},
                  {"min", ALNICO_MINIMUM},
                  {"max", ALNICO_MAXIMUM},
                  {"avg", ALNICO_AVERAGE}};

static double read_seconds(struct argp_state *state, const char *text)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value > 0 && value <= 86400))
        argp_error(state, "--seconds %s: expected a number above 0, at most 86400", text);
    return value;
}

static int read_type(struct argp_state *state, const char *text)
{
    alnico_datatype_t type;
    if (strcmp(text, "all") == 0)
        return PERF_ALL;
    for (size_t i = 0; i < sizeof type_aliases / sizeof *type_aliases; i++)
        if (strcmp(text, type_aliases[i].name) == 0)
            return type_aliases[i].value;
    if (!datatype_find(text, &type))
        argp_error(state, "-d %s: expected a type that --help lists, or all", text);
    return (int)type;
}

static int read_op(struct argp_state *state, const char *text)
{
    alnico_op_t op;
    if (strcmp(text, "all") == 0)
        return PERF_ALL;
    for (size_t i = 0; i < sizeof op_aliases / sizeof *op_aliases; i++)
        if (strcmp(text, op_aliases[i].name) == 0)
            return op_aliases[i].value;
    if (!op_find(text, &op))
        argp_error(state, "-o %s: expected an operation that --help lists, or all", text);
    return (int)op;
}

static alnico_device_t read_device(struct argp_state *state, const char *text)
{
    bool cuda = program_choice(state, "--device", text, "cpu", "cuda");
    if (cuda && !peer_all(ALNICO_DEVICE_CUDA))
        argp_error(state, "--device cuda: this build has no CUDA device; use --device cpu");
    return cuda ? ALNICO_DEVICE_CUDA : ALNICO_DEVICE_CPU;
}

static void read_gpus(struct argp_state *state, struct perf_options *options, const char *text)
{
    options->gpu_count = 0;
    for (const char *at = text;; at++) {
        char *end;
        long gpu = strtol(at, &end, 10);
        if (*at < '0' || *at > '9' || gpu > 255 || options->gpu_count == PERF_GPUS ||
            (*end && *end != ','))
            argp_error(state, "--gpu %s: expected up to %d GPU numbers such as 0,1", text,
                       PERF_GPUS);
        options->gpus[options->gpu_count++] = (int)gpu;
        at = end;
        if (!*at)
            return;
    }
}

static void read_operation(struct argp_state *state, struct perf_options *options, const char *text)
{
    if (options->operation)
        argp_error(state, "%s: one operation at a time, and %s was given before", text,
                   options->operation->name);
    options->operation = perf_operation_find(text);
    if (!options->operation)
        argp_error(state, "%s: no such operation; expected one of those that --help lists", text);
}

static void check_algorithm(struct argp_state *state, const struct perf_options *options)
{
    char names[512] = "";
    if (!options->algorithm)
        return;
    for (int i = 0; perf_algorithm(options->operation, options->device, i); i++) {
        const char *name = perf_algorithm(options->operation, options->device, i);
        if (strcmp(name, options->algorithm) == 0)
            return;
        strncat(strncat(names, name, sizeof names - strlen(names) - 1), " ",
                sizeof names - strlen(names) - 1);
    }
    argp_error(state, "--algorithm %s: expected one of %sor all", options->algorithm, names);
}

/* What goes with one device only. */
static void check_device(struct argp_state *state, struct perf_options *options, const char *versus)
{
    char error[160];
    const char *needs = options->graph         ? "-G"
                        : options->registered  ? "--register"
                        : options->nccl_memory ? "--memory nccl"
                        : options->host_time   ? "--host-time"
                        : options->gpu_count   ? "--gpu"
                                               : NULL;
    if (needs && options->device != ALNICO_DEVICE_CUDA)
        argp_error(state, "%s: needs --device cuda", needs);
    if (options->nccl_memory && !peer_table[PEER_NCCL].built)
        argp_error(state, "--memory nccl: this build has no nccl");
    if (versus && !peer_read(versus, options->device, &options->versus, error, sizeof error))
        argp_error(state, "%s", error);
    if (options->graph && options->overlap)
        argp_error(state, "--overlap: not together with -G");
    if (options->graph && !options->calls)
        options->calls = GRAPH_CALLS;
    if (options->graph && options->calls > GRAPH_CALLS_MOST)
        argp_error(state, "-n %ld: a graph holds %d calls at most", options->calls,
                   GRAPH_CALLS_MOST);
}

/* What the operation has a meaning for. */
static void check_operation(struct argp_state *state, struct perf_options *options, int root,
                            bool op_given)
{
    const struct perf_operation *operation = options->operation;
    if (!operation)
        argp_error(state, "which OPERATION? For example: alnico-perf allreduce");
    if (root >= 0 && !operation->rooted)
        argp_error(state, "-r %d: %s has no root", root, operation->name);
    if (op_given && !operation->reduces)
        argp_error(state, "-o: %s combines nothing", operation->name);
    if (options->in_place && !operation->has_place)
        argp_error(state, "--in-place: %s has no such form", operation->name);
    if (operation->blocking && (options->nonblocking || options->overlap))
        argp_error(state, "--%s: %s is timed by blocking calls",
                   options->overlap ? "overlap" : "nonblocking", operation->name);
    options->root = root >= 0 ? root : 0;
    options->op = operation->reduces ? options->op : ALNICO_SUM;
}

/* What the options mean together, once all are read. */
static void check_together(struct argp_state *state, struct perf_options *options, int threads)
{
    if (options->begin > options->end)
        argp_error(state, "-b %zu: above -e, which is %zu", options->begin, options->end);
    if (options->factor && options->step)
        argp_error(state, "-i %zu: not together with -f %zu", options->step, options->factor);
    if (!options->factor && !options->step)
        options->factor = 2;
    if (options->type != PERF_ALL && options->op != PERF_ALL &&
        !op_supports((alnico_op_t)options->op, (alnico_datatype_t)options->type))
        argp_error(state, "-o %s: %s has no such operation", op_name((alnico_op_t)options->op),
                   datatype_name((alnico_datatype_t)options->type));
    if (options->overlap && options->all_algorithms)
        argp_error(state, "--overlap: not together with --algorithm all");
    if (options->stream && threads == 0)
        argp_error(state, "--threads single: --stream needs multiple");
    if (options->device == ALNICO_DEVICE_CUDA && threads == 0)
        argp_error(state, "--threads single: --device cuda needs multiple");
    check_algorithm(state, options);
    bool asynchronous = options->stream || options->nonblocking || options->overlap ||
                        options->device == ALNICO_DEVICE_CUDA;
    options->multiple = threads < 0 ? asynchronous : threads;
}

struct reader {
    struct perf_options *options;
    int threads; /* -1: not given; 0: single; 1: multiple */
    int root;    /* -1: not given */
    bool op_given;
    const char *versus; /* NULL: not given */
};

static error_t read_option(int key, char *text, struct argp_state *state)
{
    struct reader *reader = state->input;
    struct perf_options *options = reader->options;
    switch (key) {
    case 'b':
        options->begin = program_size(state, "-b", text, 1);
        return 0;
    case 'e':
        options->end = program_size(state, "-e", text, 1);
        return 0;
    case 'f':
        options->factor = program_number(state, "-f", text, 2, 1u << 30);
        return 0;
    case 'i':
        options->step = program_size(state, "-i", text, 1);
        return 0;
    case 'n':
        options->calls = (long)program_number(state, "-n", text, 1, 1u << 30);
        return 0;
    case 'w':
        options->warmup = (int)program_number(state, "-w", text, 0, 1u << 30);
        return 0;
    case 'd':
        options->type = read_type(state, text);
        return 0;
    case 'o':
        options->op = read_op(state, text);
        reader->op_given = true;
        return 0;
    case 'r':
        reader->root = (int)program_number(state, "-r", text, 0, 1u << 30);
        return 0;
    case 'c':
        options->check = program_choice(state, "-c", text, "0", "1");
        return 0;
    case KEY_DEVICE:
        options->device = read_device(state, text);
        return 0;
    case KEY_ALGORITHM:
        options->all_algorithms = strcmp(text, "all") == 0;
        options->algorithm = options->all_algorithms ? NULL : text;
        return 0;
    case KEY_NONBLOCKING:
        options->nonblocking = true;
        return 0;
    case KEY_IN_PLACE:
        options->in_place = true;
        return 0;
    case KEY_VERSUS:
        reader->versus = text;
        return 0;
    case KEY_OVERLAP:
        options->overlap = true;
        return 0;
    case KEY_STREAM:
        options->stream = true;
        return 0;
    case KEY_BOOTSTRAP:
        options->bootstrap = true;
        return 0;
    case KEY_GPU:
        read_gpus(state, options, text);
        return 0;
    case 'G':
        options->graph = true;
        options->replays = (long)program_number(state, "-G", text, 0, 1u << 30);
        return 0;
    case KEY_REGISTER:
        options->registered = true;
        return 0;
    case KEY_MEMORY:
        options->nccl_memory = program_choice(state, "--memory", text, "cuda", "nccl");
        return 0;
    case KEY_HOST_TIME:
        options->host_time = true;
        return 0;
    case KEY_THREADS:
        reader->threads = program_choice(state, "--threads", text, "single", "multiple");
        return 0;
    case KEY_SECONDS:
        options->seconds = read_seconds(state, text);
        return 0;
    case KEY_SEED:
        options->seed = program_number(state, "--seed", text, 0, UINT64_MAX);
        options->seed_given = true;
        return 0;
    case KEY_JSON:
        options->json = text;
        return 0;
    case ARGP_KEY_ARG:
        read_operation(state, options, text);
        return 0;
    case ARGP_KEY_END:
        check_operation(state, options, reader->root, reader->op_given);
        check_device(state, options, reader->versus);
        check_together(state, options, reader->threads);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

void perf_options_read(int argc, char **argv, struct perf_options *options)
{
    static const struct argp argp = {.options = perf_option_table,
                                     .parser = read_option,
                                     .args_doc = "OPERATION",
                                     .doc = "Measures and checks an operation of Alnico "
                                            "on the ranks of mpirun.\v",
                                     .help_filter = perf_help};
    struct reader reader = {.options = options, .threads = -1, .root = -1};
    *options = (struct perf_options){.begin = 8,
                                     .end = (size_t)64 << 20,
                                     .seconds = 2,
                                     .warmup = 5,
                                     .type = ALNICO_FLOAT32,
                                     .op = ALNICO_SUM,
                                     .check = true};
    argp_err_exit_status = EXIT_USAGE;
    argp_program_version = alnico_version();
    struct program_streams streams = program_hush(program_launch_rank());
    argp_parse(&argp, argc, argv, 0, NULL, &reader);
    program_unhush(streams);
}
