/* The command line of alnico-perf: its table of options, the values of its own kinds, and which
 * options go together. */
#include "tools/perf/options.h"

#include "base/datatype.h"
#include "base/number.h"
#include "tools/common/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct alias {
    const char *name;
    int value;
};

/* Names that nccl-tests uses, and all. */
static const struct alias type_aliases[] = {{"half", ALNICO_FLOAT16},
                                            {"float", ALNICO_FLOAT32},
                                            {"double", ALNICO_FLOAT64},
                                            {"f8e4m3", ALNICO_FLOAT8_E4M3},
                                            {"f8e5m2", ALNICO_FLOAT8_E5M2},
                                            {"all", PERF_ALL},
                                            {0}};
static const struct alias op_aliases[] = {{"prod", ALNICO_PRODUCT}, {"min", ALNICO_MINIMUM},
                                          {"max", ALNICO_MAXIMUM},  {"avg", ALNICO_AVERAGE},
                                          {"all", PERF_ALL},        {0}};

static bool find_alias(const struct alias *alias, const char *text, int *out)
{
    while (alias->name && strcmp(text, alias->name) != 0)
        alias++;
    if (alias->name)
        *out = alias->value;
    return alias->name;
}

static void read_type(struct argp_state *state, char *text, void *out)
{
    struct perf_options *options = out;
    alnico_datatype_t type;
    if (find_alias(type_aliases, text, &options->type))
        return;
    if (!datatype_find(text, &type))
        argp_error(state, "-d %s: expected a type that --help lists, or all", text);
    options->type = (int)type;
}

static void read_op(struct argp_state *state, char *text, void *out)
{
    struct perf_options *options = out;
    alnico_op_t op;
    if (find_alias(op_aliases, text, &options->op))
        return;
    if (!op_find(text, &op))
        argp_error(state, "-o %s: expected an operation that --help lists, or all", text);
    options->op = (int)op;
}

static void check_build(struct argp_state *state, char *text, void *out)
{
    const struct perf_options *options = out;
    (void)text;
    if (options->device == ALNICO_DEVICE_CUDA && !peer_all(ALNICO_DEVICE_CUDA))
        argp_error(state, "--device cuda: this build has no CUDA device; use --device cpu");
}

static void read_gpus(struct argp_state *state, char *text, void *out)
{
    struct perf_options *options = out;
    options->gpu_count = 0;
    for (const char *at = text;; at++) {
        uint64_t gpu;
        if (!number_leading(&at, 255, &gpu) || options->gpu_count == PERF_GPUS ||
            (*at && *at != ','))
            argp_error(state, "--gpu %s: expected up to %d GPU numbers such as 0,1", text,
                       PERF_GPUS);
        options->gpus[options->gpu_count++] = (int)gpu;
        if (!*at)
            return;
    }
}

static void read_algorithm(struct argp_state *state, char *text, void *out)
{
    struct perf_options *options = out;
    (void)state;
    options->all_algorithms = strcmp(text, "all") == 0;
    options->algorithm = options->all_algorithms ? NULL : text;
}

static void read_operation(struct argp_state *state, char *text, void *out)
{
    struct perf_options *options = out;
    if (options->operation)
        argp_error(state, "%s: one operation at a time, and %s was given before", text,
                   options->operation->name);
    options->operation = perf_operation_find(text);
    if (!options->operation)
        argp_error(state, "%s: no such operation; expected one of those that --help lists", text);
}

#define FIELD(member) OPTION_FIELD(struct perf_options, member)
#define GIVEN(member) .given = offsetof(struct perf_options, member)

static const struct option_row table[] = {
    {.help = "What to measure:"},
    {"minbytes", 'b', "SIZE", "first size in bytes; 64K and 64M are understood", OPTION_SIZE,
     .initial = "8", FIELD(begin), .least = 1},
    {"maxbytes", 'e', "SIZE", "last size", OPTION_SIZE, .initial = "64M", FIELD(end), .least = 1},
    {"stepfactor", 'f', "N", "from one size to the next, multiply by N (2)", OPTION_NUMBER,
     FIELD(factor), .least = 2, .most = 1 << 30},
    {"stepbytes", 'i', "SIZE", "from one size to the next, add SIZE", OPTION_SIZE, FIELD(step),
     .least = 1},
    {"datatype", 'd', "TYPE",
     "int8 uint8 int32 uint32 int64 uint64 float16 bfloat16 float32 float64, or as nccl-tests has "
     "it half float double; or all",
     OPTION_OTHER, .initial = "float32", .read = read_type},
    {"op", 'o', "OP",
     "sum product minimum maximum average; for integers also logical_and logical_or logical_xor "
     "bitwise_and bitwise_or bitwise_xor; or as nccl-tests has it prod min max avg; or all that "
     "the type has",
     OPTION_OTHER, .initial = "sum", .read = read_op, GIVEN(op_given)},
    {"root", 'r', "RANK", "the root of an operation that has one", OPTION_NUMBER, .initial = "0",
     FIELD(root), .most = 1 << 30, GIVEN(root_given)},
    {"in-place", 0, NULL, "send from the receive buffer; where there is a root, on the root only",
     OPTION_FLAG, FIELD(in_place), .key = "in_place"},
    {.help = "How to run it:"},
    {"device", 0, "DEVICE", "where the buffers are: cpu or cuda", OPTION_CHOICE, .initial = "cpu",
     FIELD(device), .choices = option_devices, .read = check_build, .key = "device"},
    {"algorithm", 0, "NAME", "force an algorithm of `alnico-info', or compare all of them",
     OPTION_OTHER, .read = read_algorithm},
    {"nonblocking", 0, NULL, "start and wait instead of one blocking call", OPTION_FLAG,
     FIELD(nonblocking), .key = "nonblocking"},
    {"overlap", 0, NULL,
     "how much of a nonblocking operation hides behind computation of the same length", OPTION_FLAG,
     FIELD(overlap), .key = "overlap"},
    {"stream", 0, NULL, "use a stream with its own worker, not the inline stream", OPTION_FLAG,
     FIELD(stream), .key = "stream"},
    {"bootstrap", 0, NULL,
     "with --versus mpi: make our communicator as without, not from MPI_COMM_WORLD: ranks of one "
     "host then send "
     "through shared memory, not by MPI",
     OPTION_FLAG, FIELD(bootstrap), .key = "bootstrap"},
    {"threads", 0, "LEVEL",
     "thread level asked of MPI, where it is compared with: single or multiple (single; multiple "
     "with --nonblocking, "
     "--overlap, --stream and --device cuda)",
     OPTION_CHOICE, FIELD(multiple), GIVEN(threads_given),
     .choices = (const char *const[]){"single", "multiple", NULL}},
    {.help = "On GPUs, one process each:"},
    {"gpu", 0, "LIST", "GPU of each rank of a host, as 0,1,2 (the rank's number on its host)",
     OPTION_OTHER, .read = read_gpus},
    {"graph", 'G', "REPLAYS",
     "put -n calls (20) into a CUDA graph and time so many replays of it; 0: as many as fit into "
     "--seconds",
     OPTION_NUMBER, FIELD(replays), .most = 1 << 30, GIVEN(graph)},
    {"register", 0, NULL, "register our buffers with the communicator", OPTION_FLAG,
     FIELD(registered), .key = "registered"},
    {"memory", 0, "KIND", "where our buffers come from: cuda (cudaMalloc) or nccl (ncclMemAlloc)",
     OPTION_CHOICE, .initial = "cuda", FIELD(nccl_memory), .choices = option_memories},
    {"host-time", 0, NULL,
     "also how long the host needs for one call, with --nonblocking for its start, for launching "
     "an empty kernel, and for the same call of NCCL's, if that is a peer",
     OPTION_FLAG, FIELD(host_time)},
    {.help = "How to measure it:"},
    {"versus", 0, "PEER,...",
     "time these in turns with ours, in the same process (none). With --device cpu: mpi. With "
     "--device cuda: staged (cudaMemcpyAsync, MPI, cudaMemcpyAsync), nccl (by grouped sends and "
     "receives where it has no call), nccl-symmetric (buffers in registered windows). Or all",
     OPTION_TEXT, FIELD(peers)},
    {"iters", 'n', "N", "timed calls of each size (as many as fit into --seconds)", OPTION_NUMBER,
     FIELD(calls), .least = 1, .most = 1 << 30},
    {"seconds", 0, "S", "time to spend on each size, about", OPTION_POSITIVE, .initial = "2",
     FIELD(seconds), .high = 86400, .key = "seconds"},
    {"warmup_iters", 'w', "N", "calls before anything is timed", OPTION_NUMBER, .initial = "5",
     FIELD(warmup), .most = 1 << 30},
    {"check", 'c', "0|1", "check every value of one more call", OPTION_CHOICE, .initial = "1",
     FIELD(check), .choices = (const char *const[]){"0", "1", NULL}, .key = "check"},
    {"seed", 0, "N", "of the random inputs (by the clock)", OPTION_NUMBER, FIELD(seed),
     .most = UINT64_MAX, GIVEN(seed_given)},
    {"json", 0, "FILE", "also write everything to FILE", OPTION_TEXT, FIELD(json)},
    {0}};

void perf_options_json(const struct perf_options *options, cJSON *object)
{
    options_json(table, options, object);
}

static void check_algorithm(struct argp_state *state, const struct perf_options *options)
{
    char names[512] = "";
    const char *name;
    if (!options->algorithm)
        return;
    for (int i = 0; (name = perf_algorithm(options->operation, options->device, i)); i++) {
        if (strcmp(name, options->algorithm) == 0)
            return;
        text_append(names, sizeof names, "%s ", name);
    }
    argp_error(state, "--algorithm %s: expected one of %sor all", options->algorithm, names);
}

/* A comma list of the device's peers, all or none. */
static void read_peers(struct argp_state *state, struct perf_options *options)
{
    const char *text = options->peers;
    bool cpu = options->device == ALNICO_DEVICE_CPU;
    options->versus = strcmp(text, "all") == 0 ? peer_all(options->device) : 0;
    if (options->versus || strcmp(text, "none") == 0)
        return;
    for (const char *name = text, *end; name; name = *end ? end + 1 : NULL) {
        end = name + strcspn(name, ",");
        int peer = peer_find(name, (size_t)(end - name), options->device);
        if (peer < 0)
            argp_error(state, "--versus %s: expected %s", text,
                       cpu ? "mpi, all or none" : "staged, nccl, nccl-symmetric, all or none");
        else if (!peer_table[peer].built)
            argp_error(state, "--versus %s: this build has no %s", text, peer_table[peer].name);
        else
            options->versus |= 1u << peer;
    }
}

/* Options that one device has. */
static void check_device(struct argp_state *state, struct perf_options *options)
{
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
    if (options->peers)
        read_peers(state, options);
    if (options->graph && options->overlap)
        argp_error(state, "--overlap: not together with -G");
    if (options->graph && !options->calls)
        options->calls = GRAPH_CALLS;
    if (options->graph && options->calls > GRAPH_CALLS_MOST)
        argp_error(state, "-n %ld: a graph holds %d calls at most", options->calls,
                   GRAPH_CALLS_MOST);
}

/* Options that some operations have. */
static void check_operation(struct argp_state *state, struct perf_options *options)
{
    const struct perf_operation *operation = options->operation;
    if (!operation)
        argp_error(state, "which OPERATION? For example: alnico-perf allreduce");
    if (options->root_given && !collectives[operation->collective].rooted)
        argp_error(state, "-r %d: %s has no root", options->root, operation->name);
    if (options->op_given && !collectives[operation->collective].reduces)
        argp_error(state, "-o: %s combines nothing", operation->name);
    if (options->in_place && collectives[operation->collective].in_place == IN_PLACE_NEVER)
        argp_error(state, "--in-place: %s has no such form", operation->name);
    if (operation->blocking && (options->nonblocking || options->overlap))
        argp_error(state, "--%s: %s is timed by blocking calls",
                   options->overlap ? "overlap" : "nonblocking", operation->name);
}

static void check_sizes(struct argp_state *state, struct perf_options *options)
{
    if (options->begin > options->end)
        argp_error(state, "-b %zu: above -e, which is %zu", options->begin, options->end);
    if (options->factor && options->step)
        argp_error(state, "-i %zu: not together with -f %zu", options->step, options->factor);
    if (!options->factor && !options->step)
        options->factor = 2;
}

static void check_threads(struct argp_state *state, struct perf_options *options)
{
    bool cuda = options->device == ALNICO_DEVICE_CUDA;
    bool single = options->threads_given && !options->multiple;
    if (options->stream && single)
        argp_error(state, "--threads single: --stream needs multiple");
    if (cuda && single)
        argp_error(state, "--threads single: --device cuda needs multiple");
    if (!options->threads_given)
        options->multiple = options->stream || options->nonblocking || options->overlap || cuda;
}

static void finish(struct argp_state *state, void *out)
{
    struct perf_options *options = out;
    check_operation(state, options);
    check_device(state, options);
    check_sizes(state, options);
    if (options->type != PERF_ALL && options->op != PERF_ALL &&
        !op_supports((alnico_op_t)options->op, (alnico_datatype_t)options->type))
        argp_error(state, "-o %s: %s has no such operation", op_name((alnico_op_t)options->op),
                   datatype_name((alnico_datatype_t)options->type));
    if (options->overlap && options->all_algorithms)
        argp_error(state, "--overlap: not together with --algorithm all");
    check_threads(state, options);
    check_algorithm(state, options);
}

/* The end of --help: the operations and the columns. */
static char *help(void)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return NULL;
    fprintf(out, "Operations:\n");
    for (int i = 0; perf_operation_at(i); i++)
        fprintf(out, "  %-16s %s\n", perf_operation_at(i)->name, perf_operation_at(i)->about);
    fprintf(
        out,
        "\nSizes are those of a whole vector, of one message or, where each rank has a block, of "
        "the blocks of all ranks together, as in nccl-tests; count is of one block. The blocks of "
        "the vector forms are unequal: every second one is half as long as the average, rounded "
        "down, the next longer by as much, the last of an odd number just as long. In an alltoallv "
        "the block from rank a to b is as long as block (a + b) mod ranks elsewhere.\n\n"
        "Times are the slowest rank's, the median over many blocks of calls. algbw is size / "
        "time. busbw is what the busiest link carries, by the factors of nccl-tests; for an "
        "exchange it is twice algbw. #wrong counts values that a reference in float64 or int64 "
        "does not allow, and ranks whose bits differ. ratio is our time over the peer's; with "
        "--algorithm all it is that of the fastest. A wrong value makes the exit status 1, a usage "
        "error 2.\n\n"
        "Example: mpirun -n 2 alnico-perf allreduce --versus mpi -b 8 -e 64M\n"
        "         mpirun -n 4 alnico-perf broadcast -r 2 --algorithm all\n"
        "         mpirun -n 4 alnico-perf allreduce --device cuda -G 0 --versus "
        "nccl,nccl-symmetric");
    fclose(out);
    return text;
}

void perf_options_read(int argc, char **argv, struct perf_options *options)
{
    static const struct option_table program = {
        .options = table,
        .arguments = "OPERATION",
        .about = "Measures and checks an operation of Alnico on the ranks of mpirun, srun or "
                 "torchrun.\v",
        .argument = read_operation,
        .finish = finish,
        .help = help};
    *options = (struct perf_options){.calls = 0};
    options_read(&program, argc, argv, options);
}
