/* Allreduce, reduce and reduce_scatter: the public calls. */
#include "comm/api/api.h"

alnico_status_t alnico_allreduce(const void *send, void *recv, size_t count, alnico_datatype_t type,
                                 alnico_op_t op, alnico_comm_t comm)
{
    struct call call = {ALNICO_ALLREDUCE, send, recv, count, type, .op = op};
    return api_start(comm, &call, NULL, "alnico_allreduce");
}

alnico_status_t alnico_iallreduce(const void *send, void *recv, size_t count,
                                  alnico_datatype_t type, alnico_op_t op, alnico_comm_t comm,
                                  alnico_request_t *request)
{
    struct call call = {ALNICO_ALLREDUCE, send, recv, count, type, .op = op};
    return api_start_request(comm, &call, request, "alnico_iallreduce");
}

alnico_status_t alnico_reduce(const void *send, void *recv, size_t count, alnico_datatype_t type,
                              alnico_op_t op, int root, alnico_comm_t comm)
{
    struct call call = {ALNICO_REDUCE, send, recv, count, type, .op = op, .root = root};
    return api_start(comm, &call, NULL, "alnico_reduce");
}

alnico_status_t alnico_ireduce(const void *send, void *recv, size_t count, alnico_datatype_t type,
                               alnico_op_t op, int root, alnico_comm_t comm,
                               alnico_request_t *request)
{
    struct call call = {ALNICO_REDUCE, send, recv, count, type, .op = op, .root = root};
    return api_start_request(comm, &call, request, "alnico_ireduce");
}

alnico_status_t alnico_reduce_scatter(const void *send, void *recv, size_t count,
                                      alnico_datatype_t type, alnico_op_t op, alnico_comm_t comm)
{
    struct call call = {ALNICO_REDUCE_SCATTER, send, recv, count, type, .op = op};
    return api_start(comm, &call, NULL, "alnico_reduce_scatter");
}

alnico_status_t alnico_ireduce_scatter(const void *send, void *recv, size_t count,
                                       alnico_datatype_t type, alnico_op_t op, alnico_comm_t comm,
                                       alnico_request_t *request)
{
    struct call call = {ALNICO_REDUCE_SCATTER, send, recv, count, type, .op = op};
    return api_start_request(comm, &call, request, "alnico_ireduce_scatter");
}

alnico_status_t alnico_reduce_scatterv(const void *send, void *recv, const size_t *counts,
                                       alnico_datatype_t type, alnico_op_t op, alnico_comm_t comm)
{
    struct call call = {ALNICO_REDUCE_SCATTERV, send, recv, 0, type, .op = op};
    call.send_counts = counts;
    return api_start(comm, &call, NULL, "alnico_reduce_scatterv");
}

alnico_status_t alnico_ireduce_scatterv(const void *send, void *recv, const size_t *counts,
                                        alnico_datatype_t type, alnico_op_t op, alnico_comm_t comm,
                                        alnico_request_t *request)
{
    struct call call = {ALNICO_REDUCE_SCATTERV, send, recv, 0, type, .op = op};
    call.send_counts = counts;
    return api_start_request(comm, &call, request, "alnico_ireduce_scatterv");
}
