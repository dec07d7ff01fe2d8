/* The command line of alnico-train, by argp: one function for each kind of value, and a check of
 * what does not go together at the end. */
#include "tools/train/options.h"

#include "tools/common/program.h"
#include "tools/train/read.h"
#include "train/input/images.h"
#include "train/models/models.h"
#include "train/strategies/strategy.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum {
    KEY_MODEL = 256,
    KEY_DATA,
    KEY_BATCH,
    KEY_CLASSES,
    KEY_TESTS,
    KEY_STEPS,
    KEY_EPOCHS,
    KEY_SECONDS,
    KEY_SEED,
    KEY_LR,
    KEY_MOMENTUM,
    KEY_DECAY,
    KEY_WARMUP,
    KEY_DROPS,
    KEY_SCHEDULE,
    KEY_LARS,
    KEY_SMOOTHING,
    KEY_FREEZE,
    KEY_PRECISION,
    KEY_LOSS_SCALE,
    KEY_NO_TF32,
    KEY_DETERMINISTIC,
    KEY_DEVICE,
    KEY_KERNELS,
    KEY_CACHE,
    KEY_STREAM,
    KEY_THREADS,
    KEY_MEMORY,
    KEY_MEMORY_LIMIT,
    KEY_PROFILE,
    KEY_STRATEGY,
    KEY_BUCKETS,
    KEY_WIRE,
    KEY_NO_OVERLAP,
    KEY_SAVE,
    KEY_SAVE_EVERY,
    KEY_LOAD,
    KEY_NO_GRAPH,
    KEY_JSON
};

static const struct argp_option table[] = {
    {.doc = "What to train:"},
    {"model", KEY_MODEL, "NAME", 0,
     "resnet18, resnet34, resnet50, resnet101 or resnet152; for small images resnet20, or cnn, "
     "which has "
     "no batch norm (resnet20)",
     0},
    {"data", KEY_DATA, "SOURCE", 0,
     "fashion-mnist (Debian's dataset-fashion-mnist), idx:DIR (a folder with IDX files named as "
     "there, gzip or not), synthetic or synthetic:HxWxC (fashion-mnist)",
     0},
    {"batch", KEY_BATCH, "N", 0, "images per rank and step (64)", 0},
    {"classes", KEY_CLASSES, "N", 0, "of the labels (10)", 0},
    {"test-images", KEY_TESTS, "N", 0,
     "test images after each epoch and at the end, rounded up to whole batches over all ranks; 0: "
     "no test (all)",
     0},
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
    {"schedule", KEY_SCHEDULE, "NAME", 0,
     "how the rate falls after the warm-up: drops, cosine or polynomial (the square of what is "
     "left) "
     "(drops)",
     0},
    {"lars", KEY_LARS, "TRUST", 0,
     "layer-wise rates: each layer's slope times TRUST * |weights| / |slope| (off)", 0},
    {"label-smoothing", KEY_SMOOTHING, "SHARE", 0,
     "share of each label that is spread over all classes, below 1 (0)", 0},
    {"freeze-norm", KEY_FREEZE, NULL, 0, "batch norms use and keep their running statistics", 0},
    {"seed", KEY_SEED, "N", 0, "of parameters, shuffling and augmentation (1)", 0},
    {.doc = "How it computes:"},
    {"device", KEY_DEVICE, "DEVICE", 0, "cpu, or cuda: each rank of a host has a GPU (cpu)", 0},
    {"precision", KEY_PRECISION, "TYPE", 0,
     "of activations: fp32, bf16 or fp16; parameters are float32 always (fp32)", 0},
    {"loss-scale", KEY_LOSS_SCALE, "S", 0, "of fp16 (found while training)", 0},
    {"no-tf32", KEY_NO_TF32, NULL, 0, "fp32 on a GPU without the 19-bit products of tensor cores",
     0},
    {"deterministic", KEY_DETERMINISTIC, NULL, 0,
     "the same bits in every run; on GPUs with the same --plan-cache", 0},
    {"kernels", KEY_KERNELS, "NAME", 0,
     "what computes: onednn, cudnn, or naive loops for checking (the fastest of the device)", 0},
    {"plan-cache", KEY_CACHE, "FILE", 0,
     "where cudnn keeps which of its plans were the fastest (none)", 0},
    {"stream", KEY_STREAM, NULL, 0,
     "compute on a stream beside the main thread, as on a GPU; only for cpu", 0},
    {"threads", KEY_THREADS, "N", 0,
     "compute threads of each rank (OMP_NUM_THREADS, or the cores divided by the ranks)", 0},
    {"memory", KEY_MEMORY, NULL, 0,
     "print what memory each rank needs, where every activation stands, and which batch is the "
     "largest "
     "that fits, and end",
     0},
    {"profile", KEY_PROFILE, NULL, 0,
     "print what each step of the network takes on one rank, forward and backward, in GB/s, "
     "TFLOP/s and as a share of the "
     "least time that a copy and a product of matrices reach there, and end",
     0},
    {"no-graph", KEY_NO_GRAPH, NULL, 0, "launch by launch, where a step could be one CUDA graph",
     0},
    {"memory-limit", KEY_MEMORY_LIMIT, "SIZE", 0,
     "bytes of the device to use; K, M and G are understood (what is there; on the CPU each rank's "
     "share of it)",
     0},
    {.doc = "How the ranks meet:"},
    {"strategy", KEY_STRATEGY, "NAME", 0,
     "allreduce averages the gradients in every step (allreduce)", 0},
    {"buckets", KEY_BUCKETS, "RULE", 0,
     "gradients that travel together: SIZE with a K, M or G, in bytes; or N buckets of one size; "
     "or planned, by measuring layers and messages (256K; on GPUs planned, 4M if deterministic)",
     0},
    {"wire", KEY_WIRE, "TYPE", 0, "what gradients travel as: fp32, bf16 or fp16 (the precision)",
     0},
    {"no-overlap", KEY_NO_OVERLAP, NULL, 0, "send gradients after the backward pass, not during it",
     0},
    {.doc = "Checkpoints:"},
    {"save", KEY_SAVE, "FILE", 0, "write the state to FILE at the end", 0},
    {"save-every", KEY_SAVE_EVERY, "N", 0, "and whenever N steps are done", 0},
    {"load", KEY_LOAD, "FILE", 0, "go on from FILE; --steps and --epochs include what it has done",
     0},
    {.doc = "Output:"},
    {"json", KEY_JSON, "FILE", 0, "also write the report to FILE", 0},
    {0}};

static const char *const precisions[PRECISIONS + 1] = {"fp32", "bf16", "fp16", NULL};

static const char doc[] =
    "Train a network on the ranks of an MPI job, each with its own part of the data."
    "\vExamples:\n"
    "  alnico-train --steps 100 --data synthetic\n"
    "  mpiexec -n 2 alnico-train --epochs 10 --json report.json\n\n"
    "Exit status: 0 if all went well and all ranks ended with the same parameters, 1 if something "
    "failed, 2 for a command line that makes no sense.";

static const char *read_data(struct argp_state *state, const char *text)
{
    if (!images_source_reads(text))
        argp_error(state,
                   "--data %s: expected fashion-mnist, idx:DIR, synthetic or synthetic:HxWxC with "
                   "each from 1 to %d",
                   text, IDX_MOST_SIDE);
    return text;
}

static const char *read_model(struct argp_state *state, const char *text)
{
    const char *names[MODELS + 1] = {NULL};
    for (size_t i = 0; i < MODELS; i++)
        names[i] = models_all[i]->name;
    return train_read_name(state, "--model", text, names);
}

static const char *read_kernels(struct argp_state *state, const char *text)
{
    const char *names[8] = {NULL};
    for (size_t i = 0; kernels_all[i]; i++)
        names[i] = kernels_all[i]->name;
    return train_read_name(state, "--kernels", text, names);
}

/* "planned", "3" or "4M". */
static void read_buckets(struct argp_state *state, const char *text)
{
    struct trainer_options *trainer = &((struct train_options *)state->input)->trainer;
    const size_t length = strlen(text);
    if (strcmp(text, "planned") == 0) {
        trainer->rule = BUCKETS_PLANNED;
    } else if (length && strspn(text, "0123456789") == length) {
        trainer->rule = BUCKETS_OF_COUNT;
        trainer->buckets = train_read_number(state, "--buckets", text, 1, 1 << 20);
    } else {
        trainer->rule = BUCKETS_OF_SIZE;
        trainer->buckets = program_size(state, "--buckets", text, sizeof(float));
    }
}

static const char *read_strategy(struct argp_state *state, const char *text)
{
    const char *names[STRATEGIES + 1] = {NULL};
    for (size_t i = 0; i < STRATEGIES; i++)
        names[i] = strategy_all[i]->name;
    return train_read_name(state, "--strategy", text, names);
}

/* The options that say how it learns; false for any other. */
static bool parse_learning(int key, char *text, struct argp_state *state)
{
    const char *const schedules[SCHEDULES + 1] = {schedule_name(SCHEDULE_DROPS),
                                                  schedule_name(SCHEDULE_COSINE),
                                                  schedule_name(SCHEDULE_POLYNOMIAL), NULL};
    struct train_options *options = state->input;
    switch (key) {
    case KEY_LR:
        options->given.rate = train_read_real(state, "--lr", text, 0, 1e6);
        return true;
    case KEY_MOMENTUM:
        options->given.momentum = train_read_real(state, "--momentum", text, 0, 0.999999);
        return true;
    case KEY_DECAY:
        options->given.decay = train_read_real(state, "--weight-decay", text, 0, 1e6);
        return true;
    case KEY_WARMUP:
        options->given.warmup = train_read_real(state, "--warmup", text, 0, 1);
        return true;
    case KEY_DROPS:
        train_read_drops(state, text, options->given.drops);
        return true;
    case KEY_SCHEDULE:
        options->given.schedule =
            (enum schedule)train_read_choice(state, "--schedule", text, schedules);
        return true;
    case KEY_LARS:
        options->given.trust = train_read_real(state, "--lars", text, 0, 1e6);
        return true;
    case KEY_SMOOTHING:
        options->trainer.compute.smoothing =
            (float)train_read_real(state, "--label-smoothing", text, 0, 0.999);
        return true;
    case KEY_FREEZE:
        options->trainer.compute.frozen = true;
        return true;
    case KEY_SEED:
        options->trainer.seed = train_read_number(state, "--seed", text, 0, UINT64_MAX);
        return true;
    default:
        return false;
    }
}

/* The options that say how it computes; false for any other. */
static bool parse_computing(int key, char *text, struct argp_state *state)
{
    static const char *const devices[] = {"cpu", "cuda", NULL};
    struct train_options *options = state->input;
    struct kernels_options *compute = &options->trainer.compute;
    switch (key) {
    case KEY_DEVICE:
        options->device = train_read_choice(state, "--device", text, devices) ? ALNICO_DEVICE_CUDA
                                                                              : ALNICO_DEVICE_CPU;
        return true;
    case KEY_PRECISION:
        compute->precision =
            (enum precision)train_read_choice(state, "--precision", text, precisions);
        return true;
    case KEY_LOSS_SCALE:
        compute->loss_scale = (float)train_read_real(state, "--loss-scale", text, 1, 0x1p24);
        return true;
    case KEY_NO_TF32:
        compute->full_float = true;
        return true;
    case KEY_DETERMINISTIC:
        compute->deterministic = true;
        return true;
    case KEY_KERNELS:
        options->trainer.kernels = read_kernels(state, text);
        return true;
    case KEY_CACHE:
        compute->cache = text;
        return true;
    case KEY_STREAM:
        options->stream = true;
        return true;
    case KEY_THREADS:
        compute->threads = (int)train_read_number(state, "--threads", text, 1, 1024);
        return true;
    case KEY_MEMORY:
        options->memory = true;
        return true;
    case KEY_PROFILE:
        options->profile = true;
        return true;
    case KEY_MEMORY_LIMIT:
        options->trainer.memory_limit = program_size(state, "--memory-limit", text, 1);
        return true;
    default:
        return false;
    }
}

/* The options that say how the ranks meet, and the rest; false for any other. */
static bool parse_meeting(int key, char *text, struct argp_state *state)
{
    static const alnico_datatype_t wires[] = {ALNICO_FLOAT32, ALNICO_BFLOAT16, ALNICO_FLOAT16};
    struct train_options *options = state->input;
    switch (key) {
    case KEY_STRATEGY:
        options->trainer.strategy = read_strategy(state, text);
        return true;
    case KEY_BUCKETS:
        read_buckets(state, text);
        return true;
    case KEY_WIRE:
        options->trainer.wire = wires[train_read_choice(state, "--wire", text, precisions)];
        options->wired = true;
        return true;
    case KEY_NO_OVERLAP:
        options->trainer.late = true;
        return true;
    case KEY_SAVE:
        options->trainer.save = text;
        return true;
    case KEY_SAVE_EVERY:
        options->trainer.save_every = train_read_number(state, "--save-every", text, 1, INT64_MAX);
        return true;
    case KEY_LOAD:
        options->trainer.load = text;
        return true;
    case KEY_NO_GRAPH:
        options->trainer.no_graph = true;
        return true;
    case KEY_JSON:
        options->json = text;
        return true;
    default:
        return false;
    }
}

/* What was not said follows from the device and the precision. */
static void complete_kernels(struct argp_state *state, struct train_options *options)
{
    static const alnico_datatype_t wires[] = {ALNICO_FLOAT32, ALNICO_BFLOAT16, ALNICO_FLOAT16};
    struct trainer_options *trainer = &options->trainer;
    const char *device = options->device == ALNICO_DEVICE_CUDA ? "cuda" : "cpu";
    const struct kernels_ops *kernels =
        trainer->kernels ? kernels_find(trainer->kernels) : kernels_default(options->device);
    if (!kernels)
        argp_error(state, "--device %s: this build has no kernels for it", device);
    if (kernels->device != options->device)
        argp_error(state, "--kernels %s: they do not run on --device %s", kernels->name, device);
    if (!(kernels->precisions & 1u << trainer->compute.precision))
        argp_error(state, "--precision %s: the %s kernels do not have it",
                   precision_name(trainer->compute.precision), kernels->name);
    if (options->stream && options->device != ALNICO_DEVICE_CPU)
        argp_error(state, "--stream: on --device %s there is one anyway", device);
    trainer->kernels = kernels->name;
    if (!options->wired)
        trainer->wire = wires[trainer->compute.precision];
    if (!trainer->buckets && trainer->rule != BUCKETS_PLANNED) {
        const bool cpu = options->device == ALNICO_DEVICE_CPU;
        const bool fixed = cpu || trainer->compute.deterministic; /* not by what is measured */
        trainer->rule = fixed ? BUCKETS_OF_SIZE : BUCKETS_PLANNED;
        trainer->buckets = cpu ? 256 << 10 : fixed ? 4 << 20 : 0;
    }
}

/* What would change nothing is no option here. */
static void check_meaning(struct argp_state *state, const struct train_options *options)
{
    const struct kernels_options *compute = &options->trainer.compute;
    const char *precision = precision_name(compute->precision);
    if (compute->loss_scale > 0 && compute->precision != PRECISION_FP16)
        argp_error(state, "--loss-scale: on --precision %s there is none", precision);
    if (compute->full_float && compute->precision != PRECISION_FP32)
        argp_error(state, "--no-tf32: on --precision %s there is none anyway", precision);
    if (options->given.drops[0] >= 0 && options->given.schedule != SCHEDULE_DROPS)
        argp_error(state, "--drops: on --schedule %s there are none",
                   schedule_name(options->given.schedule));
    if (options->device != ALNICO_DEVICE_CPU)
        return;
    if (compute->cache)
        argp_error(state, "--plan-cache: on --device cpu there are no plans to keep");
    if (options->trainer.no_graph)
        argp_error(state, "--no-graph: on --device cpu there is none anyway");
}

static void parse_end(struct argp_state *state)
{
    struct train_options *options = state->input;
    struct trainer_options *trainer = &options->trainer;
    const int limits = (trainer->steps > 0) + (trainer->epochs > 0) + (trainer->seconds > 0);
    if (limits > 1)
        argp_error(state, "expected only one of --steps, --epochs and --seconds");
    if (trainer->save_every && !trainer->save)
        argp_error(state, "--save-every: expected --save FILE, too");
    if (limits == 0)
        trainer->epochs = 1;
    if (options->profile && (options->memory || options->stream))
        argp_error(state, "--profile: neither --memory nor --stream goes with it");
    check_meaning(state, options);
    complete_kernels(state, options);
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
        options->trainer.batch = train_read_number(state, "--batch", text, 1, 1 << 20);
        return 0;
    case KEY_CLASSES:
        options->trainer.classes = train_read_number(state, "--classes", text, 1, 65536);
        return 0;
    case KEY_TESTS:
        options->trainer.tests = train_read_number(state, "--test-images", text, 0, 1 << 30);
        return 0;
    case KEY_STEPS:
        options->trainer.steps = train_read_number(state, "--steps", text, 1, INT64_MAX);
        return 0;
    case KEY_EPOCHS:
        options->trainer.epochs = train_read_number(state, "--epochs", text, 1, 1000000);
        return 0;
    case KEY_SECONDS:
        options->trainer.seconds = train_read_real(state, "--seconds", text, 1e-3, 1e9);
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected argument '%s'", text);
        return 0;
    case ARGP_KEY_END:
        parse_end(state);
        return 0;
    default:
        return parse_learning(key, text, state) || parse_computing(key, text, state) ||
                       parse_meeting(key, text, state)
                   ? 0
                   : ARGP_ERR_UNKNOWN;
    }
}

struct train_options train_options_parse(int argc, char **argv)
{
    struct train_options options = {
        .trainer = {.model = model_resnet20.name,
                    .data = "fashion-mnist",
                    .strategy = strategy_allreduce.name,
                    .batch = 64,
                    .tests = 1 << 30,
                    .seed = 1},
        .given = {.rate = -1, .momentum = -1, .decay = -1, .warmup = -1, .drops = {-1}}};
    const struct argp argp = {.options = table, .parser = parse, .doc = doc};
    argp_err_exit_status = EXIT_USAGE;
    argp_parse(&argp, argc, argv, 0, NULL, &options);
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
    o->schedule = given->schedule;
    o->trust = given->trust;
}
