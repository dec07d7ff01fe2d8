/* A run's state to a checkpoint and back. See trainer/state.h. */
#include "train/trainer/state.h"

#include "base/status.h"
#include "train/trainer/checkpoint_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct checkpoint_run run_describe(const struct trainer *trainer)
{
    const struct trainer_options *options = trainer->options;
    const struct data_info *info = data_info(trainer->train);
    struct checkpoint_run run = {.height = info->height,
                                 .width = info->width,
                                 .channels = info->channels,
                                 .classes = info->classes,
                                 .batch = options->batch,
                                 .ranks = (uint64_t)trainer->size,
                                 .seed = options->seed,
                                 .precision = options->compute.precision,
                                 .layout = network_layout(trainer->network)};
    snprintf(run.model, sizeof run.model, "%s", options->model);
    snprintf(run.data, sizeof run.data, "%s", options->data);
    return run;
}

/* Every rank's running statistics, one after the other: each adds its own to zeros. */
static alnico_status_t statistics_gather(struct trainer *trainer, float *all)
{
    const size_t each = trainer->network->statistics, count = each * (size_t)trainer->size;
    memset(all, 0, count * sizeof *all);
    TRY(replica_read(trainer->replica, trainer->replica->arenas.statistics,
                     all + each * (size_t)trainer->rank, each * sizeof *all));
    if (!trainer->place.host || !count)
        return ALNICO_SUCCESS;
    return alnico_allreduce(ALNICO_IN_PLACE, all, count, ALNICO_FLOAT32, ALNICO_SUM,
                            trainer->place.host);
}

static alnico_status_t state_read(struct trainer *trainer, struct checkpoint *checkpoint)
{
    struct replica *replica = trainer->replica;
    const size_t count = trainer->network->parameters, bytes = count * sizeof(float);
    _Static_assert((int)CONTROLS <= (int)CHECKPOINT_WORDS, "all control words have room");
    TRY(replica_read(replica, replica->arenas.parameters, checkpoint->values, bytes));
    TRY(replica_read(replica, replica->arenas.states[0], checkpoint->values + count, bytes));
    TRY(replica_read(replica, replica->arenas.control, checkpoint->words,
                     CONTROLS * sizeof(float)));
    return statistics_gather(trainer, checkpoint->values + 2 * count);
}

alnico_status_t trainer_save(struct trainer *trainer)
{
    struct checkpoint checkpoint = {.run = run_describe(trainer),
                                    .parameters = trainer->network->parameters,
                                    .statistics = trainer->network->statistics,
                                    .step = trainer->step,
                                    .tests = trainer->tests};
    checkpoint.values = malloc((checkpoint_count(&checkpoint) + 1) * sizeof(float));
    if (!checkpoint.values)
        return error_set(ALNICO_ERROR_MEMORY, "trainer: no memory for a checkpoint");
    alnico_status_t status = state_read(trainer, &checkpoint);
    if (status == ALNICO_SUCCESS && trainer->rank == 0)
        status = checkpoint_write(trainer->options->save, &checkpoint);
    checkpoint_free(&checkpoint);
    return status;
}

/* Whether the loss scale goes on from the checkpoint's: it does not if it is an option, as nothing
 * would lower it. */
static bool scale_goes_on(const struct trainer *trainer, const struct checkpoint *checkpoint)
{
    return trainer->options->compute.loss_scale <= 0 && checkpoint->words[CONTROL_LOSS_SCALE] > 0;
}

static alnico_status_t state_write(struct trainer *trainer, const struct checkpoint *checkpoint)
{
    struct replica *replica = trainer->replica;
    const size_t count = trainer->network->parameters, bytes = count * sizeof(float);
    const size_t statistics = trainer->network->statistics;
    const float *own = checkpoint->values + 2 * count + statistics * (size_t)trainer->rank;
    TRY(replica_write(replica, replica->arenas.states[0], checkpoint->values + count, bytes));
    TRY(replica_write(replica, replica->arenas.statistics, own, statistics * sizeof(float)));
    if (scale_goes_on(trainer, checkpoint))
        TRY(replica_write(replica, replica->arenas.control, checkpoint->words,
                          CONTROLS * sizeof(float)));
    return replica_write(replica, replica->arenas.parameters, checkpoint->values, bytes);
}

static alnico_status_t checkpoint_check(const struct trainer *trainer,
                                        const struct checkpoint *checkpoint)
{
    const char *path = trainer->options->load;
    const struct checkpoint_run run = run_describe(trainer);
    TRY(checkpoint_compare(path, &checkpoint->run, &run));
    if (checkpoint->parameters != trainer->network->parameters ||
        checkpoint->statistics != trainer->network->statistics)
        return error_set(
            ALNICO_ERROR_ARGUMENT,
            "checkpoint %s: it has %llu parameters and %llu statistics, not %zu and %zu", path,
            (unsigned long long)checkpoint->parameters, (unsigned long long)checkpoint->statistics,
            trainer->network->parameters, trainer->network->statistics);
    return ALNICO_SUCCESS;
}

alnico_status_t trainer_load(struct trainer *trainer)
{
    struct checkpoint checkpoint;
    TRY(checkpoint_read(trainer->options->load, &checkpoint));
    alnico_status_t status = checkpoint_check(trainer, &checkpoint);
    if (status == ALNICO_SUCCESS)
        status = state_write(trainer, &checkpoint);
    trainer->step = trainer->first = trainer->progress.step = checkpoint.step;
    trainer->tests = checkpoint.tests;
    checkpoint_free(&checkpoint);
    TRY(status);
    data_close(trainer->train);
    data_close(trainer->test);
    trainer->train = trainer->test = NULL;
    return trainer_data(trainer);
}
