/* The table of our entry points, and those that only ask. See entries.h. */
#include "integrations/nccl/ours.h"

#include "integrations/nccl/group.h"

#include <string.h>

/* ---- The library ---- */

ncclResult_t ours_GetVersion(int *version)
{
    if (!version)
        return fail(ncclInvalidArgument, "version is NULL");
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

_Static_assert(sizeof(ncclUniqueId) == sizeof(alnico_id_t), "an id fits into NCCL's");

ncclResult_t ours_GetUniqueId(ncclUniqueId *id)
{
    alnico_id_t own;
    if (!id)
        return fail(ncclInvalidArgument, "the id is NULL");
    ncclResult_t result = result_of(alnico_id_create(&own));
    if (result == ncclSuccess)
        memcpy(id, &own, sizeof own);
    return result;
}

static const char *error_string(ncclResult_t result)
{
    static const char *const texts[ncclNumResults] = {
        [ncclSuccess] = "no error",
        [ncclUnhandledCudaError] = "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        [ncclSystemError] = "unhandled system error (run with NCCL_DEBUG=INFO for details)",
        [ncclInternalError] = "internal error - please report this issue to the developers",
        [ncclInvalidArgument] = "invalid argument (run with NCCL_DEBUG=WARN for details)",
        [ncclInvalidUsage] = "invalid usage (run with NCCL_DEBUG=WARN for details)",
        [ncclRemoteError] = "remote process exited or there was a network error",
        [ncclInProgress] = "NCCL operation in progress",
    };
    return (unsigned)result < ncclNumResults ? texts[result] : "unknown result code";
}

/* ---- A communicator ---- */

static ncclResult_t answer(int value, int *out)
{
    if (!out)
        return fail(ncclInvalidArgument, "the result is NULL");
    *out = value;
    return ncclSuccess;
}

ncclResult_t ours_CommCount(const ncclComm_t comm, int *out)
{
    return answer(comm->size, out);
}

ncclResult_t ours_CommCuDevice(const ncclComm_t comm, int *out)
{
    return answer(comm->device, out);
}

ncclResult_t ours_CommUserRank(const ncclComm_t comm, int *out)
{
    return answer(comm->rank, out);
}

/* Revoking is no failure. */
ncclResult_t ours_CommGetAsyncError(ncclComm_t comm, ncclResult_t *out)
{
    if (!out)
        return fail(ncclInvalidArgument, "the result is NULL");
    *out = comm->revoked ? ncclSuccess
                         : comm_failed(comm, result_of(alnico_comm_status(comm->alnico)));
    return ncclSuccess;
}

/* ---- The table ---- */

#define ONLY_REAL(name)                                                                            \
    static ncclResult_t ours_##name WORDS                                                          \
    {                                                                                              \
        return fail(ncclInvalidUsage,                                                              \
                    "this is not here; ALNICO_NCCL=off gives the program the real NCCL");          \
    }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
WORD_ENTRIES(ONLY_REAL)
#pragma GCC diagnostic pop

/* The communicator of an entry point is held while that runs, and keeps its error. */
#define HELD_IF(condition, name, parameters, arguments)                                            \
    static ncclResult_t held_##name parameters                                                     \
    {                                                                                              \
        if (!(condition))                                                                          \
            return ncclSuccess;                                                                    \
        ncclResult_t result = comm_hold(comm);                                                     \
        if (result == ncclSuccess)                                                                 \
            result = comm_release(comm, ours_##name arguments);                                    \
        return group_result(result);                                                               \
    }
#define HELD(name, parameters, arguments) HELD_IF(true, name, parameters, arguments)
#define HELD_OR_NULL(name, parameters, arguments) HELD_IF(comm, name, parameters, arguments)
COMM_ENTRIES(HELD)
COMM_OR_NULL_ENTRIES(HELD_OR_NULL)

#define OURS_MEMBER(name, parameters, arguments) .name = ours_##name,
#define HELD_MEMBER(name, parameters, arguments) .name = held_##name,
#define WORDS_MEMBER(name) .name = ours_##name,
const struct entries entries_ours = {
    LIBRARY_ENTRIES(OURS_MEMBER) COMM_ENTRIES(HELD_MEMBER) COMM_OR_NULL_ENTRIES(HELD_MEMBER)
        WORD_ENTRIES(WORDS_MEMBER)
            .GetErrorString = error_string,
    .GetLastError = comm_last_error,
};
