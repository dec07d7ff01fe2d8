/*
 * Shrinking a communicator to the ranks that live. These agree who they are (rendezvous/consensus.h),
 * make a communicator, and agree again on how that went and who lives still. If a rank died
 * meanwhile they begin again with fewer. On the caller's thread.
 */
#include "comm/api/create.h"
#include "comm/communicator/out_of_band.h"
#include "comm/operations/stream_operation.h"
#include "comm/rendezvous/consensus.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

static const char *const who = "alnico_comm_shrink";

struct shrinking {
    alnico_comm_t comm;
    void *stream;
    size_t size;
    bool *members; /* by rank: who goes on; behind them those that a consensus is to find */
    int *ranks;    /* of the members */
};

/* The communicator's latched error ends neither these exchanges, which have a tag of their own, nor the
 * waits between them. */
static alnico_status_t gather(void *context, const void *mine, void *all, size_t bytes)
{
    struct comm_rendezvous *r = context;
    r->wait.spent = r->base.spent;
    return out_of_band_gather(&r->wait, mine, all, bytes);
}

static alnico_status_t look(void *context)
{
    const struct comm_rendezvous *r = context;
    return out_of_band_look(&r->wait);
}

/* A communicator of the members. */
static alnico_status_t build(struct shrinking *s, alnico_comm_t *out)
{
    alnico_comm_t comm = s->comm;
    struct comm_rendezvous r;
    int count = 0, place = 0;
    for (int i = 0; i < comm->size; i++) {
        if (i == comm->rank)
            place = count;
        if (s->members[i])
            s->ranks[count++] = i;
    }
    comm_rendezvous_part(&r, comm, who, s->ranks, count, place);
    r.base.allgather = gather;
    r.base.look = look;
    r.wait.broken = NULL;
    r.wait.told = NULL;
    r.wait.tag = TAG_SHRINK + comm->shrinks++ % SHRINK_TAGS;
    struct creation made = {.family = comm->family,
                            .device = comm->device,
                            .stream = s->stream,
                            .limits = comm->limits,
                            .who = who,
                            .called = s->ranks};
    TRY(error_of(who, comm->transport->ops->subset(comm->transport, &r.base, &made.transport)));
    comm_settle(comm);
    return comm_build(&made, out);
}

/* `members` becomes those that take part. */
static alnico_status_t reach(const struct shrinking *s, bool *members, alnico_status_t status)
{
    const struct consensus_setup setup = {.members = members,
                                          .engine = s->comm->family->engine,
                                          .timeout = s->comm->family->settings.timeout,
                                          .status = status,
                                          .name = s->comm->rank,
                                          .who = who};
    return consensus_reach(s->comm->consensus, &setup);
}

/* Others may not have got it, or not all of it. */
static void drop(alnico_comm_t *made)
{
    if (*made)
        alnico_comm_abort(*made);
    alnico_comm_destroy(*made);
    *made = NULL;
}

static alnico_status_t shrink(struct shrinking *s, alnico_comm_t *out)
{
    bool *next = s->members + s->size, same = false;
    memset(s->members, true, s->size);
    alnico_status_t status = reach(s, s->members, ALNICO_SUCCESS);
    while (s->members[s->comm->rank] && !same) {
        status = build(s, out);
        memcpy(next, s->members, s->size);
        status = reach(s, next, status);
        same = memcmp(next, s->members, s->size) == 0;
        memcpy(s->members, next, s->size);
        if (!same || status != ALNICO_SUCCESS)
            drop(out);
    }
    return status;
}

/* Nothing of the communicator is in flight then, and the others hear of it where they wait. */
static void stop(alnico_comm_t comm)
{
    comm_revoke(comm);
    stream_operation_drain(comm);
    comm_drain(comm);
}

static alnico_status_t check(alnico_comm_t comm, void *stream, alnico_comm_t *out)
{
    if (!out)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: out is NULL", who);
    *out = NULL;
    TRY(comm_check(comm, who));
    TRY(comm_group_closed(comm, who));
    if (comm->device->check_stream)
        TRY(comm->device->check_stream(stream, who));
    return strcmp(comm->transport->ops->name, "mpi") != 0
               ? ALNICO_SUCCESS
               : error_set(ALNICO_ERROR_UNSUPPORTED,
                           "%s: MPI carries the messages of communicator %d, and goes on with no "
                           "rank fewer",
                           who, comm->id);
}

alnico_status_t alnico_comm_shrink(alnico_comm_t comm, void *stream, alnico_comm_t *out)
{
    TRY(check(comm, stream, out));
    if (!comm->consensus)
        TRY(error_of(who, consensus_create(comm->transport, &comm->consensus)));
    struct shrinking s = {.comm = comm, .stream = stream, .size = (size_t)comm->size};
    s.members = calloc(2, s.size);
    s.ranks = calloc(s.size, sizeof *s.ranks);
    int before = comm_enter(comm);
    stop(comm);
    alnico_status_t status =
        s.members && s.ranks
            ? shrink(&s, out)
            : error_set(ALNICO_ERROR_MEMORY, "%s: no memory for %d ranks", who, comm->size);
    comm_leave(comm, before);
    free(s.members);
    free(s.ranks);
    return status;
}
