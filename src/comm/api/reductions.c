/* Allreduce, reduce and reduce_scatter: the public calls. */
#include "comm/api/api.h"

#include "base/status.h"

static alnico_status_t allreduce(const void *send, void *recv, size_t count, alnico_datatype_t type,
                                 alnico_op_t op, alnico_comm_t comm, alnico_request_t *request,
                                 const char *who)
{
    struct call call = {.collective = ALNICO_ALLREDUCE,
                        .send = send == ALNICO_IN_PLACE ? recv : send,
                        .recv = recv,
                        .count = count,
                        .type = type,
                        .op = op};
    TRY(api_collective(comm, who));
    return api_start(comm, &call, request, who);
}

alnico_status_t alnico_allreduce(const void *send, void *recv, size_t count, alnico_datatype_t type,
                                 alnico_op_t op, alnico_comm_t comm)
{
    return allreduce(send, recv, count, type, op, comm, NULL, "alnico_allreduce");
}

alnico_status_t alnico_iallreduce(const void *send, void *recv, size_t count,
                                  alnico_datatype_t type, alnico_op_t op, alnico_comm_t comm,
                                  alnico_request_t *request)
{
    TRY(api_request_told(comm, request, "alnico_iallreduce"));
    return allreduce(send, recv, count, type, op, comm, request, "alnico_iallreduce");
}

/* ---- Reduce ---- */

static alnico_status_t reduce(const void *send, void *recv, size_t count, alnico_datatype_t type,
                              alnico_op_t op, int root, alnico_comm_t comm,
                              alnico_request_t *request, const char *who)
{
    TRY(api_collective(comm, who));
    TRY_TOLD(comm, who, api_root(comm, root, who));
    bool is_root = comm->rank == root;
    if (send == ALNICO_IN_PLACE && !is_root)
        return api_refused(comm, api_nowhere(comm, "send", root, who), who);
    struct call call = {.collective = ALNICO_REDUCE,
                        .send = send == ALNICO_IN_PLACE ? recv : send,
                        .recv = is_root ? recv : NULL,
                        .count = count,
                        .type = type,
                        .op = op,
                        .root = root};
    return api_start(comm, &call, request, who);
}

alnico_status_t alnico_reduce(const void *send, void *recv, size_t count, alnico_datatype_t type,
                              alnico_op_t op, int root, alnico_comm_t comm)
{
    return reduce(send, recv, count, type, op, root, comm, NULL, "alnico_reduce");
}

alnico_status_t alnico_ireduce(const void *send, void *recv, size_t count, alnico_datatype_t type,
                               alnico_op_t op, int root, alnico_comm_t comm,
                               alnico_request_t *request)
{
    TRY(api_request_told(comm, request, "alnico_ireduce"));
    return reduce(send, recv, count, type, op, root, comm, request, "alnico_ireduce");
}

/* ---- Reduce-scatter ---- */

static alnico_status_t reduce_scatter(struct call *call, const size_t *counts, alnico_comm_t comm,
                                      alnico_request_t *request, const char *who)
{
    if (call->send == ALNICO_IN_PLACE) {
        struct side blocks = {comm->size, call->count, call->count, counts, NULL};
        call->send = call->recv;
        TRY_TOLD(comm, who, api_own_place(comm, &blocks, call->send, call->type, who, &call->recv));
    }
    return api_start(comm, call, request, who);
}

static alnico_status_t reduce_scatter_equal(const void *send, void *recv, size_t count,
                                            alnico_datatype_t type, alnico_op_t op,
                                            alnico_comm_t comm, alnico_request_t *request,
                                            const char *who)
{
    struct call call = {.collective = ALNICO_REDUCE_SCATTER,
                        .send = send,
                        .recv = recv,
                        .count = count,
                        .type = type,
                        .op = op};
    TRY(api_collective(comm, who));
    return reduce_scatter(&call, NULL, comm, request, who);
}

alnico_status_t alnico_reduce_scatter(const void *send, void *recv, size_t count,
                                      alnico_datatype_t type, alnico_op_t op, alnico_comm_t comm)
{
    return reduce_scatter_equal(send, recv, count, type, op, comm, NULL, "alnico_reduce_scatter");
}

alnico_status_t alnico_ireduce_scatter(const void *send, void *recv, size_t count,
                                       alnico_datatype_t type, alnico_op_t op, alnico_comm_t comm,
                                       alnico_request_t *request)
{
    TRY(api_request_told(comm, request, "alnico_ireduce_scatter"));
    return reduce_scatter_equal(send, recv, count, type, op, comm, request,
                                "alnico_ireduce_scatter");
}

static alnico_status_t reduce_scatterv(const void *send, void *recv, const size_t *counts,
                                       alnico_datatype_t type, alnico_op_t op, alnico_comm_t comm,
                                       alnico_request_t *request, const char *who)
{
    TRY(api_collective(comm, who));
    TRY_TOLD(comm, who, api_counts(counts, "counts", who));
    struct call call = {.collective = ALNICO_REDUCE_SCATTERV,
                        .send = send,
                        .recv = recv,
                        .count = counts[comm->rank],
                        .type = type,
                        .op = op,
                        .send_counts = counts};
    return reduce_scatter(&call, counts, comm, request, who);
}

alnico_status_t alnico_reduce_scatterv(const void *send, void *recv, const size_t *counts,
                                       alnico_datatype_t type, alnico_op_t op, alnico_comm_t comm)
{
    return reduce_scatterv(send, recv, counts, type, op, comm, NULL, "alnico_reduce_scatterv");
}

alnico_status_t alnico_ireduce_scatterv(const void *send, void *recv, const size_t *counts,
                                        alnico_datatype_t type, alnico_op_t op, alnico_comm_t comm,
                                        alnico_request_t *request)
{
    TRY(api_request_told(comm, request, "alnico_ireduce_scatterv"));
    return reduce_scatterv(send, recv, counts, type, op, comm, request, "alnico_ireduce_scatterv");
}
