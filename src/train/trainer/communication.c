/*
 * Costs of communicating in a run's steps: each bucket's backward time and the time of its allreduce
 * alone, how much of communication goes on beside computing, and of a split network what its moves
 * send, and what is computed meanwhile. Medians of some passes, averaged over the ranks. Called by
 * alnico-train --predict. See trainer.h.
 */
#include "train/trainer/state.h"

#include "base/datatype.h"
#include "base/status.h"
#include "train/base/median.h"

#include <math.h>
#include <stdlib.h>

enum { TRIALS = 9 };

/* Bytes of the messages that are timed. */
enum { MESSAGE_MOST = 1 << 20 };
static const size_t message_sizes[TRAINER_SIZES] = {1 << 10, 1 << 14, 1 << 17, MESSAGE_MOST};

struct measurement {
    struct trainer *trainer;
    char *scratch;              /* what messages carry */
    alnico_request_t *requests; /* of each bucket */
    uint64_t
        *stamps;    /* begin, when each bucket was filled, end; where each move starts and waits */
    size_t next;    /* bucket to be filled */
    double *trials; /* rows of TRIALS */
    struct trainer_communication *out; /* whose moves are those of the pass so far */
};

static size_t bucket_begin(const struct trainer *trainer, size_t bucket)
{
    return bucket ? trainer->buckets.ends[bucket - 1] : 0;
}

static alnico_status_t stamp(const struct measurement *m, size_t at)
{
    const struct replica *replica = m->trainer->replica;
    return replica->device->stamp(&m->stamps[at], replica->stream);
}

static size_t move_stamp(const struct measurement *m, size_t move)
{
    return m->trainer->buckets.count + 2 + 2 * move;
}

/* The functions of replica_waiting. No wait is told of a move that has messages on other ranks only. */
static alnico_status_t move_started(void *context, size_t step, bool backward)
{
    struct measurement *m = context;
    const struct replica_messages messages = replica_messages(m->trainer->replica, step);
    const size_t at = m->out->moves++;
    struct trainer_move *move = &m->out->move[at];
    move->bucket = backward ? 1 + m->next : 0;
    move->messages = messages.count;
    move->bytes = messages.bytes;
    TRY(stamp(m, move_stamp(m, at)));
    return stamp(m, move_stamp(m, at) + 1);
}

static alnico_status_t move_waits(void *context, enum phase ended)
{
    const struct measurement *m = context;
    return ended == PHASE_HALO ? ALNICO_SUCCESS : stamp(m, move_stamp(m, m->out->moves - 1) + 1);
}

static double between(const struct measurement *m, size_t from, size_t to)
{
    return 1e-9 * (double)(m->stamps[to] - m->stamps[from]);
}

static alnico_status_t message_start(struct measurement *m, size_t bucket)
{
    const struct trainer *trainer = m->trainer;
    const alnico_datatype_t wire = trainer->options->wire;
    const size_t begin = bucket_begin(trainer, bucket);
    return alnico_iallreduce(ALNICO_IN_PLACE, m->scratch + begin * datatype_bytes(wire),
                             trainer->buckets.ends[bucket] - begin, wire, ALNICO_AVERAGE,
                             trainer->place.device, &m->requests[bucket]);
}

/* After each step of backward: lets messages proceed where nobody else does. */
static alnico_status_t bucket_filled(void *context, size_t elements)
{
    struct measurement *m = context;
    const struct buckets *buckets = &m->trainer->buckets;
    bool done;
    for (; m->next < buckets->count && buckets->ends[m->next] <= elements; m->next++)
        TRY(stamp(m, m->next + 1));
    for (size_t i = 0; !m->trainer->place.stream && i < buckets->count; i++)
        if (m->requests[i])
            TRY(alnico_test(&m->requests[i], &done));
    return ALNICO_SUCCESS;
}

static alnico_status_t messages_wait(struct measurement *m)
{
    const bool streamed = m->trainer->place.stream;
    for (size_t i = 0; i < m->trainer->buckets.count; i++)
        if (m->requests[i])
            TRY(streamed ? alnico_wait(&m->requests[i])
                         : alnico_request_synchronize(&m->requests[i]));
    return ALNICO_SUCCESS;
}

/* A backward pass, all buckets' messages beside it if `messages`. */
static alnico_status_t pass_run(struct measurement *m, bool messages)
{
    const size_t count = m->trainer->buckets.count;
    struct replica *replica = m->trainer->replica;
    m->next = 0;
    m->out->moves = 0;
    TRY(replica_forward(replica, true));
    TRY(stamp(m, 0));
    for (size_t i = 0; messages && i < count; i++)
        TRY(message_start(m, i));
    TRY(replica_backward(replica, bucket_filled, m));
    TRY(messages_wait(m));
    TRY(stamp(m, count + 1));
    return replica_synchronize(replica);
}

static alnico_status_t message_run(struct measurement *m, size_t bucket)
{
    TRY(stamp(m, 0));
    TRY(message_start(m, bucket));
    TRY(messages_wait(m));
    TRY(stamp(m, 1));
    return replica_synchronize(m->trainer->replica);
}

/* Rows of trials: each bucket's backward, what its messages hide, each message, each move. */
static size_t row_hidden(const struct measurement *m)
{
    return 2 * m->out->buckets;
}

static void trial_put(struct measurement *m, size_t row, size_t trial, double value)
{
    m->trials[row * TRIALS + trial % TRIALS] = value; /* the last takes the place of the first */
}

static double median_of(struct measurement *m, size_t row)
{
    return median(m->trials + row * TRIALS, TRIALS);
}

/* Each message alone; seconds of all. They begin behind a pass, which leaves caches as a step does,
 * and once all ranks have met. */
static alnico_status_t messages_measure(struct measurement *m, size_t trial, double *sum)
{
    const size_t count = m->out->buckets;
    TRY(trainer_allreduce(m->trainer, &(double){0}, 1, ALNICO_MAXIMUM));
    for (size_t i = 0; i < count; i++) {
        TRY(message_run(m, i));
        trial_put(m, count + i, trial, between(m, 0, 1));
        *sum += between(m, 0, 1);
    }
    return ALNICO_SUCCESS;
}

/* A pass, the messages, and both together: their share, or that of the pass if it is shorter, that
 * both take less together than one after the other. */
static alnico_status_t trial_run(struct measurement *m, size_t trial)
{
    const size_t count = m->out->buckets;
    double sent = 0;
    TRY(pass_run(m, false));
    const double pass = between(m, 0, count + 1);
    for (size_t i = 0; i < count; i++)
        trial_put(m, i, trial, between(m, i, i + 1));
    for (size_t i = 0; i < m->out->moves; i++)
        trial_put(m, row_hidden(m) + 1 + i, trial,
                  between(m, move_stamp(m, i), move_stamp(m, i) + 1));
    if (!m->trainer->place.device)
        return ALNICO_SUCCESS;
    TRY(messages_measure(m, trial, &sent));
    TRY(pass_run(m, true));
    const double shorter = sent < pass ? sent : pass;
    trial_put(m, row_hidden(m), trial,
              shorter > 0 ? (pass + sent - between(m, 0, count + 1)) / shorter : 0);
    return ALNICO_SUCCESS;
}

static alnico_status_t trials_run(struct measurement *m, struct trainer_communication *out)
{
    const size_t count = out->buckets;
    for (size_t t = 0; t <= TRIALS; t++)
        TRY(trial_run(m, t));
    for (size_t i = 0; i < count; i++)
        out->backward[i] = median_of(m, i);
    for (size_t i = 0; i < out->moves; i++)
        out->move[i].beside = median_of(m, row_hidden(m) + 1 + i);
    for (size_t i = 0; m->trainer->place.device && i < count; i++)
        out->seconds[i] = median_of(m, count + i);
    out->hidden = median_of(m, row_hidden(m));
    TRY(trainer_allreduce(m->trainer, out->backward, count, ALNICO_AVERAGE));
    TRY(trainer_allreduce(m->trainer, out->seconds, count, ALNICO_AVERAGE));
    TRY(trainer_allreduce(m->trainer, &out->hidden, 1, ALNICO_AVERAGE));
    out->hidden = fmin(out->hidden, 1);
    return ALNICO_SUCCESS;
}

/* From each rank to the next. */
static alnico_status_t exchange_run(struct measurement *m, size_t bytes)
{
    const struct trainer *trainer = m->trainer;
    alnico_comm_t comm = trainer->place.device;
    TRY(stamp(m, 0));
    TRY(alnico_group_begin(comm));
    TRY(alnico_send(m->scratch, bytes, ALNICO_UINT8, (trainer->rank + 1) % trainer->size, comm));
    TRY(alnico_recv(m->scratch + MESSAGE_MOST, bytes, ALNICO_UINT8,
                    (trainer->rank + trainer->size - 1) % trainer->size, comm));
    TRY(alnico_group_end(comm, &m->requests[0]));
    TRY(alnico_wait(&m->requests[0]));
    TRY(stamp(m, 1));
    return replica_synchronize(trainer->replica);
}

static alnico_status_t exchanges_measure(struct measurement *m, struct trainer_communication *out)
{
    for (size_t i = 0; i < TRAINER_SIZES; i++) {
        for (size_t t = 0; t <= TRIALS; t++) {
            TRY(exchange_run(m, message_sizes[i]));
            trial_put(m, 0, t, between(m, 0, 1));
        }
        out->message_bytes[i] = message_sizes[i];
        out->message_seconds[i] = median_of(m, 0);
    }
    return trainer_allreduce(m->trainer, out->message_seconds, TRAINER_SIZES, ALNICO_AVERAGE);
}

/* Parts have the same moves, of different sizes. */
static alnico_status_t moves_agree(struct measurement *m, struct trainer_communication *out)
{
    for (size_t i = 0; i < out->moves; i++) {
        struct trainer_move *move = &out->move[i];
        double most[] = {(double)move->messages, (double)move->bytes};
        TRY(trainer_allreduce(m->trainer, most, 2, ALNICO_MAXIMUM));
        TRY(trainer_allreduce(m->trainer, &move->beside, 1, ALNICO_AVERAGE));
        move->messages = (size_t)most[0];
        move->bytes = (size_t)most[1];
    }
    return ALNICO_SUCCESS;
}

static alnico_status_t batch_load(struct trainer *trainer)
{
    struct batch batch;
    TRY(data_next(trainer->train, &batch));
    return replica_load(trainer->replica, batch.images, batch.labels, batch.count);
}

static alnico_status_t measurement_run(struct measurement *m, struct trainer_communication *out)
{
    TRY(batch_load(m->trainer));
    TRY(trials_run(m, out));
    if (m->trainer->place.device && out->moves)
        TRY(exchanges_measure(m, out));
    return moves_agree(m, out);
}

static alnico_status_t measurement_make(struct measurement *m, struct trainer_communication *out)
{
    const struct trainer *trainer = m->trainer;
    struct replica *replica = trainer->replica;
    const struct device_ops *device = replica->device;
    const size_t count = trainer->buckets.count, waits = replica_waits(replica),
                 bytes = trainer->network->parameters * datatype_bytes(trainer->options->wire) +
                         2 * MESSAGE_MOST;
    out->buckets = count;
    out->own = trainer->network->shared < trainer->network->parameters;
    out->move = calloc(waits + 1, sizeof *out->move);
    out->bytes = calloc(count + 1, sizeof *out->bytes);
    out->seconds = calloc(2 * (count + 1), sizeof *out->seconds);
    m->requests = calloc(count + 1, sizeof(alnico_request_t));
    m->trials = calloc((2 * count + 1 + waits) * TRIALS, sizeof *m->trials);
    if (!out->bytes || !out->seconds || !out->move || !m->requests || !m->trials)
        return error_set(ALNICO_ERROR_MEMORY, "trainer: no memory to measure %zu buckets", count);
    out->backward = out->seconds + count + 1;
    for (size_t i = 0; i < count; i++)
        out->bytes[i] = (trainer->buckets.ends[i] - bucket_begin(trainer, i)) *
                        datatype_bytes(trainer->options->wire);
    TRY(device->alloc(bytes + 1, (void **)&m->scratch));
    TRY(device->clear(m->scratch, bytes, trainer->place.stream));
    if (waits)
        replica->waiting = (struct replica_waiting){m, move_waits, move_started};
    return device->pinned_alloc((count + 2 + 2 * waits) * sizeof *m->stamps, (void **)&m->stamps);
}

alnico_status_t trainer_communication(const struct trainer_options *options,
                                      const struct trainer_place *place,
                                      struct trainer_communication *out)
{
    struct trainer trainer = trainer_make(options, place);
    struct measurement m = {.trainer = &trainer, .out = out};
    *out = (struct trainer_communication){0};
    alnico_status_t status = trainer_open(&trainer);
    if (status == ALNICO_SUCCESS)
        status = measurement_make(&m, out);
    if (status == ALNICO_SUCCESS)
        status = measurement_run(&m, out);
    free(m.requests);
    free(m.trials);
    if (status != ALNICO_SUCCESS) /* the stream may still write to the stamps */
        return trainer_fail(&trainer, status);
    trainer.replica->device->pinned_free(m.stamps);
    trainer.replica->device->free(m.scratch);
    trainer_close(&trainer);
    return ALNICO_SUCCESS;
}

void trainer_communication_free(struct trainer_communication *communication)
{
    free(communication->bytes);
    free(communication->seconds);
    free(communication->move);
    *communication = (struct trainer_communication){0};
}
