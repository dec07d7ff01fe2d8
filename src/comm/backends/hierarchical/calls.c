/*
 * The calls of each collective on the two levels, enqueued on a stream each. The levels' parts of
 * successive chunks overlap: while a chunk is between hosts, the next one is combined inside, and the
 * one before is spread inside. With L ranks on each of H hosts, n bytes:
 *
 *     allreduce        reduce_scatter inside, allreduce of n/L between, allgather inside
 *     broadcast        on the root's host broadcast, n/L between, on the others allgather inside
 *     allgather        between, then for each host allgather inside
 *     reduce_scatter   for each host reduce_scatter inside, then between
 *     reduce           to the root's seat of each host, then between
 *     barrier          inside, between, and where hosts differ inside again
 *
 * Short allreduces, and where hosts have different numbers of ranks, are combined inside; then each
 * seat, or the leaders only, exchange the whole. On the thread that calls on the communicator. (Horovod's
 * and NCCL's hierarchical allreduce; Jia et al., 2018.)
 */
#include "comm/backends/hierarchical/hierarchical.h"

#include "base/datatype.h"
#include "base/status.h"

#include <stdlib.h>

/* An allreduce of so many bytes is bound by its calls: of the three the short way has two. */
enum { SHORT_BYTES = 32 << 10 };

struct task {
    alnico_comm_t comm, inside, between;
    const struct device_ops *device;
    struct hierarchical_state *state;
    const struct call *call;
    const struct host_map *map;
    size_t element;     /* bytes */
    size_t chunk_count; /* elements of a chunk, at most */
    const char *send;
    char *recv;
    char *scratch;
    alnico_op_t op; /* of the levels */
    int host, seat;
    int root_host, root_seat;
    bool even; /* hosts have as many ranks each */
};

/* Elements of the call. */
struct chunk {
    size_t at, count;
};

/* Calls of a chunk: `first` and `last` inside the host, `middle` between hosts. NULL: none. */
struct phases {
    alnico_status_t (*first)(struct task *, struct chunk);
    alnico_status_t (*middle)(struct task *, struct chunk);
    alnico_status_t (*last)(struct task *, struct chunk);
};

/* Stream `next` goes on behind what `before` has so far. */
static alnico_status_t chain(const struct task *t, void *before, struct device_event *event,
                             void *next)
{
    TRY(t->device->event_record(event, before));
    return t->device->stream_wait(next, event);
}

static alnico_status_t chain_levels(const struct task *t, enum level before, enum level next)
{
    const struct hierarchical_state *state = t->state;
    return chain(t, state->streams[before], state->reached[before], state->streams[next]);
}

typedef alnico_status_t enqueue_phase(struct task *, struct chunk);

static alnico_status_t enqueue(enqueue_phase *phase, struct task *t, struct chunk chunk)
{
    return phase && chunk.count ? phase(t, chunk) : ALNICO_SUCCESS;
}

static alnico_status_t enqueue_between(enqueue_phase *phase, struct task *t, struct chunk chunk)
{
    if (chunk.count == 0)
        return ALNICO_SUCCESS;
    TRY(chain_levels(t, INSIDE, BETWEEN));
    TRY(phase(t, chunk));
    return t->device->event_record(t->state->reached[BETWEEN], t->state->streams[BETWEEN]);
}

/* [at, end) in chunks; `last` of a chunk comes behind `first` of the next one. */
static alnico_status_t run(struct task *t, const struct phases *phases, size_t at, size_t end)
{
    struct chunk chunk, before = {0, 0};
    for (; at < end || before.count; at += chunk.count, before = chunk) {
        chunk = (struct chunk){at, end - at < t->chunk_count ? end - at : t->chunk_count};
        TRY(enqueue(phases->first, t, chunk));
        if (before.count)
            TRY(t->device->stream_wait(t->state->streams[INSIDE], t->state->reached[BETWEEN]));
        TRY(enqueue_between(phases->middle, t, chunk));
        TRY(enqueue(phases->last, t, before));
    }
    return ALNICO_SUCCESS;
}

static char *at_element(const struct task *t, const void *buffer, size_t at)
{
    return (char *)buffer + at * t->element;
}

static size_t ranks_of(const struct task *t, int host)
{
    return (size_t)(t->map->first[host + 1] - t->map->first[host]);
}

/* This rank's part of a chunk that the seats divide. */
static char *own_part(const struct task *t, struct chunk chunk, size_t *count)
{
    *count = chunk.count / (size_t)t->map->most;
    return at_element(t, t->recv, chunk.at + (size_t)t->seat * *count);
}

/* The elements that the seats can divide equally. */
static size_t divisible(const struct task *t, size_t count)
{
    return t->even ? count - count % (size_t)t->map->most : 0;
}

static bool is_float_average(const struct call *call)
{
    return call->op == ALNICO_AVERAGE && !datatype_is_integer(call->type);
}

/* ---- Allreduce ---- */

static alnico_status_t combine_parts(struct task *t, struct chunk chunk)
{
    size_t count;
    char *own = own_part(t, chunk, &count);
    return alnico_reduce_scatter(at_element(t, t->send, chunk.at), own, count, t->call->type, t->op,
                                 t->inside);
}

static alnico_status_t allreduce_part(struct task *t, struct chunk chunk)
{
    size_t count;
    char *own = own_part(t, chunk, &count);
    return alnico_allreduce(own, own, count, t->call->type, t->op, t->between);
}

static alnico_status_t gather_parts(struct task *t, struct chunk chunk)
{
    size_t count;
    char *own = own_part(t, chunk, &count);
    return alnico_allgather(own, at_element(t, t->recv, chunk.at), count, t->call->type, t->inside);
}

static alnico_status_t combine(struct task *t, struct chunk chunk)
{
    return alnico_allreduce(at_element(t, t->send, chunk.at), at_element(t, t->recv, chunk.at),
                            chunk.count, t->call->type, t->op, t->inside);
}

static alnico_status_t allreduce_whole(struct task *t, struct chunk chunk)
{
    char *recv = at_element(t, t->recv, chunk.at);
    if (!t->even && t->seat > 0)
        return ALNICO_SUCCESS;
    return alnico_allreduce(recv, recv, chunk.count, t->call->type, t->op, t->between);
}

static alnico_status_t spread_whole(struct task *t, struct chunk chunk)
{
    if (t->even)
        return ALNICO_SUCCESS;
    return alnico_broadcast(at_element(t, t->recv, chunk.at), chunk.count, t->call->type, 0,
                            t->inside);
}

/* Floats are divided before they are added, as by the host backend. */
static alnico_status_t divide_floats(struct task *t)
{
    if (!is_float_average(t->call))
        return ALNICO_SUCCESS;
    TRY(t->device->divide(t->recv, t->send, t->call->count, t->call->type, t->comm->size,
                          t->state->streams[INSIDE]));
    t->send = t->recv;
    return ALNICO_SUCCESS;
}

static alnico_status_t divide_integers(struct task *t)
{
    if (t->call->op != ALNICO_AVERAGE || is_float_average(t->call))
        return ALNICO_SUCCESS;
    return t->device->divide(t->recv, t->recv, t->call->count, t->call->type, t->comm->size,
                             t->state->streams[INSIDE]);
}

static alnico_status_t allreduce(struct task *t)
{
    static const struct phases parts = {combine_parts, allreduce_part, gather_parts},
                               whole = {combine, allreduce_whole, spread_whole};
    size_t count = t->call->count;
    size_t divided = count * t->element > SHORT_BYTES ? divisible(t, count) : 0;
    if (t->call->op == ALNICO_AVERAGE)
        t->op = ALNICO_SUM;
    TRY(divide_floats(t));
    TRY(run(t, &parts, 0, divided));
    TRY(run(t, &whole, divided, count));
    return divide_integers(t);
}

/* ---- Broadcast ---- */

static alnico_status_t broadcast_inside(struct task *t, struct chunk chunk, int root)
{
    return alnico_broadcast(at_element(t, t->recv, chunk.at), chunk.count, t->call->type, root,
                            t->inside);
}

static alnico_status_t spread_at_root(struct task *t, struct chunk chunk)
{
    return t->host == t->root_host ? broadcast_inside(t, chunk, t->root_seat) : ALNICO_SUCCESS;
}

static alnico_status_t broadcast_part(struct task *t, struct chunk chunk)
{
    size_t count;
    char *own = own_part(t, chunk, &count);
    return alnico_broadcast(own, count, t->call->type, t->root_host, t->between);
}

static alnico_status_t gather_elsewhere(struct task *t, struct chunk chunk)
{
    return t->host == t->root_host ? ALNICO_SUCCESS : gather_parts(t, chunk);
}

/* The seat that carries the whole between hosts: the root's, where all hosts have it. */
static int carrier(const struct task *t)
{
    return t->root_seat < t->map->fewest ? t->root_seat : 0;
}

static alnico_status_t broadcast_whole(struct task *t, struct chunk chunk)
{
    if (t->seat != carrier(t))
        return ALNICO_SUCCESS;
    return alnico_broadcast(at_element(t, t->recv, chunk.at), chunk.count, t->call->type,
                            t->root_host, t->between);
}

static alnico_status_t spread_elsewhere(struct task *t, struct chunk chunk)
{
    return t->host == t->root_host ? ALNICO_SUCCESS : broadcast_inside(t, chunk, carrier(t));
}

static alnico_status_t broadcast(struct task *t)
{
    static const struct phases parts = {spread_at_root, broadcast_part, gather_elsewhere},
                               whole = {spread_at_root, broadcast_whole, spread_elsewhere};
    size_t count = t->call->count;
    size_t divided = count * t->element > SHORT_BYTES ? divisible(t, count) : 0;
    if (t->comm->rank == t->call->root)
        t->recv = (char *)t->call->send; /* read only: the root of each call on it */
    TRY(run(t, &parts, 0, divided));
    return run(t, &whole, divided, count);
}

/* ---- Reduce ---- */

static alnico_status_t reduce_inside(struct task *t, struct chunk chunk)
{
    char *recv = t->seat == t->root_seat ? at_element(t, t->scratch, chunk.at) : NULL;
    return alnico_reduce(at_element(t, t->send, chunk.at), recv, chunk.count, t->call->type, t->op,
                         t->root_seat, t->inside);
}

static alnico_status_t reduce_between(struct task *t, struct chunk chunk)
{
    char *whole = at_element(t, t->scratch, chunk.at);
    if (t->seat != t->root_seat)
        return ALNICO_SUCCESS;
    return alnico_reduce(whole, t->host == t->root_host ? whole : NULL, chunk.count, t->call->type,
                         t->op, t->root_host, t->between);
}

static alnico_status_t reduce(struct task *t)
{
    static const struct phases phases = {reduce_inside, reduce_between, NULL};
    bool root = t->comm->rank == t->call->root, works = !root && t->seat == t->root_seat;
    void *memory = NULL, *stream = t->state->streams[INSIDE];
    if (works)
        TRY(t->device->stream_alloc(t->call->count * t->element, &memory, stream));
    t->scratch = root ? t->recv : memory;
    alnico_status_t status = run(t, &phases, 0, t->call->count);
    if (works)
        t->device->stream_free(memory, stream);
    return status == ALNICO_SUCCESS && root ? divide_integers(t) : status;
}

/* ---- Allgather and reduce_scatter ---- */

/* The seats bring the blocks of their ranks between hosts, or the leaders those of their hosts. */
static alnico_status_t gather_between(struct task *t, const size_t *counts, const size_t *at)
{
    char *own = at_element(t, t->recv, at[t->host]);
    if (!t->even && t->seat > 0)
        return ALNICO_SUCCESS;
    return alnico_allgatherv(own, counts[t->host], t->recv, counts, at, t->call->type, t->between);
}

static alnico_status_t gather_each_host(struct task *t)
{
    size_t count = t->call->count;
    for (int h = 0; h < t->map->hosts; h++) {
        char *first = at_element(t, t->recv, (size_t)t->map->first[h] * count);
        TRY(alnico_allgather(at_element(t, first, (size_t)t->seat * count), first, count,
                             t->call->type, t->inside));
    }
    return ALNICO_SUCCESS;
}

/* The own block comes to its place, with those of the host where the leaders carry them. */
static alnico_status_t place_own(struct task *t)
{
    size_t count = t->call->count;
    char *own = at_element(t, t->recv, (size_t)t->comm->rank * count);
    char *first = at_element(t, t->recv, (size_t)t->map->first[t->host] * count);
    if (!t->even)
        return alnico_allgather(t->send, first, count, t->call->type, t->inside);
    return own == t->send
               ? ALNICO_SUCCESS
               : t->device->copy(own, t->send, count * t->element, t->state->streams[INSIDE]);
}

static alnico_status_t allgather(struct task *t)
{
    size_t hosts = (size_t)t->map->hosts, count = t->call->count;
    size_t *counts = malloc(2 * hosts * sizeof *counts), *at = counts + hosts;
    if (!counts)
        return error_set(ALNICO_ERROR_MEMORY, "no memory for the counts of %zu hosts", hosts);
    for (int h = 0; h < t->map->hosts; h++) {
        counts[h] = t->even ? count : ranks_of(t, h) * count;
        at[h] = (size_t)(t->map->first[h] + (t->even ? t->seat : 0)) * count;
    }
    alnico_status_t status = place_own(t);
    if (status == ALNICO_SUCCESS)
        status = chain_levels(t, INSIDE, BETWEEN);
    if (status == ALNICO_SUCCESS)
        status = gather_between(t, counts, at);
    if (status == ALNICO_SUCCESS)
        status = chain_levels(t, BETWEEN, INSIDE);
    free(counts);
    TRY(status);
    return t->even ? gather_each_host(t)
                   : alnico_broadcast(t->recv, (size_t)t->comm->size * count, t->call->type, 0,
                                      t->inside);
}

/* The scratch gets this host's part of a block for each host. */
static alnico_status_t scatter_each_host(struct task *t)
{
    size_t count = t->call->count;
    for (int h = 0; h < t->map->hosts; h++)
        TRY(alnico_reduce_scatter(at_element(t, t->send, (size_t)t->map->first[h] * count),
                                  at_element(t, t->scratch, (size_t)h * count), count,
                                  t->call->type, t->op, t->inside));
    TRY(chain_levels(t, INSIDE, BETWEEN));
    TRY(alnico_reduce_scatter(t->scratch, t->recv, count, t->call->type, t->op, t->between));
    return chain_levels(t, BETWEEN, INSIDE);
}

static alnico_status_t reduce_scatter(struct task *t)
{
    void *memory, *stream = t->state->streams[INSIDE];
    TRY(t->device->stream_alloc((size_t)t->map->hosts * t->call->count * t->element, &memory,
                                stream));
    t->scratch = memory;
    alnico_status_t status = scatter_each_host(t);
    t->device->stream_free(memory, stream);
    return status == ALNICO_SUCCESS ? divide_integers(t) : status;
}

/* ---- Barrier ---- */

/* The barrier inside comes first. With as many ranks on each host, every rank then meets one of each
 * other host, which has waited for all of its own. */
static alnico_status_t barrier(struct task *t)
{
    TRY(alnico_barrier(t->inside));
    TRY(chain_levels(t, INSIDE, BETWEEN));
    if (t->even || t->seat == 0)
        TRY(alnico_barrier(t->between));
    TRY(chain_levels(t, BETWEEN, INSIDE));
    return t->even ? ALNICO_SUCCESS : alnico_barrier(t->inside);
}

/* ---- All ---- */

static alnico_status_t (*const collectives_of[COLLECTIVES])(struct task *) = {
    [ALNICO_ALLREDUCE] = allreduce,           [ALNICO_REDUCE] = reduce,
    [ALNICO_BROADCAST] = broadcast,           [ALNICO_ALLGATHER] = allgather,
    [ALNICO_REDUCE_SCATTER] = reduce_scatter, [ALNICO_BARRIER] = barrier,
};

/* A mean of the hosts' means is that of all ranks where hosts have as many each. */
bool hierarchical_can(const struct alnico_comm *comm, const struct call *call)
{
    const struct host_map *map = comm->map;
    bool even = map->fewest == map->most;
    switch (call->collective) {
    case ALNICO_ALLGATHER:
        return map->ordered;
    case ALNICO_REDUCE_SCATTER:
        return map->ordered && even;
    case ALNICO_REDUCE:
        return map->place[call->root] < map->fewest && (even || !is_float_average(call));
    default:
        return collectives_of[call->collective] != NULL;
    }
}

/* Chunks that the seats can divide. */
static size_t chunk_count_of(const struct task *t, const struct choice *choice)
{
    size_t seats = (size_t)t->map->most, count = choice->chunk_bytes / t->element;
    return count < seats ? seats : count - count % seats;
}

static void describe(struct task *t, alnico_comm_t comm, const struct call *call,
                     const struct choice *choice)
{
    struct hierarchical_state *state = hierarchical_state_of(comm);
    const struct host_map *map = comm->map;
    int root = call_has_root(call) ? call->root : 0;
    *t = (struct task){.comm = comm,
                       .inside = state->comms[INSIDE],
                       .between = state->comms[BETWEEN],
                       .device = comm->device,
                       .state = state,
                       .call = call,
                       .map = map,
                       .element = datatype_bytes(call->type),
                       .send = call->send,
                       .recv = call->recv,
                       .op = call->op,
                       .host = map->host[comm->rank],
                       .seat = map->place[comm->rank],
                       .root_host = map->host[root],
                       .root_seat = map->place[root],
                       .even = map->fewest == map->most};
    if (call->op == ALNICO_AVERAGE && !is_float_average(call))
        t->op = ALNICO_SUM;
    t->chunk_count = chunk_count_of(t, choice);
}

/* Errors of the levels' operations name this call. */
static void serve(const struct task *t, const struct call *call)
{
    t->comm->sequence += call != NULL;
    t->inside->served = call;
    if (t->between)
        t->between->served = call;
}

/* Other ranks wait for the rest of a call that is enqueued in part. */
alnico_status_t hierarchical_launch(alnico_comm_t comm, const struct call *call,
                                    const struct choice *choice, void *stream)
{
    struct task t;
    if (call->count == 0 && call->collective != ALNICO_BARRIER)
        return ALNICO_SUCCESS;
    describe(&t, comm, call, choice);
    serve(&t, call);
    alnico_status_t status = chain(&t, stream, t.state->called, t.state->streams[INSIDE]);
    if (status == ALNICO_SUCCESS)
        status = collectives_of[call->collective](&t);
    if (status == ALNICO_SUCCESS)
        status = chain(&t, t.state->streams[INSIDE], t.state->reached[INSIDE], stream);
    serve(&t, NULL);
    if (status != ALNICO_SUCCESS)
        comm_latch(comm, status, alnico_error_detail());
    return status;
}
