/*
 * Time of a step's communication by itself: the strategy's rehearsal, with nothing beside it,
 * before the first step, on gradients that are zero. A run's exposed communication is what is left
 * of it beside computing. See trainer/state.h.
 */
#include "train/trainer/state.h"

#include "base/datatype.h"
#include "base/status.h"
#include "train/base/median.h"
#include "train/base/nvtx.h"

/* The first of the trials make what is made when it is first used. */
enum { TRIALS = 9, WARM_UPS = 2 };

/* Once all ranks are there: seconds of this rank's stream. */
static alnico_status_t trial_run(struct trainer *trainer, uint64_t *stamps, double *seconds)
{
    struct replica *replica = trainer->replica;
    uint64_t ns[2];
    double ready = 0;
    TRY(trainer_allreduce(trainer, &ready, 1, ALNICO_SUM));
    TRY(replica->device->stamp(&stamps[0], replica->stream));
    TRY(trainer->strategy->rehearse(trainer->strategy_self));
    TRY(replica->device->stamp(&stamps[1], replica->stream));
    TRY(replica_read(replica, stamps, ns, sizeof ns));
    *seconds = 1e-9 * (double)(ns[1] - ns[0]);
    return ALNICO_SUCCESS;
}

static alnico_status_t trials_run(struct trainer *trainer, uint64_t *stamps)
{
    const struct replica *replica = trainer->replica;
    double seconds[TRIALS];
    TRY(replica->device->clear(replica->arenas.gradients,
                               trainer->network->parameters *
                                   datatype_bytes(replica->setup.gradient_type),
                               replica->stream));
    for (int i = 0; i < TRIALS; i++)
        TRY_NVTX("rehearsal", trial_run(trainer, stamps, &seconds[i]));
    trainer->rehearsal_seconds = median(seconds + WARM_UPS, TRIALS - WARM_UPS);
    return ALNICO_SUCCESS;
}

alnico_status_t trainer_rehearse(struct trainer *trainer)
{
    const struct device_ops *device = trainer->replica->device;
    uint64_t *stamps;
    if (!trainer->place.device || !trainer->strategy->rehearse)
        return ALNICO_SUCCESS;
    TRY(device->alloc(2 * sizeof *stamps, (void **)&stamps));
    const alnico_status_t status = trials_run(trainer, stamps);
    device->free(stamps);
    return status;
}
