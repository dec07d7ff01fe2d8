/* Allgather, alltoall and barrier, which have no root and reduce nothing: the public calls. */
#include "comm/api/api.h"

#include "base/status.h"

/* ---- Allgather ---- */

static alnico_status_t allgather(struct call *call, alnico_comm_t comm, alnico_request_t *request,
                                 const char *who)
{
    void *own;
    if (call->send == ALNICO_IN_PLACE) {
        struct side blocks = call_writes(call, comm->rank, comm->size);
        TRY_TOLD(comm, who, api_own_place(comm, &blocks, call->recv, call->type, who, &own));
        call->send = own;
    }
    return api_start(comm, call, request, who);
}

static alnico_status_t allgather_equal(const void *send, void *recv, size_t count,
                                       alnico_datatype_t type, alnico_comm_t comm,
                                       alnico_request_t *request, const char *who)
{
    struct call call = {
        .collective = ALNICO_ALLGATHER, .send = send, .recv = recv, .count = count, .type = type};
    TRY(api_collective(comm, who));
    return allgather(&call, comm, request, who);
}

alnico_status_t alnico_allgather(const void *send, void *recv, size_t count, alnico_datatype_t type,
                                 alnico_comm_t comm)
{
    return allgather_equal(send, recv, count, type, comm, NULL, "alnico_allgather");
}

alnico_status_t alnico_iallgather(const void *send, void *recv, size_t count,
                                  alnico_datatype_t type, alnico_comm_t comm,
                                  alnico_request_t *request)
{
    TRY(api_request_told(comm, request, "alnico_iallgather"));
    return allgather_equal(send, recv, count, type, comm, request, "alnico_iallgather");
}

static alnico_status_t allgatherv(const void *send, size_t send_count, void *recv,
                                  const size_t *counts, const size_t *at, alnico_datatype_t type,
                                  alnico_comm_t comm, alnico_request_t *request, const char *who)
{
    TRY(api_collective(comm, who));
    TRY_TOLD(comm, who, api_counts(counts, "counts", who));
    TRY_TOLD(comm, who, api_own_count(comm, "send_count", send_count, counts, who));
    struct call call = {.collective = ALNICO_ALLGATHERV,
                        .send = send,
                        .recv = recv,
                        .count = send_count,
                        .type = type,
                        .recv_counts = counts,
                        .recv_at = at};
    return allgather(&call, comm, request, who);
}

alnico_status_t alnico_allgatherv(const void *send, size_t send_count, void *recv,
                                  const size_t *counts, const size_t *at, alnico_datatype_t type,
                                  alnico_comm_t comm)
{
    return allgatherv(send, send_count, recv, counts, at, type, comm, NULL, "alnico_allgatherv");
}

alnico_status_t alnico_iallgatherv(const void *send, size_t send_count, void *recv,
                                   const size_t *counts, const size_t *at, alnico_datatype_t type,
                                   alnico_comm_t comm, alnico_request_t *request)
{
    TRY(api_request_told(comm, request, "alnico_iallgatherv"));
    return allgatherv(send, send_count, recv, counts, at, type, comm, request,
                      "alnico_iallgatherv");
}

/* ---- Alltoall ---- */

static alnico_status_t alltoall(const void *send, void *recv, size_t count, alnico_datatype_t type,
                                alnico_comm_t comm, alnico_request_t *request, const char *who)
{
    struct call call = {.collective = ALNICO_ALLTOALL,
                        .send = send == ALNICO_IN_PLACE ? recv : send,
                        .recv = recv,
                        .count = count,
                        .type = type};
    TRY(api_collective(comm, who));
    return api_start(comm, &call, request, who);
}

alnico_status_t alnico_alltoall(const void *send, void *recv, size_t count, alnico_datatype_t type,
                                alnico_comm_t comm)
{
    return alltoall(send, recv, count, type, comm, NULL, "alnico_alltoall");
}

alnico_status_t alnico_ialltoall(const void *send, void *recv, size_t count, alnico_datatype_t type,
                                 alnico_comm_t comm, alnico_request_t *request)
{
    TRY(api_request_told(comm, request, "alnico_ialltoall"));
    return alltoall(send, recv, count, type, comm, request, "alnico_ialltoall");
}

/* What a rank has for itself is also what it expects from itself. */
static alnico_status_t check_own_counts(alnico_comm_t comm, const size_t *send_counts,
                                        const size_t *recv_counts, const char *who)
{
    size_t sent = send_counts[comm->rank], received = recv_counts[comm->rank];
    return sent == received
               ? ALNICO_SUCCESS
               : error_set(
                     ALNICO_ERROR_ARGUMENT,
                     "%s: send_counts[%d] is %zu and recv_counts[%d] %zu; the rank's own must "
                     "be equal",
                     who, comm->rank, sent, comm->rank, received);
}

static alnico_status_t alltoallv(const void *send, const size_t *send_counts, const size_t *send_at,
                                 void *recv, const size_t *recv_counts, const size_t *recv_at,
                                 alnico_datatype_t type, alnico_comm_t comm,
                                 alnico_request_t *request, const char *who)
{
    bool in_place = send == ALNICO_IN_PLACE || (send && send == recv);
    TRY(api_collective(comm, who));
    TRY_TOLD(comm, who, api_counts(recv_counts, "recv_counts", who));
    if (!in_place) {
        TRY_TOLD(comm, who, api_counts(send_counts, "send_counts", who));
        TRY_TOLD(comm, who, check_own_counts(comm, send_counts, recv_counts, who));
    }
    struct call call = {.collective = ALNICO_ALLTOALLV,
                        .send = in_place ? recv : send,
                        .recv = recv,
                        .type = type,
                        .send_counts = in_place ? recv_counts : send_counts,
                        .send_at = in_place ? recv_at : send_at,
                        .recv_counts = recv_counts,
                        .recv_at = recv_at};
    return api_start(comm, &call, request, who);
}

alnico_status_t alnico_alltoallv(const void *send, const size_t *send_counts, const size_t *send_at,
                                 void *recv, const size_t *recv_counts, const size_t *recv_at,
                                 alnico_datatype_t type, alnico_comm_t comm)
{
    return alltoallv(send, send_counts, send_at, recv, recv_counts, recv_at, type, comm, NULL,
                     "alnico_alltoallv");
}

alnico_status_t alnico_ialltoallv(const void *send, const size_t *send_counts,
                                  const size_t *send_at, void *recv, const size_t *recv_counts,
                                  const size_t *recv_at, alnico_datatype_t type, alnico_comm_t comm,
                                  alnico_request_t *request)
{
    TRY(api_request_told(comm, request, "alnico_ialltoallv"));
    return alltoallv(send, send_counts, send_at, recv, recv_counts, recv_at, type, comm, request,
                     "alnico_ialltoallv");
}

/* ---- Barrier ---- */

/* Its messages need one byte. */
static alnico_status_t barrier(alnico_comm_t comm, alnico_request_t *request, const char *who)
{
    struct call call = {.collective = ALNICO_BARRIER, .count = 1, .type = ALNICO_UINT8};
    TRY(api_collective(comm, who));
    return api_start(comm, &call, request, who);
}

alnico_status_t alnico_barrier(alnico_comm_t comm)
{
    return barrier(comm, NULL, "alnico_barrier");
}

alnico_status_t alnico_ibarrier(alnico_comm_t comm, alnico_request_t *request)
{
    TRY(api_request_told(comm, request, "alnico_ibarrier"));
    return barrier(comm, request, "alnico_ibarrier");
}
