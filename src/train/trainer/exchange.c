/*
 * What a step's communication takes by itself: the strategy's exchange, with nothing beside it,
 * before the first step, on gradients that are zero. A run's exposed communication is what is left
 * of it beside computing. See trainer/state.h.
 */
#include "train/trainer/state.h"

#include "base/datatype.h"
#include "base/status.h"
#include "train/base/nvtx.h"

#include <stdlib.h>

/* The first of the trials make what is made when it is first used. */
enum { TRIALS = 9, WARM_UPS = 2 };

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Once all ranks are there: seconds of this rank's stream. */
static alnico_status_t trial_run(struct trainer *trainer, uint64_t *stamps, double *seconds)
{
    struct replica *replica = trainer->replica;
    uint64_t ns[2];
    double ready = 0;
    TRY(trainer_allreduce(trainer, &ready, 1, ALNICO_SUM));
    TRY(replica->device->stamp(&stamps[0], replica->stream));
    TRY(trainer->strategy->exchange(trainer->strategy_self));
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
        TRY_NVTX("exchange", trial_run(trainer, stamps, &seconds[i]));
    qsort(seconds + WARM_UPS, TRIALS - WARM_UPS, sizeof *seconds, by_size);
    trainer->exchange_seconds = seconds[(TRIALS + WARM_UPS) / 2];
    return ALNICO_SUCCESS;
}

alnico_status_t trainer_exchange(struct trainer *trainer)
{
    const struct device_ops *device = trainer->replica->device;
    uint64_t *stamps;
    if (!trainer->place.device || !trainer->strategy->exchange)
        return ALNICO_SUCCESS;
    TRY(device->alloc(2 * sizeof *stamps, (void **)&stamps));
    const alnico_status_t status = trials_run(trainer, stamps);
    device->free(stamps);
    return status;
}
