/* A run's state to a checkpoint and back. See trainer/state.h. */
#include "train/trainer/state.h"

#include "base/status.h"
#include "train/trainer/checkpoint_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The memory of what is this rank's own: running statistics, and what the strategy says. Returns how
 * many pieces. */
static size_t own_pieces(const struct trainer *trainer, struct strategy_memory *out)
{
    const struct strategy_ops *strategy = trainer->strategy;
    out[0] =
        (struct strategy_memory){trainer->replica->arenas.statistics, trainer->network->statistics};
    return 1 + (strategy->own ? strategy->own(trainer->strategy_self, out + 1) : 0);
}

enum { OWN_PIECES_MOST = 1 + STRATEGY_OWN_MOST };

/* Numbers of it beside the statistics. */
static size_t own_extra(const struct trainer *trainer)
{
    struct strategy_memory pieces[OWN_PIECES_MOST];
    size_t sum = 0;
    for (size_t i = own_pieces(trainer, pieces); i-- > 1;)
        sum += pieces[i].count;
    return sum;
}

/* Whether ranks that have parts of the same images have the same state of their own, which then stands
 * in a checkpoint once: it goes on with other splits of the images, too. */
static bool own_shared(const struct trainer *trainer)
{
    return trainer->whole && trainer->options->norm != NORM_LOCAL && !own_extra(trainer);
}

/* Where this rank's own state stands among those of a checkpoint. */
static int own_number(const struct trainer *trainer)
{
    return own_shared(trainer) ? trainer->image_part : trainer->rank;
}

static struct checkpoint_run run_describe(const struct trainer *trainer)
{
    const struct trainer_options *options = trainer->options;
    const struct data_info *info = data_info(trainer->train);
    struct checkpoint_run run = {
        .height = info->height,
        .width = info->width,
        .channels = info->channels,
        .classes = info->classes,
        .batch = options->batch * trainer->passes,
        .ranks = (uint64_t)(own_shared(trainer) ? trainer->image_parts : trainer->size),
        .seed = options->seed,
        .precision = options->compute.precision,
        .layout = network_layout(trainer->network)};
    snprintf(run.model, sizeof run.model, "%s", options->model);
    snprintf(run.data, sizeof run.data, "%s", options->data);
    snprintf(run.optimizer, sizeof run.optimizer, "%s",
             optimizers_all[options->optimizer.kind]->name);
    const bool residual = options->codec.ops && options->codec.ops->residual;
    const bool joined = options->norm == NORM_ALL && trainer->image_parts > 1;
    snprintf(run.strategy, sizeof run.strategy, "%s%s%s%s", options->strategy,
             residual ? " with residuals of " : "", residual ? options->codec.ops->name : "",
             joined ? " with joint norms" : "");
    return run;
}

static alnico_status_t own_read(struct trainer *trainer, struct checkpoint *checkpoint)
{
    struct strategy_memory pieces[OWN_PIECES_MOST];
    const size_t count = own_pieces(trainer, pieces);
    float *at = checkpoint->values + checkpoint_rank(checkpoint, own_number(trainer));
    for (size_t i = 0; i < count; at += pieces[i++].count)
        TRY(replica_read(trainer->replica, pieces[i].memory, at, pieces[i].count * sizeof *at));
    return ALNICO_SUCCESS;
}

static alnico_status_t own_write(struct trainer *trainer, const struct checkpoint *checkpoint)
{
    struct strategy_memory pieces[OWN_PIECES_MOST];
    const size_t count = own_pieces(trainer, pieces);
    const float *at = checkpoint->values + checkpoint_rank(checkpoint, own_number(trainer));
    for (size_t i = 0; i < count; at += pieces[i++].count)
        TRY(replica_write(trainer->replica, pieces[i].memory, at, pieces[i].count * sizeof *at));
    return ALNICO_SUCCESS;
}

/* What is each rank's own, one after the other: each adds its own to zeros, as whole numbers, so that
 * no bit changes. Of ranks that share it one does. */
static alnico_status_t ranks_gather(struct trainer *trainer, struct checkpoint *checkpoint)
{
    const size_t begin = checkpoint_rank(checkpoint, 0),
                 count = checkpoint_count(checkpoint) - begin;
    float *all = checkpoint->values + begin;
    memset(all, 0, count * sizeof *all);
    if (!own_shared(trainer) || trainer->rank % (trainer->size / trainer->image_parts) == 0)
        TRY(own_read(trainer, checkpoint));
    if (!trainer->place.host || !count)
        return ALNICO_SUCCESS;
    return alnico_allreduce(ALNICO_IN_PLACE, all, count, ALNICO_UINT32, ALNICO_SUM,
                            trainer->place.host);
}

static alnico_status_t state_read(struct trainer *trainer, struct checkpoint *checkpoint)
{
    struct replica *replica = trainer->replica;
    const size_t count = (size_t)checkpoint->parameters;
    _Static_assert((int)CONTROLS <= (int)CHECKPOINT_WORDS, "all control words have room");
    TRY(trainer_whole_read(trainer, replica->arenas.parameters, checkpoint->values));
    for (size_t i = 0; i < checkpoint->states; i++)
        TRY(trainer_whole_read(trainer, replica->arenas.states[i],
                               checkpoint->values + (1 + i) * count));
    TRY(replica_read(replica, replica->arenas.control, checkpoint->words,
                     CONTROLS * sizeof(float)));
    return ranks_gather(trainer, checkpoint);
}

alnico_status_t trainer_save(struct trainer *trainer)
{
    struct checkpoint checkpoint = {.run = run_describe(trainer),
                                    .parameters = network_whole(trainer->network)->parameters,
                                    .statistics = trainer->network->statistics,
                                    .states =
                                        optimizers_all[trainer->options->optimizer.kind]->states,
                                    .extra = own_extra(trainer),
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

/* The loss scale does not go on from the checkpoint's if it is an option, as nothing would lower
 * it. */
static alnico_status_t words_write(struct trainer *trainer, const struct checkpoint *checkpoint)
{
    struct replica *replica = trainer->replica;
    const size_t bytes = CONTROLS * sizeof(float);
    float words[CONTROLS];
    TRY(replica_read(replica, replica->arenas.control, words, bytes));
    words[CONTROL_UPDATES] = checkpoint->words[CONTROL_UPDATES];
    if (trainer->options->compute.loss_scale <= 0 && checkpoint->words[CONTROL_LOSS_SCALE] > 0) {
        words[CONTROL_LOSS_SCALE] = checkpoint->words[CONTROL_LOSS_SCALE];
        words[CONTROL_GOOD_STEPS] = checkpoint->words[CONTROL_GOOD_STEPS];
    }
    return replica_write(replica, replica->arenas.control, words, bytes);
}

static alnico_status_t state_write(struct trainer *trainer, const struct checkpoint *checkpoint)
{
    struct replica *replica = trainer->replica;
    for (size_t i = 0; i < checkpoint->states; i++)
        TRY(trainer_whole_write(trainer, replica->arenas.states[i],
                                checkpoint->values + (1 + i) * checkpoint->parameters));
    TRY(own_write(trainer, checkpoint));
    TRY(words_write(trainer, checkpoint));
    return trainer_whole_write(trainer, replica->arenas.parameters, checkpoint->values);
}

static alnico_status_t checkpoint_check(const struct trainer *trainer,
                                        const struct checkpoint *checkpoint)
{
    const char *path = trainer->options->load;
    const struct checkpoint_run run = run_describe(trainer);
    TRY(checkpoint_compare(path, &checkpoint->run, &run));
    const struct {
        const char *what;
        uint64_t saved, here;
    } rows[] = {
        {"parameters", checkpoint->parameters, network_whole(trainer->network)->parameters},
        {"statistics", checkpoint->statistics, trainer->network->statistics},
        {"states", checkpoint->states, optimizers_all[trainer->options->optimizer.kind]->states},
        {"extra numbers of a rank", checkpoint->extra, own_extra(trainer)}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].saved != rows[i].here)
            return error_set(ALNICO_ERROR_ARGUMENT, "checkpoint %s: it has %llu %s, not %llu", path,
                             (unsigned long long)rows[i].saved, rows[i].what,
                             (unsigned long long)rows[i].here);
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
