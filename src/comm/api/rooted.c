/* Broadcast, gather and scatter: the public calls. */
#include "comm/api/api.h"

#include "base/status.h"

/* ---- Broadcast ---- */

static alnico_status_t broadcast(void *buffer, size_t count, alnico_datatype_t type, int root,
                                 alnico_comm_t comm, alnico_request_t *request, const char *who)
{
    struct call call = {.collective = ALNICO_BROADCAST,
                        .send = buffer,
                        .recv = buffer,
                        .count = count,
                        .type = type,
                        .root = root};
    TRY(api_collective(comm, who));
    TRY_TOLD(comm, who, api_root(comm, root, who));
    return api_start(comm, &call, request, who);
}

alnico_status_t alnico_broadcast(void *buffer, size_t count, alnico_datatype_t type, int root,
                                 alnico_comm_t comm)
{
    return broadcast(buffer, count, type, root, comm, NULL, "alnico_broadcast");
}

alnico_status_t alnico_ibroadcast(void *buffer, size_t count, alnico_datatype_t type, int root,
                                  alnico_comm_t comm, alnico_request_t *request)
{
    TRY(api_request_told(comm, request, "alnico_ibroadcast"));
    return broadcast(buffer, count, type, root, comm, request, "alnico_ibroadcast");
}

/* ---- Gather ---- */

static alnico_status_t gather(struct call *call, alnico_comm_t comm, alnico_request_t *request,
                              const char *who)
{
    void *own;
    if (comm->rank != call->root)
        call->recv = NULL;
    if (call->send == ALNICO_IN_PLACE && comm->rank != call->root)
        return api_refused(comm, api_nowhere(comm, "send", call->root, who), who);
    if (call->send == ALNICO_IN_PLACE) {
        struct side blocks = call_writes(call, comm->rank, comm->size);
        TRY_TOLD(comm, who, api_own_place(comm, &blocks, call->recv, call->type, who, &own));
        call->send = own;
    }
    return api_start(comm, call, request, who);
}

static alnico_status_t gather_equal(const void *send, void *recv, size_t count,
                                    alnico_datatype_t type, int root, alnico_comm_t comm,
                                    alnico_request_t *request, const char *who)
{
    struct call call = {.collective = ALNICO_GATHER,
                        .send = send,
                        .recv = recv,
                        .count = count,
                        .type = type,
                        .root = root};
    TRY(api_collective(comm, who));
    TRY_TOLD(comm, who, api_root(comm, root, who));
    return gather(&call, comm, request, who);
}

alnico_status_t alnico_gather(const void *send, void *recv, size_t count, alnico_datatype_t type,
                              int root, alnico_comm_t comm)
{
    return gather_equal(send, recv, count, type, root, comm, NULL, "alnico_gather");
}

alnico_status_t alnico_igather(const void *send, void *recv, size_t count, alnico_datatype_t type,
                               int root, alnico_comm_t comm, alnico_request_t *request)
{
    TRY(api_request_told(comm, request, "alnico_igather"));
    return gather_equal(send, recv, count, type, root, comm, request, "alnico_igather");
}

static alnico_status_t gatherv(const void *send, size_t send_count, void *recv,
                               const size_t *counts, const size_t *at, alnico_datatype_t type,
                               int root, alnico_comm_t comm, alnico_request_t *request,
                               const char *who)
{
    TRY(api_collective(comm, who));
    TRY_TOLD(comm, who, api_root(comm, root, who));
    struct call call = {.collective = ALNICO_GATHERV,
                        .send = send,
                        .recv = recv,
                        .count = send_count,
                        .type = type,
                        .root = root};
    if (comm->rank == root) {
        TRY_TOLD(comm, who, api_counts(counts, "counts", who));
        TRY_TOLD(comm, who, api_own_count(comm, "send_count", send_count, counts, who));
        call.recv_counts = counts;
        call.recv_at = at;
    }
    return gather(&call, comm, request, who);
}

alnico_status_t alnico_gatherv(const void *send, size_t send_count, void *recv,
                               const size_t *counts, const size_t *at, alnico_datatype_t type,
                               int root, alnico_comm_t comm)
{
    return gatherv(send, send_count, recv, counts, at, type, root, comm, NULL, "alnico_gatherv");
}

alnico_status_t alnico_igatherv(const void *send, size_t send_count, void *recv,
                                const size_t *counts, const size_t *at, alnico_datatype_t type,
                                int root, alnico_comm_t comm, alnico_request_t *request)
{
    TRY(api_request_told(comm, request, "alnico_igatherv"));
    return gatherv(send, send_count, recv, counts, at, type, root, comm, request,
                   "alnico_igatherv");
}

/* ---- Scatter ---- */

static alnico_status_t scatter(struct call *call, alnico_comm_t comm, alnico_request_t *request,
                               const char *who)
{
    if (comm->rank != call->root)
        call->send = NULL;
    if (call->recv == ALNICO_IN_PLACE && comm->rank != call->root)
        return api_refused(comm, api_nowhere(comm, "recv", call->root, who), who);
    if (call->recv == ALNICO_IN_PLACE) {
        struct side blocks = call_reads(call, comm->rank, comm->size);
        TRY_TOLD(comm, who, api_own_place(comm, &blocks, call->send, call->type, who, &call->recv));
    }
    return api_start(comm, call, request, who);
}

static alnico_status_t scatter_equal(const void *send, void *recv, size_t count,
                                     alnico_datatype_t type, int root, alnico_comm_t comm,
                                     alnico_request_t *request, const char *who)
{
    struct call call = {.collective = ALNICO_SCATTER,
                        .send = send,
                        .recv = recv,
                        .count = count,
                        .type = type,
                        .root = root};
    TRY(api_collective(comm, who));
    TRY_TOLD(comm, who, api_root(comm, root, who));
    return scatter(&call, comm, request, who);
}

alnico_status_t alnico_scatter(const void *send, void *recv, size_t count, alnico_datatype_t type,
                               int root, alnico_comm_t comm)
{
    return scatter_equal(send, recv, count, type, root, comm, NULL, "alnico_scatter");
}

alnico_status_t alnico_iscatter(const void *send, void *recv, size_t count, alnico_datatype_t type,
                                int root, alnico_comm_t comm, alnico_request_t *request)
{
    TRY(api_request_told(comm, request, "alnico_iscatter"));
    return scatter_equal(send, recv, count, type, root, comm, request, "alnico_iscatter");
}

static alnico_status_t scatterv(const void *send, const size_t *counts, const size_t *at,
                                void *recv, size_t recv_count, alnico_datatype_t type, int root,
                                alnico_comm_t comm, alnico_request_t *request, const char *who)
{
    TRY(api_collective(comm, who));
    TRY_TOLD(comm, who, api_root(comm, root, who));
    struct call call = {.collective = ALNICO_SCATTERV,
                        .send = send,
                        .recv = recv,
                        .count = recv_count,
                        .type = type,
                        .root = root};
    if (comm->rank == root) {
        TRY_TOLD(comm, who, api_counts(counts, "counts", who));
        TRY_TOLD(comm, who, api_own_count(comm, "recv_count", recv_count, counts, who));
        call.send_counts = counts;
        call.send_at = at;
    }
    return scatter(&call, comm, request, who);
}

alnico_status_t alnico_scatterv(const void *send, const size_t *counts, const size_t *at,
                                void *recv, size_t recv_count, alnico_datatype_t type, int root,
                                alnico_comm_t comm)
{
    return scatterv(send, counts, at, recv, recv_count, type, root, comm, NULL, "alnico_scatterv");
}

alnico_status_t alnico_iscatterv(const void *send, const size_t *counts, const size_t *at,
                                 void *recv, size_t recv_count, alnico_datatype_t type, int root,
                                 alnico_comm_t comm, alnico_request_t *request)
{
    TRY(api_request_told(comm, request, "alnico_iscatterv"));
    return scatterv(send, counts, at, recv, recv_count, type, root, comm, request,
                    "alnico_iscatterv");
}
