/*
 * Going on after a rank was lost: the others shrink the communicator, take the state of whoever did
 * the most steps, and make the run anew from there with their number. A step counts images: its
 * number becomes that by which as many images are done as before. On the inline stream a step of strategy
 * allreduce that fails changes nothing; elsewhere the state is that of the last step of which a copy was
 * kept, when all before it was known to have gone well. See trainer/state.h.
 */
#include "train/trainer/state.h"

#include "base/log.h"
#include "base/status.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEEP_STEPS = 8 }; /* at least, from one copy to the next */

/* What a rank has of the run when another one is lost, or had when it kept it. */
struct state {
    size_t step, tests; /* done; steps of `ranks` */
    int ranks;
    struct outcome epoch; /* this rank's */
    size_t count;
    float *values; /* of the arenas, one behind the other */
};

enum { PIECES = 3 + OPTIMIZER_STATES };

/* The arenas of a replica that go on. Returns how many. */
static size_t pieces_of(const struct trainer *trainer, struct strategy_memory *out)
{
    const struct arenas *arenas = &trainer->replica->arenas;
    const size_t states = optimizers_all[trainer->options->optimizer.kind]->states,
                 count = trainer->network->parameters;
    out[0] = (struct strategy_memory){arenas->parameters, count};
    out[1] = (struct strategy_memory){arenas->statistics, trainer->network->statistics};
    out[2] = (struct strategy_memory){arenas->control, CONTROLS};
    for (size_t i = 0; i < states; i++)
        out[3 + i] = (struct strategy_memory){arenas->states[i], count};
    return 3 + states;
}

static alnico_status_t state_read(const struct trainer *trainer, struct state *out)
{
    struct strategy_memory pieces[PIECES];
    const size_t count = pieces_of(trainer, pieces);
    *out = (struct state){.step = trainer->step,
                          .tests = trainer->tests,
                          .ranks = trainer->size,
                          .epoch = trainer->epoch};
    for (size_t i = 0; i < count; i++)
        out->count += pieces[i].count;
    out->values = malloc(out->count * sizeof *out->values);
    if (!out->values)
        return error_set(ALNICO_ERROR_MEMORY, "trainer: no memory to go on without a lost rank");
    float *at = out->values;
    for (size_t i = 0; i < count; at += pieces[i++].count)
        TRY(replica_read(trainer->replica, pieces[i].memory, at, pieces[i].count * sizeof *at));
    return ALNICO_SUCCESS;
}

static alnico_status_t state_write(struct trainer *trainer, const struct state *state)
{
    struct strategy_memory pieces[PIECES];
    const size_t count = pieces_of(trainer, pieces);
    const float *at = state->values;
    for (size_t i = 0; i < count; at += pieces[i++].count)
        TRY(replica_write(trainer->replica, pieces[i].memory, at, pieces[i].count * sizeof *at));
    return ALNICO_SUCCESS;
}

/* The state of the lowest rank that did the most steps becomes everybody's; on an error this rank's
 * is what it was. `values` is as large as the state's. */
static alnico_status_t state_take(alnico_comm_t comm, struct state *state, float *values)
{
    uint64_t most = state->step, tests = state->tests;
    TRY(alnico_allreduce(ALNICO_IN_PLACE, &most, 1, ALNICO_UINT64, ALNICO_MAXIMUM, comm));
    int32_t source = state->step == most ? alnico_comm_rank(comm) : alnico_comm_size(comm);
    TRY(alnico_allreduce(ALNICO_IN_PLACE, &source, 1, ALNICO_INT32, ALNICO_MINIMUM, comm));
    memcpy(values, state->values, state->count * sizeof *values);
    TRY(alnico_broadcast(&tests, 1, ALNICO_UINT64, source, comm));
    TRY(alnico_broadcast(values, state->count, ALNICO_FLOAT32, source, comm));
    memcpy(state->values, values, state->count * sizeof *values);
    state->step = most;
    state->tests = tests;
    return ALNICO_SUCCESS;
}

static alnico_status_t state_agree(alnico_comm_t comm, struct state *state)
{
    float *values = malloc(state->count * sizeof *values);
    const alnico_status_t status =
        values ? state_take(comm, state, values)
               : error_set(ALNICO_ERROR_MEMORY, "trainer: no memory to go on without a lost rank");
    free(values);
    return status;
}

/* "2" or "0, 3": the ranks of before that are not in the communicator. */
static alnico_status_t name_lost(alnico_comm_t comm, int rank, int size, char *text, size_t bytes)
{
    const int left = alnico_comm_size(comm);
    int32_t mine = rank, *ranks = malloc((size_t)left * sizeof *ranks);
    size_t length = 0;
    if (!ranks)
        return error_set(ALNICO_ERROR_MEMORY, "trainer: no memory");
    const alnico_status_t status = alnico_allgather(&mine, ranks, 1, ALNICO_INT32, comm);
    for (int i = 0, k = 0; i < size && status == ALNICO_SUCCESS; i++) {
        const bool lives = k < left && ranks[k] == i;
        k += lives;
        if (!lives && length < bytes)
            length +=
                (size_t)snprintf(text + length, bytes - length, "%s%d", length ? ", " : "", i);
    }
    free(ranks);
    return status;
}

/* On the lowest rank that goes on. */
static alnico_status_t say_lost(const struct trainer *before, alnico_comm_t comm,
                                const struct state *state)
{
    const size_t images = before->options->batch * before->passes;
    const int left = alnico_comm_size(comm);
    char lost[64] = "";
    TRY(name_lost(comm, before->rank, before->size, lost, sizeof lost));
    if (alnico_comm_rank(comm) == 0)
        log_write(LOG_WARNING,
                  "trainer: lost of %d ranks: %s; %d go on after step %zu, with %zu images a step "
                  "instead of %zu",
                  before->size, *lost ? lost : "none", left, state->step, images * (size_t)left,
                  images * (size_t)before->size);
    return ALNICO_SUCCESS;
}

/* Whether a step that fails may leave parameters that no rank has agreed to. */
static bool keeps(const struct trainer *trainer)
{
    return trainer->options->shrinks && trainer->place.host &&
           (trainer->place.stream || trainer->options->every);
}

/* Between two averages the ranks' parameters differ. */
static bool keep_is_due(const struct trainer *trainer)
{
    const size_t every = trainer->options->every;
    return !trainer->kept ||
           (trainer->step - trainer->kept->step >= KEEP_STEPS && !(every && trainer->step % every));
}

static alnico_status_t state_keep(struct trainer *trainer, struct state *out)
{
    TRY(trainer_drain(trainer));
    TRY(state_read(trainer, out));
    return alnico_comm_status(trainer->place.device);
}

void trainer_forget(struct trainer *trainer)
{
    if (trainer->kept)
        free(trainer->kept->values);
    free(trainer->kept);
    trainer->kept = NULL;
}

alnico_status_t trainer_keep(struct trainer *trainer)
{
    if (!keeps(trainer) || !keep_is_due(trainer))
        return ALNICO_SUCCESS;
    struct state state = {0}, *kept = malloc(sizeof *kept);
    const alnico_status_t status =
        kept ? state_keep(trainer, &state)
             : error_set(ALNICO_ERROR_MEMORY, "trainer: no memory to go on without a lost rank");
    if (status != ALNICO_SUCCESS) {
        free(state.values);
        free(kept);
        return status;
    }
    trainer_forget(trainer);
    *kept = state;
    trainer->kept = kept;
    return ALNICO_SUCCESS;
}

/* The state to go on from. */
static alnico_status_t state_last(struct trainer *trainer, struct state *out)
{
    if (!trainer->kept)
        return state_read(trainer, out);
    *out = *trainer->kept;
    trainer->kept->values = NULL;
    trainer_forget(trainer);
    return ALNICO_SUCCESS;
}

/* The run so far, in one that is not open yet, over `comm`. */
static struct trainer run_carry(const struct trainer *from, alnico_comm_t comm)
{
    const struct trainer_place place = {.host = comm, .stream = from->place.stream};
    struct trainer to = trainer_make(from->options, &place);
    to.shrunk = comm;
    to.begun = from->begun;
    memcpy(to.phases, from->phases, sizeof to.phases);
    to.seconds = from->seconds;
    to.read = from->read;
    to.step_seconds = from->step_seconds;
    to.step_room = from->step_room;
    to.test_seconds = from->test_seconds;
    to.progress = from->progress;
    return to;
}

/* Where the step to come begins in its epoch is known once the data are open. */
static alnico_status_t run_open(struct trainer *trainer, const struct state *state)
{
    trainer->tests = state->tests;
    trainer->epoch = state->epoch;
    trainer->step = (size_t)llround((double)state->step * state->ranks / trainer->size);
    trainer->progress.step = trainer->step;
    trainer->first = trainer->step - trainer->read;
    TRY(trainer_open(trainer));
    TRY(state_write(trainer, state));
    data_close(trainer->train);
    data_close(trainer->test);
    trainer->train = trainer->test = NULL;
    return trainer_data(trainer);
}

/* A communicator on the stream. Where that fails the others are not kept waiting. */
static alnico_status_t device_open(struct trainer *trainer)
{
    struct trainer_place *place = &trainer->place;
    if (!place->stream || !place->host)
        return ALNICO_SUCCESS;
    const alnico_status_t status =
        alnico_comm_duplicate(place->host, place->stream, &trainer->shrunk_device);
    if (status != ALNICO_SUCCESS) {
        char detail[512];
        snprintf(detail, sizeof detail, "%s", alnico_error_detail());
        alnico_comm_abort(place->host);
        return error_set(status, "%s", detail);
    }
    place->device = trainer->shrunk_device;
    return ALNICO_SUCCESS;
}

/* One try: another rank may be lost meanwhile. The run can be closed after each. */
static alnico_status_t run_again(struct trainer *trainer, struct state *state)
{
    alnico_comm_t comm, place = trainer->shrunk ? trainer->shrunk : trainer->place.host;
    if (trainer->place.device != trainer->place.host)
        alnico_comm_abort(trainer->place.device); /* what the stream waits for ends */
    TRY(alnico_comm_shrink(place, NULL, &comm));
    const struct trainer before = *trainer;
    trainer->step_seconds = NULL;
    trainer_close(trainer);
    *trainer = run_carry(&before, comm);
    alnico_comm_destroy(before.shrunk_device);
    alnico_comm_destroy(before.shrunk);
    TRY(device_open(trainer));
    TRY(state_agree(comm, state));
    TRY(say_lost(&before, comm, state));
    return run_open(trainer, state);
}

bool trainer_outlives(const struct trainer *trainer, alnico_status_t status)
{
    return trainer->options->shrinks && trainer->place.host &&
           (status == ALNICO_ERROR_TIMEOUT || status == ALNICO_ERROR_ABORTED) &&
           (alnico_comm_status(trainer->place.host) != ALNICO_SUCCESS ||
            alnico_comm_status(trainer->place.device) != ALNICO_SUCCESS);
}

alnico_status_t trainer_shrink(struct trainer *trainer)
{
    struct state state;
    alnico_status_t status = state_last(trainer, &state);
    if (status == ALNICO_SUCCESS)
        do
            status = run_again(trainer, &state);
        while (trainer_outlives(trainer, status));
    free(state.values);
    return status;
}
