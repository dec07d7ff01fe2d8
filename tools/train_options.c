/* The command line of alnico-train, by argp: one function for each kind of value, and a check of what
 * does not go together at the end. */
#include "train_options.h"

#include "program.h"
#include "train/kernels.h"
#include "train/models/models.h"
#include "train/strategy.h"

#include <argp.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum {
    KEY_MODEL = 256,
    KEY_DATA,
    KEY_BATCH,
    KEY_STEPS,
    KEY_EPOCHS,
    KEY_SECONDS,
    KEY_SEED,
    KEY_LR,
    KEY_MOMENTUM,
    KEY_DECAY,
    KEY_WARMUP,
    KEY_DROPS,
    KEY_PRECISION,
    KEY_DEVICE,
    KEY_KERNELS,
    KEY_THREADS,
    KEY_STRATEGY,
    KEY_BUCKET,
    KEY_JSON
};

static const struct argp_option table[] = {
    {.doc = "What to train:"},
    {"model", KEY_MODEL, "NAME", 0,
     "resnet20 (He et al. 2015) or cnn (small, no batch norm) (resnet20)", 0},
    {"data", KEY_DATA, "SOURCE", 0,
     "fashion-mnist (Debian's dataset-fashion-mnist), idx:DIR (a folder with IDX files named as "
     "there, gzip or not), synthetic or synthetic:HxWxC (fashion-mnist)",
     0},
    {"batch", KEY_BATCH, "N", 0, "images per rank and step (64)", 0},
    {.doc = "How long, one of:"},
    {"epochs", KEY_EPOCHS, "N", 0, "passes over the training images (1)", 0},
    {"steps", KEY_STEPS, "N", 0, "steps of all ranks together", 0},
    {"seconds", KEY_SECONDS, "S", 0, "training time, about; tests come on top", 0},
    {.doc = "How it learns:"},
    {"lr", KEY_LR, "RATE", 0,
     "highest learning rate (0.1 for 128 images a step over all ranks, "
     "proportional to them)",
     0},
    {"momentum", KEY_MOMENTUM, "M", 0, "at least 0 and below 1 (0.9)", 0},
    {"weight-decay", KEY_DECAY, "D", 0, "of weights; not of biases and batch norms (0.0005)", 0},
    {"warmup", KEY_WARMUP, "SHARE", 0, "share of the run in which the rate rises from 0 (0.05)", 0},
    {"drops", KEY_DROPS, "SHARE,...", 0,
     "shares of the run, at most three, after which the rate is a tenth; 1: never (0.6,0.85)", 0},
    {"seed", KEY_SEED, "N", 0, "of parameters, shuffling and augmentation (1)", 0},
    {.doc = "How it runs:"},
    {"device", KEY_DEVICE, "DEVICE", 0, "where to compute: cpu (cpu)", 0},
    {"precision", KEY_PRECISION, "TYPE", 0, "what to compute in: fp32 (fp32)", 0},
    {"kernels", KEY_KERNELS, "NAME", 0,
     "what computes: onednn, or naive loops for checking (onednn)", 0},
    {"threads", KEY_THREADS, "N", 0,
     "compute threads of each rank (OMP_NUM_THREADS, or the cores divided by the ranks)", 0},
    {"strategy", KEY_STRATEGY, "NAME", 0,
     "how gradients meet: allreduce averages them in every step (allreduce)", 0},
    {"bucket", KEY_BUCKET, "SIZE", 0,
     "bytes of gradients that travel together; K, M and G are understood (256K)", 0},
    {.doc = "Output:"},
    {"json", KEY_JSON, "FILE", 0, "also write the report to FILE", 0},
    {0}};

static const char doc[] =
    "Train a network on the ranks of an MPI job, each with its own part of the data."
    "\vExamples:\n"
    "  alnico-train --steps 100 --data synthetic\n"
    "  mpiexec -n 2 alnico-train --epochs 10 --json report.json\n\n"
    "Exit status: 0 if all went well and all ranks ended with the same parameters, 1 if something "
    "failed, 2 for a command line that makes no sense.";

/* A whole number within the bounds; anything else is a usage error that names the option. */
static unsigned long long read_number(struct argp_state *state, const char *option,
                                      const char *text, unsigned long long least,
                                      unsigned long long most)
{
    char *end;
    errno = 0;
    const unsigned long long value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || value < least || value > most)
        argp_error(state, "%s %s: expected a whole number from %llu to %llu", option, text, least,
                   most);
    return value;
}

/* A number within the bounds. */
static double read_real(struct argp_state *state, const char *option, const char *text,
                        double least, double most)
{
    char *end;
    const double value = strtod(text, &end);
    if (end == text || *end || !(value >= least && value <= most))
        argp_error(state, "%s %s: expected a number from %g to %g", option, text, least, most);
    return value;
}

static void read_drops(struct argp_state *state, const char *text, double *drops)
{
    char *copy = strdup(text), *rest = NULL;
    size_t count = 0;
    for (char *word = copy ? strtok_r(copy, ",", &rest) : NULL; word;
         word = strtok_r(NULL, ",", &rest)) {
        if (count == OPTIMIZER_DROPS)
            argp_error(state, "--drops %s: expected at most %d numbers", text, OPTIMIZER_DROPS);
        drops[count++] = read_real(state, "--drops", word, 0, 1);
    }
    if (!count)
        argp_error(state, "--drops: expected numbers from 0 to 1, separated by commas");
    for (; count < OPTIMIZER_DROPS; count++)
        drops[count] = 1;
    free(copy);
}

/* One of a list of names, which ends with NULL. */
static const char *read_name(struct argp_state *state, const char *option, const char *text,
                             const char *const *names)
{
    char list[256] = "";
    for (size_t i = 0; names[i]; i++) {
        if (strcmp(text, names[i]) == 0)
            return names[i];
        const size_t at = strlen(list);
        snprintf(list + at, sizeof list - at, "%s%s", i ? " or " : "", names[i]);
    }
    argp_error(state, "%s %s: expected %s", option, text, list);
    return NULL;
}

static const char *read_data(struct argp_state *state, const char *text)
{
    if (strcmp(text, "fashion-mnist") != 0 && strcmp(text, "synthetic") != 0 &&
        strncmp(text, "synthetic:", 10) != 0 && strncmp(text, "idx:", 4) != 0)
        argp_error(state,
                   "--data %s: expected fashion-mnist, idx:DIR, synthetic or synthetic:HxWxC",
                   text);
    return text;
}

static const char *read_model(struct argp_state *state, const char *text)
{
    const char *names[MODELS + 1] = {NULL};
    for (size_t i = 0; i < MODELS; i++)
        names[i] = models_all[i]->name;
    return read_name(state, "--model", text, names);
}

static const char *read_kernels(struct argp_state *state, const char *text)
{
    const char *names[KERNELS + 1] = {NULL};
    for (size_t i = 0; i < KERNELS; i++)
        names[i] = kernels_all[i]->name;
    return read_name(state, "--kernels", text, names);
}

static const char *read_strategy(struct argp_state *state, const char *text)
{
    const char *names[STRATEGIES + 1] = {NULL};
    for (size_t i = 0; i < STRATEGIES; i++)
        names[i] = strategy_all[i]->name;
    return read_name(state, "--strategy", text, names);
}

/* The options that say how it learns; false for any other. */
static bool parse_learning(int key, char *text, struct argp_state *state)
{
    struct train_options *options = state->input;
    switch (key) {
    case KEY_LR:
        options->given.rate = read_real(state, "--lr", text, 0, 1e6);
        return true;
    case KEY_MOMENTUM:
        options->given.momentum = read_real(state, "--momentum", text, 0, 0.999999);
        return true;
    case KEY_DECAY:
        options->given.decay = read_real(state, "--weight-decay", text, 0, 1e6);
        return true;
    case KEY_WARMUP:
        options->given.warmup = read_real(state, "--warmup", text, 0, 1);
        return true;
    case KEY_DROPS:
        read_drops(state, text, options->given.drops);
        return true;
    case KEY_SEED:
        options->trainer.seed = read_number(state, "--seed", text, 0, UINT64_MAX);
        return true;
    default:
        return false;
    }
}

/* The options that say how it runs; false for any other. */
static bool parse_running(int key, char *text, struct argp_state *state)
{
    static const char *const devices[] = {"cpu", NULL}, *const precisions[] = {"fp32", NULL};
    struct train_options *options = state->input;
    switch (key) {
    case KEY_DEVICE:
        read_name(state, "--device", text, devices);
        return true;
    case KEY_PRECISION:
        read_name(state, "--precision", text, precisions);
        return true;
    case KEY_KERNELS:
        options->trainer.kernels = read_kernels(state, text);
        return true;
    case KEY_THREADS:
        options->trainer.threads = (int)read_number(state, "--threads", text, 1, 1024);
        return true;
    case KEY_STRATEGY:
        options->trainer.strategy = read_strategy(state, text);
        return true;
    case KEY_BUCKET:
        options->trainer.bucket = program_size(state, "--bucket", text, sizeof(float));
        return true;
    case KEY_JSON:
        options->json = text;
        return true;
    default:
        return false;
    }
}

static void parse_end(struct argp_state *state)
{
    struct trainer_options *trainer = &((struct train_options *)state->input)->trainer;
    const int limits = (trainer->steps > 0) + (trainer->epochs > 0) + (trainer->seconds > 0);
    if (limits > 1)
        argp_error(state, "expected only one of --steps, --epochs and --seconds");
    if (limits == 0)
        trainer->epochs = 1;
}

static error_t parse(int key, char *text, struct argp_state *state)
{
    struct train_options *options = state->input;
    switch (key) {
    case KEY_MODEL:
        options->trainer.model = read_model(state, text);
        return 0;
    case KEY_DATA:
        options->trainer.data = read_data(state, text);
        return 0;
    case KEY_BATCH:
        options->trainer.batch = read_number(state, "--batch", text, 1, 1 << 20);
        return 0;
    case KEY_STEPS:
        options->trainer.steps = read_number(state, "--steps", text, 1, INT64_MAX);
        return 0;
    case KEY_EPOCHS:
        options->trainer.epochs = read_number(state, "--epochs", text, 1, 1000000);
        return 0;
    case KEY_SECONDS:
        options->trainer.seconds = read_real(state, "--seconds", text, 1e-3, 1e9);
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected argument '%s'", text);
        return 0;
    case ARGP_KEY_END:
        parse_end(state);
        return 0;
    default:
        return parse_learning(key, text, state) || parse_running(key, text, state)
                   ? 0
                   : ARGP_ERR_UNKNOWN;
    }
}

struct train_options train_options_parse(int argc, char **argv)
{
    struct train_options options = {
        .trainer = {.model = model_resnet20.name,
                    .data = "fashion-mnist",
                    .kernels = kernels_onednn.name,
                    .strategy = strategy_allreduce.name,
                    .batch = 64,
                    .seed = 1,
                    .bucket = 256 << 10},
        .given = {.rate = -1, .momentum = -1, .decay = -1, .warmup = -1, .drops = {-1}}};
    const struct argp argp = {.options = table, .parser = parse, .doc = doc};
    const struct program_streams streams = program_hush(program_launch_rank());
    argp_err_exit_status = EXIT_USAGE;
    argp_parse(&argp, argc, argv, 0, NULL, &options);
    program_unhush(streams);
    return options;
}

void train_options_complete(struct train_options *options, int ranks)
{
    const struct optimizer_options *given = &options->given;
    struct optimizer_options *o = &options->trainer.optimizer;
    *o = optimizer_defaults(options->trainer.batch * (size_t)ranks);
    if (given->rate >= 0)
        o->rate = given->rate;
    if (given->momentum >= 0)
        o->momentum = given->momentum;
    if (given->decay >= 0)
        o->decay = given->decay;
    if (given->warmup >= 0)
        o->warmup = given->warmup;
    if (given->drops[0] >= 0)
        memcpy(o->drops, given->drops, sizeof o->drops);
}
