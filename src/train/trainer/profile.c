/* Measuring and counting what a run would do. See trainer.h. */
#include "train/trainer/state.h"

#include "base/status.h"
#include "train/models/models.h"

/* The images of the source, if the options name one, or those of the model. */
static alnico_status_t images_find(const struct trainer_options *options, struct data_info *out)
{
    struct model model;
    struct data *data;
    model_find(options->model, &model);
    *out =
        (struct data_info){.height = model.images.height,
                           .width = model.images.width,
                           .channels = model.images.channels,
                           .classes = options->classes ? options->classes : model.images.classes};
    if (!options->data)
        return ALNICO_SUCCESS;
    TRY(trainer_data_alone(options, 1, &data));
    *out = *data_info(data);
    data_close(data);
    return ALNICO_SUCCESS;
}

alnico_status_t trainer_describe(const struct trainer_options *options,
                                 struct trainer_description *out)
{
    struct data_info info;
    *out = (struct trainer_description){0};
    TRY(trainer_check(options));
    out->rules.bytes = kernels_find(options->kernels)->rules.bytes;
    TRY(images_find(options, &info));
    TRY(trainer_network(options, &info, &out->network));
    return plan_create(out->network, &out->rules, options->batch, options->compute.precision,
                       &out->plan);
}

void trainer_description_free(struct trainer_description *description)
{
    plan_destroy(description->plan);
    network_destroy(description->network);
    *description = (struct trainer_description){0};
}

static alnico_status_t times_fill(const struct trainer_options *options, struct data *data,
                                  void *stream, struct trainer_times *out)
{
    struct replica_setup setup = trainer_setup(options, data, 0, 1);
    struct profile_rates rates;
    setup.stream = stream;
    TRY(trainer_network(options, data_info(data), &out->network));
    TRY(profile_measure(&setup, &rates));
    TRY(replica_create(out->network, &setup, &out->replica));
    struct batch batch;
    TRY(data_next(data, &batch));
    TRY(replica_load(out->replica, batch.images, batch.labels, batch.count));
    return profile_create(out->replica, &options->optimizer, &rates, &out->profile);
}

alnico_status_t trainer_profile(const struct trainer_options *options, void *stream,
                                struct trainer_times *out)
{
    struct data *data;
    *out = (struct trainer_times){0};
    TRY(trainer_data_alone(options, options->batch, &data));
    const alnico_status_t status = times_fill(options, data, stream, out);
    data_close(data);
    return status;
}

void trainer_times_free(struct trainer_times *times)
{
    profile_free(&times->profile);
    replica_destroy(times->replica);
    network_destroy(times->network);
    *times = (struct trainer_times){0};
}
