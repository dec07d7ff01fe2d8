/* Exchanges between the ranks of a communicator that are no collectives: where it is made, set or
 * checked. Each rank waits until the communicator's deadline, or until an error is latched, which is
 * then the result. On the caller's thread. */
#ifndef ALNICO_COMM_COMMUNICATOR_OUT_OF_BAND_H
#define ALNICO_COMM_COMMUNICATOR_OUT_OF_BAND_H

#include <alnico/alnico.h>

/* `bytes` from `mine` of every rank into `all`. TIMEOUT names a rank that did not come. */
alnico_status_t comm_allgather(alnico_comm_t comm, const char *who, const void *mine, void *all,
                               size_t bytes);

/* comm_allgather as a callback; `context` is a struct comm_caller. */
struct comm_caller {
    alnico_comm_t comm;
    const char *who;
    bool failed; /* the allgather itself, the last time */
};
alnico_status_t comm_allgather_called(void *context, const void *mine, void *all, size_t bytes);

/* All ranks learn how a step went for all of them: *status, this rank's own, becomes that of the
 * lowest rank that failed, with "rank N: " before its detail. Errors: comm_allgather's, MEMORY. */
alnico_status_t comm_agree_status(alnico_comm_t comm, const char *who, alnico_status_t *status);

/* comm_allgather in a public call. What fails is latched: some ranks may have got what others did
 * not, and a rank that comes later would find, and leave, messages of a call that has ended. */
alnico_status_t comm_agree(alnico_comm_t comm, const char *who, const void *mine, void *all,
                           size_t bytes);

/* comm_agree as the first exchange of a public call, at most AGREE_BYTES. MISMATCH on every rank,
 * which changes nothing, if they do not all call `what`; the detail has the `who` of two. */
enum { AGREE_BYTES = 320 };
alnico_status_t comm_agree_first(alnico_comm_t comm, const char *what, const char *who,
                                 const void *mine, void *all, size_t bytes);

#endif
