/*
 * A pass of a shard's server over its workers: looks whether their messages have ended, applies the
 * optimizer with the gradients that came, one worker's after the other's, and answers after each
 * all that may be answered. A worker's receive is posted when its weights have left, so that the
 * library's deadline is one for a step. See shard_state.h.
 */
#include "train/strategies/shard_state.h"

#include "base/status.h"

#include <string.h>

static bool is_local(const struct shard *shard, const struct worker *worker)
{
    return worker - shard->workers == shard->setup.rank;
}

/* ---- Messages ---- */

alnico_status_t shard_await(struct shard *shard, struct worker *worker)
{
    const alnico_comm_t comm = shard->setup.comm;
    const int from = (int)(worker - shard->workers);
    worker->phase = WORKER_COMPUTES;
    if (is_local(shard, worker))
        return ALNICO_SUCCESS;
    TRY(alnico_group_begin(comm));
    TRY(alnico_recv(&worker->push, sizeof worker->push, ALNICO_UINT8, from, comm));
    TRY(alnico_recv(worker->received, shard->setup.count, ALNICO_FLOAT32, from, comm));
    return alnico_group_end(comm, &worker->request);
}

static alnico_status_t pull_send(struct shard *shard, struct worker *worker)
{
    const alnico_comm_t comm = shard->setup.comm;
    const int to = (int)(worker - shard->workers);
    float *out = is_local(shard, worker) ? worker->parameters : worker->sent;
    memcpy(out, shard->values, shard->setup.count * sizeof *out);
    if (is_local(shard, worker)) {
        worker->phase = WORKER_COMPUTES;
        pthread_cond_broadcast(&shard->changed);
        return ALNICO_SUCCESS;
    }
    worker->phase = WORKER_PULLS;
    TRY(alnico_group_begin(comm));
    TRY(alnico_send(&worker->pull, sizeof worker->pull, ALNICO_UINT8, to, comm));
    TRY(alnico_send(worker->sent, shard->setup.count, ALNICO_FLOAT32, to, comm));
    return alnico_group_end(comm, &worker->request);
}

/* Looks whether a worker's message has ended. */
static alnico_status_t worker_poll(struct shard *shard, struct worker *worker, bool *moved)
{
    bool done = false;
    if (!worker->request)
        return ALNICO_SUCCESS;
    TRY(alnico_test(&worker->request, &done));
    *moved |= done;
    if (done && worker->phase == WORKER_PULLS)
        return shard_await(shard, worker);
    if (done) {
        worker->gradients = worker->received;
        worker->phase = WORKER_PUSHED;
    }
    return ALNICO_SUCCESS;
}

/* ---- Replaying ---- */

/* The worker's next row in this round; NULL: none. */
static const struct interleaving_row *row_next(const struct shard *shard, uint64_t worker)
{
    for (uint64_t i = shard->version; i < shard->planned && i < shard->replay.count; i++)
        if (shard->replay.rows[i].worker == worker)
            return &shard->replay.rows[i];
    return NULL;
}

static alnico_status_t replay_error(const struct shard *shard, uint64_t worker)
{
    return error_set(ALNICO_ERROR_ARGUMENT,
                     "interleaving %s.%d: this run cannot follow it: after line %zu there are "
                     "gradients of rank %d",
                     shard->setup.replay, shard->setup.rank, (size_t)shard->version + 1,
                     (int)worker);
}

/* Whether a worker's gradients are the next to be applied. */
static alnico_status_t replay_turn(const struct shard *shard, const struct worker *worker,
                                   bool *turn)
{
    const uint64_t number = (uint64_t)(worker - shard->workers);
    const struct interleaving_row *mine = row_next(shard, number);
    *turn = false;
    if (!mine || mine->step != worker->run_steps || mine->pulled != worker->pulled)
        return replay_error(shard, number);
    const struct interleaving_row *next = &shard->replay.rows[shard->version];
    *turn = next == mine;
    return shard->workers[next->worker].phase == WORKER_RESTS ? replay_error(shard, number)
                                                              : ALNICO_SUCCESS;
}

/* ---- Updates and answers ---- */

static bool is_replayed(const struct shard *shard)
{
    return shard->setup.replay != NULL;
}

/* Steps of the slowest worker that has not ended its round. */
static uint64_t steps_least(const struct shard *shard)
{
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < shard->setup.size; i++)
        if (shard->workers[i].phase != WORKER_RESTS && shard->workers[i].steps < least)
            least = shard->workers[i].steps;
    return least;
}

/* Whether the worker may have weights now, and another step with them. */
static bool may_pull(struct shard *shard, const struct worker *worker, bool *more)
{
    if (is_replayed(shard)) {
        const struct interleaving_row *next = row_next(shard, (uint64_t)(worker - shard->workers));
        *more = next != NULL;
        return !next || next->pulled == shard->version;
    }
    if (worker->steps - steps_least(shard) > shard->setup.staleness)
        return false;
    *more = shard->left > 0 && !shard->stopped;
    shard->left -= *more;
    return true;
}

/* Answers all that may be answered, with one version of the weights. */
static alnico_status_t answer(struct shard *shard)
{
    for (int i = 0; i < shard->setup.size; i++) {
        struct worker *worker = &shard->workers[i];
        bool more;
        if (worker->phase != WORKER_HELD || !may_pull(shard, worker, &more))
            continue;
        worker->pull = (struct pull){.version = shard->version, .more = more};
        worker->pulled = shard->version;
        TRY(pull_send(shard, worker));
    }
    return ALNICO_SUCCESS;
}

static void staleness_count(struct strategy_staleness *staleness, uint64_t updates)
{
    staleness->counts[updates < STALENESS_BINS ? updates : STALENESS_BINS - 1]++;
    staleness->sum += updates;
    if (updates > staleness->most)
        staleness->most = updates;
}

static alnico_status_t gradients_apply(struct shard *shard, struct worker *worker)
{
    const struct shard_setup *setup = &shard->setup;
    struct strategy_range range = {.begin = setup->begin,
                                   .count = setup->count,
                                   .rate = (float)(worker->push.rate / setup->size),
                                   .updates = shard->before + shard->version + 1,
                                   .parameters = shard->values,
                                   .gradients = worker->gradients};
    for (size_t i = 0; i < setup->states; i++)
        range.states[i] = shard->values + (i + 1) * shard->setup.count;
    TRY(setup->calls.update_range(setup->calls.context, &range));
    staleness_count(&shard->staleness, shard->version - worker->pulled);
    const struct interleaving_row row = {.worker = (uint64_t)(worker - shard->workers),
                                         .step = worker->run_steps,
                                         .pulled = worker->pulled};
    if (shard->record)
        interleaving_append(shard->record, &row);
    shard->version++;
    worker->steps++;
    worker->run_steps++;
    worker->phase = WORKER_HELD;
    return ALNICO_SUCCESS;
}

/* A worker's round is over; after the last one's, the server's. */
static alnico_status_t worker_rest(struct shard *shard, struct worker *worker)
{
    worker->phase = WORKER_RESTS;
    if (++shard->resting < shard->setup.size)
        return ALNICO_SUCCESS;
    shard->open = false;
    pthread_cond_broadcast(&shard->changed);
    return shard->record ? interleaving_flush(shard->record) : ALNICO_SUCCESS;
}

static alnico_status_t push_take(struct shard *shard, struct worker *worker, bool *moved)
{
    bool turn = true;
    if (is_replayed(shard) && !worker->push.last)
        TRY(replay_turn(shard, worker, &turn));
    if (!turn)
        return ALNICO_SUCCESS;
    *moved = true;
    shard->stopped |= worker->push.stop;
    TRY(worker->push.last ? worker_rest(shard, worker) : gradients_apply(shard, worker));
    return answer(shard);
}

alnico_status_t shard_pass(struct shard *shard, bool *moved)
{
    for (int i = 0; shard->open && i < shard->setup.size; i++) {
        struct worker *worker = &shard->workers[i];
        TRY(worker_poll(shard, worker, moved));
        if (worker->phase == WORKER_PUSHED)
            TRY(push_take(shard, worker, moved));
    }
    return ALNICO_SUCCESS;
}
