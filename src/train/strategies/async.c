/*
 * Asynchronous SGD with sharded parameters (Dean et al. 2012, "Large scale distributed deep
 * networks": Downpour). Each rank is a worker and serves one shard (shard.h). After its backward
 * pass a worker pushes its gradients to all shards and pulls their weights; it waits for other
 * workers only where a bound on the staleness says so. Each push is an update at 1/ranks of the
 * learning rate, so that a step of all ranks moves as far as a synchronous one. Called through
 * strategy_async (strategy.h), whose finish waits for the stream and then on the host.
 *
 * A round is what lies between two settles. Its steps are shared: shard 0 grants them one by one,
 * so that a fast worker does more of them. Each shard has a communicator, in which its server's
 * thread calls on its own rank and the thread that trains on all others.
 */
#include "train/strategies/shard.h"

#include "base/datatype.h"
#include "base/status.h"
#include "train/base/nvtx.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct async {
    struct strategy_setup setup;
    int rank, size;
    size_t *begins, *counts; /* of shards: elements of the arenas */
    alnico_comm_t *comms;    /* by shard; NULL: not made, or alone */
    struct shard *shard;     /* this rank's */
    bool open;               /* a round is */
    bool late;               /* a rank did not come */
    struct push push;
    struct pull *pulls; /* by shard */
    alnico_request_t *requests;
    uint64_t base;       /* version at the beginning of the round */
    size_t first, steps; /* step at which it began, and its steps for each rank */
    uint64_t before;     /* updates before this run */
    /* On the host: the arenas, or pinned copies of them. */
    float *gradients, *parameters, *control;
};

static bool is_on_host(const struct async *self)
{
    return self->setup.device->host_accessible;
}

/* The server's parameters and, at most, two states; buffers of all other ranks' gradients and
 * weights. */
static size_t async_bytes(alnico_datatype_t type, alnico_datatype_t wire, int rank, int ranks)
{
    const size_t parts = 1 + OPTIMIZER_STATES + 2 * ((size_t)ranks - 1);
    (void)type;
    (void)wire;
    (void)rank;
    return (parts * sizeof(float) + (size_t)ranks - 1) / (size_t)ranks;
}

/* ---- Creation ---- */

static alnico_status_t shards_cut(struct async *self)
{
    const size_t size = (size_t)self->size, each = self->setup.count / size;
    self->begins = malloc(size * sizeof *self->begins);
    self->counts = malloc(size * sizeof *self->counts);
    self->comms = calloc(size, sizeof(alnico_comm_t));
    self->pulls = calloc(size, sizeof *self->pulls);
    self->requests = calloc(size, sizeof(alnico_request_t));
    if (!self->begins || !self->counts || !self->comms || !self->pulls || !self->requests)
        return error_set(ALNICO_ERROR_MEMORY, "strategy async: no memory");
    for (size_t s = 0, at = 0; s < size; at += self->counts[s++]) {
        self->begins[s] = at;
        self->counts[s] = each + (s < self->setup.count % size);
    }
    return ALNICO_SUCCESS;
}

static alnico_status_t setup_check(const struct strategy_setup *setup)
{
    TRY(strategy_check_ends(setup, "async"));
    if (setup->type == ALNICO_FLOAT32 && setup->wire == ALNICO_FLOAT32)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT,
                     "strategy async: gradients of datatype %s travel as %s, expected float32",
                     datatype_name(setup->type), datatype_name(setup->wire));
}

/* A server's thread calls beside the one that trains: that needs what a stream needs. */
static alnico_status_t threads_check(alnico_comm_t host)
{
    alnico_stream_t stream;
    alnico_comm_t comm = NULL;
    TRY(alnico_stream_create(&stream));
    const alnico_status_t status = alnico_comm_duplicate(host, stream, &comm);
    alnico_comm_destroy(comm);
    alnico_stream_destroy(stream);
    return status;
}

static alnico_status_t comms_create(struct async *self)
{
    if (!self->setup.comm)
        return ALNICO_SUCCESS;
    TRY(threads_check(self->setup.host));
    for (int s = 0; s < self->size; s++)
        TRY(alnico_comm_duplicate(self->setup.host, NULL, &self->comms[s]));
    return ALNICO_SUCCESS;
}

static alnico_status_t copies_create(struct async *self)
{
    const struct strategy_setup *setup = &self->setup;
    const size_t bytes = (setup->count + 1) * sizeof(float);
    self->gradients = setup->arenas->gradients;
    self->parameters = setup->arenas->parameters;
    self->control = setup->arenas->control;
    if (is_on_host(self))
        return ALNICO_SUCCESS;
    self->gradients = self->parameters = self->control = NULL;
    TRY(setup->device->pinned_alloc(bytes, (void **)&self->gradients));
    TRY(setup->device->pinned_alloc(bytes, (void **)&self->parameters));
    return setup->device->pinned_alloc(CONTROLS * sizeof(float), (void **)&self->control);
}

static alnico_status_t async_prepare(struct async *self)
{
    const struct strategy_setup *setup = &self->setup;
    TRY(shards_cut(self));
    TRY(copies_create(self));
    TRY(comms_create(self));
    const struct shard_setup shard = {.comm = self->comms[self->rank],
                                      .rank = self->rank,
                                      .size = self->size,
                                      .begin = self->begins[self->rank],
                                      .count = self->counts[self->rank],
                                      .parameters = setup->count,
                                      .staleness = setup->staleness,
                                      .states = setup->states,
                                      .record = setup->record,
                                      .replay = setup->replay,
                                      .calls = setup->calls};
    return shard_create(&shard, &self->shard);
}

static void comms_destroy(struct async *self)
{
    for (int s = 0; self->comms && s < self->size; s++)
        alnico_comm_destroy(self->comms[s]);
}

/* After an error nobody waits for anybody. Where a rank did not come, the others find out by
 * themselves, a little earlier or later, and are not told first that this one gave up. */
static void comms_abort(struct async *self)
{
    if (self->late)
        nanosleep(&(struct timespec){.tv_nsec = GRACE_NS}, NULL);
    for (int s = 0; self->comms && s < self->size; s++)
        if (self->comms[s])
            alnico_comm_abort(self->comms[s]);
}

static void requests_end(struct async *self)
{
    for (int s = 0; self->requests && s < self->size; s++)
        if (self->requests[s])
            alnico_request_synchronize(&self->requests[s]);
}

static void async_destroy(void *self)
{
    struct async *async = self;
    if (!async)
        return;
    const struct strategy_setup *setup = &async->setup;
    if (async->open || (setup->host && alnico_comm_status(setup->host) != ALNICO_SUCCESS))
        comms_abort(async);
    requests_end(async);
    shard_destroy(async->shard);
    comms_destroy(async);
    if (!is_on_host(async)) {
        setup->device->pinned_free(async->gradients);
        setup->device->pinned_free(async->parameters);
        setup->device->pinned_free(async->control);
    }
    free(async->begins);
    free(async->counts);
    free(async->comms);
    free(async->pulls);
    free(async->requests);
    free(async);
}

static alnico_status_t async_create(const struct strategy_setup *setup, void **out)
{
    *out = NULL;
    TRY(setup_check(setup));
    struct async *self = calloc(1, sizeof *self);
    if (!self)
        return error_set(ALNICO_ERROR_MEMORY, "strategy async: no memory");
    self->setup = *setup;
    self->rank = setup->comm ? alnico_comm_rank(setup->comm) : 0;
    self->size = setup->comm ? alnico_comm_size(setup->comm) : 1;
    const alnico_status_t status = async_prepare(self);
    if (status != ALNICO_SUCCESS)
        async_destroy(self);
    else
        *out = self;
    return status;
}

/* ---- Between arenas and host ---- */

static alnico_status_t stream_end(const struct async *self)
{
    return self->setup.device->stream_synchronize(self->setup.stream);
}

/* This rank's part of an arena to its server. */
static alnico_status_t part_fetch(struct async *self, const float *arena, float *out)
{
    const struct strategy_setup *setup = &self->setup;
    const size_t begin = self->begins[self->rank], count = self->counts[self->rank];
    const float *from = arena + begin;
    if (!is_on_host(self)) {
        TRY(setup->device->copy(self->parameters, from, count * sizeof *out, setup->stream));
        TRY(stream_end(self));
        from = self->parameters;
    }
    memcpy(out, from, count * sizeof *out);
    return ALNICO_SUCCESS;
}

/* All servers' parts to an arena. */
static alnico_status_t parts_gather(struct async *self, const float *part, float *arena)
{
    const struct strategy_setup *setup = &self->setup;
    float *all = is_on_host(self) ? arena : self->parameters;
    const size_t count = self->counts[self->rank];
    memcpy(all + self->begins[self->rank], part, count * sizeof *all);
    if (setup->comm)
        TRY(alnico_allgatherv(ALNICO_IN_PLACE, count, all, self->counts, self->begins,
                              ALNICO_FLOAT32, setup->host));
    if (is_on_host(self))
        return ALNICO_SUCCESS;
    TRY(setup->device->copy(arena, all, setup->count * sizeof *all, setup->stream));
    return stream_end(self);
}

/* Gradients and control words, once they are there, to the host. */
static alnico_status_t gradients_fetch(struct async *self)
{
    const struct strategy_setup *setup = &self->setup;
    const struct arenas *arenas = setup->arenas;
    if (!is_on_host(self)) {
        TRY(setup->device->copy(self->gradients, arenas->gradients,
                                setup->count * sizeof *self->gradients, setup->stream));
        TRY(setup->device->copy(self->control, arenas->control, CONTROLS * sizeof(float),
                                setup->stream));
    }
    return stream_end(self);
}

/* Weights from the host to where the kernels read them. */
static alnico_status_t weights_store(struct async *self)
{
    const struct strategy_setup *setup = &self->setup;
    if (!is_on_host(self))
        TRY(setup->device->copy(setup->arenas->parameters, self->parameters,
                                setup->count * sizeof *self->parameters, setup->stream));
    return setup->calls.loaded(setup->calls.context);
}

/* ---- Pushing and pulling ---- */

/* In one group, so that no order of the ranks can make them wait for each other. */
static alnico_status_t shard_exchange(struct async *self, int s)
{
    const alnico_comm_t comm = self->comms[s];
    const size_t begin = self->begins[s], count = self->counts[s];
    TRY(alnico_group_begin(comm));
    TRY(alnico_send(&self->push, sizeof self->push, ALNICO_UINT8, s, comm));
    TRY(alnico_send(self->gradients + begin, count, ALNICO_FLOAT32, s, comm));
    if (!self->push.last) {
        TRY(alnico_recv(&self->pulls[s], sizeof self->pulls[s], ALNICO_UINT8, s, comm));
        TRY(alnico_recv(self->parameters + begin, count, ALNICO_FLOAT32, s, comm));
    }
    return alnico_group_end(comm, &self->requests[s]);
}

static alnico_status_t all_exchange(struct async *self)
{
    const size_t begin = self->begins[self->rank];
    shard_push(self->shard, &self->push, self->gradients + begin, self->parameters + begin);
    for (int s = 0; s < self->size; s++)
        if (s != self->rank)
            TRY(shard_exchange(self, s));
    for (int s = 0; s < self->size; s++)
        if (s != self->rank)
            TRY(alnico_request_synchronize(&self->requests[s]));
    return self->push.last ? ALNICO_SUCCESS : shard_wait(self->shard, &self->pulls[self->rank]);
}

/* Every shard's part of `all` to its server, whose own part is its `part` of all other ranks', one
 * after the other; or the other way round. */
static alnico_status_t parts_exchange(struct async *self, float *all, float *part, bool push)
{
    const alnico_comm_t comm = self->setup.host;
    const size_t own = self->counts[self->rank];
    TRY(alnico_group_begin(comm));
    for (int s = 0, other = 0; s < self->size; s++) {
        if (s == self->rank)
            continue;
        float *theirs = all + self->begins[s], *ours = part + (push ? own * (size_t)other++ : 0);
        TRY(alnico_send(push ? theirs : ours, push ? self->counts[s] : own, ALNICO_FLOAT32, s,
                        comm));
        TRY(alnico_recv(push ? ours : theirs, push ? own : self->counts[s], ALNICO_FLOAT32, s,
                        comm));
    }
    return alnico_group_end(comm, NULL);
}

/* A push and a pull of all workers at once, without servers. The parameters are equal already. */
static alnico_status_t async_rehearse(void *pointer)
{
    struct async *self = pointer;
    const struct arenas *arenas = self->setup.arenas;
    const size_t own = self->counts[self->rank], bytes = self->setup.count * sizeof(float);
    if (!self->setup.comm)
        return ALNICO_SUCCESS;
    float *pushed = malloc((own * (size_t)self->size + 1) * sizeof *pushed);
    if (!pushed)
        return error_set(ALNICO_ERROR_MEMORY, "strategy async: no memory");
    alnico_status_t status = gradients_fetch(self);
    if (status == ALNICO_SUCCESS)
        status = parts_exchange(self, self->gradients, pushed, true);
    free(pushed);
    TRY(status);
    TRY(parts_exchange(self, self->parameters, self->parameters + self->begins[self->rank], false));
    if (is_on_host(self))
        return ALNICO_SUCCESS;
    TRY(self->setup.device->copy(arenas->gradients, self->gradients, bytes, self->setup.stream));
    return stream_end(self);
}

/* What ended this rank's server, if it has or soon does: that names the rank that is missing, not
 * one that waits for it, too. Otherwise the status. */
static alnico_status_t failure(struct async *self, alnico_status_t status)
{
    char detail[512];
    if (status == ALNICO_SUCCESS)
        return status;
    snprintf(detail, sizeof detail, "%s", alnico_error_detail());
    const alnico_status_t server = shard_status(self->shard);
    if (server == ALNICO_SUCCESS)
        error_set(status, "%s", detail);
    else
        status = server;
    self->late = status == ALNICO_ERROR_TIMEOUT;
    return status;
}

static alnico_status_t exchange(struct async *self)
{
    return failure(self, all_exchange(self));
}

/* The server's values become the arenas'. */
static alnico_status_t round_begin(struct async *self, const struct strategy_pace *pace)
{
    const struct arenas *arenas = self->setup.arenas;
    TRY(part_fetch(self, arenas->parameters, shard_values(self->shard, 0)));
    for (size_t i = 0; i < self->setup.states; i++)
        TRY(part_fetch(self, arenas->states[i], shard_values(self->shard, i + 1)));
    if (!self->base)
        self->before = (uint64_t)self->control[CONTROL_UPDATES];
    self->first = pace->step;
    self->steps = pace->until - pace->step;
    self->open = true;
    return shard_begin(self->shard, (uint64_t)self->steps * (uint64_t)self->size, self->before);
}

static alnico_status_t async_advance(void *self, size_t filled)
{
    (void)self;
    (void)filled;
    return ALNICO_SUCCESS;
}

static alnico_status_t async_finish(void *self)
{
    struct async *async = self;
    const struct strategy_calls *calls = &async->setup.calls;
    const struct strategy_pace pace = calls->pace(calls->context);
    TRY(gradients_fetch(async));
    if (!async->open)
        TRY(round_begin(async, &pace));
    async->push = (struct push){.stop = pace.stop, .rate = (double)async->control[CONTROL_RATE]};
    TRY_NVTX("exchange", exchange(async));
    TRY(weights_store(async));
    return calls->mark(calls->context, PHASE_COMMUNICATION);
}

/* The step of the schedule: with a bound of 0, or alone, that of this rank. */
static size_t steps_in_mean(const struct async *self, uint64_t version)
{
    const size_t steps = (size_t)((version - self->base) / (uint64_t)self->size);
    return self->first + (steps ? steps : 1);
}

static alnico_status_t async_share(void *self, struct strategy_round *round)
{
    struct async *async = self;
    uint64_t version = async->pulls[0].version;
    *round = (struct strategy_round){.over = !async->pulls[0].more};
    if (round->over) {
        async->push = (struct push){.last = true};
        TRY(exchange(async));
        TRY(failure(async, shard_rest(async->shard, &version)));
        async->open = false;
    }
    round->step = steps_in_mean(async, version);
    if (round->over)
        async->base = version;
    return ALNICO_SUCCESS;
}

/* The count of updates, as far as one is kept (kernels.h). */
static alnico_status_t updates_store(struct async *self)
{
    const struct strategy_setup *setup = &self->setup;
    const uint64_t updates = self->before + self->base;
    self->control[CONTROL_UPDATES] = updates < 1 << 24 ? (float)updates : 1 << 24;
    if (is_on_host(self))
        return ALNICO_SUCCESS;
    TRY(setup->device->copy(&setup->arenas->control[CONTROL_UPDATES],
                            &self->control[CONTROL_UPDATES], sizeof(float), setup->stream));
    return stream_end(self);
}

static alnico_status_t async_settle(void *self)
{
    struct async *async = self;
    const struct arenas *arenas = async->setup.arenas;
    if (!async->base)
        return ALNICO_SUCCESS;
    TRY(parts_gather(async, shard_values(async->shard, 0), arenas->parameters));
    for (size_t i = 0; i < async->setup.states; i++)
        TRY(parts_gather(async, shard_values(async->shard, i + 1), arenas->states[i]));
    TRY(updates_store(async));
    return async->setup.calls.loaded(async->setup.calls.context);
}

static const struct strategy_staleness *async_staleness(const void *self)
{
    return shard_staleness(((const struct async *)self)->shard);
}

const struct strategy_ops strategy_async = {
    .name = "async",
    .about = "push gradients to shards of the parameters and pull weights, without waiting",
    .sharded = true,
    .takes = STRATEGY_TAKES_STALENESS,
    .phases = {[PHASE_COMMUNICATION] = "exchange"},
    .bytes = async_bytes,
    .create = async_create,
    .destroy = async_destroy,
    .advance = async_advance,
    .finish = async_finish,
    .rehearse = async_rehearse,
    .share = async_share,
    .settle = async_settle,
    .staleness = async_staleness,
};
