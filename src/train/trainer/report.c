/* The report of a run over all ranks. See trainer.h. */
#include "train/trainer/state.h"

#include "base/status.h"
#include "train/base/median.h"

#include <stdlib.h>
#include <string.h>

const char *phase_name(enum phase phase)
{
    static const char *const names[PHASES] = {"io",       "h2d",    "forward",
                                              "backward", "halo",   "exposed communication",
                                              "average",  "update", "weights"};
    return names[phase];
}

alnico_status_t trainer_allreduce(struct trainer *trainer, double *values, size_t count,
                                  alnico_op_t op)
{
    if (!trainer->place.host)
        return ALNICO_SUCCESS;
    return alnico_allreduce(ALNICO_IN_PLACE, values, count, ALNICO_FLOAT64, op,
                            trainer->place.host);
}

alnico_status_t trainer_score(struct trainer *trainer, const struct outcome *outcome,
                              struct score *out)
{
    double sums[4] = {outcome->loss, (double)outcome->correct, (double)outcome->count,
                      (double)outcome->images};
    TRY(trainer_allreduce(trainer, sums, 4, ALNICO_SUM));
    *out = (struct score){.images = (size_t)sums[3]};
    if (sums[2] > 0) {
        out->loss = sums[0] / sums[2];
        out->accuracy = sums[1] / sums[2];
    }
    return ALNICO_SUCCESS;
}

uint64_t trainer_hash(const void *data, size_t bytes)
{
    const unsigned char *at = data;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    return hash;
}

alnico_status_t trainer_compare(uint64_t hash, alnico_comm_t comm)
{
    int64_t least = (int64_t)hash, most = (int64_t)hash;
    if (!comm)
        return ALNICO_SUCCESS;
    TRY(alnico_allreduce(ALNICO_IN_PLACE, &least, 1, ALNICO_INT64, ALNICO_MINIMUM, comm));
    TRY(alnico_allreduce(ALNICO_IN_PLACE, &most, 1, ALNICO_INT64, ALNICO_MAXIMUM, comm));
    if (least == most)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_MISMATCH,
                     "trainer: the parameters of the ranks differ: hash %016llx here, %016llx to "
                     "%016llx over all ranks",
                     (unsigned long long)hash, (unsigned long long)least, (unsigned long long)most);
}

double trainer_library(const struct trainer *trainer)
{
    const struct kernels_ops *ops = trainer->replica->ops;
    return ops->library_seconds ? ops->library_seconds(trainer->replica->kernels) : 0;
}

/* The median of the steps after the first tenth, at most 20. Sorts them. */
static double step_seconds_median(struct trainer *trainer)
{
    const size_t steps = trainer->read, skipped = steps / 10 < 20 ? steps / 10 : 20;
    return median(trainer->step_seconds + skipped, steps - skipped);
}

/* Of all parameters of the network; compares those that all ranks have. */
static alnico_status_t parameters_hash(struct trainer *trainer, uint64_t *out)
{
    struct replica *replica = trainer->replica;
    const size_t count = network_whole(trainer->network)->parameters,
                 shared = trainer->network->shared * sizeof(float);
    float *parameters = malloc((count + 1) * sizeof *parameters);
    if (!parameters)
        return error_set(ALNICO_ERROR_MEMORY, "trainer: no memory for the parameters");
    alnico_status_t status = replica_read(replica, replica->arenas.parameters, parameters, shared);
    if (status == ALNICO_SUCCESS)
        status = trainer_compare(trainer_hash(parameters, shared), trainer->place.host);
    if (status == ALNICO_SUCCESS)
        status = trainer_whole_read(trainer, replica->arenas.parameters, parameters);
    *out = trainer_hash(parameters, count * sizeof *parameters);
    free(parameters);
    return status;
}

/* Over all ranks. */
static alnico_status_t staleness_sum(struct trainer *trainer, struct strategy_staleness *out)
{
    if (!trainer->strategy->staleness)
        return ALNICO_SUCCESS;
    *out = *trainer->strategy->staleness(trainer->strategy_self);
    if (!trainer->place.host)
        return ALNICO_SUCCESS;
    TRY(alnico_allreduce(ALNICO_IN_PLACE, &out->most, 1, ALNICO_UINT64, ALNICO_MAXIMUM,
                         trainer->place.host));
    TRY(alnico_allreduce(ALNICO_IN_PLACE, &out->sum, 1, ALNICO_UINT64, ALNICO_SUM,
                         trainer->place.host));
    return alnico_allreduce(ALNICO_IN_PLACE, out->counts, STALENESS_BINS, ALNICO_UINT64, ALNICO_SUM,
                            trainer->place.host);
}

alnico_status_t trainer_report(struct trainer *trainer, struct trainer_report *out)
{
    const struct trainer_progress *progress = &trainer->progress;
    const struct strategy_ops *strategy = trainer->strategy;
    const size_t skipped = data_skipped(trainer->train) + data_skipped(trainer->test);
    double means[PHASES + 4];
    double most[] = {trainer->seconds, step_seconds_median(trainer), (double)skipped};
    double images = (double)progress->images;
    const double ranks = (double)trainer->size; /* so that rank 0's are the means of all */
    const double weight = !trainer->strategy->rooted ? 1 : trainer->rank == 0 ? ranks : 0;
    for (int i = 0; i < PHASES; i++)
        means[i] = weight * trainer->phases[i];
    means[PHASES] = trainer_library(trainer) - trainer->other_library;
    means[PHASES + 1] = trainer->rehearsal_seconds * (double)(progress->step - trainer->first);
    means[PHASES + 2] = strategy->sent ? (double)strategy->sent(trainer->strategy_self) : 0;
    means[PHASES + 3] = (double)(trainer->passes * replica_moves_sent(trainer->replica));
    TRY(trainer_allreduce(trainer, means, PHASES + 4, ALNICO_AVERAGE));
    TRY(trainer_allreduce(trainer, most, 3, ALNICO_MAXIMUM));
    TRY(trainer_allreduce(trainer, &images, 1, ALNICO_SUM));
    *out = (struct trainer_report){
        .ranks = trainer->size,
        .lost = trainer->begun - trainer->size,
        .first = trainer->rank == 0,
        .parameters = network_whole(trainer->network)->parameters,
        .steps = progress->step,
        .own_steps = progress->step - trainer->first,
        .epochs = (double)progress->step / (double)trainer->per_epoch,
        .seconds = most[0],
        .step_seconds = most[1],
        .skipped = (size_t)most[2],
        .library_seconds = means[PHASES],
        .communication = means[PHASES + 1],
        .test_seconds = trainer->test_seconds,
        .images_per_second = images / most[0],
        .train = progress->score,
        .test = progress->test,
        .memory = replica_memory(trainer->replica),
        .buckets = trainer->buckets.count,
        .wire_bytes = (size_t)means[PHASES + 2],
        .move_bytes = (size_t)means[PHASES + 3],
    };
    memcpy(out->phases, means, sizeof out->phases);
    out->graph =
        trainer->graphs[2 * trainer->passes - 2] || trainer->graphs[2 * trainer->passes - 1];
    out->stopped = trainer->stopped && trainer->step < trainer->steps;
    TRY(staleness_sum(trainer, &out->staleness));
    return parameters_hash(trainer, &out->hash);
}
