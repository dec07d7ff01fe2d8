/* The exchanges of a communicator, over its transport (rendezvous/out_of_band.h). */
#include "comm/communicator/out_of_band.h"

#include "base/status.h"
#include "comm/agree.h"
#include "comm/communicator/comm.h"
#include "comm/rendezvous/out_of_band.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

alnico_status_t comm_allgather(alnico_comm_t comm, const char *who, const void *mine, void *all,
                               size_t bytes)
{
    const struct out_of_band wait = {.transport = comm->transport,
                                     .engine = comm->family->engine,
                                     .broken = &comm->latch.status,
                                     .timeout = comm->family->settings.timeout,
                                     .who = who};
    alnico_status_t status = out_of_band_gather(&wait, mine, all, bytes);
    return status == ALNICO_ERROR_TIMEOUT && atomic_load(&comm->latch.status) ? comm_latched(comm)
                                                                              : status;
}

alnico_status_t comm_allgather_called(void *context, const void *mine, void *all, size_t bytes)
{
    struct comm_caller *caller = context;
    alnico_status_t status = comm_allgather(caller->comm, caller->who, mine, all, bytes);
    caller->failed = status != ALNICO_SUCCESS;
    return status;
}

alnico_status_t comm_agree_status(alnico_comm_t comm, const char *who, alnico_status_t *status)
{
    struct comm_caller caller = {.comm = comm, .who = who};
    struct step_result *all = malloc((size_t)comm->size * sizeof *all);
    if (!all)
        return error_set(ALNICO_ERROR_MEMORY, "%s: no memory for %d ranks", who, comm->size);
    alnico_status_t agreed =
        agree_on_status(comm_allgather_called, &caller, all, comm->size, NULL, status);
    free(all);
    return agreed;
}

alnico_status_t comm_agree(alnico_comm_t comm, const char *who, const void *mine, void *all,
                           size_t bytes)
{
    alnico_status_t status = comm_allgather(comm, who, mine, all, bytes);
    if (status != ALNICO_SUCCESS)
        comm_latch(comm, status, alnico_error_detail());
    return status;
}

enum { NAME_BYTES = 32 };

/* A rank's call: so many bytes whatever it calls, so that those who call different things understand
 * each other. */
struct opening {
    char what[NAME_BYTES], who[NAME_BYTES];
    char mine[AGREE_BYTES];
};

static alnico_status_t compare_calls(const struct opening *openings, int size, const char *who)
{
    for (int i = 1; i < size; i++)
        if (strcmp(openings[i].what, openings[0].what) != 0)
            return error_set(ALNICO_ERROR_MISMATCH, "%s: rank 0 calls %s, and rank %d %s", who,
                             openings[0].who, i, openings[i].who);
    return ALNICO_SUCCESS;
}

alnico_status_t comm_agree_first(alnico_comm_t comm, const char *what, const char *who,
                                 const void *mine, void *all, size_t bytes)
{
    struct opening own = {0}, *openings = calloc((size_t)comm->size, sizeof *openings);
    assert(bytes <= AGREE_BYTES);
    if (!openings)
        return error_set(ALNICO_ERROR_MEMORY, "%s: no memory for %d ranks", who, comm->size);
    snprintf(own.what, sizeof own.what, "%s", what);
    snprintf(own.who, sizeof own.who, "%s", who);
    memcpy(own.mine, mine, bytes);
    alnico_status_t status = comm_agree(comm, who, &own, openings, sizeof own);
    if (status == ALNICO_SUCCESS)
        status = compare_calls(openings, comm->size, who);
    for (int i = 0; status == ALNICO_SUCCESS && i < comm->size; i++)
        memcpy((char *)all + (size_t)i * bytes, openings[i].mine, bytes);
    free(openings);
    return status;
}
