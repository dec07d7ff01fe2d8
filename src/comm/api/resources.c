/* The public calls for a communicator's limits and memory. On the caller's thread. */
#include "comm/api/create.h"
#include "comm/communicator/out_of_band.h"
#include "comm/communicator/sharing.h"

#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>

static alnico_status_t check(alnico_comm_t comm, const alnico_limits_t *limits, const char *who)
{
    if (!limits)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: limits is NULL", who);
    if (limits->blocks < 0)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: limits.blocks is %d, expected 0 or more", who,
                         limits->blocks);
    if (comm->called_on || comm->registrations)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "%s: communicator %d has been used; it is limited before its first "
                         "operation and registration",
                         who, comm->id);
    return ALNICO_SUCCESS;
}

static alnico_status_t compare(const alnico_limits_t *all, int size, const char *who)
{
    for (int i = 1; i < size; i++)
        if (all[i].blocks != all[0].blocks || all[i].scratch != all[0].scratch)
            return error_set(ALNICO_ERROR_MISMATCH,
                             "%s: rank 0 passes %d blocks and %zu bytes of scratch, and rank %d %d "
                             "and %zu",
                             who, all[0].blocks, all[0].scratch, i, all[i].blocks, all[i].scratch);
    return ALNICO_SUCCESS;
}

static alnico_status_t agree(alnico_comm_t comm, const alnico_limits_t *limits, const char *who)
{
    alnico_limits_t none = {0}, *all = calloc((size_t)comm->size, sizeof *all);
    alnico_status_t mine =
        all ? check(comm, limits, who) : error_set(ALNICO_ERROR_MEMORY, "%s: no memory", who);
    const struct comm_opening opening = {.what = who,
                                         .who = who,
                                         .status = mine,
                                         .mine = limits ? limits : &none,
                                         .bytes = sizeof *limits};
    alnico_status_t status = comm_agree_first(comm, &opening, all);
    if (status == ALNICO_SUCCESS)
        status = compare(all, comm->size, who);
    free(all);
    return status;
}

static alnico_status_t attach_again(alnico_comm_t comm, alnico_limits_t limits, const char *who)
{
    comm_detach(comm);
    comm->limits = limits;
    return error_of(who, comm_attach(comm, who));
}

/* Limits under which nothing works are taken back, and their error is returned. */
static alnico_status_t limit(alnico_comm_t comm, alnico_limits_t limits, const char *who)
{
    const alnico_limits_t before = comm->limits;
    char detail[512];
    alnico_status_t status = attach_again(comm, limits, who), restored = ALNICO_SUCCESS;
    if (status == ALNICO_ERROR_ARGUMENT) {
        snprintf(detail, sizeof detail, "%s", alnico_error_detail());
        restored = attach_again(comm, before, who);
    }
    if (restored != ALNICO_SUCCESS ||
        (status != ALNICO_SUCCESS && status != ALNICO_ERROR_ARGUMENT)) {
        comm_latch(comm, restored != ALNICO_SUCCESS ? restored : status, alnico_error_detail());
        return comm_latched(comm);
    }
    return status == ALNICO_SUCCESS ? status : error_set(status, "%s", detail);
}

alnico_status_t alnico_comm_set_limits(alnico_comm_t comm, const alnico_limits_t *limits)
{
    const char *who = "alnico_comm_set_limits";
    TRY(comm_ready(comm, who));
    TRY(agree(comm, limits, who));
    int before = comm_enter(comm);
    comm_settle(comm);
    watchdog_remove(&comm->family->watchdog, comm);
    alnico_status_t status = limit(comm, *limits, who);
    comm_watch(comm, who);
    comm_leave(comm, before);
    return status;
}

alnico_status_t alnico_comm_memory(alnico_comm_t comm, alnico_comm_memory_t *out)
{
    const char *who = "alnico_comm_memory";
    TRY(comm_check(comm, who));
    if (!out)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: out is NULL", who);
    *out = (alnico_comm_memory_t){0};
    for (const struct backend_ops *const *b = comm->backends; *b; b++)
        if ((*b)->memory)
            (*b)->memory(comm, out);
    out->shared += sharing_bytes(comm);
    out->scratch += sharing_bytes(comm);
    if (comm->transport->ops->memory)
        comm->transport->ops->memory(comm->transport, out);
    out->host += pool_bytes(&comm->family->pool);
    out->messages = out->host + out->device + out->shared - out->scratch;
    return ALNICO_SUCCESS;
}
