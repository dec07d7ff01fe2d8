/* The exchanges of a communicator, over its transport (rendezvous/out_of_band.h). */
#include "comm/communicator/out_of_band.h"

#include "base/status.h"
#include "comm/communicator/comm.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An exchange with the status, begun at that time, has failed. */
static alnico_status_t fail(struct comm_rendezvous *r, alnico_status_t status, double start,
                            int awaited)
{
    if (status == ALNICO_ERROR_TIMEOUT && r->told) {
        const struct comm_wait wait = {.who = r->wait.who,
                                       .timeout = r->wait.timeout,
                                       .waited = transport_now(r->wait.transport) - start,
                                       .awaited = awaited};
        status = comm_give_up(r->told, &wait);
    }
    comm_latch(r->comm, status, alnico_error_detail());
    return status == ALNICO_ERROR_TIMEOUT ? comm_latched(r->comm) : status;
}

static bool is_told(void *context)
{
    alnico_comm_t told = ((struct comm_rendezvous *)context)->told;
    return detector_finds_failure(&told->detector, told->transport);
}

/* After an error nothing is sent: others may still be in the exchange before, and take it for that. */
static alnico_status_t gather(void *context, const void *mine, void *all, size_t bytes)
{
    struct comm_rendezvous *r = context;
    double start = transport_now(r->wait.transport);
    int awaited = -1;
    TRY(comm_latched(r->comm));
    r->wait.spent = r->base.spent;
    r->wait.context = r;
    r->wait.awaited = &awaited;
    alnico_status_t status = out_of_band_gather(&r->wait, mine, all, bytes);
    return status == ALNICO_SUCCESS ? status : fail(r, status, start, awaited);
}

static alnico_status_t look(void *context)
{
    struct comm_rendezvous *r = context;
    TRY(comm_latched(r->comm));
    alnico_status_t status = out_of_band_look(&r->wait);
    if (status == ALNICO_SUCCESS && r->told && is_told(r))
        status = ALNICO_ERROR_TIMEOUT;
    return status == ALNICO_SUCCESS ? status
                                    : fail(r, status, transport_now(r->wait.transport), -1);
}

static alnico_comm_t told_of(alnico_comm_t comm)
{
    if (comm->owner)
        return comm->owner;
    return comm->parent ? comm->parent : comm->called ? NULL : comm;
}

void comm_rendezvous_init(struct comm_rendezvous *out, alnico_comm_t comm, const char *who)
{
    double timeout = comm->family->settings.timeout;
    alnico_comm_t told = told_of(comm);
    *out = (struct comm_rendezvous){.comm = comm,
                                    .told = told,
                                    .wait = {.transport = comm->transport,
                                             .engine = comm->family->engine,
                                             .broken = &comm->latch.status,
                                             .timeout = timeout,
                                             .who = who,
                                             .called = comm->called,
                                             .told = told ? is_told : NULL},
                                    .base = {.allgather = gather,
                                             .look = look,
                                             .context = out,
                                             .rank = comm->rank,
                                             .size = comm->size,
                                             .called = comm->called,
                                             .who = who,
                                             .timeout = timeout}};
}

void comm_rendezvous_part(struct comm_rendezvous *out, alnico_comm_t comm, const char *who,
                          const int *members, int count, int place)
{
    comm_rendezvous_init(out, comm, who);
    out->wait.members = out->wait.called = out->base.called = members;
    out->wait.count = out->base.size = count;
    out->wait.place = out->base.rank = place;
}

alnico_status_t comm_allgather(alnico_comm_t comm, const char *who, const void *mine, void *all,
                               size_t bytes)
{
    struct comm_rendezvous r;
    comm_rendezvous_init(&r, comm, who);
    return gather(&r, mine, all, bytes);
}

alnico_status_t comm_rendezvous_agree(struct comm_rendezvous *r, alnico_status_t mine)
{
    struct step_result *all = malloc((size_t)r->base.size * sizeof *all);
    alnico_status_t status = agree_on_status(&r->base, all, NULL, mine);
    free(all);
    return error_of(r->base.who, status);
}

alnico_status_t comm_agree_status(alnico_comm_t comm, const char *who, alnico_status_t mine)
{
    struct comm_rendezvous r;
    comm_rendezvous_init(&r, comm, who);
    return comm_rendezvous_agree(&r, mine);
}

enum { NAME_BYTES = 32 };

/* A rank's opening on its way: so many bytes whatever it calls, so that those who call different
 * things understand each other. */
struct packed {
    char what[NAME_BYTES], who[NAME_BYTES];
    int32_t status;
    char detail[188], mine[AGREE_BYTES];
};

static void pack(const struct comm_opening *opening, int rank, struct packed *out)
{
    *out = (struct packed){.status = opening->status};
    snprintf(out->what, sizeof out->what, "%s", opening->what);
    snprintf(out->who, sizeof out->who, "%s", opening->who);
    if (opening->status != ALNICO_SUCCESS)
        agree_detail(opening->who, rank, out->detail, sizeof out->detail);
    else
        memcpy(out->mine, opening->mine, opening->bytes);
}

/* `own` is this rank's status, with its detail. */
static alnico_status_t compare(const struct packed *all, int size, alnico_status_t own,
                               const char *who)
{
    for (int i = 1; i < size; i++)
        if (strcmp(all[i].what, all[0].what) != 0)
            return error_set(ALNICO_ERROR_MISMATCH, "%s: rank 0 calls %s, and rank %d %s", who,
                             all[0].who, i, all[i].who);
    for (int i = 0; i < size && own == ALNICO_SUCCESS; i++)
        if (all[i].status != ALNICO_SUCCESS)
            return error_set((alnico_status_t)all[i].status, "%s: %s", who, all[i].detail);
    return own;
}

alnico_status_t comm_agree_first(alnico_comm_t comm, const struct comm_opening *opening, void *all)
{
    struct comm_opening own = *opening;
    struct packed mine, *packed = calloc((size_t)comm->size, sizeof *packed);
    char detail[512];
    assert(own.bytes <= AGREE_BYTES);
    if (own.status == ALNICO_SUCCESS && (!packed || !all))
        own.status = error_set(ALNICO_ERROR_MEMORY, "%s: rank %d: no memory for %d ranks", own.who,
                               comm->rank, comm->size);
    snprintf(detail, sizeof detail, "%s", alnico_error_detail());
    pack(&own, comm->rank, &mine);
    alnico_status_t status = comm_allgather(comm, own.who, &mine, packed, sizeof mine);
    if (status == ALNICO_SUCCESS && own.status != ALNICO_SUCCESS)
        error_set(own.status, "%s", detail);
    if (status == ALNICO_SUCCESS)
        status = packed ? compare(packed, comm->size, own.status, own.who) : own.status;
    for (int i = 0; status == ALNICO_SUCCESS && i < comm->size; i++)
        memcpy((char *)all + (size_t)i * own.bytes, packed[i].mine, own.bytes);
    free(packed);
    return status;
}
