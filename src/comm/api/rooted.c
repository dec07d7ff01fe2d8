/* Broadcast, gather and scatter: the public calls. */
#include "comm/api/api.h"

alnico_status_t alnico_broadcast(void *buffer, size_t count, alnico_datatype_t type, int root,
                                 alnico_comm_t comm)
{
    struct call call = {ALNICO_BROADCAST, buffer, buffer, count, type, .root = root};
    return api_start(comm, &call, NULL, "alnico_broadcast");
}

alnico_status_t alnico_ibroadcast(void *buffer, size_t count, alnico_datatype_t type, int root,
                                  alnico_comm_t comm, alnico_request_t *request)
{
    struct call call = {ALNICO_BROADCAST, buffer, buffer, count, type, .root = root};
    return api_start_request(comm, &call, request, "alnico_ibroadcast");
}

/* The root's buffer is the receiving one, too, once its input is there. */
static struct call broadcast_to(const void *send, void *recv, size_t count, alnico_datatype_t type,
                                int root)
{
    return (struct call){ALNICO_BROADCAST,
                         recv,
                         recv,
                         count,
                         type,
                         .root = root,
                         .input = send,
                         .copies = send != ALNICO_IN_PLACE && send != recv};
}

alnico_status_t alnico_broadcast_to(const void *send, void *recv, size_t count,
                                    alnico_datatype_t type, int root, alnico_comm_t comm)
{
    struct call call = broadcast_to(send, recv, count, type, root);
    return api_start(comm, &call, NULL, "alnico_broadcast_to");
}

alnico_status_t alnico_ibroadcast_to(const void *send, void *recv, size_t count,
                                     alnico_datatype_t type, int root, alnico_comm_t comm,
                                     alnico_request_t *request)
{
    struct call call = broadcast_to(send, recv, count, type, root);
    return api_start_request(comm, &call, request, "alnico_ibroadcast_to");
}

alnico_status_t alnico_gather(const void *send, void *recv, size_t count, alnico_datatype_t type,
                              int root, alnico_comm_t comm)
{
    struct call call = {ALNICO_GATHER, send, recv, count, type, .root = root};
    return api_start(comm, &call, NULL, "alnico_gather");
}

alnico_status_t alnico_igather(const void *send, void *recv, size_t count, alnico_datatype_t type,
                               int root, alnico_comm_t comm, alnico_request_t *request)
{
    struct call call = {ALNICO_GATHER, send, recv, count, type, .root = root};
    return api_start_request(comm, &call, request, "alnico_igather");
}

alnico_status_t alnico_gatherv(const void *send, size_t send_count, void *recv,
                               const size_t *counts, const size_t *at, alnico_datatype_t type,
                               int root, alnico_comm_t comm)
{
    struct call call = {ALNICO_GATHERV, send, recv, send_count, type, .root = root};
    call.recv_counts = counts;
    call.recv_at = at;
    return api_start(comm, &call, NULL, "alnico_gatherv");
}

alnico_status_t alnico_igatherv(const void *send, size_t send_count, void *recv,
                                const size_t *counts, const size_t *at, alnico_datatype_t type,
                                int root, alnico_comm_t comm, alnico_request_t *request)
{
    struct call call = {ALNICO_GATHERV, send, recv, send_count, type, .root = root};
    call.recv_counts = counts;
    call.recv_at = at;
    return api_start_request(comm, &call, request, "alnico_igatherv");
}

alnico_status_t alnico_scatter(const void *send, void *recv, size_t count, alnico_datatype_t type,
                               int root, alnico_comm_t comm)
{
    struct call call = {ALNICO_SCATTER, send, recv, count, type, .root = root};
    return api_start(comm, &call, NULL, "alnico_scatter");
}

alnico_status_t alnico_iscatter(const void *send, void *recv, size_t count, alnico_datatype_t type,
                                int root, alnico_comm_t comm, alnico_request_t *request)
{
    struct call call = {ALNICO_SCATTER, send, recv, count, type, .root = root};
    return api_start_request(comm, &call, request, "alnico_iscatter");
}

alnico_status_t alnico_scatterv(const void *send, const size_t *counts, const size_t *at,
                                void *recv, size_t recv_count, alnico_datatype_t type, int root,
                                alnico_comm_t comm)
{
    struct call call = {ALNICO_SCATTERV, send, recv, recv_count, type, .root = root};
    call.send_counts = counts;
    call.send_at = at;
    return api_start(comm, &call, NULL, "alnico_scatterv");
}

alnico_status_t alnico_iscatterv(const void *send, const size_t *counts, const size_t *at,
                                 void *recv, size_t recv_count, alnico_datatype_t type, int root,
                                 alnico_comm_t comm, alnico_request_t *request)
{
    struct call call = {ALNICO_SCATTERV, send, recv, recv_count, type, .root = root};
    call.send_counts = counts;
    call.send_at = at;
    return api_start_request(comm, &call, request, "alnico_iscatterv");
}
