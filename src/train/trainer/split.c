/* Runs whose network is split over the ranks: each rank's part, the images that it takes, and the
 * communicators of its moves and batch norms. See trainer/state.h. */
#include "train/trainer/state.h"

#include "base/status.h"
#include "train/graph/split.h"
#include "train/models/models.h"

bool trainer_splits(const struct trainer_options *options)
{
    return options->split || options->norm != NORM_LOCAL;
}

alnico_status_t trainer_part(const struct trainer_options *options, const struct network *whole,
                             int rank, int ranks, struct network **out)
{
    struct split split = {.count = 0};
    if (options->split)
        TRY(split_parse(options->split, &split));
    split.norm = options->norm;
    return network_split(whole, &split, (size_t)rank, (size_t)ranks, out);
}

static size_t image_parts(const struct network *part)
{
    return part->part->layouts[0].parts[AXIS_IMAGES];
}

size_t trainer_image_parts(const struct trainer_options *options, int ranks)
{
    struct model model;
    struct network *whole, *part;
    size_t parts = (size_t)ranks;
    if (!trainer_splits(options) || !model_find(options->model, &model))
        return parts;
    const struct model_images *images = &model.images;
    if (model_network(&model, images->height, images->width, images->channels, images->classes,
                      &whole) != ALNICO_SUCCESS)
        return parts;
    if (trainer_part(options, whole, 0, ranks, &part) == ALNICO_SUCCESS) {
        parts = image_parts(part);
        network_destroy(part);
    }
    network_destroy(whole);
    return parts;
}

alnico_status_t trainer_split(struct trainer *trainer)
{
    const struct trainer_options *options = trainer->options;
    struct data *alone;
    TRY(trainer_data_alone(options, 1, &alone));
    const alnico_status_t status = trainer_network(options, data_info(alone), &trainer->whole);
    data_close(alone);
    TRY(status);
    TRY(trainer_part(options, trainer->whole, trainer->rank, trainer->size, &trainer->network));
    const size_t parts = image_parts(trainer->network);
    trainer->image_parts = (int)parts;
    trainer->image_part = trainer->rank / (trainer->size / (int)parts);
    return ALNICO_SUCCESS;
}

/* Moves have a communicator of their own: they do not wait for gradients that travel beside them. */
alnico_status_t trainer_meet(struct trainer *trainer)
{
    const struct network_part *part = trainer->network->part;
    const struct trainer_place *place = &trainer->place;
    struct replica_setup *asked = &trainer->replica->asked;
    if (!part || !place->device)
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
