/* The command line of alnico-perf, by argp: one function for each kind of value, and a check of what
 * does not go together at the end. */
#include "perf_options.h"

#include "datatype.h"
#include "program.h"

#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    KEY_DEVICE = 256,
    KEY_ALGORITHM,
    KEY_NONBLOCKING,
    KEY_IN_PLACE,
    KEY_VERSUS,
    KEY_OVERLAP,
    KEY_STREAM,
    KEY_BOOTSTRAP,
    KEY_GPU,
    KEY_REGISTER,
    KEY_MEMORY,
    KEY_HOST_TIME,
    KEY_THREADS,
    KEY_SECONDS,
    KEY_SEED,
    KEY_JSON
};

static const struct argp_option table[] = {
    {.doc = "What to measure:"},
    {"minbytes", 'b', "SIZE", 0, "first size in bytes; 64K and 64M are understood (8)", 0},
    {"maxbytes", 'e', "SIZE", 0, "last size (64M)", 0},
    {"stepfactor", 'f', "N", 0, "from one size to the next, multiply by N (2)", 0},
    {"stepbytes", 'i', "SIZE", 0, "from one size to the next, add SIZE", 0},
    {"datatype", 'd', "TYPE", 0,
     "int8 uint8 int32 uint32 int64 uint64 float16 bfloat16 float32 float64, or all (float32)", 0},
    {"op", 'o', "OP", 0,
     "sum product minimum maximum average; for integers also logical_and logical_or logical_xor "
     "bitwise_and bitwise_or bitwise_xor; or all that the type has (sum)",
     0},
    {"in-place", KEY_IN_PLACE, NULL, 0, "send from the receive buffer", 0},
    {.doc = "How to run it:"},
    {"device", KEY_DEVICE, "DEVICE", 0, "where the buffers are: cpu or cuda (cpu)", 0},
    {"algorithm", KEY_ALGORITHM, "NAME", 0,
     "force an algorithm of `alnico-info', or compare all of them", 0},
    {"nonblocking", KEY_NONBLOCKING, NULL, 0, "start and wait instead of one blocking call", 0},
    {"overlap", KEY_OVERLAP, NULL, 0,
     "how much of a nonblocking operation hides behind computation of the same length", 0},
    {"stream", KEY_STREAM, NULL, 0, "use a stream with its own worker, not the inline stream", 0},
    {"bootstrap", KEY_BOOTSTRAP, NULL, 0,
     "make our communicator by a callback, not from MPI_COMM_WORLD: ranks of one host then send "
     "through shared memory, not by MPI",
     0},
    {"threads", KEY_THREADS, "LEVEL", 0,
     "thread level asked of MPI: single or multiple (single; multiple with --nonblocking, "
     "--overlap and --stream)",
     0},
    {.doc = "On GPUs, one process each:"},
    {"gpu", KEY_GPU, "LIST", 0,
     "GPU of each rank of a host, as 0,1,2 (the rank's number on its host)", 0},
    {"graph", 'G', "REPLAYS", 0,
     "put -n calls (20) into a CUDA graph and time so many replays of it; 0: as many as fit into "
     "--seconds",
     0},
    {"register", KEY_REGISTER, NULL, 0, "register our buffers with the communicator", 0},
    {"memory", KEY_MEMORY, "KIND", 0,
     "where our buffers come from: cuda (cudaMalloc) or nccl (ncclMemAlloc) (cuda)", 0},
    {"host-time", KEY_HOST_TIME, NULL, 0,
     "also how long the host needs for one call, and for launching an empty kernel", 0},
    {.doc = "How to measure it:"},
    {"versus", KEY_VERSUS, "PEER,...", 0,
     "time these in turns with ours, in the same process (none). With --device cpu: mpi. With "
     "--device cuda: staged (cudaMemcpyAsync, MPI_Allreduce, cudaMemcpyAsync), nccl, "
     "nccl-symmetric "
     "(buffers in registered windows). Or all",
     0},
    {"iters", 'n', "N", 0, "timed calls of each size (as many as fit into --seconds)", 0},
    {"seconds", KEY_SECONDS, "S", 0, "time to spend on each size, about (2)", 0},
    {"warmup_iters", 'w', "N", 0, "calls before anything is timed (5)", 0},
    {"check", 'c', "0|1", 0, "check every value of one more call (1)", 0},
    {"seed", KEY_SEED, "N", 0, "of the random inputs (by the clock)", 0},
    {"json", KEY_JSON, "FILE", 0, "also write everything to FILE", 0},
    {0}};

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

/* A whole number within the bounds; anything else is a usage error that names the option. */
static unsigned long long read_number(struct argp_state *state, const char *option,
                                      const char *text, unsigned long long least,
                                      unsigned long long most)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || value < least || value > most)
        argp_error(state, "%s %s: expected a whole number from %llu to %llu", option, text, least,
                   most);
    return value;
}

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

/* Which of two words `text` is: false for the first, true for the second. */
static bool read_choice(struct argp_state *state, const char *option, const char *text,
                        const char *first, const char *second)
{
    if (strcmp(text, first) != 0 && strcmp(text, second) != 0)
        argp_error(state, "%s %s: expected %s or %s", option, text, first, second);
    return strcmp(text, second) == 0;
}

static alnico_device_t read_device(struct argp_state *state, const char *text)
{
    bool cuda = read_choice(state, "--device", text, "cpu", "cuda");
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
    for (int i = 0; options->operation->algorithm(options->device, i); i++) {
        const char *name = options->operation->algorithm(options->device, i);
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

/* What the options mean together, once all are read. */
static void check_together(struct argp_state *state, struct perf_options *options, int threads)
{
    if (!options->operation)
        argp_error(state, "which OPERATION? For example: alnico-perf allreduce");
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
    int threads;        /* -1: not given; 0: single; 1: multiple */
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
        options->factor = read_number(state, "-f", text, 2, 1u << 30);
        return 0;
    case 'i':
        options->step = program_size(state, "-i", text, 1);
        return 0;
    case 'n':
        options->calls = (long)read_number(state, "-n", text, 1, 1u << 30);
        return 0;
    case 'w':
        options->warmup = (int)read_number(state, "-w", text, 0, 1u << 30);
        return 0;
    case 'd':
        options->type = read_type(state, text);
        return 0;
    case 'o':
        options->op = read_op(state, text);
        return 0;
    case 'c':
        options->check = read_choice(state, "-c", text, "0", "1");
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
        options->replays = (long)read_number(state, "-G", text, 0, 1u << 30);
        return 0;
    case KEY_REGISTER:
        options->registered = true;
        return 0;
    case KEY_MEMORY:
        options->nccl_memory = read_choice(state, "--memory", text, "cuda", "nccl");
        return 0;
    case KEY_HOST_TIME:
        options->host_time = true;
        return 0;
    case KEY_THREADS:
        reader->threads = read_choice(state, "--threads", text, "single", "multiple");
        return 0;
    case KEY_SECONDS:
        options->seconds = read_seconds(state, text);
        return 0;
    case KEY_SEED:
        options->seed = read_number(state, "--seed", text, 0, UINT64_MAX);
        options->seed_given = true;
        return 0;
    case KEY_JSON:
        options->json = text;
        return 0;
    case ARGP_KEY_ARG:
        read_operation(state, options, text);
        return 0;
    case ARGP_KEY_END:
        check_device(state, options, reader->versus);
        check_together(state, options, reader->threads);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* The end of --help: the operations and the columns. */
static char *help_text(int key, const char *text, void *input)
{
    (void)input;
    if (key != ARGP_KEY_HELP_EXTRA)
        return (char *)text;
    char *help = NULL;
    size_t bytes;
    FILE *out = open_memstream(&help, &bytes);
    if (!out)
        return NULL;
    fprintf(out, "Operations:\n");
    for (int i = 0; perf_operation_at(i); i++)
        fprintf(out, "  %-12s %s\n", perf_operation_at(i)->name, perf_operation_at(i)->about);
    fprintf(out,
            "\nTimes are the slowest rank's, the median over many blocks of calls. algbw is size / "
            "time, busbw what the busiest link carries. #wrong counts values that a reference in "
            "float64 or int64 does not allow, and ranks whose bits differ. ratio is our time over "
            "the peer's, of the fastest where --algorithm all. A wrong value makes the exit status "
            "1, a usage error 2.\n\n"
            "Example: mpirun -n 2 alnico-perf allreduce --versus mpi -b 8 -e 64M\n"
            "         mpirun -n 4 alnico-perf allreduce --device cuda -G 0 --versus "
            "nccl,nccl-symmetric");
    fclose(out);
    return help;
}

void perf_options_read(int argc, char **argv, struct perf_options *options)
{
    static const struct argp argp = {.options = table,
                                     .parser = read_option,
                                     .args_doc = "OPERATION",
                                     .doc = "Measures and checks a collective operation of Alnico "
                                            "on the ranks of mpirun.\v",
                                     .help_filter = help_text};
    struct reader reader = {options, -1, NULL};
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
