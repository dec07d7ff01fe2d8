/* Allgather, alltoall and barrier, which have no root and reduce nothing: the public calls. */
#include "comm/api/api.h"

alnico_status_t alnico_allgather(const void *send, void *recv, size_t count, alnico_datatype_t type,
                                 alnico_comm_t comm)
{
    struct call call = {
        .collective = ALNICO_ALLGATHER, .send = send, .recv = recv, .count = count, .type = type};
    return api_start(comm, &call, NULL, "alnico_allgather");
}

alnico_status_t alnico_iallgather(const void *send, void *recv, size_t count,
                                  alnico_datatype_t type, alnico_comm_t comm,
                                  alnico_request_t *request)
{
    struct call call = {
        .collective = ALNICO_ALLGATHER, .send = send, .recv = recv, .count = count, .type = type};
    return api_start_request(comm, &call, request, "alnico_iallgather");
}

alnico_status_t alnico_allgatherv(const void *send, size_t send_count, void *recv,
                                  const size_t *counts, const size_t *at, alnico_datatype_t type,
                                  alnico_comm_t comm)
{
    struct call call = {ALNICO_ALLGATHERV, send, recv, send_count, type, .recv_counts = counts};
    call.recv_at = at;
    return api_start(comm, &call, NULL, "alnico_allgatherv");
}

alnico_status_t alnico_iallgatherv(const void *send, size_t send_count, void *recv,
                                   const size_t *counts, const size_t *at, alnico_datatype_t type,
                                   alnico_comm_t comm, alnico_request_t *request)
{
    struct call call = {ALNICO_ALLGATHERV, send, recv, send_count, type, .recv_counts = counts};
    call.recv_at = at;
    return api_start_request(comm, &call, request, "alnico_iallgatherv");
}

alnico_status_t alnico_alltoall(const void *send, void *recv, size_t count, alnico_datatype_t type,
                                alnico_comm_t comm)
{
    struct call call = {
        .collective = ALNICO_ALLTOALL, .send = send, .recv = recv, .count = count, .type = type};
    return api_start(comm, &call, NULL, "alnico_alltoall");
}

alnico_status_t alnico_ialltoall(const void *send, void *recv, size_t count, alnico_datatype_t type,
                                 alnico_comm_t comm, alnico_request_t *request)
{
    struct call call = {
        .collective = ALNICO_ALLTOALL, .send = send, .recv = recv, .count = count, .type = type};
    return api_start_request(comm, &call, request, "alnico_ialltoall");
}

alnico_status_t alnico_alltoallv(const void *send, const size_t *send_counts, const size_t *send_at,
                                 void *recv, const size_t *recv_counts, const size_t *recv_at,
                                 alnico_datatype_t type, alnico_comm_t comm)
{
    struct call call = {ALNICO_ALLTOALLV, send, recv, 0, type, .send_counts = send_counts};
    call.send_at = send_at;
    call.recv_counts = recv_counts;
    call.recv_at = recv_at;
    return api_start(comm, &call, NULL, "alnico_alltoallv");
}

alnico_status_t alnico_ialltoallv(const void *send, const size_t *send_counts,
                                  const size_t *send_at, void *recv, const size_t *recv_counts,
                                  const size_t *recv_at, alnico_datatype_t type, alnico_comm_t comm,
                                  alnico_request_t *request)
{
    struct call call = {ALNICO_ALLTOALLV, send, recv, 0, type, .send_counts = send_counts};
    call.send_at = send_at;
    call.recv_counts = recv_counts;
    call.recv_at = recv_at;
    return api_start_request(comm, &call, request, "alnico_ialltoallv");
}

/* Its messages need one byte. */
alnico_status_t alnico_barrier(alnico_comm_t comm)
{
    struct call call = {.collective = ALNICO_BARRIER, .count = 1, .type = ALNICO_UINT8};
    return api_start(comm, &call, NULL, "alnico_barrier");
}

alnico_status_t alnico_ibarrier(alnico_comm_t comm, alnico_request_t *request)
{
    struct call call = {.collective = ALNICO_BARRIER, .count = 1, .type = ALNICO_UINT8};
    return api_start_request(comm, &call, request, "alnico_ibarrier");
}
