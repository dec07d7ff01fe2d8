/* The words of a kernel that gave up, as a status and its detail. */
#include "comm/gpumem/faults.h"

#include "base/status.h"

static alnico_status_t explain(const struct alnico_comm *comm,
                               const volatile struct peer_words *words, const char *kernel)
{
    unsigned long long epoch = words->epoch;
    switch (words->fault) {
    case PEER_FAULT_TIMEOUT:
        return error_set(ALNICO_ERROR_TIMEOUT,
                         "%s, kernel %llu of communicator %d: rank %u did not come within %g s",
                         kernel, epoch, comm->id, words->rank, comm->family->settings.timeout);
    case PEER_FAULT_BUSY:
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "%s, kernel %llu of communicator %d: another operation of it was still "
                         "running on this GPU; what uses one communicator must be ordered",
                         kernel, epoch, comm->id);
    case PEER_FAULT_MISMATCH:
        return error_set(
            ALNICO_ERROR_MISMATCH,
            "%s, kernel %llu of communicator %d: a message from rank %u of %llu bytes, "
            "for which rank %d has room for %llu",
            kernel, epoch, comm->id, words->rank, (unsigned long long)words->sent, comm->rank,
            (unsigned long long)words->received);
    case PEER_FAULT_REPORTED:
        if (PEER_REPORT_FAULT(words->report) == PEER_FAULT_MISMATCH)
            return error_set(ALNICO_ERROR_MISMATCH,
                             "%s, kernel %llu of communicator %d: rank %u received a message from "
                             "rank %u that is not as long as it expects",
                             kernel, epoch, comm->id, words->rank,
                             PEER_REPORT_MISSED(words->report));
        if (PEER_REPORT_FAULT(words->report) == PEER_FAULT_TIMEOUT)
            return error_set(ALNICO_ERROR_TIMEOUT,
                             "%s, kernel %llu of communicator %d: rank %u did not come within "
                             "%g s, as rank %u found",
                             kernel, epoch, comm->id, PEER_REPORT_MISSED(words->report),
                             comm->family->settings.timeout, words->rank);
        return error_set(ALNICO_ERROR_ABORTED,
                         "%s, kernel %llu of communicator %d: rank %u gave up", kernel, epoch,
                         comm->id, words->rank);
    default:
        return error_set(ALNICO_ERROR_ABORTED, "%s, kernel %llu of communicator %d was aborted",
                         kernel, epoch, comm->id);
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
