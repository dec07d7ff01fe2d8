/* What a run refuses before anything is made: options by themselves, and ranks that were given
 * different ones or find different images. See trainer/state.h. */
#include "train/trainer/state.h"

#include "base/status.h"
#include "train/models/models.h"

#include <string.h>

static alnico_status_t name_check(const char *what, const char *name, bool found)
{
    if (found)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT, "trainer: %s '%s' is not known", what, name);
}

/* Refuses what cannot be where ranks update parts of the parameters, and share steps. */
static alnico_status_t sharded_check(const struct trainer_options *options)
{
    const struct {
        const char *what;
        bool given;
    } rows[] = {
        {"a time limit", options->seconds > 0},
        {"LARS", options->optimizer.trust > 0},
        {"clipping", options->optimizer.clip > 0},
        {"fp16", options->compute.precision == PRECISION_FP16},
        {"the same bits in every run, but by an interleaving,",
         options->compute.deterministic && !options->record && !options->replay},
    };
    if (!strategy_find(options->strategy)->sharded)
        return ALNICO_SUCCESS;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].given)
            return error_set(ALNICO_ERROR_ARGUMENT, "trainer: %s which strategy %s does not take",
                             rows[i].what, options->strategy);
    return ALNICO_SUCCESS;
}

/* Refuses what the strategy does not take. */
static alnico_status_t strategy_check(const struct trainer_options *options)
{
    const unsigned takes = strategy_find(options->strategy)->takes;
    const bool narrows =
        options->wire != ALNICO_FLOAT32 && !kernels_find(options->kernels)->wire_gradients;
    const struct {
        const char *what;
        bool given;
        unsigned bit;
    } rows[] = {
        {"a wire type other than float32", options->wire != ALNICO_FLOAT32, STRATEGY_TAKES_WIRE},
        {"a wire type other than the gradients'", narrows, STRATEGY_TAKES_NARROW},
        {"gradients sent late", options->late, STRATEGY_TAKES_OVERLAP},
        {"a bound on the staleness", options->bounded, STRATEGY_TAKES_STALENESS},
        {"an interleaving", options->record || options->replay, STRATEGY_TAKES_STALENESS},
        {"a codec", codec_encodes(&options->codec), STRATEGY_TAKES_CODEC},
        {"steps between averages", options->every > 0, STRATEGY_TAKES_EVERY},
        {"averages of states", options->average_state, STRATEGY_TAKES_EVERY},
        {"own seeds", options->own_seeds, STRATEGY_TAKES_EVERY},
        {"buckets", options->buckets > 0, STRATEGY_TAKES_BUCKETS},
        {"a split network", trainer_splits(options), STRATEGY_TAKES_SPLIT},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].given && !(takes & rows[i].bit))
            return error_set(ALNICO_ERROR_ARGUMENT, "trainer: %s, which strategy %s does not take",
                             rows[i].what, options->strategy);
    if (takes & STRATEGY_TAKES_EVERY && !options->every)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "trainer: averages every 0 steps, expected 1 or more");
    return sharded_check(options);
}

static alnico_status_t codec_check(const struct trainer_options *options)
{
    const struct codec *codec = &options->codec;
    if (codec_encodes(codec) && options->wire != ALNICO_FLOAT32)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "trainer: codec %s with a wire type of 16 bits, expected float32",
                         codec->ops->name);
    if (!codec_encodes(codec) || !codec->ops->shares || (codec->share > 0 && codec->share <= 1))
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT,
                     "trainer: codec %s with a share of %g, expected above 0 and up to 1",
                     codec->ops->name, codec->share);
}

alnico_status_t trainer_check(const struct trainer_options *options)
{
    const int limits = (options->steps > 0) + (options->epochs > 0) + (options->seconds > 0);
    if (options->save_every && !options->save)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "trainer: save every %zu steps, but no file to save to",
                         options->save_every);
    if (options->validate_every && !options->tests)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "trainer: a test every %zu steps, but no test images",
                         options->validate_every);
    struct model model;
    TRY(name_check("model", options->model, model_find(options->model, &model)));
    TRY(name_check("kernels", options->kernels, kernels_find(options->kernels) != NULL));
    TRY(name_check("strategy", options->strategy, strategy_find(options->strategy) != NULL));
    TRY(optimizer_check(&options->optimizer));
    TRY(strategy_check(options));
    TRY(codec_check(options));
    if (trainer_splits(options) && options->shrinks)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "trainer: a split network needs all ranks, and none to go on without");
    if (options->compute.deterministic && options->rule == BUCKETS_PLANNED)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "trainer: planned buckets, which go by measured times, in a deterministic "
                         "run, expected a size or a number");
    if (options->shrinks && kernels_find(options->kernels)->device != ALNICO_DEVICE_CPU)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "trainer: going on without lost ranks by %s kernels, expected the CPU's",
                         options->kernels);
    if (options->shrinks && (!(strategy_find(options->strategy)->takes & STRATEGY_TAKES_SHRINK) ||
                             (options->codec.ops && options->codec.ops->residual)))
        return error_set(
            ALNICO_ERROR_ARGUMENT,
            "trainer: going on without lost ranks by strategy %s%s, expected allreduce or weights "
            "and no codec with residuals: each rank has all of the state there",
            options->strategy, options->codec.ops ? " and a codec" : "");
    if (!options->batch)
        return error_set(ALNICO_ERROR_ARGUMENT, "trainer: batch 0, expected at least 1");
    if (limits != 1 || !(options->seconds >= 0))
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "trainer: %zu steps, %zu epochs, %g seconds, expected exactly one of them "
                         "above 0",
                         options->steps, options->epochs, options->seconds);
    return ALNICO_SUCCESS;
}

static uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static uint64_t name_bits(const char *name)
{
    return name ? trainer_hash(name, strlen(name)) : 0;
}

/* Every option's bits are compared by their minimum and maximum. */
alnico_status_t trainer_options_agree(struct trainer *trainer)
{
    const struct trainer_options *o = trainer->options;
    const struct optimizer_options *optimizer = &o->optimizer;
    const struct {
        const char *name;
        uint64_t bits;
    } rows[] = {
        {"model", name_bits(o->model)},
        {"data", name_bits(o->data)},
        {"kernels", name_bits(o->kernels)},
        {"strategy", name_bits(o->strategy)},
        {"split", name_bits(o->split)},
        {"ranks of batch norms", o->norm},
        {"batch", o->batch},
        {"batches a step", trainer_passes(o)},
        {"steps", o->steps},
        {"epochs", o->epochs},
        {"seconds", bits_of(o->seconds)},
        {"classes", o->classes},
        {"augmentation", o->augment},
        {"images that may be bad", o->skip_bad},
        {"blocks of the shuffle", o->shuffle_block},
        {"test images", o->tests},
        {"steps between tests", o->validate_every},
        {"stopping", o->stop != NULL},
        {"going on without lost ranks", o->shrinks},
        {"seed", o->seed},
        {"precision", o->compute.precision},
        {"label smoothing", bits_of((double)o->compute.smoothing)},
        {"frozen norms", o->compute.frozen},
        {"deterministic engines", o->compute.deterministic},
        {"TF32", o->compute.full_float},
        {"graphs", o->no_graph},
        {"pageable input", o->pageable},
        {"loss scale", bits_of((double)o->compute.loss_scale)},
        {"optimizer", optimizer->kind},
        {"learning rate", bits_of(optimizer->rate)},
        {"momentum", bits_of(optimizer->momentum)},
        {"beta1", bits_of(optimizer->beta1)},
        {"beta2", bits_of(optimizer->beta2)},
        {"epsilon", bits_of(optimizer->epsilon)},
        {"weight decay", bits_of(optimizer->decay)},
        {"clip norm", bits_of(optimizer->clip)},
        {"warm-up", bits_of(optimizer->warmup)},
        {"schedule", optimizer->schedule},
        {"first drop", bits_of(optimizer->drops[0])},
        {"second drop", bits_of(optimizer->drops[1])},
        {"third drop", bits_of(optimizer->drops[2])},
        {"LARS trust", bits_of(optimizer->trust)},
        {"wire type", (uint64_t)o->wire},
        {"codec", name_bits(o->codec.ops ? o->codec.ops->name : NULL)},
        {"share of the codec", bits_of(o->codec.share)},
        {"rule of buckets", o->rule},
        {"buckets", o->buckets},
        {"overlap", o->late},
        {"a bound on the staleness", o->bounded},
        {"staleness", o->staleness},
        {"interleaving to record", name_bits(o->record)},
        {"interleaving to replay", name_bits(o->replay)},
        {"steps between averages", o->every},
        {"averages of states", o->average_state},
        {"own seeds", o->own_seeds},
        {"checkpoint to load", name_bits(o->load)},
        {"checkpoint to save", name_bits(o->save)},
        {"steps between checkpoints", o->save_every},
    };
    enum { ROWS = sizeof rows / sizeof *rows };
    uint64_t least[ROWS], most[ROWS];
    for (size_t i = 0; i < ROWS; i++)
        least[i] = most[i] = rows[i].bits;
    if (!trainer->place.host)
        return ALNICO_SUCCESS;
    TRY(alnico_allreduce(ALNICO_IN_PLACE, least, ROWS, ALNICO_UINT64, ALNICO_MINIMUM,
                         trainer->place.host));
    TRY(alnico_allreduce(ALNICO_IN_PLACE, most, ROWS, ALNICO_UINT64, ALNICO_MAXIMUM,
                         trainer->place.host));
    for (size_t i = 0; i < ROWS; i++)
        if (least[i] != most[i])
            return error_set(ALNICO_ERROR_MISMATCH, "trainer: the ranks disagree on: %s",
                             rows[i].name);
    return ALNICO_SUCCESS;
}

alnico_status_t trainer_data_agree(struct trainer *trainer)
{
    const struct data_info none = {0}, *train = data_info(trainer->train),
                           *test = trainer->test ? data_info(trainer->test) : &none;
    const double all[] = {(double)train->images, (double)test->images,    (double)train->height,
                          (double)train->width,  (double)train->channels, (double)train->classes,
                          (double)train->labels, (double)train->type,     train->mean,
                          train->deviation};
    enum { COUNT = sizeof all / sizeof *all };
    double least[COUNT], most[COUNT];
    memcpy(least, all, sizeof all);
    memcpy(most, all, sizeof all);
    TRY(trainer_allreduce(trainer, least, COUNT, ALNICO_MINIMUM));
    TRY(trainer_allreduce(trainer, most, COUNT, ALNICO_MAXIMUM));
    if (memcmp(least, most, sizeof all) == 0)
        return ALNICO_SUCCESS;
    return error_set(
        ALNICO_ERROR_MISMATCH,
        "trainer: the ranks find different images in '%s': here %zu and %zu of a test, "
        "of %zu classes, mean %g",
        trainer->options->data, train->images, test->images, train->classes, train->mean);
}
