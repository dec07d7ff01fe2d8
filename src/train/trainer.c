/* The training loop and its clock. See trainer.h. */
#include "trainer.h"

#include "clock.h"
#include "data.h"
#include "models/models.h"
#include "replica.h"
#include "status.h"
#include "strategy.h"

#include <math.h>
#include <string.h>

/* With a time limit, the ranks agree on the time after the first step and whenever so many are done. */
enum { AGREE_STEPS = 8 };

struct trainer {
    const struct trainer_options *options;
    alnico_comm_t comm; /* NULL: alone */
    int rank, size;
    struct network *network;
    struct replica *replica;
    struct optimizer *optimizer;
    const struct strategy_ops *strategy;
    void *meeting; /* the strategy's */
    struct data *train, *test;
    size_t steps, per_epoch; /* to do (SIZE_MAX with a time limit); in an epoch */
    double mark;             /* when the current phase began */
    double phases[PHASES];
    double seconds;     /* of training */
    double agreed;      /* the same, as all ranks last agreed on it */
    size_t agreed_step; /* after so many steps */
    double library, test_seconds;
    struct outcome epoch; /* of this epoch's images so far */
    struct trainer_progress progress;
};

const char *phase_name(enum phase phase)
{
    static const char *const names[PHASES] = {"input", "forward", "backward",
                                              "exposed communication", "update"};
    return names[phase];
}

/* ---- What all ranks share ---- */

static alnico_status_t share(struct trainer *trainer, double *values, size_t count, alnico_op_t op)
{
    if (!trainer->comm)
        return ALNICO_SUCCESS;
    return alnico_allreduce(ALNICO_IN_PLACE, values, count, ALNICO_FLOAT64, op, trainer->comm);
}

/* The score of an outcome summed over the ranks. */
static alnico_status_t share_score(struct trainer *trainer, const struct outcome *outcome,
                                   struct score *out)
{
    double sums[3] = {outcome->loss, (double)outcome->correct, (double)outcome->count};
    TRY(share(trainer, sums, 3, ALNICO_SUM));
    *out = (struct score){.images = (size_t)sums[2]};
    if (out->images) {
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

/* ---- The clock ---- */

/* Ends a phase now; returns its seconds. */
static double lap(struct trainer *trainer, enum phase phase)
{
    const double now = clock_seconds(), seconds = now - trainer->mark;
    trainer->phases[phase] += seconds;
    trainer->seconds += seconds;
    trainer->mark = now;
    return seconds;
}

static double library_seconds(const struct trainer *trainer)
{
    const struct kernels_ops *ops = trainer->replica->ops;
    return ops->library_seconds ? ops->library_seconds(trainer->replica->kernels) : 0;
}

/* ---- One step ---- */

/* After each step of backward. */
static alnico_status_t gradients_filled(void *context, size_t elements)
{
    struct trainer *trainer = context;
    lap(trainer, PHASE_BACKWARD);
    TRY(trainer->strategy->advance(trainer->meeting, elements));
    lap(trainer, PHASE_COMMUNICATION);
    return ALNICO_SUCCESS;
}

/* The share of the run that will be over after the step to come: with a time limit, if steps go on taking
 * what they took until the ranks last agreed. */
static double trainer_done(const struct trainer *trainer)
{
    const double step = (double)(trainer->progress.step + 1);
    double done = step / (double)trainer->steps;
    if (trainer->options->seconds > 0)
        done = trainer->agreed_step ? trainer->agreed / trainer->options->seconds * step /
                                          (double)trainer->agreed_step
                                    : 0;
    return done < 1 ? done : 1;
}

static alnico_status_t trainer_input(struct trainer *trainer)
{
    struct batch batch;
    trainer->mark = clock_seconds();
    TRY(data_next(trainer->train, &batch));
    TRY(replica_load(trainer->replica, batch.images, batch.labels, batch.count));
    trainer->progress.images += batch.count;
    lap(trainer, PHASE_INPUT);
    return ALNICO_SUCCESS;
}

static alnico_status_t trainer_forward(struct trainer *trainer)
{
    TRY(replica_forward(trainer->replica, true));
    const struct outcome outcome = replica_outcome(trainer->replica);
    trainer->epoch.loss += outcome.loss;
    trainer->epoch.correct += outcome.correct;
    trainer->epoch.count += outcome.count;
    lap(trainer, PHASE_FORWARD);
    if (isfinite(outcome.loss))
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_SYSTEM,
                     "trainer: the loss of step %zu is not a number; a learning rate below %g may "
                     "help",
                     trainer->progress.step + 1, trainer->options->optimizer.rate);
}

static alnico_status_t trainer_step(struct trainer *trainer)
{
    struct arenas *arenas = &trainer->replica->arenas;
    TRY(trainer_input(trainer));
    const double library = library_seconds(trainer);
    TRY(trainer_forward(trainer));
    TRY(replica_backward(trainer->replica, gradients_filled, trainer));
    TRY(trainer->strategy->join(trainer->meeting));
    lap(trainer, PHASE_COMMUNICATION);
    trainer->progress.rate = optimizer_rate(&trainer->options->optimizer, trainer_done(trainer));
    optimizer_step(trainer->optimizer, trainer->progress.rate, arenas->parameters,
                   arenas->gradients);
    lap(trainer, PHASE_UPDATE);
    trainer->library += library_seconds(trainer) - library;
    return ALNICO_SUCCESS;
}

/* ---- The test ---- */

/* Makes the running statistics the mean over the ranks. */
static alnico_status_t statistics_average(struct trainer *trainer)
{
    const size_t count = trainer->network->statistics;
    float *statistics = trainer->replica->arenas.statistics;
    if (!trainer->comm || !count)
        return ALNICO_SUCCESS;
    return alnico_allreduce(ALNICO_IN_PLACE, statistics, count, ALNICO_FLOAT32, ALNICO_AVERAGE,
                            trainer->comm);
}

static alnico_status_t trainer_test(struct trainer *trainer, struct score *out)
{
    const double begin = clock_seconds();
    const size_t batches = data_batches(trainer->test);
    struct outcome total = {0};
    TRY(statistics_average(trainer));
    for (size_t i = 0; i < batches; i++) {
        struct batch batch;
        TRY(data_next(trainer->test, &batch));
        TRY(replica_load(trainer->replica, batch.images, batch.labels, batch.count));
        TRY(replica_forward(trainer->replica, false));
        const struct outcome outcome = replica_outcome(trainer->replica);
        total.loss += outcome.loss;
        total.correct += outcome.correct;
        total.count += outcome.count;
    }
    TRY(share_score(trainer, &total, out));
    trainer->test_seconds += clock_seconds() - begin;
    return ALNICO_SUCCESS;
}

/* ---- The loop ---- */

static void trainer_tell(struct trainer *trainer)
{
    const struct trainer_options *options = trainer->options;
    struct trainer_progress *progress = &trainer->progress;
    progress->seconds = trainer->seconds;
    if (!progress->tested)
        progress->score = (struct score){.loss = trainer->epoch.loss / (double)trainer->epoch.count,
                                         .accuracy = (double)trainer->epoch.correct /
                                                     (double)trainer->epoch.count,
                                         .images = trainer->epoch.count};
    if (options->progress && trainer->rank == 0)
        options->progress(options->context, progress);
}

/* Ends an epoch, or the run: scores over all ranks. */
static alnico_status_t trainer_epoch(struct trainer *trainer)
{
    struct trainer_progress *progress = &trainer->progress;
    TRY(share_score(trainer, &trainer->epoch, &progress->score));
    TRY(trainer_test(trainer, &progress->test));
    progress->tested = true;
    trainer_tell(trainer);
    progress->tested = false;
    trainer->epoch = (struct outcome){0};
    return ALNICO_SUCCESS;
}

/* With a time limit: whether it is over, by the slowest rank's clock. */
static alnico_status_t trainer_agree(struct trainer *trainer, bool *over)
{
    const size_t step = trainer->progress.step;
    if (trainer->options->seconds <= 0 || (step > 1 && step % AGREE_STEPS))
        return ALNICO_SUCCESS;
    trainer->agreed = trainer->seconds;
    trainer->agreed_step = step;
    trainer->mark = clock_seconds();
    TRY(share(trainer, &trainer->agreed, 1, ALNICO_MAXIMUM));
    lap(trainer, PHASE_COMMUNICATION);
    *over = trainer->agreed >= trainer->options->seconds;
    return ALNICO_SUCCESS;
}

static alnico_status_t trainer_loop(struct trainer *trainer)
{
    struct trainer_progress *progress = &trainer->progress;
    bool over = false;
    while (!over) {
        progress->epoch = progress->step / trainer->per_epoch + 1;
        progress->done = trainer_done(trainer);
        TRY(trainer_step(trainer));
        progress->step++;
        over = progress->step >= trainer->steps;
        TRY(trainer_agree(trainer, &over));
        trainer_tell(trainer);
        if (over || progress->step % trainer->per_epoch == 0)
            TRY(trainer_epoch(trainer));
    }
    return ALNICO_SUCCESS;
}

/* ---- Beginning and end ---- */

static alnico_status_t name_check(const char *what, const char *name, const void *found)
{
    if (found)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT, "trainer: %s '%s' is not known", what, name);
}

static alnico_status_t options_check(const struct trainer_options *options)
{
    const int limits = (options->steps > 0) + (options->epochs > 0) + (options->seconds > 0);
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

static alnico_status_t trainer_data(struct trainer *trainer)
{
    const struct trainer_options *options = trainer->options;
    struct data_options data = {.source = options->data,
                                .batch = options->batch,
                                .rank = trainer->rank,
                                .size = trainer->size,
                                .seed = options->seed,
                                .train = true};
    TRY(data_open(&data, &trainer->train));
    data.train = false;
    TRY(data_open(&data, &trainer->test));
    trainer->per_epoch = data_batches(trainer->train);
    if (trainer->per_epoch)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT,
                     "trainer: batch %zu on %d ranks, but '%s' has only %zu images", options->batch,
                     trainer->size, options->data, data_info(trainer->train)->images);
}

static alnico_status_t trainer_open(struct trainer *trainer)
{
    const struct trainer_options *options = trainer->options;
    TRY(options_check(options));
    TRY(trainer_data(trainer));
    const struct data_info *info = data_info(trainer->train);
    TRY(model_network(model_find(options->model), info->height, info->width, info->channels,
                      info->classes, &trainer->network));
    TRY(optimizer_create(trainer->network, &options->optimizer, &trainer->optimizer));
    TRY(replica_create(trainer->network, kernels_find(options->kernels), options->batch,
                       options->threads, options->seed, &trainer->replica));
    trainer->strategy = strategy_find(options->strategy);
    const struct strategy_setup setup = {.comm = trainer->comm,
                                         .gradients = trainer->replica->arenas.gradients,
                                         .count = trainer->network->parameters,
                                         .bucket = options->bucket};
    TRY(trainer->strategy->create(&setup, &trainer->meeting));
    trainer->steps = options->steps;
    if (options->epochs)
        trainer->steps = options->epochs <= SIZE_MAX / trainer->per_epoch
                             ? options->epochs * trainer->per_epoch
                             : SIZE_MAX;
    if (options->seconds > 0)
        trainer->steps = SIZE_MAX;
    return ALNICO_SUCCESS;
}

static void trainer_close(struct trainer *trainer)
{
    if (trainer->strategy)
        trainer->strategy->destroy(trainer->meeting);
    replica_destroy(trainer->replica);
    optimizer_destroy(trainer->optimizer);
    network_destroy(trainer->network);
    data_close(trainer->train);
    data_close(trainer->test);
}

static alnico_status_t trainer_report(struct trainer *trainer, struct trainer_report *out)
{
    const struct trainer_progress *progress = &trainer->progress;
    double means[PHASES + 1], slowest = trainer->seconds, images = (double)progress->images;
    memcpy(means, trainer->phases, sizeof trainer->phases);
    means[PHASES] = trainer->library;
    TRY(share(trainer, means, PHASES + 1, ALNICO_AVERAGE));
    TRY(share(trainer, &slowest, 1, ALNICO_MAXIMUM));
    TRY(share(trainer, &images, 1, ALNICO_SUM));
    *out = (struct trainer_report){
        .ranks = trainer->size,
        .parameters = trainer->network->parameters,
        .steps = progress->step,
        .epochs = (double)progress->step / (double)trainer->per_epoch,
        .seconds = slowest,
        .library_seconds = means[PHASES],
        .test_seconds = trainer->test_seconds,
        .images_per_second = images / slowest,
        .train = progress->score,
        .test = progress->test,
        .hash = trainer_hash(trainer->replica->arenas.parameters,
                             trainer->network->parameters * sizeof(float)),
    };
    memcpy(out->phases, means, sizeof out->phases);
    return trainer_compare(out->hash, trainer->comm);
}

alnico_status_t trainer_run(const struct trainer_options *options, alnico_comm_t comm,
                            struct trainer_report *report)
{
    const bool alone = !comm || alnico_comm_size(comm) == 1;
    struct trainer trainer = {.options = options,
                              .comm = alone ? NULL : comm,
                              .rank = comm ? alnico_comm_rank(comm) : 0,
                              .size = comm ? alnico_comm_size(comm) : 1};
    *report = (struct trainer_report){0};
    alnico_status_t status = trainer_open(&trainer);
    if (status == ALNICO_SUCCESS)
        status = trainer_loop(&trainer);
    if (status == ALNICO_SUCCESS)
        status = trainer_report(&trainer, report);
    trainer_close(&trainer);
    return status;
}
