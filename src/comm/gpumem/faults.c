/* The words of a kernel that gave up, as a status and its detail. */
#include "comm/gpumem/faults.h"

#include "base/status.h"

/* The words of a fault need not be those of a rank. */
static int name_of(const struct alnico_comm *comm, unsigned rank)
{
    return rank < (unsigned)comm->size ? comm_name(comm, (int)rank) : (int)rank;
}

static alnico_status_t explain(const struct alnico_comm *comm,
                               const volatile struct peer_words *words, const char *kernel)
{
    unsigned long long epoch = words->epoch;
    int id = comm->owner ? comm->owner->id : comm->id;
    int rank = name_of(comm, words->rank),
        missed = name_of(comm, PEER_REPORT_MISSED(words->report));
    switch (words->fault) {
    case PEER_FAULT_TIMEOUT:
        return error_set(ALNICO_ERROR_TIMEOUT,
                         "%s, kernel %llu of communicator %d: rank %d did not come within %g s",
                         kernel, epoch, id, rank, comm->family->settings.timeout);
    case PEER_FAULT_BUSY:
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "%s, kernel %llu of communicator %d: another operation of it was still "
                         "running on this GPU; what uses one communicator must be ordered",
                         kernel, epoch, id);
    case PEER_FAULT_MISMATCH:
        return error_set(
            ALNICO_ERROR_MISMATCH,
            "%s, kernel %llu of communicator %d: a message from rank %d of %llu bytes, "
            "for which rank %d has room for %llu",
            kernel, epoch, id, rank, (unsigned long long)words->sent, comm_name(comm, comm->rank),
            (unsigned long long)words->received);
    case PEER_FAULT_REPORTED:
        if (PEER_REPORT_FAULT(words->report) == PEER_FAULT_MISMATCH)
            return error_set(ALNICO_ERROR_MISMATCH,
                             "%s, kernel %llu of communicator %d: rank %d received a message from "
                             "rank %d that is not as long as it expects",
                             kernel, epoch, id, rank, missed);
        if (PEER_REPORT_FAULT(words->report) == PEER_FAULT_TIMEOUT)
            return error_set(ALNICO_ERROR_TIMEOUT,
                             "%s, kernel %llu of communicator %d: rank %d did not come within "
                             "%g s, as rank %d found",
                             kernel, epoch, id, missed, comm->family->settings.timeout, rank);
        return error_set(ALNICO_ERROR_ABORTED,
                         "%s, kernel %llu of communicator %d: rank %d gave up", kernel, epoch, id,
                         rank);
    default:
        return error_set(ALNICO_ERROR_ABORTED, "%s, kernel %llu of communicator %d was aborted",
                         kernel, epoch, id);
    }
}

alnico_status_t peer_faults_look(const struct alnico_comm *comm, const struct peer_words *words,
                                 const struct peer_kernel *kernels, unsigned count)
{
    if (*(const volatile uint32_t *)&words->fault == PEER_FAULT_NONE)
        return ALNICO_SUCCESS;
    atomic_thread_fence(memory_order_acquire);
    return explain(comm, words, kernels[words->kernel % count].name);
}
