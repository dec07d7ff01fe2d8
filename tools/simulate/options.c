/* The command line of alnico-simulate, by argp: one function for each kind of value. */
#include "tools/simulate/options.h"

#include "tools/common/program.h"

#include <argp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    KEY_RANKS = 256,
    KEY_HOSTS,
    KEY_MACHINE,
    KEY_SIZES,
    KEY_ALGORITHM,
    KEY_CHUNK,
    KEY_MEMORY,
    KEY_ROUNDS,
    KEY_THREADS,
    KEY_JSON
};

enum { RANKS_MAX = 65536 };

static const struct argp_option table[] = {
    {.doc = "What to simulate:"},
    {"machine", KEY_MACHINE, "NAME|FILE", 0,
     "sierra, h200-ndr, flat, or a file of one's own, with a slash or a dot in its name (flat)", 0},
    {"ranks", KEY_RANKS, "LIST", 0,
     "4 to 65536: numbers separated by commas, or 4..65536, which doubles (64)", 0},
    {"hosts", KEY_HOSTS, "N", 0,
     "spread the ranks over so many hosts in blocks, instead of the machine's ranks_per_host", 0},
    {"minbytes", 'b', "SIZE", 0,
     "first size in bytes, of the vector or of each rank's block; 64K and 64M are understood (8)",
     0},
    {"maxbytes", 'e', "SIZE", 0, "last size (1M)", 0},
    {"stepfactor", 'f', "N", 0, "from one size to the next, multiply by N (2)", 0},
    {"sizes", KEY_SIZES, "LIST", 0, "these sizes, separated by commas, instead of -b, -e and -f",
     0},
    {"algorithm", KEY_ALGORITHM, "NAME", 0, "one of the operation's algorithms, or all (all)", 0},
    {"chunk", KEY_CHUNK, "SIZE", 0,
     "cut messages into chunks of SIZE, three of a rank in flight; 0: never (0)", 0},
    {.doc = "How to run it:"},
    {"memory", KEY_MEMORY, "SIZE", 0,
     "for real elements, at most so many bytes at once; what needs more moves sizes only (512M)",
     0},
    {"rounds", KEY_ROUNDS, "N", 0,
     "leave out what has more than N rounds, summed over ranks: about 0.2 us each (100000000)", 0},
    {"threads", KEY_THREADS, "N", 0, "simulate so many cases at once (one a core)", 0},
    {"json", KEY_JSON, "FILE", 0, "also write everything to FILE", 0},
    {0}};

/* What is read before the machine and the sizes can be made of it. */
struct reader {
    struct simulate_options *options;
    const char *machine, *algorithm, *sizes;
    size_t begin, end, factor;
    bool named; /* an operation was */
};

/* The next part of a list: up to a comma, which becomes its end. */
static char *next_item(char **rest)
{
    char *item = *rest, *comma = item ? strchr(item, ',') : NULL;
    if (comma)
        *comma = '\0';
    *rest = comma ? comma + 1 : NULL;
    return item;
}

static void add_ranks(struct argp_state *state, const char *text, const char *item)
{
    struct simulate_options *options = ((struct reader *)state->input)->options;
    if (options->ranks_count == SIMULATE_LIST)
        argp_error(state, "--ranks %s: expected at most %d numbers", text, SIMULATE_LIST);
    options->ranks[options->ranks_count++] =
        (int)program_number(state, "--ranks", item, 4, RANKS_MAX);
}

static void read_range(struct argp_state *state, char *text, char *dots)
{
    struct simulate_options *options = ((struct reader *)state->input)->options;
    *dots = '\0';
    int first = (int)program_number(state, "--ranks", text, 4, RANKS_MAX);
    int last = (int)program_number(state, "--ranks", dots + 2, 4, RANKS_MAX);
    if (first > last)
        argp_error(state, "--ranks %d..%d: the first is above the last", first, last);
    for (int ranks = first; ranks <= last; ranks *= 2)
        options->ranks[options->ranks_count++] = ranks;
}

static void read_ranks(struct argp_state *state, const char *text)
{
    char *copy = strdup(text), *rest = copy;
    ((struct reader *)state->input)->options->ranks_count = 0;
    char *dots = copy ? strstr(copy, "..") : NULL;
    if (dots)
        read_range(state, copy, dots);
    else
        while (rest)
            add_ranks(state, text, next_item(&rest));
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

/* Sizes are whole elements: the rest is cut off, as alnico-perf does. What moves no elements has
 * one, of its messages. */
static void make_sizes(struct argp_state *state, struct reader *reader)
{
    size_t element = sizeof(float);
    const struct simulate_operation *operation = reader->options->operation;
    if (operation->send == SIDE_NONE && operation->recv == SIDE_NONE) {
        add_size(state, reader->options, element);
        return;
    }
    if (reader->begin > reader->end)
        argp_error(state, "-b %zu: above -e, which is %zu", reader->begin, reader->end);
    for (size_t bytes = reader->begin; !reader->sizes; bytes *= reader->factor) {
        add_size(state, reader->options, bytes / element * element);
        if (bytes > reader->end / reader->factor)
            break;
    }
    char *copy = reader->sizes ? strdup(reader->sizes) : NULL, *rest = copy;
    while (rest)
        add_size(state, reader->options,
                 program_size(state, "--sizes", next_item(&rest), element) / element * element);
    free(copy);
}

static void append_name(char *names, size_t bytes, const char *name)
{
    strncat(names, name, bytes - strlen(names) - 1);
    strncat(names, " ", bytes - strlen(names) - 1);
}

static void find_operation(struct argp_state *state, const char *name)
{
    struct reader *reader = state->input;
    char names[512] = "";
    if (reader->named)
        argp_error(state, "%s: expected one operation only", name);
    for (int i = 0; operation_at(i); i++)
        append_name(names, sizeof names, operation_at(i)->name);
    reader->named = true;
    reader->options->operation = operation_find(name);
    if (!reader->options->operation)
        argp_error(state, "%s: expected one of %s", name, names);
}

static void find_algorithms(struct argp_state *state, struct simulate_options *options,
                            const char *name)
{
    const struct algorithm *const *list = options->operation->algorithms;
    char names[512] = "";
    for (int i = 0; list[i] && i < SIMULATE_ALGORITHMS; i++) {
        if (strcmp(name, "all") == 0 || strcmp(name, list[i]->name) == 0)
            options->algorithms[options->algorithms_count++] = list[i];
        append_name(names, sizeof names, list[i]->name);
    }
    if (!options->algorithms_count)
        argp_error(state, "--algorithm %s: expected one of %sor all", name, names);
}

static void find_machine(struct argp_state *state, struct reader *reader)
{
    struct simulate_options *options = reader->options;
    if (machine_read(reader->machine, &options->machine) != ALNICO_SUCCESS)
        argp_error(state, "--machine %s", alnico_error_detail());
    for (int i = 0; i < options->ranks_count; i++)
        if (options->hosts > options->ranks[i])
            argp_error(state, "--hosts %d: more than the %d ranks", options->hosts,
                       options->ranks[i]);
}

static error_t read_option(int key, char *text, struct argp_state *state)
{
    struct reader *reader = state->input;
    struct simulate_options *options = reader->options;
    switch (key) {
    case 'b':
        reader->begin = program_size(state, "-b", text, sizeof(float));
        return 0;
    case 'e':
        reader->end = program_size(state, "-e", text, sizeof(float));
        return 0;
    case 'f':
        reader->factor = (size_t)program_number(state, "-f", text, 2, 1u << 30);
        return 0;
    case KEY_MACHINE:
        reader->machine = text;
        return 0;
    case KEY_RANKS:
        read_ranks(state, text);
        return 0;
    case KEY_HOSTS:
        options->hosts = (int)program_number(state, "--hosts", text, 1, RANKS_MAX);
        return 0;
    case KEY_SIZES:
        reader->sizes = text;
        return 0;
    case KEY_ALGORITHM:
        reader->algorithm = text;
        return 0;
    case KEY_CHUNK:
        options->chunk = program_size(state, "--chunk", text, 0);
        return 0;
    case KEY_MEMORY:
        options->memory = program_size(state, "--memory", text, 0);
        return 0;
    case KEY_ROUNDS:
        options->rounds = (double)program_number(state, "--rounds", text, 1, (uint64_t)1 << 50);
        return 0;
    case KEY_THREADS:
        options->threads = (int)program_number(state, "--threads", text, 1, 256);
        return 0;
    case KEY_JSON:
        options->json = text;
        return 0;
    case ARGP_KEY_ARG:
        find_operation(state, text);
        return 0;
    case ARGP_KEY_END:
        make_sizes(state, reader);
        find_algorithms(state, options, reader->algorithm);
        find_machine(state, reader);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

void simulate_options_read(int argc, char **argv, struct simulate_options *options)
{
    static const struct argp argp = {
        .options = table,
        .parser = read_option,
        .args_doc = "[OPERATION]",
        .doc =
            "Runs the library's algorithms for an operation, allreduce unless another is named, in "
            "virtual time on a machine of up to 65,536 ranks, on this one.\v"
            "Operations: allreduce, reduce, broadcast, allgather, reduce_scatter, gather, scatter, "
            "alltoall, each of the last five also as a vector form with a v, of equal blocks; "
            "barrier, of one size; sendrecv, in which each rank sends to the next one. The root is "
            "rank 0.\n\n"
            "Every rank is an executor of the library; messages and reductions take the time "
            "that the machine file says. float32, sums where it reduces, whose values are checked "
            "where the "
            "elements fit into --memory. Prints the microseconds until the last rank is done, "
            "and where the fastest algorithm changes. A wrong value makes the exit status 1, a "
            "usage error 2. docs/simulation.md describes the model and the files.\n\n"
            "Example: alnico-simulate --machine sierra --ranks 4..4096 -f 8"};
    struct reader reader = {options, "flat", "all", NULL, 8, 1 << 20, 2, false};
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    *options = (struct simulate_options){.operation = operation_at(0),
                                         .ranks = {64},
                                         .ranks_count = 1,
                                         .memory = (size_t)512 << 20,
                                         .rounds = 1e8,
                                         .threads = cores > 1 && cores < 256 ? (int)cores : 1};
    argp_err_exit_status = EXIT_USAGE;
    argp_program_version = alnico_version();
    argp_parse(&argp, argc, argv, 0, NULL, &reader);
}
