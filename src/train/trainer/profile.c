/* Profiling what a run would do. See trainer.h. */
#include "train/trainer/state.h"

#include "base/status.h"

static alnico_status_t times_fill(const struct trainer_options *options, struct data *data,
                                  void *stream, struct trainer_times *out)
{
    struct replica_setup setup = trainer_setup(options, 0, 1);
    struct profile_rates rates;
    setup.stream = stream;
    TRY(trainer_network(options, data_info(data), &out->network));
    TRY(profile_measure(&setup, &rates));
    TRY(replica_create(out->network, &setup, &out->replica));
    const struct batch batch = data_next(data);
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
