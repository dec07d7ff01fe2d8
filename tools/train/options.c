/* The command line of alnico-train: its table of options, the values of its own kinds, and which
 * options go together. */
#include "tools/train/options.h"

#include "tools/common/options.h"
#include "tools/common/program.h"
#include "tools/common/tile_batch.h"
#include "tools/train/log.h"
#include "tools/train/presets.h"
#include "train/graph/split.h"
#include "train/input/augment.h"
#include "train/input/loader.h"
#include "train/models/models.h"
#include "train/strategies/strategy.h"

#include <stdlib.h>
#include <string.h>

/* A function of `i`: the name of the i-th choice, NULL after the last. */
#define NAMES(function, is_there, name)                                                            \
    static const char *function(int i)                                                             \
    {                                                                                              \
        return (is_there) ? (name) : NULL;                                                         \
    }

NAMES(kernels_at, kernels_all[i], kernels_all[i]->name)
NAMES(strategy_at, strategies_all[i], strategies_all[i]->name)
NAMES(precision_at, i < PRECISIONS, precision_name((enum precision)i))
NAMES(optimizer_at, i < OPTIMIZERS, optimizers_all[i]->name)
NAMES(schedule_at, i < SCHEDULES, schedule_name((enum schedule)i))
NAMES(norm_at, i < NORM_GROUPS, norm_group_name((enum norm_group)i))

enum { PREDICT_STEPS = 60, BATCH_MOST = 1 << 20, TILE_MOST = 4096 };

static void check_model(struct argp_state *state, char *text, void *options)
{
    struct model model;
    char names[512] = "";
    (void)options;
    if (model_find(text, &model))
        return;
    for (size_t i = 0; models_all[i]; i++)
        text_append(names, sizeof names, "%s, ", models_all[i]->name);
    argp_error(state, "--model %s: expected %sor mesh:SIDE", text, names);
}

static void check_data(struct argp_state *state, char *text, void *options)
{
    char forms[512];
    (void)options;
    source_forms(forms, sizeof forms);
    if (!source_find(text))
        argp_error(state, "--data %s: expected %s", text, forms);
}

/* "64" or "linpack:160". */
static void read_batch(struct argp_state *state, char *text, void *out)
{
    static const char prefix[] = "linpack:";
    const size_t length = sizeof prefix - 1;
    struct train_options *options = out;
    options->tile = 0;
    if (strncmp(text, prefix, length) == 0)
        options->tile = option_number(state, "--batch linpack:NB", text + length, 1, TILE_MOST);
    else
        options->trainer.batch = option_number(state, "--batch", text, 1, BATCH_MOST);
}

static void read_augment(struct argp_state *state, char *text, void *options)
{
    if (!augment_parse(text, &((struct train_options *)options)->trainer.augment))
        argp_error(state,
                   "--augment %s: expected none, or of shift, flip and crop some, as shift,flip",
                   text);
}

/* At most OPTIMIZER_DROPS numbers; the rest become 1. */
static void read_drops(struct argp_state *state, char *text, void *out)
{
    double *drops = ((struct train_options *)out)->trainer.optimizer.drops;
    char *copy = strdup(text), *rest = NULL;
    size_t count = 0;
    for (char *word = copy ? strtok_r(copy, ",", &rest) : NULL; word;
         word = strtok_r(NULL, ",", &rest)) {
        if (count == OPTIMIZER_DROPS)
            argp_error(state, "--drops %s: expected at most %d numbers", text, OPTIMIZER_DROPS);
        drops[count++] = option_real(state, "--drops", word, 0, 1);
    }
    if (!count)
        argp_error(state, "--drops: expected numbers from 0 to 1, separated by commas");
    for (; count < OPTIMIZER_DROPS; count++)
        drops[count] = 1;
    free(copy);
}

/* "planned", "3" or "4M". */
static void read_buckets(struct argp_state *state, char *text, void *out)
{
    struct trainer_options *trainer = &((struct train_options *)out)->trainer;
    const size_t length = strlen(text);
    ((struct train_options *)out)->bucketed = true;
    if (strcmp(text, "planned") == 0) {
        trainer->rule = BUCKETS_PLANNED;
    } else if (length && strspn(text, "0123456789") == length) {
        trainer->rule = BUCKETS_OF_COUNT;
        trainer->buckets = option_number(state, "--buckets", text, 1, 1 << 20);
    } else {
        trainer->rule = BUCKETS_OF_SIZE;
        trainer->buckets = option_size(state, "--buckets", text, sizeof(float));
    }
}

static void check_compress(struct argp_state *state, char *text, void *options)
{
    struct codec codec;
    (void)options;
    if (codec_parse(text, &codec))
        argp_error(state, "--compress %s: %s", text, alnico_error_detail());
}

static void check_split(struct argp_state *state, char *text, void *options)
{
    struct split split;
    (void)options;
    if (split_parse(text, &split))
        argp_error(state, "--split %s: %s", text, alnico_error_detail());
}

static void check_log(struct argp_state *state, char *text, void *options)
{
    bool json;
    (void)options;
    if (!train_log_form(text, &json))
        argp_error(state, "--log %s: expected a name that ends in .csv or .jsonl", text);
}

static void read_predict(struct argp_state *state, char *text, void *out)
{
    struct train_options *options = out;
    char *copy = strdup(text), *rest = copy;
    options->predict_count = 0;
    while (rest) {
        if (options->predict_count == PREDICT_MOST)
            argp_error(state, "--predict %s: expected at most %d numbers", text, PREDICT_MOST);
        options->predict[options->predict_count++] =
            (int)option_number(state, "--predict", strsep(&rest, ","), 1, 1 << 20);
    }
    free(copy);
}

static void refuse_argument(struct argp_state *state, char *text, void *options)
{
    (void)options;
    argp_error(state, "unexpected argument '%s'", text);
}

#define FIELD(member) OPTION_FIELD(struct train_options, member)
#define TRAINER(member) FIELD(trainer.member)
#define COMPUTE(member) FIELD(trainer.compute.member)
#define OPTIMIZER(member) FIELD(trainer.optimizer.member)

static const char *const failures[] = {"stop", "shrink", NULL};

static const struct option_row table[] = {
    {.help = "What to train:"},
    {"model", 0, "NAME",
     "resnet18, resnet34, resnet50, resnet101, resnet152, alexnet, googlenet or googlenet-aux; for "
     "small images resnet20, alexnet-cifar, mnist, or cnn, which has no batch norm; mesh1k, mesh2k "
     "or "
     "mesh:SIDE, which say something of each pixel; neuron, of one number",
     OPTION_TEXT, .initial = "resnet20", TRAINER(model), .read = check_model, .key = "model"},
    {"data", 0, "SOURCE",
     "fashion-mnist (Debian's dataset-fashion-mnist), idx:DIR (a folder with IDX files named as "
     "there, gzip or not), cifar10:DIR (its binary version), folder:DIR[@SIZE] (JPEG and PNG in "
     "train/CLASS/ and test/CLASS/), packed:FILE[@SIZE] (by alnico-pack), or made up: synthetic or "
     "synthetic:HxWxC, mesh:SIDE (18 channels, a label a pixel), step (one number) (fashion-mnist, "
     "or the model's own)",
     OPTION_TEXT, TRAINER(data), .read = check_data, .key = "data"},
    {"batch", 0, "N|linpack:NB",
     "images per rank and step, or the power of two nearest to those, as the model is usually "
     "trained on, that are as large as NB x NB numbers of 64 bits",
     OPTION_OTHER, .initial = "64", TRAINER(batch), .read = read_batch, .key = "batch"},
    {"accumulate", 0, "N",
     "batches a step: their gradients are averaged on each rank before the ranks meet",
     OPTION_NUMBER, .initial = "1", TRAINER(accumulate), .least = 1, .most = 256,
     .key = "accumulate"},
    {"augment", 0, "WAYS",
     "how training images are moved at random: none, or some of shift (2 pixels each way), flip "
     "(left and right) and crop (of what a source has around its images), joined by commas (idx: "
     "and folder: shift; fashion-mnist, cifar10, synthetic: shift,flip; folder@SIZE: crop,flip)",
     OPTION_TEXT, FIELD(augment), .read = read_augment, .key = "augment"},
    {"shuffle-block", 0, "N",
     "shuffle blocks of N images, and the images of 16 blocks at a time, so that a packed file "
     "that "
     "is larger than memory is read in long runs (all images)",
     OPTION_NUMBER, TRAINER(shuffle_block), .least = 1, .most = 1 << 30, .key = "shuffle_block"},
    {"skip-bad", 0, "N",
     "images that each rank may find damaged or gone: another takes the place of each (0: the "
     "first "
     "ends the run)",
     OPTION_NUMBER, TRAINER(skip_bad), .least = 1, .most = INT64_MAX, .key = "skip_bad"},
    {"classes", 0, "N", "of the labels of fashion-mnist, idx and synthetic; others say it (10)",
     OPTION_NUMBER, TRAINER(classes), .least = 1, .most = 65536, .key = "classes"},
    {"test-images", 0, "N",
     "test images after each epoch and at the end, rounded up to whole batches over all ranks; 0: "
     "no test (all)",
     OPTION_NUMBER, TRAINER(tests), .most = 1 << 30, .key = "test_images"},
    {"validate-every", 0, "N", "test after every N steps, too", OPTION_NUMBER,
     TRAINER(validate_every), .least = 1, .most = INT64_MAX, .key = "validate_every"},
    {.help = "How long, one of:"},
    {"epochs", 0, "N", "passes over the training images (1)", OPTION_NUMBER, TRAINER(epochs),
     .least = 1, .most = 1000000, .key = "epochs"},
    {"steps", 0, "N", "steps of all ranks together", OPTION_NUMBER, TRAINER(steps), .least = 1,
     .most = INT64_MAX, .key = "steps"},
    {"seconds", 0, "S", "training time, about; tests come on top", OPTION_REAL, TRAINER(seconds),
     .low = 1e-3, .high = 1e9, .key = "seconds"},
    {.help = "How it learns:"},
    {"optimizer", 0, "NAME", "sgd, nag, adagrad, adadelta, rmsprop or adam, as PyTorch's",
     OPTION_CHOICE, .initial = "sgd", OPTIMIZER(kind), .choice = optimizer_at, .key = "optimizer"},
    {"lr", 0, "RATE",
     "highest learning rate (sgd and nag: 0.1 for 128 images a step over all ranks, of alexnet and "
     "googlenet 0.01, proportional to them; adagrad: 0.01; adadelta: 1; rmsprop and adam: 0.001)",
     OPTION_REAL, OPTIMIZER(rate), .high = 1e6, .key = "learning_rate"},
    {"momentum", 0, "M", "of sgd and nag, at least 0 and below 1 (0.9)", OPTION_REAL,
     OPTIMIZER(momentum), .high = 0.999999, .key = "momentum"},
    {"beta1", 0, "B", "of adam: how much of the gradients' mean stays in an update (0.9)",
     OPTION_REAL, OPTIMIZER(beta1), .high = 0.999999},
    {"beta2", 0, "B",
     "how much of the mean of their squares stays (adadelta: 0.9, its rho; rmsprop: 0.99; adam: "
     "0.999)",
     OPTION_REAL, OPTIMIZER(beta2), .high = 0.999999},
    {"epsilon", 0, "E",
     "added to the root that is divided by; of adadelta under the roots (adagrad: 1e-10; adadelta: "
     "1e-6; rmsprop and adam: 1e-8)",
     OPTION_POSITIVE, OPTIMIZER(epsilon), .high = 1},
    {"weight-decay", 0, "D",
     "of weights, added to their gradients; not of biases and batch norms (sgd and nag: 0.0005; "
     "others: 0)",
     OPTION_REAL, OPTIMIZER(decay), .high = 1e6, .key = "weight_decay"},
    {"clip-norm", 0, "N", "the most that the length of all gradients together may be (any)",
     OPTION_POSITIVE, OPTIMIZER(clip), .high = 1e30, .key = "clip_norm"},
    {"warmup", 0, "SHARE", "share of the run in which the rate rises from 0 (0.05)", OPTION_REAL,
     OPTIMIZER(warmup), .high = 1, .key = "warmup"},
    {"drops", 0, "SHARE,...",
     "shares of the run, at most three, after which the rate is a tenth; 1: never (0.6,0.85)",
     OPTION_OTHER, .read = read_drops},
    {"schedule", 0, "NAME",
     "how the rate falls after the warm-up: drops, cosine or polynomial (the square of what is "
     "left)",
     OPTION_CHOICE, .initial = "drops", OPTIMIZER(schedule), .choice = schedule_at,
     .key = "schedule"},
    {"lars", 0, "TRUST",
     "of sgd: layer-wise rates (LARS): each layer's slope times TRUST * |weights| / |slope| (off)",
     OPTION_REAL, OPTIMIZER(trust), .high = 1e6, .key = "lars"},
    {"label-smoothing", 0, "SHARE", "share of each label that is spread over all classes, below 1",
     OPTION_REAL, .initial = "0", COMPUTE(smoothing), .high = 0.999, .key = "label_smoothing"},
    {"freeze-norm", 0, NULL, "batch norms use and keep their running statistics", OPTION_FLAG,
     COMPUTE(frozen), .key = "freeze_norm"},
    {"seed", 0, "N", "of parameters, shuffling and augmentation", OPTION_NUMBER, .initial = "1",
     TRAINER(seed), .most = UINT64_MAX, .key = "seed"},
    {.help = "How it computes:"},
    {"device", 0, "DEVICE", "cpu, or cuda: each rank of a host has a GPU", OPTION_CHOICE,
     .initial = "cpu", FIELD(device), .choices = option_devices, .key = "device", .agreed = true},
    {"precision", 0, "TYPE", "of activations: fp32, bf16 or fp16; parameters are float32 always",
     OPTION_CHOICE, .initial = "fp32", COMPUTE(precision), .choice = precision_at,
     .key = "precision"},
    {"loss-scale", 0, "S", "of fp16 (found while training)", OPTION_REAL, COMPUTE(loss_scale),
     .low = 1, .high = 0x1p24},
    {"no-tf32", 0, NULL, "fp32 on a GPU without the 19-bit products of tensor cores", OPTION_FLAG,
     COMPUTE(full_float)},
    {"deterministic", 0, NULL, "the same bits in every run; on GPUs with the same --plan-cache",
     OPTION_FLAG, COMPUTE(deterministic), .key = "deterministic"},
    {"kernels", 0, "NAME",
     "what computes: onednn, cudnn, or naive loops for checking (the fastest of the device)",
     OPTION_NAME, TRAINER(kernels), .choice = kernels_at, .key = "kernels"},
    {"plan-cache", 0, "FILE", "where cudnn keeps which of its plans were the fastest (none)",
     OPTION_TEXT, COMPUTE(cache)},
    {"stream", 0, NULL, "compute on a stream beside the main thread, as on a GPU; only for cpu",
     OPTION_FLAG, FIELD(stream), .agreed = true},
    {"threads", 0, "N",
     "compute threads of each rank (OMP_NUM_THREADS, or the cores divided by the ranks)",
     OPTION_NUMBER, COMPUTE(threads), .least = 1, .most = 1024, .key = "threads"},
    {"loaders", 0, "N",
     "threads of each rank that prepare batches; 0: the one that trains does (1; on GPUs the cores "
     "divided by the ranks, at most 16)",
     OPTION_NUMBER, TRAINER(loaders), .given = offsetof(struct train_options, loading),
     .most = LOADER_MOST_THREADS, .key = "loaders"},
    {"prefetch", 0, "N", "batches that they prepare ahead", OPTION_NUMBER, .initial = "2",
     TRAINER(prefetch), .given = offsetof(struct train_options, prefetching), .least = 1,
     .most = 64, .key = "prefetch"},
    {"describe", 0, NULL,
     "print the layers of the network, their shapes and parameters, and of a batch the "
     "floating-point operations and bytes that each makes and moves by itself, and end; without "
     "--data for images and classes as the model is usually trained on",
     OPTION_FLAG, FIELD(describe), .agreed = true},
    {"memory", 0, NULL,
     "print what memory each rank needs, where every activation stands, and which batch is the "
     "largest that fits, and end",
     OPTION_FLAG, FIELD(memory), .agreed = true},
    {"profile", 0, NULL,
     "print what each step of the network takes on one rank, forward and backward, in GB/s, "
     "TFLOP/s and as a share of the least time that a copy and a product of matrices reach there, "
     "and end",
     OPTION_FLAG, FIELD(profile), .agreed = true},
    {"predict", 0, "RANKS,...",
     "measure the communicator and, by turns, --steps steps (60) on each rank alone and on all "
     "ranks with and without overlap; print what a step takes on so many ranks by the model, and "
     "end",
     OPTION_OTHER, FIELD(predict_count), .read = read_predict, .agreed = true},
    {"no-graph", 0, NULL, "launch kernels one by one where a step could be a CUDA graph",
     OPTION_FLAG, TRAINER(no_graph)},
    {"pageable", 0, NULL, "copy batches to a GPU from memory that is not pinned, which waits",
     OPTION_FLAG, TRAINER(pageable), .key = "pageable"},
    {"memory-limit", 0, "SIZE",
     "bytes of the device to use; K, M and G are understood (what is there; on the CPU each rank's "
     "share of it)",
     OPTION_SIZE, TRAINER(memory_limit), .least = 1},
    {.help = "How the ranks communicate:"},
    {"split", 0, "[FIRST..LAST:]PARTS;...",
     "split the network over the ranks: PARTS are rows=N, columns=N, images=N or some of them "
     "joined "
     "by commas, whose product is the number of ranks; of all layers up to those that read whole "
     "images, or of those from FIRST to LAST (names of --describe, or what they begin with up to a "
     "dot); all others are split by images; --batch is then of each part of the images. "
     "NAME:channels=N "
     "gives each of N ranks some filters of a layer. PARTS@FIRST..LAST is another way to write it",
     OPTION_TEXT, TRAINER(split), .read = check_split, .key = "split"},
    {"norm", 0, "RANKS",
     "ranks over which a batch norm takes its means and variances: local, each by itself; sample, "
     "those that have parts of the same images; all (local; with --split sample)",
     OPTION_CHOICE, TRAINER(norm), .given = offsetof(struct train_options, normed),
     .choice = norm_at, .key = "norm"},
    {"strategy", 0, "NAME",
     "allreduce: average the gradients over all ranks in every step; server: rank 0 gathers them, "
     "updates the parameters and broadcasts them; weights: each rank updates parameters of its "
     "own, which are averaged; async: each pushes its gradients to the rank "
     "that updates that part of the parameters, and waits for no other",
     OPTION_NAME, .initial = "allreduce", TRAINER(strategy),
     .given = offsetof(struct train_options, strategic), .choice = strategy_at, .key = "strategy"},
    {"preset", 0, "NAME",
     "the switches of another program for training, listed below; options beside it win",
     OPTION_NAME, FIELD(preset), .choice = train_preset_at, .key = "preset"},
    {"buckets", 0, "RULE",
     "gradients that travel together: SIZE with a K, M or G, in bytes; or N buckets of one size; "
     "or planned, by measuring layers and messages (256K; on GPUs planned, 4M if deterministic)",
     OPTION_OTHER, .read = read_buckets},
    {"compress", 0, "CODEC",
     "how gradients travel: none (float32), bf16, fp16, int8 (with a float32 scale for 256 "
     "numbers) or topk:SHARE (the share of the numbers that are the largest, and what is left in "
     "later steps) (the precision)",
     OPTION_TEXT, FIELD(compress), .read = check_compress, .key = "compress"},
    {"wire", 0, "TYPE", "--compress as the type: fp32, bf16 or fp16", OPTION_CHOICE, FIELD(wire),
     .given = offsetof(struct train_options, wired), .choice = precision_at, .key = "wire"},
    {"no-overlap", 0, NULL,
     "send gradients after the backward pass, not during it, and in moves of a split network with "
     "nothing beside them",
     OPTION_FLAG, TRAINER(late)},
    {"every", 0, "H", "of weights: steps between two averages (1)", OPTION_NUMBER, TRAINER(every),
     .least = 1, .most = INT64_MAX, .key = "every"},
    {"average-state", 0, NULL,
     "of weights: average the optimizer's states and the running statistics, too", OPTION_FLAG,
     TRAINER(average_state), .key = "average_state"},
    {"own-seeds", 0, NULL, "of weights: a rank begins with parameters of the seed plus its number",
     OPTION_FLAG, TRAINER(own_seeds), .key = "own_seeds"},
    {"staleness", 0, "S",
     "of async: let no rank be more than S steps ahead of another; 0: all do the same steps (no "
     "bound)",
     OPTION_NUMBER, TRAINER(staleness), .given = offsetof(struct train_options, trainer.bounded),
     .most = INT64_MAX},
    {"record", 0, "FILE", "of async: write to FILE.RANK in which order RANK updated its part",
     OPTION_TEXT, TRAINER(record)},
    {"replay", 0, "FILE", "of async: do it in the order that --record wrote: the same bits",
     OPTION_TEXT, TRAINER(replay)},
    {"on-failure", 0, "WHAT",
     "when a rank's process ends: stop the others, too; or shrink: they go on with its part of the "
     "images, on the CPU with strategy allreduce or weights",
     OPTION_CHOICE, .initial = "stop", TRAINER(shrinks), .choices = failures, .key = "on_failure"},
    {.help = "Checkpoints:"},
    {"save", 0, "FILE", "write the state to FILE at the end", OPTION_TEXT, TRAINER(save)},
    {"save-every", 0, "N", "write it after every N steps, too", OPTION_NUMBER, TRAINER(save_every),
     .least = 1, .most = INT64_MAX},
    {"load", 0, "FILE", "go on from FILE; --steps and --epochs include what it has done",
     OPTION_TEXT, TRAINER(load)},
    {.help = "Output:"},
    {"json", 0, "FILE", "also write the report to FILE", OPTION_TEXT, FIELD(json)},
    {"log", 0, "FILE",
     "write loss, accuracy, speed and times to FILE as training goes on, as CSV (.csv) or lines of "
     "JSON (.jsonl); with --load behind what it holds",
     OPTION_TEXT, FIELD(log), .read = check_log},
    {0}};

static const char about[] =
    "Train a network on the ranks that mpirun, srun or torchrun start, each with its own part of "
    "the data."
    "\vExamples:\n"
    "  alnico-train --steps 100 --data synthetic\n"
    "  mpiexec -n 2 alnico-train --epochs 10 --json report.json\n\n"
    "SIGTERM ends a run early, with its checkpoint and report.\n\n"
    "Exit status: 0 if all went well and all ranks ended with the same parameters, 1 if something "
    "failed, 2 for a command line that makes no sense.";

/* What gradients travel as: by --compress, --wire or the precision. */
static void complete_wire(struct argp_state *state, struct train_options *options)
{
    static const alnico_datatype_t wires[] = {ALNICO_FLOAT32, ALNICO_BFLOAT16, ALNICO_FLOAT16};
    struct trainer_options *trainer = &options->trainer;
    struct codec codec = {.ops = NULL};
    const unsigned takes = strategy_find(trainer->strategy)->takes;
    if (options->compress && options->wired)
        argp_error(state, "expected only one of --compress and --wire");
    if (options->compress && codec_parse(options->compress, &codec) == ALNICO_SUCCESS)
        options->wire = codec.ops == &codec_bf16   ? PRECISION_BF16
                        : codec.ops == &codec_fp16 ? PRECISION_FP16
                                                   : PRECISION_FP32;
    else if (!options->wired)
        options->wire = takes & STRATEGY_TAKES_WIRE ? trainer->compute.precision : PRECISION_FP32;
    trainer->wire = wires[options->wire];
    if (codec.ops && options->wire == PRECISION_FP32 && codec.ops != &codec_none)
        trainer->codec = codec;
    if (trainer->codec.ops && options->predict_count)
        argp_error(state, "--predict: --compress %s does not go with it, which measures allreduces",
                   options->compress);
}

/* Sets what was not given: it follows from the device and the precision. */
static void complete_kernels(struct argp_state *state, struct train_options *options)
{
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
    const unsigned takes = strategy_find(trainer->strategy)->takes;
    complete_wire(state, options);
    if (takes & STRATEGY_TAKES_BUCKETS && !trainer->buckets && trainer->rule != BUCKETS_PLANNED) {
        const bool cpu = options->device == ALNICO_DEVICE_CPU;
        const bool fixed = cpu || trainer->compute.deterministic; /* not by what is measured */
        trainer->rule = fixed ? BUCKETS_OF_SIZE : BUCKETS_PLANNED;
        trainer->buckets = cpu ? 256 << 10 : fixed ? 4 << 20 : 0;
    }
}

/* Options that some optimizers have. Below 0: not given. */
static const struct own_option {
    enum optimizer_option bit;
    const char *name, *key;
    size_t at;
} own_options[] = {
    {OPTIMIZER_HAS_MOMENTUM, "--momentum", NULL, offsetof(struct optimizer_options, momentum)},
    {OPTIMIZER_HAS_BETA1, "--beta1", "beta1", offsetof(struct optimizer_options, beta1)},
    {OPTIMIZER_HAS_BETA2, "--beta2", "beta2", offsetof(struct optimizer_options, beta2)},
    {OPTIMIZER_HAS_EPSILON, "--epsilon", "epsilon", offsetof(struct optimizer_options, epsilon)},
    {OPTIMIZER_HAS_TRUST, "--lars", NULL, offsetof(struct optimizer_options, trust)},
};
enum { OWN_OPTIONS = sizeof own_options / sizeof *own_options };

static double own_option(const struct optimizer_options *options, size_t i)
{
    return *(const double *)((const char *)options + own_options[i].at);
}

static void check_optimizer(struct argp_state *state, const struct optimizer_options *options)
{
    const struct optimizer_ops *ops = optimizers_all[options->kind];
    for (size_t i = 0; i < OWN_OPTIONS; i++)
        if (own_option(options, i) >= 0 && !(ops->has & own_options[i].bit))
            argp_error(state, "%s: on --optimizer %s there is none", own_options[i].name,
                       ops->name);
}

/* An option that would change nothing is an error. */
static void check_meaning(struct argp_state *state, const struct train_options *options)
{
    const struct optimizer_options *optimizer = &options->trainer.optimizer;
    const struct kernels_options *compute = &options->trainer.compute;
    const char *precision = precision_name(compute->precision);
    check_optimizer(state, optimizer);
    if (options->prefetching && options->loading && !options->trainer.loaders)
        argp_error(state, "--prefetch: with --loaders 0 there are none");
    if (compute->loss_scale > 0 && compute->precision != PRECISION_FP16)
        argp_error(state, "--loss-scale: on --precision %s there is none", precision);
    if (compute->full_float && compute->precision != PRECISION_FP32)
        argp_error(state, "--no-tf32: on --precision %s there is none anyway", precision);
    if (optimizer->drops[0] >= 0 && optimizer->schedule != SCHEDULE_DROPS)
        argp_error(state, "--drops: on --schedule %s there are none",
                   schedule_name(optimizer->schedule));
    if (options->device != ALNICO_DEVICE_CPU)
        return;
    if (compute->cache)
        argp_error(state, "--plan-cache: on --device cpu there are no plans to keep");
    if (options->trainer.no_graph)
        argp_error(state, "--no-graph: on --device cpu there is none anyway");
    if (options->trainer.pageable)
        argp_error(state, "--pageable: on --device cpu all memory is");
}

static void check_predict(struct argp_state *state, struct train_options *options)
{
    struct trainer_options *trainer = &options->trainer;
    if (!options->predict_count)
        return;
    if (options->memory || options->profile)
        argp_error(state, "--predict: neither --memory nor --profile goes with it");
    if (options->trainer.accumulate > 1)
        argp_error(state, "--predict: --accumulate does not go with it");
    if (trainer->epochs || trainer->seconds > 0)
        argp_error(state, "--predict: it goes by --steps");
    if (trainer->save || trainer->load)
        argp_error(state, "--predict: neither --save nor --load goes with it");
    if (trainer->late)
        argp_error(state, "--predict: --no-overlap does not go with it, which measures both");
    if (strcmp(trainer->strategy, "allreduce") != 0)
        argp_error(state, "--predict: expected --strategy allreduce");
    trainer->tests = 0;
}

/* An option that the strategy has no use for. */
static void check_strategy(struct argp_state *state, const struct train_options *options)
{
    const struct trainer_options *trainer = &options->trainer;
    const struct strategy_ops *strategy = strategy_find(trainer->strategy);
    const bool narrows = !kernels_find(trainer->kernels)->wire_gradients;
    const unsigned wire = trainer->codec.ops ? STRATEGY_TAKES_CODEC
                          : narrows          ? STRATEGY_TAKES_NARROW
                                             : STRATEGY_TAKES_WIRE;
    if (options->wired && !(strategy->takes & wire))
        argp_error(state, "--wire %s: strategy %s has no use for it here",
                   precision_name(options->wire), strategy->name);
    const struct {
        const char *option;
        bool given, taken;
    } rows[] = {
        {"--on-failure shrink", trainer->shrinks, strategy->takes & STRATEGY_TAKES_SHRINK},
        {"--no-overlap", trainer->late, strategy->takes & STRATEGY_TAKES_OVERLAP},
        {"--buckets", options->bucketed, strategy->takes & STRATEGY_TAKES_BUCKETS},
        {"--compress", options->compress, strategy->takes & wire},
        {"--split", trainer->split, strategy->takes & STRATEGY_TAKES_SPLIT},
        {"--norm", options->normed, strategy->takes & STRATEGY_TAKES_SPLIT},
        {"--every", trainer->every > 0, strategy->takes & STRATEGY_TAKES_EVERY},
        {"--average-state", trainer->average_state, strategy->takes & STRATEGY_TAKES_EVERY},
        {"--own-seeds", trainer->own_seeds, strategy->takes & STRATEGY_TAKES_EVERY},
        {"--staleness", trainer->bounded, strategy->takes & STRATEGY_TAKES_STALENESS},
        {"--record", trainer->record, strategy->takes & STRATEGY_TAKES_STALENESS},
        {"--replay", trainer->replay, strategy->takes & STRATEGY_TAKES_STALENESS},
        {"--no-graph", trainer->no_graph, strategy->capturable},
        {"--seconds", trainer->seconds > 0, !strategy->sharded},
        {"--lars", trainer->optimizer.trust > 0, !strategy->sharded},
        {"--clip-norm", trainer->optimizer.clip > 0, !strategy->sharded},
        {"--precision fp16", trainer->compute.precision == PRECISION_FP16, !strategy->sharded},
        {"--deterministic without --record or --replay",
         trainer->compute.deterministic && !trainer->record && !trainer->replay,
         !strategy->sharded},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].given && !rows[i].taken)
            argp_error(state, "%s: strategy %s has no use for it", rows[i].option, strategy->name);
}

/* A network that is split over the ranks. */
static void check_parts(struct argp_state *state, struct train_options *options)
{
    struct trainer_options *trainer = &options->trainer;
    const char *option = trainer->split ? "--split" : "--norm";
    if (!options->normed)
        trainer->norm = trainer->split ? NORM_SAMPLE : NORM_LOCAL;
    if (!trainer->split && !options->normed)
        return;
    if (!trainer->split && trainer->norm != NORM_ALL)
        argp_error(state, "--norm %s: without --split each rank has its own images anyway",
                   norm_group_name(trainer->norm));
    if (options->normed && trainer->compute.frozen)
        argp_error(state, "--norm: with --freeze-norm there are no means to take");
    if (options->describe || options->profile)
        argp_error(state, "%s: neither --describe nor --profile goes with it", option);
    if (!kernels_find(trainer->kernels)->copy)
        argp_error(state, "%s: the %s kernels do not take it", option, trainer->kernels);
    if (trainer->shrinks)
        argp_error(state, "--on-failure shrink: %s needs all ranks", option);
}

/* What ends without training, and its options. */
static void check_modes(struct argp_state *state, struct train_options *options)
{
    const struct trainer_options *trainer = &options->trainer;
    check_predict(state, options);
    if (options->describe && (options->memory || options->profile || options->predict_count))
        argp_error(state, "--describe: neither --memory, --profile nor --predict goes with it");
    if (options->profile && (options->memory || options->stream))
        argp_error(state, "--profile: neither --memory nor --stream goes with it");
    if (options->profile && trainer->accumulate > 1)
        argp_error(state, "--accumulate: --profile is of one batch");
    if (trainer->shrinks &&
        (options->describe || options->profile || options->memory || options->predict_count))
        argp_error(state, "--on-failure: neither --describe, --memory, --profile nor --predict "
                          "goes on without a rank");
    if (trainer->shrinks && options->device != ALNICO_DEVICE_CPU)
        argp_error(state, "--on-failure shrink: expected --device cpu");
    if (options->log && (options->describe || options->profile || options->memory))
        argp_error(state, "--log: neither --describe, --memory nor --profile trains");
}

static void complete_batch(struct argp_state *state, struct train_options *options)
{
    struct trainer_options *trainer = &options->trainer;
    struct model model;
    if (!options->tile || !model_find(trainer->model, &model))
        return;
    const struct model_images *images = &model.images;
    trainer->batch = tile_batch(options->tile, images->height * images->width * images->channels);
    if (trainer->batch > BATCH_MOST)
        argp_error(state, "--batch linpack:%zu: a batch of %zu, expected at most %d", options->tile,
                   trainer->batch, BATCH_MOST);
}

/* The data, unless it is the model's own that is described. */
static void complete_data(struct argp_state *state, struct train_options *options)
{
    struct trainer_options *trainer = &options->trainer;
    struct model model;
    const bool found = model_find(trainer->model, &model), described = options->describe;
    if (!trainer->data && found && !described)
        trainer->data = model.data ? model.data : "fashion-mnist";
    const bool own = trainer->data && source_find(trainer->data)->own_classes;
    if (own && trainer->classes)
        argp_error(state, "--classes: --data %s has its own", trainer->data);
    if (!own && !trainer->classes && !described)
        trainer->classes = SOURCE_DEFAULT_CLASSES;
}

static void finish(struct argp_state *state, void *out)
{
    struct train_options *options = out;
    struct trainer_options *trainer = &options->trainer;
    train_preset_apply(options);
    complete_data(state, options);
    complete_batch(state, options);
    const int limits = (trainer->steps > 0) + (trainer->epochs > 0) + (trainer->seconds > 0);
    if (limits > 1)
        argp_error(state, "expected only one of --steps, --epochs and --seconds");
    if (trainer->save_every && !trainer->save)
        argp_error(state, "--save-every: expected --save FILE, too");
    if (trainer->validate_every && !trainer->tests)
        argp_error(state, "--validate-every: with --test-images 0 there is no test");
    if (limits == 0 && options->predict_count)
        trainer->steps = PREDICT_STEPS;
    else if (limits == 0)
        trainer->epochs = 1;
    check_modes(state, options);
    check_meaning(state, options);
    complete_kernels(state, options);
    check_parts(state, options);
    check_strategy(state, options);
    if (strategy_find(trainer->strategy)->takes & STRATEGY_TAKES_EVERY && !trainer->every)
        trainer->every = 1;
}

struct train_options train_options_parse(int argc, char **argv)
{
    static const struct option_table program = {.options = table,
                                                .about = about,
                                                .argument = refuse_argument,
                                                .finish = finish,
                                                .help = train_presets_help,
                                                .every_rank = true};
    struct train_options options = {.trainer = {.tests = 1 << 30,
                                                .optimizer = {.rate = -1,
                                                              .momentum = -1,
                                                              .beta1 = -1,
                                                              .beta2 = -1,
                                                              .epsilon = -1,
                                                              .decay = -1,
                                                              .warmup = -1,
                                                              .drops = {-1},
                                                              .trust = -1}}};
    options_read(&program, argc, argv, &options);
    return options;
}

size_t train_step_images(const struct train_options *options, int ranks)
{
    return options->trainer.batch * options->trainer.accumulate *
           trainer_image_parts(&options->trainer, ranks);
}

/* Of the optimizer's default rate, which the model has. */
static double rate_share(const struct train_options *options)
{
    const struct trainer_options *trainer = &options->trainer;
    struct model model;
    const bool scaled = optimizers_all[trainer->optimizer.kind]->images;
    return scaled && model_find(trainer->model, &model) && model.rate > 0 ? model.rate : 1;
}

void train_options_complete(struct train_options *options, int ranks)
{
    struct optimizer_options *o = &options->trainer.optimizer;
    const struct optimizer_options defaults =
        optimizer_defaults(o->kind, train_step_images(options, ranks));
    for (size_t i = 0; i < OWN_OPTIONS; i++)
        if (own_option(o, i) < 0)
            *(double *)((char *)o + own_options[i].at) = own_option(&defaults, i);
    o->rate = o->rate < 0 ? defaults.rate * rate_share(options) : o->rate;
    o->decay = o->decay < 0 ? defaults.decay : o->decay;
    o->warmup = o->warmup < 0 ? defaults.warmup : o->warmup;
    if (o->drops[0] < 0)
        memcpy(o->drops, defaults.drops, sizeof o->drops);
}

const char *train_options_differ(const struct train_options *options)
{
    return options_differ(table, options);
}

cJSON *train_options_json(const struct train_options *options)
{
    static const char *const rules[] = {"size", "count", "planned"};
    const struct trainer_options *trainer = &options->trainer;
    const struct kernels_options *compute = &trainer->compute;
    const bool cuda = options->device == ALNICO_DEVICE_CUDA;
    cJSON *object = cJSON_CreateObject();
    options_json(table, options, object);
    json_add(object, "tf32 %hhd",
             cuda && compute->precision == PRECISION_FP32 && !compute->full_float);
    if (compute->precision == PRECISION_FP16)
        json_add(object, "loss_scale %g", compute->loss_scale);
    json_add(object, "graph %hhd bucket_rule %s buckets %zu overlap %hhd",
             cuda && !trainer->no_graph, rules[trainer->rule], trainer->buckets, !trainer->late);
    if (trainer->bounded)
        json_add(object, "staleness %zu", trainer->staleness);
    for (size_t i = 0; i < OWN_OPTIONS; i++)
        if (own_options[i].key && optimizers_all[trainer->optimizer.kind]->has & own_options[i].bit)
            cJSON_AddNumberToObject(object, own_options[i].key, own_option(&trainer->optimizer, i));
    if (trainer->optimizer.schedule == SCHEDULE_DROPS)
        cJSON_AddItemToObject(object, "drops",
                              cJSON_CreateDoubleArray(trainer->optimizer.drops, OPTIMIZER_DROPS));
    return object;
}
