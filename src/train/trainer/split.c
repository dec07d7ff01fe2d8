/* Runs whose network is split over the ranks: each rank's part, the images that it takes, and the
 * communicators of its moves and batch norms. See trainer/state.h. */
#include "train/trainer/state.h"

#include "base/status.h"
#include "train/graph/split.h"
#include "train/models/models.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

bool trainer_splits(const struct trainer_options *options)
{
    return options->split || options->norm != NORM_LOCAL;
}

static alnico_status_t split_of(const struct trainer_options *options, struct split *out)
{
    *out = (struct split){.count = 0};
    if (options->split)
        TRY(split_parse(options->split, out));
    out->norm = options->norm;
    return ALNICO_SUCCESS;
}

alnico_status_t trainer_part(const struct trainer_options *options, const struct network *whole,
                             int rank, int ranks, struct network **out)
{
    struct split split;
    TRY(split_of(options, &split));
    return network_split(whole, &split, (size_t)rank, (size_t)ranks, out);
}

/* The order of the operations, which decides, is the same for images of any size. */
size_t trainer_image_parts(const struct trainer_options *options, int ranks)
{
    struct model model;
    struct network *whole;
    struct split split;
    size_t parts = (size_t)ranks;
    if (!trainer_splits(options) || !model_find(options->model, &model) ||
        split_of(options, &split) != ALNICO_SUCCESS)
        return parts;
    const struct model_images *images = &model.images;
    if (model_network(&model, images->height, images->width, images->channels, images->classes,
                      &whole) != ALNICO_SUCCESS)
        return parts;
    parts = split_image_parts(whole, &split, parts);
    network_destroy(whole);
    return parts;
}

static bool has_own(const struct trainer *trainer)
{
    return trainer->network->shared < trainer->network->parameters;
}

/* What reads all gradients of a step must read those of the others' filters, too. */
static alnico_status_t own_check(const struct trainer *trainer)
{
    const struct trainer_options *options = trainer->options;
    const bool updates = kernels_find(options->kernels)->update != NULL;
    if (!has_own(trainer))
        return ALNICO_SUCCESS;
    if (strcmp(options->strategy, "allreduce") != 0)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "trainer: a split of channels with strategy %s, expected allreduce: each "
                         "rank updates its own",
                         options->strategy);
    if (updates && (options->optimizer.clip > 0 || options->optimizer.trust > 0 ||
                    options->compute.precision == PRECISION_FP16))
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "trainer: a split of channels with clipping, LARS or fp16, which the %s "
                         "kernels do not take together",
                         options->kernels);
    if (trainer->network->shared)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT,
                     "trainer: a split of all parameters by channels, expected some that all ranks "
                     "have");
}

alnico_status_t trainer_split(struct trainer *trainer)
{
    const struct trainer_options *options = trainer->options;
    TRY(trainer_network(options, data_info(trainer->train), &trainer->whole));
    TRY(trainer_part(options, trainer->whole, trainer->part, trainer->part_count,
                     &trainer->network));
    assert(trainer->network->part->layouts[0].parts[AXIS_IMAGES] == trainer->image_parts);
    return own_check(trainer);
}

/* Each rank's own filters are added to zeros as whole numbers, so that no bit changes; the rest is rank
 * 0's, equal to all others'. */
static alnico_status_t own_gather(struct trainer *trainer, const float *part, float *out)
{
    const size_t count = trainer->whole->parameters;
    memset(out, 0, count * sizeof *out);
    part_give(trainer->network, part, out, trainer->rank == 0);
    return trainer->place.host ? alnico_allreduce(ALNICO_IN_PLACE, out, count, ALNICO_UINT32,
                                                  ALNICO_SUM, trainer->place.host)
                               : ALNICO_SUCCESS;
}

static alnico_status_t part_allocate(const struct trainer *trainer, float **out)
{
    *out = malloc(trainer->network->parameters * sizeof **out);
    return *out ? ALNICO_SUCCESS : error_set(ALNICO_ERROR_MEMORY, "trainer: no memory");
}

alnico_status_t trainer_whole_read(struct trainer *trainer, const float *arena, float *out)
{
    const size_t bytes = trainer->network->parameters * sizeof *out;
    float *part;
    if (!has_own(trainer))
        return replica_read(trainer->replica, arena, out, bytes);
    TRY(part_allocate(trainer, &part));
    alnico_status_t status = replica_read(trainer->replica, arena, part, bytes);
    if (status == ALNICO_SUCCESS)
        status = own_gather(trainer, part, out);
    free(part);
    return status;
}

alnico_status_t trainer_whole_write(struct trainer *trainer, float *arena, const float *values)
{
    const size_t bytes = trainer->network->parameters * sizeof *values;
    float *part;
    if (!has_own(trainer))
        return replica_write(trainer->replica, arena, values, bytes);
    TRY(part_allocate(trainer, &part));
    part_take(trainer->network, values, part);
    const alnico_status_t status = replica_write(trainer->replica, arena, part, bytes);
    free(part);
    return status;
}

/* Moves have a communicator of their own: they do not wait for gradients that travel beside them. */
alnico_status_t trainer_meet(struct trainer *trainer)
{
    const struct network_part *part = trainer->network->part;
    const struct trainer_place *place = &trainer->place;
    struct replica_setup *asked = &trainer->replica->asked;
    if (!part || !place->device || place->parts)
        return ALNICO_SUCCESS;
    TRY(alnico_comm_duplicate(place->device, place->stream, &trainer->moves));
    asked->comm = asked->norms = trainer->moves;
    if (part->norm_parts <= 1)
        return ALNICO_SUCCESS;
    const int color = trainer->rank / (trainer->size / (int)part->norm_parts);
    TRY(alnico_comm_split(place->device, color, trainer->rank, place->stream, &trainer->norms));
    asked->norms = trainer->norms;
    return ALNICO_SUCCESS;
}
