/* Making and ending what a run needs. See trainer/state.h. */
#include "train/trainer/state.h"

#include "base/status.h"
#include "train/models/models.h"
#include "train/trainer/checkpoint_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A stream that runs by itself is looked at whenever so many steps were enqueued: round numbers of
 * steps end with one. */
enum { INTERVAL = 10 };

/* All test images, or as many as were asked for; the data set goes on where it was at the next
 * test. */
static size_t test_batches(const struct trainer *trainer)
{
    const size_t joined = trainer->options->batch * (size_t)trainer->image_parts;
    if (!trainer->test)
        return 0;
    const size_t all = data_batches(trainer->test),
                 wanted = (trainer->options->tests + joined - 1) / joined;
    return wanted < all ? wanted : all;
}

bool trainer_uploads_once(const struct trainer_options *options)
{
    const struct source_ops *source = source_find(options->data);
    return source && source->repeats && kernels_find(options->kernels)->device != ALNICO_DEVICE_CPU;
}

/* Of training, over all epochs: where the step to come begins in its epoch. */
static size_t first_batch(const struct trainer *trainer)
{
    const size_t epoch = trainer->per_epoch ? trainer->step / trainer->per_epoch : 0;
    return trainer_uploads_once(trainer->options)
               ? trainer->tests
               : epoch * trainer->epoch_batches +
                     (trainer->step - epoch * trainer->per_epoch) * trainer->passes;
}

/* Whether batches are copied beside computing. */
static bool input_ahead(const struct trainer_options *options)
{
    return !options->pageable && !trainer_uploads_once(options);
}

/* Of a rank's training part, from its first batch on. Kernels that load normalise levels, but of whole
 * images only. */
static struct data_options data_options_of(const struct trainer_options *options, int rank,
                                           int ranks)
{
    const struct kernels_ops *kernels = kernels_find(options->kernels);
    return (struct data_options){
        .source = options->data,
        .batch = options->batch,
        .classes = options->classes,
        .rank = rank,
        .size = ranks,
        .seed = options->seed,
        .train = true,
        .augment = options->augment,
        .skip_bad = options->skip_bad,
        .shuffle_block = options->shuffle_block,
        .multiple = strategy_find(options->strategy)->share ? 1 : trainer_passes(options),
        .levels = kernels->load && !trainer_splits(options),
        .loaders = options->loaders,
        .prefetch = options->prefetch,
        .held = REPLICA_BUFFERS,
        .device = input_ahead(options) ? device_find(kernels->device) : NULL};
}

alnico_status_t trainer_data(struct trainer *trainer)
{
    const struct trainer_options *options = trainer->options;
    struct data_options data = data_options_of(options, trainer->image_part, trainer->image_parts);
    data.first = first_batch(trainer);
    TRY(data_open(&data, &trainer->train));
    data.train = false;
    data.first = trainer->tests * trainer->test_batches;
    if (options->tests)
        TRY(data_open(&data, &trainer->test));
    trainer->epoch_batches = data_batches(trainer->train);
    trainer->per_epoch = trainer->epoch_batches / trainer->passes;
    trainer->test_batches = test_batches(trainer);
    if (trainer->per_epoch)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT,
                     "trainer: batch %zu, %zu a step, on %d ranks, but '%s' has only %zu images",
                     options->batch, trainer->passes, trainer->size, options->data,
                     data_info(trainer->train)->images);
}

static alnico_status_t call_update(void *context)
{
    struct trainer *trainer = context;
    return replica_update(trainer->replica, &trainer->options->optimizer);
}

static alnico_status_t call_average(void *context, const struct gradient_blocks *others)
{
    return replica_average(((struct trainer *)context)->replica, others);
}

static alnico_status_t call_divide(void *context, const struct division *division)
{
    return replica_divide(((struct trainer *)context)->replica, division);
}

static alnico_status_t call_loaded(void *context)
{
    const struct replica *replica = ((struct trainer *)context)->replica;
    return replica->ops->loaded ? replica->ops->loaded(replica->kernels) : ALNICO_SUCCESS;
}

/* Single-threaded: a server's updates run beside a worker that computes. */
static alnico_status_t call_update_range(void *context, const struct strategy_range *range)
{
    const struct trainer *trainer = context;
    const struct parameter only = {.offset = range->begin, .count = range->count};
    const struct optimizer_update update = {.network = trainer->network,
                                            .options = &trainer->options->optimizer,
                                            .rate = range->rate,
                                            .updates = (double)range->updates,
                                            .threads = 1,
                                            .parameters = range->parameters,
                                            .states = range->states,
                                            .gradients = range->gradients,
                                            .only = &only};
    if (optimizer_update(&update))
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_SYSTEM,
                     "trainer: after an update with a learning rate of %g a parameter is not a "
                     "number; a lower one may help",
                     (double)range->rate);
}

static struct strategy_pace call_pace(void *context)
{
    const struct trainer *trainer = context;
    const atomic_bool *stop = trainer->options->stop;
    return (struct strategy_pace){
        .step = trainer->step, .until = trainer_until(trainer), .stop = stop && atomic_load(stop)};
}

static alnico_status_t call_mark(void *context, enum phase ended)
{
    return phase_timer_mark(((struct trainer *)context)->timer, ended);
}

alnico_status_t trainer_strategy(struct trainer *trainer)
{
    const struct trainer_options *options = trainer->options;
    const struct replica *replica = trainer->replica;
    const struct strategy_setup setup = {
        .comm = trainer->place.device,
        .host = trainer->place.host,
        .device = replica->device,
        .stream = trainer->place.stream,
        .arenas = &replica->arenas,
        .count = trainer->network->shared,
        .states = optimizers_all[options->optimizer.kind]->states,
        .statistics = trainer->network->statistics,
        .type = replica->setup.gradient_type,
        .wire = options->wire,
        .codec = options->codec,
        .ends = trainer->buckets.ends,
        .buckets = trainer->buckets.count,
        .late = options->late,
        .staleness = options->bounded ? options->staleness : SIZE_MAX,
        .record = options->record,
        .replay = options->replay,
        .every = options->every,
        .average_state = options->average_state,
        .scaled = options->compute.precision == PRECISION_FP16 && options->compute.loss_scale <= 0,
        .calls = {.context = trainer,
                  .update = call_update,
                  .average = call_average,
                  .divide = call_divide,
                  .loaded = call_loaded,
                  .mark = call_mark,
                  .update_range = call_update_range,
                  .pace = call_pace}};
    return trainer->strategy->create(&setup, &trainer->strategy_self);
}

struct replica_setup trainer_setup(const struct trainer_options *options, const struct data *images,
                                   int rank, int ranks)
{
    const struct kernels_ops *kernels = kernels_find(options->kernels);
    const struct strategy_ops *strategy = strategy_find(options->strategy);
    const struct data_options data = data_options_of(options, rank, ranks);
    struct replica_setup setup = {.kernels = kernels,
                                  .levels = data_levels(images),
                                  .batch = options->batch,
                                  .seed = options->seed + (options->own_seeds ? (uint64_t)rank : 0),
                                  .sums = trainer_passes(options) > 1,
                                  .ahead = input_ahead(options),
                                  .options = options->compute,
                                  .gradient_type =
                                      kernels->wire_gradients ? options->wire : ALNICO_FLOAT32,
                                  .optimizer = options->optimizer.kind,
                                  .memory_limit = options->memory_limit};
    setup.options.seed = options->seed;
    if (kernels->device == ALNICO_DEVICE_CPU) /* the batches of both parts of the data */
        setup.extras.batches = data_slots(&data) * (options->tests ? 2 : 1);
    if (strategy->bytes && (kernels->device == ALNICO_DEVICE_CPU || !strategy->sharded))
        setup.extras.gradients = strategy->bytes(setup.gradient_type, options->wire, rank, ranks);
    setup.extras.gradients += codec_held(&options->codec, ranks);
    return setup;
}

static alnico_status_t trainer_replica(struct trainer *trainer)
{
    struct replica_setup setup =
        trainer_setup(trainer->options, trainer->train, trainer->rank, trainer->size);
    setup.stream = trainer->place.stream;
    setup.late = trainer->options->late;
    if (trainer->whole)
        setup.batch *= (size_t)trainer->image_parts;
    TRY(replica_create(trainer->network, &setup, &trainer->replica));
    trainer->replica->wait.watched = trainer->place.device;
    trainer->replica->wait.status = alnico_comm_status;
    return phase_timer_create(trainer->replica, INTERVAL, trainer->passes, &trainer->timer);
}

/* Whether the data are what the model takes. */
static alnico_status_t images_check(const struct model *model, const struct data_info *info,
                                    const char *data)
{
    const struct model_images *wanted = &model->images;
    if (!model->fixed || (info->height == wanted->height && info->width == wanted->width &&
                          info->channels == wanted->channels))
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT,
                     "trainer: model %s takes images of %zux%zux%zu, but those of '%s' are "
                     "%zux%zux%zu",
                     model->name, wanted->height, wanted->width, wanted->channels, data,
                     info->height, info->width, info->channels);
}

/* Whether the network takes the labels, which are unknown if there are 0, and their smoothing. */
static alnico_status_t labels_check(const struct trainer_options *options,
                                    const struct data_info *info, const struct network *network)
{
    const struct operation *loss = &network->nodes[network->count - 1].operation;
    if (info->labels && info->labels != network->labels)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "trainer: model %s takes %zu labels an image, but '%s' has %zu",
                         options->model, network->labels, options->data, info->labels);
    if (options->compute.smoothing <= 0 || loss->kind == OPERATION_CROSS_ENTROPY)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT,
                     "trainer: label smoothing, which the %s of model %s does not take",
                     operation_kind_name(loss->kind), options->model);
}

alnico_status_t trainer_network(const struct trainer_options *options, const struct data_info *info,
                                struct network **out)
{
    struct model model;
    *out = NULL;
    model_find(options->model, &model);
    TRY(images_check(&model, info, options->data));
    TRY(model_network(&model, info->height, info->width, info->channels, info->classes, out));
    return labels_check(options, info, *out);
}

static size_t steps_to_do(const struct trainer *trainer)
{
    const struct trainer_options *options = trainer->options;
    if (options->steps) /* of the first ranks' images */
        return (size_t)llround((double)options->steps * trainer->begun / trainer->size);
    const bool countable = options->epochs && options->epochs <= SIZE_MAX / trainer->per_epoch;
    return countable ? options->epochs * trainer->per_epoch : SIZE_MAX;
}

/* Ranks that have parts of the same images stand side by side. */
static void images_share(struct trainer *trainer)
{
    const int parts = (int)trainer_image_parts(trainer->options, trainer->part_count);
    if (trainer->part_count % parts)
        return; /* the network will not be split either */
    trainer->image_parts = parts;
    trainer->image_part = trainer->part / (trainer->part_count / parts);
}

/* The part of opening that each rank does by itself. */
static alnico_status_t trainer_prepare(struct trainer *trainer)
{
    const struct trainer_options *options = trainer->options;
    TRY(trainer_check(options));
    trainer->passes = trainer_passes(options);
    trainer->graphs = calloc(2 * trainer->passes, sizeof(struct device_graph *));
    if (!trainer->graphs)
        return error_set(ALNICO_ERROR_MEMORY, "trainer: no memory");
    if (options->save && trainer->rank == 0)
        TRY(checkpoint_try(options->save));
    if (trainer_splits(options))
        images_share(trainer);
    TRY(trainer_data(trainer));
    TRY(trainer_splits(options)
            ? trainer_split(trainer)
            : trainer_network(options, data_info(trainer->train), &trainer->network));
    return trainer_replica(trainer);
}

/* Given what it came to on this rank: goes on if it succeeded on all. */
static alnico_status_t ranks_go_on(struct trainer *trainer, alnico_status_t status)
{
    char detail[512];
    double failed = status == ALNICO_SUCCESS ? 0 : trainer->size - trainer->rank;
    snprintf(detail, sizeof detail, "%s", alnico_error_detail());
    const alnico_status_t shared = trainer_allreduce(trainer, &failed, 1, ALNICO_MAXIMUM);
    if (status != ALNICO_SUCCESS)
        return error_set(status, "%s", detail);
    TRY(shared);
    if (failed > 0)
        return error_set(ALNICO_ERROR_ABORTED, "trainer: rank %d failed",
                         trainer->size - (int)failed);
    return ALNICO_SUCCESS;
}

alnico_status_t trainer_open(struct trainer *trainer)
{
    const struct trainer_options *options = trainer->options;
    TRY(trainer_options_agree(trainer));
    TRY(ranks_go_on(trainer, trainer_prepare(trainer)));
    TRY(trainer_data_agree(trainer));
    TRY(trainer_meet(trainer));
    trainer->strategy = strategy_find(options->strategy);
    TRY(trainer_buckets(trainer));
    TRY(trainer_accumulation(trainer));
    TRY(trainer_strategy(trainer));
    trainer->other_library = trainer_library(trainer);
    trainer->steps = steps_to_do(trainer);
    TRY(trainer_rehearse(trainer));
    if (!options->load || trainer->shrunk)
        return ALNICO_SUCCESS;
    TRY(ranks_go_on(trainer, trainer_load(trainer)));
    if (trainer->step < trainer->steps)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT,
                     "checkpoint %s: it has done %zu steps already, and the run has %zu",
                     options->load, trainer->step, trainer->steps);
}

void trainer_close(struct trainer *trainer)
{
    if (trainer->replica)
        trainer->replica->device->stream_synchronize(trainer->replica->stream);
    for (size_t i = 0; trainer->graphs && i < 2 * trainer->passes; i++) /* the stream is idle */
        if (trainer->graphs[i])
            trainer->replica->device->graph_destroy(trainer->graphs[i]);
    free(trainer->graphs);
    free(trainer->parts);
    if (trainer->strategy)
        trainer->strategy->destroy(trainer->strategy_self);
    phase_timer_destroy(trainer->timer);
    replica_destroy(trainer->replica);
    network_destroy(trainer->network);
    network_destroy(trainer->whole);
    alnico_comm_destroy(trainer->norms);
    alnico_comm_destroy(trainer->moves);
    data_close(trainer->train);
    data_close(trainer->test);
    buckets_free(&trainer->buckets);
    free(trainer->step_seconds);
    trainer_forget(trainer);
}

/* The part of the rank that needs the most memory. */
static alnico_status_t part_choose(const struct trainer_options *options, int ranks,
                                   const struct replica_setup *setup, struct trainer_needs *out)
{
    struct replica_memory memory;
    size_t most = 0;
    for (int rank = 0; rank < ranks; rank++) {
        struct network *part;
        TRY(trainer_part(options, out->whole, rank, ranks, &part));
        const alnico_status_t status = replica_measure(part, setup, &memory);
        const bool more = status == ALNICO_SUCCESS && memory.total > most;
        network_destroy(more ? out->network : part);
        TRY(status);
        most = more ? memory.total : most;
        out->network = more ? part : out->network;
    }
    return ALNICO_SUCCESS;
}

static alnico_status_t needs_fill(const struct trainer_options *options, int ranks,
                                  const struct data *data, struct trainer_needs *out)
{
    struct replica_setup setup = trainer_setup(options, data, 0, ranks);
    const struct device_ops *device = device_find(setup.kernels->device);
    const bool splits = trainer_splits(options);
    const size_t parts = splits ? trainer_image_parts(options, ranks) : 1;
    size_t total;
    setup.batch *= parts;
    TRY(trainer_network(options, data_info(data), splits ? &out->whole : &out->network));
    if (splits)
        TRY(part_choose(options, ranks, &setup, out));
    TRY(plan_create(out->network, &setup.kernels->rules, setup.batch, setup.options.precision,
                    &out->plan));
    TRY(replica_measure(out->network, &setup, &out->memory));
    out->available = options->memory_limit;
    if (!out->available && device && device->memory)
        TRY(device->memory(&out->available, &total));
    if (out->available)
        TRY(replica_largest(out->network, &setup, out->available, &out->largest));
    out->largest /= parts;
    return ALNICO_SUCCESS;
}

alnico_status_t trainer_data_alone(const struct trainer_options *options, size_t batch,
                                   struct data **out)
{
    struct data_options wanted;
    TRY(trainer_check(options));
    wanted = data_options_of(options, 0, 1);
    wanted.batch = batch;
    wanted.loaders = 0;
    return data_open(&wanted, out);
}

alnico_status_t trainer_measure(const struct trainer_options *options, int ranks,
                                struct trainer_needs *out)
{
    struct data *data;
    *out = (struct trainer_needs){0};
    TRY(trainer_data_alone(options, 1, &data));
    const alnico_status_t status = needs_fill(options, ranks, data, out);
    data_close(data);
    return status;
}

void trainer_needs_free(struct trainer_needs *needs)
{
    plan_destroy(needs->plan);
    network_destroy(needs->network);
    network_destroy(needs->whole);
    *needs = (struct trainer_needs){0};
}
