/* The training loop and its clock. See trainer.h. */
#include "trainer.h"

#include "buckets.h"
#include "clock.h"
#include "data.h"
#include "models/models.h"
#include "status.h"
#include "strategy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* With a time limit, the ranks agree on the time after the first step and whenever so many are done. A
 * stream that runs by itself is looked at whenever so many steps were enqueued. */
enum { AGREE_STEPS = 8, INTERVAL = 8 };

struct trainer {
    const struct trainer_options *options;
    struct trainer_place place; /* without communicators: alone */
    int rank, size;
    struct network *network;
    struct replica *replica;
    struct meter *meter;
    const struct strategy_ops *strategy;
    struct buckets buckets;
    void *meeting; /* the strategy's */
    struct data *train, *test;
    size_t steps, per_epoch; /* to do (SIZE_MAX with a time limit); in an epoch */
    size_t step;             /* enqueued so far */
    double phases[PHASES];
    double seconds; /* of training */
    double *lasted; /* seconds of each step that was read */
    size_t lasted_room;
    double agreed;                     /* of training, as all ranks last agreed on it */
    size_t agreed_step;                /* after so many steps */
    double test_library, test_seconds; /* of tests: inside the kernels' library; in all */
    struct outcome epoch;              /* of this epoch's images so far */
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
    if (!trainer->place.host)
        return ALNICO_SUCCESS;
    return alnico_allreduce(ALNICO_IN_PLACE, values, count, ALNICO_FLOAT64, op,
                            trainer->place.host);
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

/* ---- One step ---- */

static double library_seconds(const struct trainer *trainer)
{
    const struct kernels_ops *ops = trainer->replica->ops;
    return ops->library_seconds ? ops->library_seconds(trainer->replica->kernels) : 0;
}

/* After each step of backward. */
static alnico_status_t gradients_filled(void *context, size_t elements)
{
    struct trainer *trainer = context;
    const double begin = clock_seconds();
    TRY(trainer->strategy->advance(trainer->meeting, elements));
    if (!trainer->place.stream)
        meter_waited(trainer->meter, clock_seconds() - begin);
    return ALNICO_SUCCESS;
}

/* The share of the run that will be over after the step to come: with a time limit, if steps go on taking
 * what they took until the ranks last agreed. */
static double trainer_done(const struct trainer *trainer)
{
    const double step = (double)(trainer->step + 1);
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
    TRY(data_next(trainer->train, &batch));
    TRY(replica_load(trainer->replica, batch.images, batch.labels, batch.count));
    trainer->progress.images += batch.count;
    return meter_mark(trainer->meter, PHASE_INPUT);
}

/* All of a step but its input: the same calls with the same memory every time. */
static alnico_status_t trainer_compute(struct trainer *trainer)
{
    struct replica *replica = trainer->replica;
    TRY(replica_forward(replica, true));
    TRY(meter_mark(trainer->meter, PHASE_FORWARD));
    TRY(replica_backward(replica, gradients_filled, trainer));
    TRY(meter_mark(trainer->meter, PHASE_BACKWARD));
    TRY(trainer->strategy->join(trainer->meeting));
    TRY(meter_mark(trainer->meter, PHASE_COMMUNICATION));
    TRY(replica_update(replica, &trainer->options->optimizer));
    return meter_mark(trainer->meter, PHASE_UPDATE);
}

static alnico_status_t trainer_step(struct trainer *trainer)
{
    const double rate = optimizer_rate(&trainer->options->optimizer, trainer_done(trainer));
    trainer->progress.rate = rate;
    TRY(meter_begin(trainer->meter, rate));
    TRY(trainer_input(trainer));
    TRY(trainer_compute(trainer));
    trainer->step++;
    return ALNICO_SUCCESS;
}

/* ---- What the stream has done ---- */

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

static alnico_status_t lasted_append(struct trainer *trainer, double seconds)
{
    const size_t at = trainer->progress.step;
    if (at == trainer->lasted_room) {
        const size_t room = at ? 2 * at : 256;
        double *lasted = realloc(trainer->lasted, room * sizeof *lasted);
        if (!lasted)
            return error_set(ALNICO_ERROR_MEMORY, "trainer: no memory for the times of steps");
        trainer->lasted = lasted;
        trainer->lasted_room = room;
    }
    trainer->lasted[at] = seconds;
    trainer->seconds += seconds;
    trainer->progress.step++;
    return ALNICO_SUCCESS;
}

static alnico_status_t trainer_take(struct trainer *trainer, const struct meter_reading *reading)
{
    struct trainer_progress *progress = &trainer->progress;
    if (!reading->steps)
        return ALNICO_SUCCESS;
    for (size_t i = 0; i < reading->steps; i++)
        TRY(lasted_append(trainer, reading->seconds[i]));
    for (int i = 0; i < PHASES; i++)
        trainer->phases[i] += reading->phases[i];
    trainer->epoch.loss += reading->outcome.loss;
    trainer->epoch.correct += reading->outcome.correct;
    trainer->epoch.count += reading->outcome.count;
    if (!isfinite(reading->outcome.loss))
        return error_set(ALNICO_ERROR_SYSTEM,
                         "trainer: the loss of step %zu is not a number; a learning rate below %g "
                         "may help",
                         progress->step, trainer->options->optimizer.rate);
    progress->epoch = (progress->step - 1) / trainer->per_epoch + 1;
    progress->done = trainer->options->seconds > 0
                         ? fmin(trainer->seconds / trainer->options->seconds, 1)
                         : (double)progress->step / (double)trainer->steps;
    trainer_tell(trainer);
    return ALNICO_SUCCESS;
}

/* Waits for everything that was enqueued. */
static alnico_status_t trainer_drain(struct trainer *trainer)
{
    struct meter_reading reading;
    do {
        TRY(meter_pause(trainer->meter, &reading));
        TRY(trainer_take(trainer, &reading));
    } while (reading.steps);
    return replica_synchronize(trainer->replica);
}

/* ---- The test ---- */

/* Makes the running statistics the mean over the ranks. */
static alnico_status_t statistics_average(struct trainer *trainer)
{
    const size_t count = trainer->network->statistics;
    float *statistics = trainer->replica->arenas.statistics;
    if (!trainer->place.device || !count)
        return ALNICO_SUCCESS;
    return alnico_allreduce(ALNICO_IN_PLACE, statistics, count, ALNICO_FLOAT32, ALNICO_AVERAGE,
                            trainer->place.device);
}

static alnico_status_t trainer_test(struct trainer *trainer, struct score *out)
{
    struct replica *replica = trainer->replica;
    const double begin = clock_seconds(), library = library_seconds(trainer);
    const size_t batches = data_batches(trainer->test);
    double before[SCORES], after[SCORES];
    TRY(statistics_average(trainer));
    TRY(replica_read(replica, replica->arenas.score, before, sizeof before));
    for (size_t i = 0; i < batches; i++) {
        struct batch batch;
        TRY(data_next(trainer->test, &batch));
        TRY(replica_load(replica, batch.images, batch.labels, batch.count));
        TRY(replica_forward(replica, false));
    }
    TRY(replica_read(replica, replica->arenas.score, after, sizeof after));
    const struct outcome total = {.loss = after[SCORE_LOSS] - before[SCORE_LOSS],
                                  .correct = (size_t)(after[SCORE_CORRECT] - before[SCORE_CORRECT]),
                                  .count = (size_t)(after[SCORE_IMAGES] - before[SCORE_IMAGES])};
    TRY(share_score(trainer, &total, out));
    trainer->test_library += library_seconds(trainer) - library;
    trainer->test_seconds += clock_seconds() - begin;
    return ALNICO_SUCCESS;
}

/* ---- The loop ---- */

/* Ends an epoch, or the run: scores over all ranks. */
static alnico_status_t trainer_epoch(struct trainer *trainer)
{
    struct trainer_progress *progress = &trainer->progress;
    TRY(trainer_drain(trainer));
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
    if (trainer->options->seconds <= 0 || (trainer->step > 1 && trainer->step % AGREE_STEPS))
        return ALNICO_SUCCESS;
    TRY(trainer_drain(trainer));
    trainer->agreed = trainer->seconds;
    trainer->agreed_step = trainer->step;
    TRY(share(trainer, &trainer->agreed, 1, ALNICO_MAXIMUM));
    *over = trainer->agreed >= trainer->options->seconds;
    return ALNICO_SUCCESS;
}

static alnico_status_t trainer_loop(struct trainer *trainer)
{
    bool over = false;
    while (!over) {
        struct meter_reading reading;
        TRY(trainer_step(trainer));
        TRY(meter_end(trainer->meter, &reading));
        TRY(trainer_take(trainer, &reading));
        over = trainer->step >= trainer->steps;
        TRY(trainer_agree(trainer, &over));
        if (over || trainer->step % trainer->per_epoch == 0)
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

static size_t wire_bytes(const struct trainer_options *options)
{
    return options->wire == ALNICO_FLOAT32 ? sizeof(float) : sizeof(uint16_t);
}

static alnico_status_t trainer_buckets(struct trainer *trainer)
{
    const struct trainer_options *options = trainer->options;
    const size_t elements = trainer->network->parameters;
    const size_t each = options->buckets / wire_bytes(options);
    if (options->rule == BUCKETS_OF_COUNT && options->buckets)
        return buckets_of_count(elements, options->buckets, &trainer->buckets);
    if (each)
        return buckets_of_size(elements, each, &trainer->buckets);
    return error_set(ALNICO_ERROR_ARGUMENT, "trainer: buckets of %zu %s, expected at least %zu",
                     options->buckets, options->rule == BUCKETS_OF_COUNT ? "in number" : "bytes",
                     options->rule == BUCKETS_OF_COUNT ? 1 : wire_bytes(options));
}

static alnico_status_t trainer_meeting(struct trainer *trainer)
{
    const struct trainer_options *options = trainer->options;
    const struct replica *replica = trainer->replica;
    TRY(trainer_buckets(trainer));
    const struct strategy_setup setup = {.comm = trainer->place.device,
                                         .device = replica->device,
                                         .stream = trainer->place.stream,
                                         .gradients = replica->arenas.gradients,
                                         .count = trainer->network->parameters,
                                         .type = replica->setup.gradient_type,
                                         .wire = options->wire,
                                         .ends = trainer->buckets.ends,
                                         .buckets = trainer->buckets.count,
                                         .late = options->late};
    return trainer->strategy->create(&setup, &trainer->meeting);
}

static alnico_status_t trainer_replica(struct trainer *trainer)
{
    const struct trainer_options *options = trainer->options;
    const struct kernels_ops *kernels = kernels_find(options->kernels);
    const struct replica_setup setup = {.kernels = kernels,
                                        .batch = options->batch,
                                        .seed = options->seed,
                                        .options = options->compute,
                                        .gradient_type = kernels->wire_gradients ? options->wire
                                                                                 : ALNICO_FLOAT32,
                                        .stream = trainer->place.stream,
                                        .memory_limit = options->memory_limit};
    TRY(replica_create(trainer->network, &setup, &trainer->replica));
    return meter_create(trainer->replica, INTERVAL, &trainer->meter);
}

static alnico_status_t trainer_open(struct trainer *trainer)
{
    const struct trainer_options *options = trainer->options;
    TRY(options_check(options));
    TRY(trainer_data(trainer));
    const struct data_info *info = data_info(trainer->train);
    TRY(model_network(model_find(options->model), info->height, info->width, info->channels,
                      info->classes, &trainer->network));
    TRY(optimizer_check(&options->optimizer));
    TRY(trainer_replica(trainer));
    trainer->strategy = strategy_find(options->strategy);
    TRY(trainer_meeting(trainer));
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
    if (trainer->replica)
        replica_synchronize(trainer->replica);
    if (trainer->strategy)
        trainer->strategy->destroy(trainer->meeting);
    meter_destroy(trainer->meter);
    replica_destroy(trainer->replica);
    network_destroy(trainer->network);
    data_close(trainer->train);
    data_close(trainer->test);
    buckets_free(&trainer->buckets);
    free(trainer->lasted);
}

/* ---- The report ---- */

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of the steps after the first tenth, at most 20. Sorts them. */
static double lasted_median(struct trainer *trainer)
{
    const size_t steps = trainer->progress.step, skipped = steps / 10 < 20 ? steps / 10 : 20;
    const size_t count = steps - skipped;
    double *lasted = trainer->lasted + skipped;
    qsort(lasted, count, sizeof *lasted, by_size);
    return (lasted[(count - 1) / 2] + lasted[count / 2]) / 2;
}

static alnico_status_t parameters_hash(struct trainer *trainer, uint64_t *out)
{
    const size_t bytes = trainer->network->parameters * sizeof(float);
    float *parameters = malloc(bytes + sizeof *parameters);
    if (!parameters)
        return error_set(ALNICO_ERROR_MEMORY, "trainer: no memory for the parameters");
    const alnico_status_t status =
        replica_read(trainer->replica, trainer->replica->arenas.parameters, parameters, bytes);
    *out = trainer_hash(parameters, bytes);
    free(parameters);
    return status;
}

static alnico_status_t trainer_report(struct trainer *trainer, struct trainer_report *out)
{
    const struct trainer_progress *progress = &trainer->progress;
    const struct plan *plan = trainer->replica->plan;
    double means[PHASES + 1], slowest[2] = {trainer->seconds, lasted_median(trainer)};
    double images = (double)progress->images;
    memcpy(means, trainer->phases, sizeof trainer->phases);
    means[PHASES] = library_seconds(trainer) - trainer->test_library;
    TRY(share(trainer, means, PHASES + 1, ALNICO_AVERAGE));
    TRY(share(trainer, slowest, 2, ALNICO_MAXIMUM));
    TRY(share(trainer, &images, 1, ALNICO_SUM));
    *out = (struct trainer_report){
        .ranks = trainer->size,
        .parameters = trainer->network->parameters,
        .steps = progress->step,
        .epochs = (double)progress->step / (double)trainer->per_epoch,
        .seconds = slowest[0],
        .step_seconds = slowest[1],
        .library_seconds = means[PHASES],
        .test_seconds = trainer->test_seconds,
        .images_per_second = images / slowest[0],
        .train = progress->score,
        .test = progress->test,
        .memory = replica_memory(trainer->replica),
        .activations_least = plan->least,
        .activations_apart = plan->apart,
        .buckets = trainer->buckets.count,
    };
    memcpy(out->phases, means, sizeof out->phases);
    TRY(parameters_hash(trainer, &out->hash));
    return trainer_compare(out->hash, trainer->place.host);
}

/* Lets no other rank wait for this one. */
static void trainer_abort(struct trainer *trainer)
{
    if (trainer->place.host)
        alnico_comm_abort(trainer->place.host);
    if (trainer->place.device && trainer->place.device != trainer->place.host)
        alnico_comm_abort(trainer->place.device);
}

/* Ends after an error. The detail stays that of the error. */
static alnico_status_t trainer_fail(struct trainer *trainer, alnico_status_t status)
{
    char detail[512];
    snprintf(detail, sizeof detail, "%s", alnico_error_detail());
    trainer_abort(trainer);
    trainer_close(trainer);
    return error_set(status, "%s", detail);
}

alnico_status_t trainer_run(const struct trainer_options *options,
                            const struct trainer_place *place, struct trainer_report *report)
{
    alnico_comm_t host = place->host;
    const bool alone = !host || alnico_comm_size(host) == 1;
    struct trainer trainer = {.options = options,
                              .place = {.stream = place->stream},
                              .rank = host ? alnico_comm_rank(host) : 0,
                              .size = host ? alnico_comm_size(host) : 1};
    if (!alone) {
        trainer.place.host = host;
        trainer.place.device = place->device ? place->device : host;
    }
    *report = (struct trainer_report){0};
    alnico_status_t status = trainer_open(&trainer);
    if (status == ALNICO_SUCCESS)
        status = trainer_loop(&trainer);
    if (status == ALNICO_SUCCESS)
        status = trainer_report(&trainer, report);
    if (status != ALNICO_SUCCESS)
        return trainer_fail(&trainer, status);
    trainer_close(&trainer);
    return ALNICO_SUCCESS;
}
