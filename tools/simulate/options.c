/* The command line of alnico-simulate: its table of options, and the sizes, algorithms and machine
 * that follow from them. */
#include "tools/simulate/options.h"

#include "tools/common/options.h"
#include "tools/simulate/steps.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS_MAX = 65536 };

static void add_range(struct argp_state *state, struct simulate_options *options, char *text,
                      char *dots)
{
    *dots = '\0';
    int first = (int)option_number(state, "--ranks", text, 4, RANKS_MAX);
    int last = (int)option_number(state, "--ranks", dots + 2, 4, RANKS_MAX);
    if (first > last)
        argp_error(state, "--ranks %d..%d: the first is above the last", first, last);
    for (int ranks = first; ranks <= last; ranks *= 2)
        options->ranks[options->ranks_count++] = ranks;
}

static void read_ranks(struct argp_state *state, char *text, void *out)
{
    struct simulate_options *options = out;
    char *copy = strdup(text), *rest = copy;
    char *dots = copy ? strstr(copy, "..") : NULL;
    options->ranks_count = 0;
    if (dots)
        add_range(state, options, copy, dots);
    while (rest && !dots) {
        if (options->ranks_count == SIMULATE_LIST)
            argp_error(state, "--ranks %s: expected at most %d numbers", text, SIMULATE_LIST);
        options->ranks[options->ranks_count++] =
            (int)option_number(state, "--ranks", strsep(&rest, ","), 4, RANKS_MAX);
    }
    free(copy);
}

static void add_size(struct argp_state *state, struct simulate_options *options, size_t bytes)
{
    int count = options->sizes_count;
    if (count == SIMULATE_LIST)
        argp_error(state, "expected at most %d sizes", SIMULATE_LIST);
    if (count && bytes <= options->sizes[count - 1])
        argp_error(state, "--sizes: %zu is not above %zu", bytes, options->sizes[count - 1]);
    options->sizes[options->sizes_count++] = bytes;
}

/* The sizes are those of a step's buckets. */
static void read_profile(struct argp_state *state, struct simulate_options *options)
{
    if (options->operation != &collectives[ALNICO_ALLREDUCE])
        argp_error(state, "--profile: expected the operation allreduce, not %s",
                   options->operation->name);
    if (options->size_list)
        argp_error(state, "--profile: it has sizes; --sizes does not go with it");
    if (steps_read(options->profile, &options->steps) != ALNICO_SUCCESS)
        argp_error(state, "--profile %s", alnico_error_detail());
    options->sizes_count = steps_sizes(&options->steps, options->sizes, SIMULATE_LIST);
    if (options->sizes_count > SIMULATE_LIST)
        argp_error(state, "--profile %s: buckets of %d different sizes, expected at most %d",
                   options->profile, options->sizes_count, SIMULATE_LIST);
}

/* Sizes are whole elements: the rest is cut off, as alnico-perf does. What moves no elements has
 * one, of its messages. */
static void make_sizes(struct argp_state *state, struct simulate_options *options)
{
    size_t element = sizeof(float);
    if (options->operation == &collectives[ALNICO_BARRIER]) {
        add_size(state, options, element);
        return;
    }
    if (options->begin > options->end)
        argp_error(state, "-b %zu: above -e, which is %zu", options->begin, options->end);
    for (size_t bytes = options->begin; !options->size_list; bytes *= options->factor) {
        add_size(state, options, bytes / element * element);
        if (bytes > options->end / options->factor)
            break;
    }
    char *copy = options->size_list ? strdup(options->size_list) : NULL, *rest = copy;
    while (rest)
        add_size(state, options,
                 option_size(state, "--sizes", strsep(&rest, ","), element) / element * element);
    free(copy);
}

static void read_operation(struct argp_state *state, char *name, void *out)
{
    struct simulate_options *options = out;
    char names[512] = "";
    if (options->operation)
        argp_error(state, "%s: expected one operation only", name);
    for (int i = 0; i < COLLECTIVES; i++)
        text_append(names, sizeof names, "%s ", collectives[i].name);
    options->operation = collective_find(name);
    if (!options->operation)
        argp_error(state, "%s: expected one of %s", name, names);
}

/* Whether a comma-separated list has the name, or is "all". */
static bool has_name(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || !at[length]))
            return true;
    return strcmp(list, "all") == 0;
}

/* Every name of the list is an algorithm of the operation's. */
static void check_names(struct argp_state *state, const struct simulate_options *options,
                        const char *option, const char *text)
{
    const struct algorithm *const *list = operation_algorithms(options->operation);
    char names[512] = "", *copy = strdup(text), *rest = copy;
    for (int i = 0; list[i]; i++)
        text_append(names, sizeof names, "%s ", list[i]->name);
    for (char *name; (name = strsep(&rest, ","));) {
        bool known = strcmp(text, "all") == 0;
        for (int i = 0; list[i]; i++)
            known |= strcmp(list[i]->name, name) == 0;
        if (!known)
            argp_error(state, "%s %s: expected one of %sor all", option, name, names);
    }
    free(copy);
}

static void find_algorithms(struct argp_state *state, struct simulate_options *options)
{
    const struct algorithm *const *list = operation_algorithms(options->operation);
    check_names(state, options, "--algorithm", options->algorithm);
    for (int i = 0; list[i] && i < SIMULATE_ALGORITHMS; i++)
        if (has_name(options->algorithm, list[i]->name))
            options->algorithms[options->algorithms_count++] = list[i];
}

/* After the machine, which has to know what staging costs. */
static void find_staged(struct argp_state *state, struct simulate_options *options)
{
    if (!options->staged)
        return;
    if (options->operation != &collectives[ALNICO_ALLREDUCE])
        argp_error(state, "--staged: expected the operation allreduce, not %s",
                   options->operation->name);
    if (options->machine.staging.bandwidth_gbps == 0)
        argp_error(state, "--staged: %s has no key staging", options->machine.path);
    check_names(state, options, "--staged", options->staged);
    for (int i = 0; i < options->algorithms_count; i++)
        options->is_staged[i] = has_name(options->staged, options->algorithms[i]->name);
}

static void find_machine(struct argp_state *state, struct simulate_options *options)
{
    if (machine_read(options->machine_name, &options->machine) != ALNICO_SUCCESS)
        argp_error(state, "--machine %s", alnico_error_detail());
    for (int i = 0; i < options->ranks_count; i++)
        if (options->hosts > options->ranks[i])
            argp_error(state, "--hosts %d: more than the %d ranks", options->hosts,
                       options->ranks[i]);
}

static void finish(struct argp_state *state, void *out)
{
    struct simulate_options *options = out;
    if (!options->operation)
        options->operation = &collectives[ALNICO_ALLREDUCE];
    if (options->profile)
        read_profile(state, options);
    else
        make_sizes(state, options);
    find_algorithms(state, options);
    find_machine(state, options);
    find_staged(state, options);
}

#define FIELD(member) OPTION_FIELD(struct simulate_options, member)

static const struct option_row table[] = {
    {.help = "What to simulate:"},
    {"machine", 0, "NAME|FILE",
     "sierra, h200-ndr, ethernet, flat, or a file of one's own, with a slash or a dot in its name",
     OPTION_TEXT, .initial = "flat", FIELD(machine_name)},
    {"ranks", 0, "LIST", "4 to 65536: numbers separated by commas, or 4..65536, which doubles",
     OPTION_OTHER, .initial = "64", .read = read_ranks},
    {"hosts", 0, "N",
     "spread the ranks over so many hosts in blocks, instead of the machine's ranks_per_host",
     OPTION_NUMBER, FIELD(hosts), .least = 1, .most = RANKS_MAX},
    {"minbytes", 'b', "SIZE",
     "first size in bytes, of the vector or of each rank's block; 64K and 64M are understood",
     OPTION_SIZE, .initial = "8", FIELD(begin), .least = sizeof(float)},
    {"maxbytes", 'e', "SIZE", "last size", OPTION_SIZE, .initial = "1M", FIELD(end),
     .least = sizeof(float)},
    {"stepfactor", 'f', "N", "from one size to the next, multiply by N", OPTION_NUMBER,
     .initial = "2", FIELD(factor), .least = 2, .most = 1 << 30},
    {"sizes", 0, "LIST", "these sizes, separated by commas, instead of -b, -e and -f", OPTION_TEXT,
     FIELD(size_list)},
    {"profile", 0, "FILE",
     "the sizes of a training step's gradients, from alnico-train --predict RANKS --json FILE: "
     "also "
     "prints what the step takes on so many ranks, with the fastest algorithm for each bucket",
     OPTION_TEXT, FIELD(profile)},
    {"algorithm", 0, "LIST", "algorithms of the operation, separated by commas, or all",
     OPTION_TEXT, .initial = "all", FIELD(algorithm)},
    {"staged", 0, "LIST",
     "of an allreduce: these algorithms run on the hosts of GPUs, with copies there and back and "
     "the "
     "host's reductions, as the machine's key staging says",
     OPTION_TEXT, FIELD(staged)},
    {"chunk", 0, "SIZE", "cut messages into chunks of SIZE, three of a rank in flight; 0: never",
     OPTION_SIZE, .initial = "0", FIELD(chunk)},
    {.help = "How to run it:"},
    {"memory", 0, "SIZE",
     "for real elements, at most so many bytes at once; what needs more moves sizes only",
     OPTION_SIZE, .initial = "512M", FIELD(memory)},
    {"rounds", 0, "N",
     "leave out what has more than N rounds, summed over ranks: about 0.2 us each", OPTION_NUMBER,
     .initial = "100000000", FIELD(rounds), .least = 1, .most = 1ull << 50},
    {"threads", 0, "N", "simulate so many cases at once (one a core)", OPTION_NUMBER,
     FIELD(threads), .least = 1, .most = 256},
    {"json", 0, "FILE", "also write everything to FILE", OPTION_TEXT, FIELD(json)},
    {0}};

void simulate_options_read(int argc, char **argv, struct simulate_options *options)
{
    static const struct option_table program = {
        .options = table,
        .arguments = "[OPERATION]",
        .about =
            "Runs the library's algorithms for an operation, allreduce unless another is named, in "
            "virtual time on a machine of up to 65,536 ranks, on this one.\v"
            "Operations: allreduce, reduce, broadcast, allgather, reduce_scatter, gather, scatter, "
            "alltoall, each of the last five also as a vector form with a v, of equal blocks; "
            "barrier, of one size; sendrecv, in which each rank sends to the next one. The root is "
            "rank 0.\n\n"
            "Every rank is an executor of the library; messages and reductions take the time that "
            "the machine file says. Elements are float32, and reductions are sums. Values are "
            "checked where the elements fit into --memory. Prints the microseconds until the last "
            "rank is done, and where the fastest algorithm changes. A wrong value makes the exit "
            "status 1, a usage error 2. docs/simulation.md describes the model and the files.\n\n"
            "Example: alnico-simulate --machine sierra --ranks 4..4096 -f 8",
        .argument = read_operation,
        .finish = finish};
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    *options = (struct simulate_options){.threads = cores > 1 && cores < 256 ? (int)cores : 1};
    options_read(&program, argc, argv, options);
}
