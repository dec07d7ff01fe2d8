/* Making and ending what a run needs. See trainer_state.h. */
#include "trainer_state.h"

#include "models/models.h"
#include "status.h"

#include <stdlib.h>

/* A stream that runs by itself is looked at whenever so many steps were enqueued. */
enum { INTERVAL = 8 };

static alnico_status_t name_check(const char *what, const char *name, const void *found)
{
    if (found)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT, "trainer: %s '%s' is not known", what, name);
}

static alnico_status_t options_check(const struct trainer_options *options)
{
    const int limits = (options->steps > 0) + (options->epochs > 0) + (options->seconds > 0);
    if (options->save_every && !options->save)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "trainer: save every %zu steps, but no file to save to",
                         options->save_every);
    TRY(name_check("model", options->model, model_find(options->model)));
    TRY(name_check("kernels", options->kernels, kernels_find(options->kernels)));
    TRY(name_check("strategy", options->strategy, strategy_find(options->strategy)));
    if (!options->batch)
        return error_set(ALNICO_ERROR_ARGUMENT, "trainer: batch 0, expected at least 1");
    if (limits != 1 || !(options->seconds >= 0))
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "trainer: %zu steps, %zu epochs, %g seconds, expected exactly one of them "
                         "above 0",
                         options->steps, options->epochs, options->seconds);
    return ALNICO_SUCCESS;
}

/* All test images, or as many as were asked for; the data set goes on where it was at the next test. */
static size_t test_batches(const struct trainer *trainer)
{
    const size_t joined = trainer->options->batch * (size_t)trainer->size;
    if (!trainer->test)
        return 0;
    const size_t all = data_batches(trainer->test),
                 wanted = (trainer->options->tests + joined - 1) / joined;
    return wanted < all ? wanted : all;
}

alnico_status_t trainer_data(struct trainer *trainer)
{
    const struct trainer_options *options = trainer->options;
    struct data_options data = {.source = options->data,
                                .batch = options->batch,
                                .classes = options->classes,
                                .rank = trainer->rank,
                                .size = trainer->size,
                                .seed = options->seed,
                                .train = true,
                                .first = trainer->step};
    TRY(data_open(&data, &trainer->train));
    data.train = false;
    data.first = trainer->tests * trainer->test_batches;
    if (options->tests)
        TRY(data_open(&data, &trainer->test));
    trainer->per_epoch = data_batches(trainer->train);
    trainer->test_batches = test_batches(trainer);
    if (trainer->per_epoch)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT,
                     "trainer: batch %zu on %d ranks, but '%s' has only %zu images", options->batch,
                     trainer->size, options->data, data_info(trainer->train)->images);
}

static alnico_status_t trainer_meeting(struct trainer *trainer)
{
    const struct trainer_options *options = trainer->options;
    const struct replica *replica = trainer->replica;
    TRY(trainer_buckets(trainer));
    const struct strategy_setup setup = {.comm = trainer->place.device,
                                         .device = replica->device,
                                         .stream = trainer->place.stream,
                                         .gradients = replica->arenas.gradients,
                                         .count = trainer->network->parameters,
                                         .type = replica->setup.gradient_type,
                                         .wire = options->wire,
                                         .ends = trainer->buckets.ends,
                                         .buckets = trainer->buckets.count,
                                         .late = options->late};
    return trainer->strategy->create(&setup, &trainer->meeting);
}

static alnico_status_t trainer_replica(struct trainer *trainer)
{
    const struct trainer_options *options = trainer->options;
    const struct kernels_ops *kernels = kernels_find(options->kernels);
    const struct replica_setup setup = {.kernels = kernels,
                                        .batch = options->batch,
                                        .seed = options->seed,
                                        .options = options->compute,
                                        .gradient_type = kernels->wire_gradients ? options->wire
                                                                                 : ALNICO_FLOAT32,
                                        .stream = trainer->place.stream,
                                        .memory_limit = options->memory_limit};
    TRY(replica_create(trainer->network, &setup, &trainer->replica));
    return meter_create(trainer->replica, INTERVAL, &trainer->meter);
}

static size_t steps_to_do(const struct trainer *trainer)
{
    const struct trainer_options *options = trainer->options;
    if (options->steps)
        return options->steps;
    const bool countable = options->epochs && options->epochs <= SIZE_MAX / trainer->per_epoch;
    return countable ? options->epochs * trainer->per_epoch : SIZE_MAX;
}

alnico_status_t trainer_open(struct trainer *trainer)
{
    const struct trainer_options *options = trainer->options;
    TRY(options_check(options));
    TRY(trainer_data(trainer));
    const struct data_info *info = data_info(trainer->train);
    TRY(model_network(model_find(options->model), info->height, info->width, info->channels,
                      info->classes, &trainer->network));
    TRY(optimizer_check(&options->optimizer));
    TRY(trainer_replica(trainer));
    trainer->strategy = strategy_find(options->strategy);
    TRY(trainer_meeting(trainer));
    trainer->other_library = trainer_library(trainer);
    trainer->steps = steps_to_do(trainer);
    if (!options->load)
        return ALNICO_SUCCESS;
    TRY(trainer_load(trainer));
    if (trainer->step < trainer->steps)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT,
                     "checkpoint %s: it has done %zu steps already, and the run has %zu",
                     options->load, trainer->step, trainer->steps);
}

void trainer_close(struct trainer *trainer)
{
    if (trainer->replica)
        replica_synchronize(trainer->replica);
    if (trainer->strategy)
        trainer->strategy->destroy(trainer->meeting);
    meter_destroy(trainer->meter);
    replica_destroy(trainer->replica);
    network_destroy(trainer->network);
    data_close(trainer->train);
    data_close(trainer->test);
    buckets_free(&trainer->buckets);
    free(trainer->lasted);
}
