/* The training loop. See trainer.h. */
#include "train/trainer/state.h"

#include "base/status.h"
#include "train/base/clock.h"
#include "train/base/nvtx.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The ranks agree on whether the run is over after its first step, then after so many more or, if
 * that would take longer, in a second. */
enum { AGREE_STEPS = 8 };

/* After each step of backward. */
static alnico_status_t gradients_filled(void *context, size_t elements)
{
    struct trainer *trainer = context;
    TRY(trainer_combine(trainer, &elements));
    const double begin = clock_seconds();
    TRY(trainer->strategy->advance(trainer->strategy_self, elements));
    if (!trainer->place.stream)
        phase_timer_waited(trainer->timer, clock_seconds() - begin);
    return ALNICO_SUCCESS;
}

/* The share of the run that will be over after the step to come: with a time limit, which counts
 * from the first step on, if steps go on taking what they took until the ranks last agreed. */
static double trainer_done(const struct trainer *trainer)
{
    const size_t step = trainer->step + 1;
    double done = (double)step / (double)trainer->steps;
    if (trainer->options->seconds > 0)
        done = trainer->agreed_steps
                   ? trainer->agreed / trainer->options->seconds * (double)(step - trainer->first) /
                         (double)trainer->agreed_steps
                   : 0;
    return done < 1 ? done : 1;
}

static alnico_status_t trainer_input(struct trainer *trainer)
{
    trainer->progress.images += replica_counted(trainer->replica);
    if (trainer->uploaded)
        return phase_timer_mark(trainer->timer, PHASE_IO);
    struct batch batch;
    TRY(data_next(trainer->train, &batch));
    TRY(phase_timer_mark(trainer->timer, PHASE_IO));
    TRY(replica_send(trainer->replica, batch.images, batch.labels, batch.count));
    TRY(phase_timer_mark(trainer->timer, PHASE_COPY));
    trainer->uploaded = trainer_uploads_once(trainer->options);
    return replica_take(trainer->replica);
}

/* What dropout draws by: a step's images are numbered over its passes, and in each over the ranks. */
static alnico_status_t trainer_draw(struct trainer *trainer)
{
    const size_t own = trainer->whole ? 0 : (size_t)trainer->rank; /* parts know their images */
    const size_t before = trainer->pass * (size_t)trainer->image_parts + own;
    const struct draw draw = {.step = (uint32_t)trainer->step,
                              .image = (uint32_t)(before * trainer->options->batch)};
    return trainer->network->draws ? phase_timer_draw(trainer->timer, trainer->pass, draw)
                                   : ALNICO_SUCCESS;
}

alnico_status_t trainer_compute(struct trainer *trainer)
{
    struct replica *replica = trainer->replica;
    TRY_NVTX("forward", replica_forward(replica, true));
    TRY(phase_timer_mark(trainer->timer, PHASE_FORWARD));
    const bool last = trainer->pass + 1 == trainer->passes;
    TRY_NVTX("backward", replica_backward(replica, last ? gradients_filled : NULL, trainer));
    TRY(last ? trainer_combine_own(trainer) : trainer_accumulate(trainer));
    TRY(phase_timer_mark(trainer->timer, PHASE_BACKWARD));
    return last ? trainer->strategy->finish(trainer->strategy_self) : ALNICO_SUCCESS;
}

static size_t next_multiple(size_t step, size_t every)
{
    return every ? step - step % every + every : SIZE_MAX;
}

size_t trainer_until(const struct trainer *trainer)
{
    const struct trainer_options *options = trainer->options;
    const size_t stops[] = {next_multiple(trainer->step, trainer->per_epoch),
                            next_multiple(trainer->step, options->validate_every),
                            next_multiple(trainer->step, options->save_every)};
    size_t until = trainer->steps;
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++)
        until = stops[i] < until ? stops[i] : until;
    return until;
}

/* Counts a step that was enqueued: one of each rank's, or of those that the ranks share. */
static alnico_status_t step_count(struct trainer *trainer)
{
    const struct strategy_ops *strategy = trainer->strategy;
    struct strategy_round round = {.step = trainer->step + 1};
    const size_t until = trainer_until(trainer);
    if (strategy->share) {
        TRY(strategy->share(trainer->strategy_self, &round));
        trainer->stopped = round.over && round.step < until;
    }
    trainer->step = round.step;
    return strategy->after ? strategy->after(trainer->strategy_self, trainer->step)
                           : ALNICO_SUCCESS;
}

static alnico_status_t trainer_step(struct trainer *trainer)
{
    const double rate = optimizer_rate(&trainer->options->optimizer, trainer_done(trainer));
    TRY(phase_timer_begin(trainer->timer, rate));
    for (trainer->pass = 0; trainer->pass < trainer->passes; trainer->pass++) {
        TRY(trainer_input(trainer));
        TRY(trainer_draw(trainer));
        TRY(trainer_launch(trainer));
    }
    trainer->pass = 0;
    return step_count(trainer);
}

static void trainer_announce(struct trainer *trainer)
{
    const struct trainer_options *options = trainer->options;
    struct trainer_progress *progress = &trainer->progress;
    progress->seconds = trainer->seconds;
    const double count = fmax((double)trainer->epoch.count, 1); /* parts may have no labels */
    if (!progress->tested)
        progress->score = (struct score){.loss = trainer->epoch.loss / count,
                                         .accuracy = (double)trainer->epoch.correct / count,
                                         .images = trainer->epoch.images};
    if (options->progress && trainer->rank == 0)
        options->progress(options->context, progress);
    progress->latest = (struct outcome){0};
    memset(progress->latest_phases, 0, sizeof progress->latest_phases);
    progress->latest_steps = 0;
}

static alnico_status_t step_seconds_append(struct trainer *trainer, double seconds)
{
    const size_t at = trainer->read;
    if (at == trainer->step_room) {
        const size_t room = at ? 2 * at : 256;
        double *step_seconds = realloc(trainer->step_seconds, room * sizeof *step_seconds);
        if (!step_seconds)
            return error_set(ALNICO_ERROR_MEMORY, "trainer: no memory for the times of steps");
        trainer->step_seconds = step_seconds;
        trainer->step_room = room;
    }
    trainer->step_seconds[at] = seconds;
    trainer->seconds += seconds;
    trainer->read++;
    trainer->progress.step =
        trainer->strategy->share ? trainer->step : trainer->first + trainer->read;
    return ALNICO_SUCCESS;
}

/* Of a split network all ranks' terms are told; the images stay this rank's. */
static alnico_status_t outcome_join(struct trainer *trainer, struct outcome *outcome)
{
    double sums[] = {outcome->loss, (double)outcome->correct, (double)outcome->count};
    if (!trainer->whole)
        return ALNICO_SUCCESS;
    TRY(trainer_allreduce(trainer, sums, 3, ALNICO_SUM));
    outcome->loss = sums[0];
    outcome->correct = (size_t)sums[1];
    outcome->count = (size_t)sums[2];
    return ALNICO_SUCCESS;
}

/* Sums that the ranks add up: of terms that are all ranks' already rank 0 keeps them. */
static void epoch_add(struct trainer *trainer, const struct outcome *outcome)
{
    trainer->epoch.images += outcome->images;
    if (trainer->whole && trainer->rank > 0)
        return;
    trainer->epoch.loss += outcome->loss;
    trainer->epoch.correct += outcome->correct;
    trainer->epoch.count += outcome->count;
}

static alnico_status_t trainer_read(struct trainer *trainer, const struct phase_times *reading)
{
    struct trainer_progress *progress = &trainer->progress;
    struct outcome outcome = reading->outcome;
    if (!reading->steps)
        return ALNICO_SUCCESS;
    TRY(outcome_join(trainer, &outcome));
    if (trainer->place.device) /* replays of a graph make no calls that would say so */
        TRY(alnico_comm_status(trainer->place.device));
    for (size_t i = 0; i < reading->steps; i++)
        TRY(step_seconds_append(trainer, reading->seconds[i]));
    for (int i = 0; i < PHASES; i++)
        trainer->phases[i] += reading->phases[i];
    memcpy(progress->latest_phases, reading->phases, sizeof reading->phases);
    progress->latest_steps = reading->steps;
    progress->latest_seconds = reading->seconds;
    progress->latest = outcome;
    progress->rate = reading->rate;
    epoch_add(trainer, &outcome);
    if (!isfinite(outcome.loss))
        return error_set(ALNICO_ERROR_SYSTEM,
                         "trainer: the loss of step %zu is not a number; a learning rate below %g "
                         "may help",
                         progress->step, trainer->options->optimizer.rate);
    progress->epoch = (progress->step - 1) / trainer->per_epoch + 1;
    progress->done = trainer->options->seconds > 0
                         ? fmin(trainer->seconds / trainer->options->seconds, 1)
                         : (double)progress->step / (double)trainer->steps;
    trainer_announce(trainer);
    return ALNICO_SUCCESS;
}

alnico_status_t trainer_drain(struct trainer *trainer)
{
    struct phase_times reading;
    do {
        TRY(phase_timer_pause(trainer->timer, &reading));
        TRY(trainer_read(trainer, &reading));
    } while (reading.steps);
    return replica_synchronize(trainer->replica);
}

/* Waits for everything that was enqueued, and makes the ranks equal. */
static alnico_status_t trainer_settle(struct trainer *trainer)
{
    TRY(trainer_drain(trainer));
    if (!trainer->strategy->settle)
        return ALNICO_SUCCESS;
    TRY(trainer->strategy->settle(trainer->strategy_self));
    return replica_synchronize(trainer->replica);
}

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
    const double begin = clock_seconds(), library = trainer_library(trainer);
    double before[SCORES], after[SCORES];
    size_t images = 0;
    TRY(statistics_average(trainer));
    TRY(replica_read(replica, replica->arenas.score, before, sizeof before));
    for (size_t i = 0; i < trainer->test_batches; i++) {
        struct batch batch;
        TRY(data_next(trainer->test, &batch));
        TRY(replica_send(replica, batch.images, batch.labels, batch.count));
        TRY(replica_take(replica));
        TRY(replica_forward(replica, false));
        images += replica_counted(replica) ? batch.count : 0;
    }
    TRY(replica_read(replica, replica->arenas.score, after, sizeof after));
    const struct outcome total = {.loss = after[SCORE_LOSS] - before[SCORE_LOSS],
                                  .correct = (size_t)(after[SCORE_CORRECT] - before[SCORE_CORRECT]),
                                  .count = (size_t)(after[SCORE_TERMS] - before[SCORE_TERMS]),
                                  .images = images};
    TRY(trainer_score(trainer, &total, out));
    trainer->uploaded = false;
    trainer->tests++;
    trainer->other_library += trainer_library(trainer) - library;
    trainer->test_seconds += clock_seconds() - begin;
    return ALNICO_SUCCESS;
}

/* The score of the epoch so far over all ranks, once all that was enqueued has ended. */
static alnico_status_t trainer_rest(struct trainer *trainer)
{
    TRY(trainer_settle(trainer));
    return trainer_score(trainer, &trainer->epoch, &trainer->progress.score);
}

/* Scores over all ranks: of the epoch so far, and of a test. */
static alnico_status_t trainer_validate(struct trainer *trainer)
{
    struct trainer_progress *progress = &trainer->progress;
    TRY(trainer_rest(trainer));
    if (trainer->test)
        TRY(trainer_test(trainer, &progress->test));
    progress->tested = true;
    trainer_announce(trainer);
    progress->tested = false;
    if (trainer->step % trainer->per_epoch == 0)
        trainer->epoch = (struct outcome){0};
    return ALNICO_SUCCESS;
}

static bool validation_due(const struct trainer *trainer)
{
    const size_t every = trainer->options->validate_every;
    return trainer->step % trainer->per_epoch == 0 || (every && trainer->step % every == 0);
}

/* Steps until the ranks agree again, by what a step takes. */
static size_t agree_steps(double step_seconds)
{
    if (step_seconds >= 1)
        return 1;
    return step_seconds * AGREE_STEPS > 1 ? (size_t)(1 / step_seconds) : AGREE_STEPS;
}

/* Whether a rank was told to stop, and whether the time is over, by the slowest rank's clock. */
static alnico_status_t trainer_agree(struct trainer *trainer, bool *over)
{
    const struct trainer_options *options = trainer->options;
    const size_t done = trainer->step - trainer->first;
    const bool told = options->stop && atomic_load(options->stop), limited = options->seconds > 0;
    if (trainer->strategy->share || (!limited && !options->stop))
        return ALNICO_SUCCESS;
    if (done < trainer->agree_next && (trainer->place.host || !told))
        return ALNICO_SUCCESS;
    if (limited)
        TRY(trainer_drain(trainer));
    double latest[2] = {told, trainer->seconds};
    TRY(trainer_allreduce(trainer, latest, 2, ALNICO_MAXIMUM));
    const size_t known = trainer->progress.step - trainer->first;
    trainer->stopped = latest[0] > 0;
    trainer->agreed = latest[1];
    trainer->agreed_steps = done;
    trainer->agree_next = done + agree_steps(known ? trainer->agreed / (double)known : 0);
    *over = *over || (limited && trainer->agreed >= options->seconds);
    return ALNICO_SUCCESS;
}

/* Saves the state if it is time to. */
static alnico_status_t trainer_checkpoint(struct trainer *trainer, bool over)
{
    const struct trainer_options *options = trainer->options;
    const bool due = options->save_every && trainer->step % options->save_every == 0;
    if (!options->save || !(over || due))
        return ALNICO_SUCCESS;
    TRY(trainer_settle(trainer));
    return trainer_save(trainer);
}

static alnico_status_t trainer_loop(struct trainer *trainer)
{
    bool over = trainer->step >= trainer->steps;
    while (!over) {
        struct phase_times reading;
        TRY(trainer_keep(trainer));
        TRY_NVTX("step", trainer_step(trainer));
        TRY(phase_timer_end(trainer->timer, &reading));
        TRY(trainer_read(trainer, &reading));
        over = trainer->step >= trainer->steps;
        TRY(trainer_agree(trainer, &over));
        if (over || validation_due(trainer))
            TRY(trainer_validate(trainer));
        else if (trainer->stopped)
            TRY(trainer_rest(trainer));
        over = over || trainer->stopped;
        TRY(trainer_checkpoint(trainer, over));
    }
    return ALNICO_SUCCESS;
}

/* Lets no other rank wait for this one. */
static void trainer_abort(struct trainer *trainer)
{
    if (trainer->place.host)
        alnico_comm_abort(trainer->place.host);
    if (trainer->place.device && trainer->place.device != trainer->place.host)
        alnico_comm_abort(trainer->place.device);
    if (trainer->moves)
        alnico_comm_abort(trainer->moves);
    if (trainer->norms)
        alnico_comm_abort(trainer->norms);
}

/* Whether the stream comes to rest, soon after the communicators were aborted. */
static bool stream_rests(const struct trainer *trainer)
{
    enum { REST_SECONDS = 10 };
    const double most =
        stream_wait_deadline() < REST_SECONDS ? stream_wait_deadline() : REST_SECONDS;
    return !trainer->replica ||
           stream_wait_rest(&trainer->replica->wait, trainer->place.stream, most);
}

alnico_status_t trainer_fail(struct trainer *trainer, alnico_status_t status)
{
    char detail[512];
    snprintf(detail, sizeof detail, "%s", alnico_error_detail());
    trainer_abort(trainer);
    if (stream_rests(trainer))
        trainer_close(trainer);
    return error_set(status, "%s", detail);
}

struct trainer trainer_make(const struct trainer_options *options,
                            const struct trainer_place *place)
{
    alnico_comm_t host = place->host;
    const bool alone = !host || alnico_comm_size(host) == 1;
    struct trainer trainer = {
        .options = options,
        .place = {.stream = place->stream, .part = place->part, .parts = place->parts},
        .rank = host ? alnico_comm_rank(host) : 0,
        .size = host ? alnico_comm_size(host) : 1};
    trainer.begun = trainer.size;
    trainer.part = place->parts ? place->part : trainer.rank;
    trainer.part_count = place->parts ? place->parts : trainer.size;
    trainer.image_part = trainer.rank;
    trainer.image_parts = trainer.size;
    if (!alone) {
        trainer.place.host = host;
        trainer.place.device = place->device ? place->device : host;
    }
    return trainer;
}

alnico_status_t trainer_run(const struct trainer_options *options,
                            const struct trainer_place *place, struct trainer_report *report)
{
    struct trainer trainer = trainer_make(options, place);
    *report = (struct trainer_report){0};
    alnico_status_t status = trainer_open(&trainer);
    while (status == ALNICO_SUCCESS) {
        status = trainer_loop(&trainer);
        if (status == ALNICO_SUCCESS)
            status = trainer_report(&trainer, report);
        if (!trainer_outlives(&trainer, status))
            break;
        status = trainer_shrink(&trainer);
    }
    if (status == ALNICO_SUCCESS)
        trainer_close(&trainer);
    else
        status = trainer_fail(&trainer, status);
    alnico_comm_destroy(trainer.shrunk_device);
    alnico_comm_destroy(trainer.shrunk);
    return status;
}
