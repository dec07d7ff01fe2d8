/*
 * The communicators of the levels, which the ranks of the owner make together and which end with it.
 * They are the library's own (comm/api/create.h), so that each chooses its backends by its table:
 * peer or NCCL inside a host, messages between hosts. Those between hosts are without NCCL, whose row
 * stands before this backend's where it works between hosts.
 */
#include "comm/api/create.h"
#include "comm/backends/hierarchical/hierarchical.h"
#include "comm/communicator/out_of_band.h"
#include "progress/staging.h"

#include "base/log.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

/* The ranks of a level that this rank is of, as the owner numbers them; returns how many. */
static int list_members(const struct alnico_comm *comm, enum level level, int *members, int *place)
{
    const struct host_map *map = comm->map;
    int host = map->host[comm->rank], seat = map->place[comm->rank], count = 0;
    *place = level == INSIDE ? seat : host;
    if (level == INSIDE)
        for (int i = map->first[host]; i < map->first[host + 1]; i++)
            members[count++] = map->rank[i];
    else
        for (int h = 0; seat < map->fewest && h < map->hosts; h++)
            members[count++] = map->rank[map->first[h] + seat];
    return count;
}

/* Makes names, with room for the members behind them, and this rank's stream and event. */
static alnico_status_t make_own(alnico_comm_t comm, enum level level)
{
    struct hierarchical_state *state = hierarchical_state_of(comm);
    state->names[level] = calloc(2 * (size_t)comm->size, sizeof *state->names[level]);
    if (!state->names[level])
        return error_set(ALNICO_ERROR_MEMORY, "no memory for the hosts' ranks");
    TRY(comm->device->stream_create(&state->streams[level]));
    return comm->device->event_create(&state->reached[level]);
}

static alnico_status_t make_all_own(alnico_comm_t comm)
{
    TRY(comm->device->event_create(&hierarchical_state_of(comm)->called));
    TRY(make_own(comm, INSIDE));
    return make_own(comm, BETWEEN);
}

/* The limit lets in one share of scratch for each level. */
static alnico_limits_t limits_of(const struct alnico_comm *comm)
{
    alnico_limits_t limits = comm->limits;
    if (limits.scratch)
        limits.scratch = STAGING_BYTES;
    return limits;
}

/* An algorithm that is forced on the owner is not on its levels. */
static alnico_status_t build(alnico_comm_t comm, enum level level, const struct comm_part *part,
                             const char *who)
{
    struct hierarchical_state *state = hierarchical_state_of(comm);
    struct creation made = {.family = comm->family,
                            .device = comm->device,
                            .stream = state->streams[level],
                            .limits = limits_of(comm),
                            .who = who,
                            .called = state->names[level],
                            .parent = comm->parent   ? comm->parent
                                      : comm->called ? NULL
                                                     : comm,
                            .owner = comm,
                            .without = 1u << BACKEND_HIERARCHICAL};
    if (level == BETWEEN)
        made.without |= 1u << BACKEND_NCCL;
    alnico_comm_t out;
    TRY(comm_build_part(comm, part, &made, &out));
    memset(out->forced, 0, sizeof out->forced);
    atomic_store(&state->comms[level], out);
    return ALNICO_SUCCESS;
}

/* While the owner is made itself, errors name ranks as the public call does. */
static alnico_status_t make_level(alnico_comm_t comm, enum level level, const char *who)
{
    int *names = hierarchical_state_of(comm)->names[level], *members = names + comm->size;
    struct comm_part part = {.members = members};
    part.count = list_members(comm, level, members, &part.place);
    for (int i = 0; i < part.count; i++)
        names[i] = comm_name(comm, members[i]);
    alnico_status_t status = part.count ? build(comm, level, &part, who) : ALNICO_SUCCESS;
    memcpy(names, members, (size_t)part.count * sizeof *names);
    return status;
}

/* One status for all ranks, and whether the exchange that found it worked. */
static alnico_status_t agree(alnico_comm_t comm, alnico_status_t mine, const char *who,
                             bool *failed)
{
    struct comm_rendezvous r;
    comm_rendezvous_init(&r, comm, who);
    alnico_status_t status = comm_rendezvous_agree(&r, mine);
    *failed = r.base.failed;
    return status;
}

/* All ranks agree after each step: one that has failed takes no part in the next one. */
alnico_status_t hierarchical_make(alnico_comm_t comm, const char *who)
{
    struct hierarchical_state *state = hierarchical_state_of(comm);
    bool failed;
    alnico_status_t status = agree(comm, make_all_own(comm), who, &failed);
    for (int level = 0; level < LEVELS && status == ALNICO_SUCCESS; level++)
        status = agree(comm, make_level(comm, (enum level)level, who), who, &failed);
    state->tried = true;
    if (status == ALNICO_SUCCESS || failed)
        return status;
    log_write(comm->rank == 0 ? LOG_WARNING : LOG_DEBUG, "%s: no calls host by host: %s", who,
              alnico_error_detail());
    hierarchical_end(comm);
    return ALNICO_SUCCESS;
}

/* Ends a level's communicator, with what the owner's error has left in flight. */
static void end_level(alnico_comm_t comm, enum level level)
{
    struct hierarchical_state *state = hierarchical_state_of(comm);
    alnico_comm_t made = atomic_exchange(&state->comms[level], NULL);
    alnico_status_t status = comm_latched(comm);
    if (made && status != ALNICO_SUCCESS)
        comm_latch(made, status, alnico_error_detail());
    alnico_comm_destroy(made);
    if (state->streams[level])
        comm->device->stream_destroy(state->streams[level]);
    free(state->names[level]);
    state->streams[level] = NULL;
    state->names[level] = NULL;
}

static void end_event(alnico_comm_t comm, struct device_event **event)
{
    if (*event)
        comm->device->event_destroy(*event);
    *event = NULL;
}

/* A level's stream may wait for the other's event until it has ended. */
void hierarchical_end(alnico_comm_t comm)
{
    struct hierarchical_state *state = hierarchical_state_of(comm);
    for (int level = 0; level < LEVELS; level++)
        end_level(comm, (enum level)level);
    for (int level = 0; level < LEVELS; level++)
        end_event(comm, &state->reached[level]);
    end_event(comm, &state->called);
}
