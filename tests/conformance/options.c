/* The command line, by argp. */
#include "tests/conformance/options.h"

#include "base/number.h"
#include "tests/conformance/operations.h"
#include "tests/conformance/site.h"
#include "tools/common/program.h"

#include <argp.h>
#include <float.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    KEY_SEED = 256,
    KEY_SECONDS,
    KEY_CASES,
    KEY_RANKS,
    KEY_DEVICE,
    KEY_ONLY,
    KEY_CASE,
    KEY_TABLE,
    KEY_EVERY,
    KEY_FORKS,
    KEY_SINGLE,
    KEY_PATIENCE,
    KEY_SABOTAGE
};

static const struct argp_option table[] = {
    {.doc = "What to run:"},
    {"table", KEY_TABLE, NULL, 0, "the table only: every combination of what matters", 0},
    {"every", KEY_EVERY, "N", 0,
     "of the table one call in N, others for other numbers of ranks (1)", 0},
    {"cases", KEY_CASES, "N", 0, "so many random calls, over all numbers of ranks", 0},
    {"seconds", KEY_SECONDS, "S", 0,
     "random calls for so long (without any of these three: the table "
     "and 2000 random calls)",
     0},
    {"seed", KEY_SEED, "N", 0, "of everything random; the time unless given", 0},
    {"only", KEY_ONLY, "OPERATION", 0, "this one only: allreduce, ..., messages, group", 0},
    {"case", KEY_CASE, "TEXT", 0,
     "the calls of a failure, as it was printed; with --cases more than "
     "once",
     0},
    {.doc = "Where:"},
    {"ranks", KEY_RANKS, "N", 0, "so many ranks (1 to 6 one after the other, or those of mpirun)",
     0},
    {"device", KEY_DEVICE, "DEVICE", 0,
     "where the buffers are: cpu, cuda, or memory that the host does not reach, far, and "
     "that the transport takes, aware, or whose ranks are on several hosts, hierarchical (cpu)",
     0},
    {"forks", KEY_FORKS, "N", OPTION_ARG_OPTIONAL,
     "ranks are processes without MPI, not threads; N (1) of each process where that divides them",
     0},
    {"single", KEY_SINGLE, NULL, 0, "MPI_THREAD_SINGLE: the inline stream only", 0},
    {"patience", KEY_PATIENCE, "S", 0,
     "end as a failure when calls that run at once take longer (120); their deadline is half of "
     "it, unless "
     "ALNICO_TIMEOUT says otherwise",
     0},
    {"sabotage", KEY_SABOTAGE, "WHAT", OPTION_HIDDEN, NULL, 0},
    {0},
};

/* ---- Values ---- */

static const char *const sabotages[] = {
    [SABOTAGE_NONE] = "none",       [SABOTAGE_RESULT] = "result",   [SABOTAGE_MARGIN] = "margin",
    [SABOTAGE_GAP] = "gap",         [SABOTAGE_INPUT] = "input",     [SABOTAGE_BITS] = "bits",
    [SABOTAGE_REFUSAL] = "refusal", [SABOTAGE_BARRIER] = "barrier", [SABOTAGE_ABSENCE] = "absence",
    [SABOTAGE_CRASH] = "crash"};

const char *options_sabotage(const struct options *options)
{
    return sabotages[options->sabotage];
}

static uint64_t read_number(struct argp_state *state, const char *option, const char *text,
                            uint64_t least, uint64_t most)
{
    uint64_t value = 0;
    if (!number_whole(text, least, most, &value))
        argp_error(state, "%s %s: expected a number from %llu to %llu", option, text,
                   (unsigned long long)least, (unsigned long long)most);
    return value;
}

static double read_seconds(struct argp_state *state, const char *text)
{
    double value = 0;
    if (!number_real(text, DBL_MIN, NUMBER_MOST_SECONDS, &value))
        argp_error(state, "--seconds %s: expected a positive number, at most 1e9", text);
    return value;
}

static const struct site_ops *read_device(struct argp_state *state, const char *text)
{
    static const struct site_ops *const sites[] = {
        &site_cpu,  &site_far, &site_aware, &site_hierarchical,
#ifdef ALNICO_HAVE_CUDA
        &site_cuda,
#endif
    };
    for (size_t i = 0; i < sizeof sites / sizeof *sites; i++)
        if (strcmp(sites[i]->name, text) == 0)
            return sites[i];
    argp_error(
        state,
        "--device %s: expected cpu, far, aware, hierarchical or, where the build has CUDA, cuda",
        text);
    return NULL;
}

static void read_only(struct argp_state *state, struct options *options, const char *text)
{
    options->only = operation_find(text);
    if (options->only < 0)
        argp_error(state, "--only %s: no such operation", text);
}

static void read_case(struct argp_state *state, struct options *options, const char *text)
{
    char error[256] = "";
    options->text = text;
    if (!batch_parse(text, &options->batch, error, sizeof error))
        argp_error(state, "--case: %s", error);
}

static void read_sabotage(struct argp_state *state, struct options *options, const char *text)
{
    for (int i = 0; i < SABOTAGES; i++)
        if (strcmp(sabotages[i], text) == 0)
            options->sabotage = (enum sabotage)i;
    if (!options->sabotage)
        argp_error(state, "--sabotage %s: no such thing", text);
}

static void settle(struct options *options)
{
    bool all = !options->table && !options->cases && options->seconds == 0;
    options->random = !options->table;
    options->table |= all;
    options->cases = all ? (options->text ? 1 : 2000) : options->cases;
    if (options->text && !options->ranks)
        options->ranks = options->batch.ranks;
}

static error_t read_option(int key, char *text, struct argp_state *state)
{
    struct options *options = state->input;
    switch (key) {
    case KEY_TABLE:
        options->table = true;
        return 0;
    case KEY_CASES:
        options->cases = read_number(state, "--cases", text, 1, UINT64_MAX);
        return 0;
    case KEY_SECONDS:
        options->seconds = read_seconds(state, text);
        return 0;
    case KEY_SEED:
        options->seed = read_number(state, "--seed", text, 0, UINT64_MAX);
        return 0;
    case KEY_ONLY:
        read_only(state, options, text);
        return 0;
    case KEY_CASE:
        read_case(state, options, text);
        return 0;
    case KEY_RANKS:
        options->ranks = (int)read_number(state, "--ranks", text, 1, RANKS_MOST);
        return 0;
    case KEY_DEVICE:
        options->site = read_device(state, text);
        return 0;
    case KEY_EVERY:
        options->every = read_number(state, "--every", text, 1, 1 << 20);
        return 0;
    case KEY_FORKS:
        options->forks = text ? (int)read_number(state, "--forks", text, 1, RANKS_MOST) : 1;
        return 0;
    case KEY_SINGLE:
        options->single = true;
        return 0;
    case KEY_PATIENCE:
        options->patience = (int)read_number(state, "--patience", text, 2, 1 << 20);
        return 0;
    case KEY_SABOTAGE:
        read_sabotage(state, options, text);
        return 0;
    case ARGP_KEY_END:
        settle(options);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

void options_read(int argc, char **argv, struct options *out)
{
    static const struct argp argp = {table,
                                     read_option,
                                     NULL,
                                     "Runs every operation of the library in many ways at once and "
                                     "checks every byte. A failure is printed as a "
                                     "command that repeats it; the exit status is then 1.",
                                     NULL,
                                     NULL,
                                     NULL};
    *out = (struct options){
        .seed = (uint64_t)time(NULL), .site = &site_cpu, .only = -1, .every = 1, .patience = 120};
    struct program_streams streams = program_silence(program_launch_rank());
    argp_parse(&argp, argc, argv, ARGP_NO_ARGS, NULL, out);
    program_restore(streams);
}
