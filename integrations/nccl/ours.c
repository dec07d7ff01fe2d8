/* The table of our entry points, and those that only ask. See entries.h. */
#include "integrations/nccl/ours.h"

#include "integrations/nccl/comm.h"

#include <string.h>

/* ---- The library ---- */

ncclResult_t ours_GetVersion(int *version)
{
    if (!version)
        return fail(ncclInvalidArgument, "ncclGetVersion: version is NULL");
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

_Static_assert(sizeof(ncclUniqueId) == sizeof(alnico_id_t), "an id fits into NCCL's");

ncclResult_t ours_GetUniqueId(ncclUniqueId *id)
{
    alnico_id_t own;
    if (!id)
        return fail(ncclInvalidArgument, "ncclGetUniqueId: the id is NULL");
    ncclResult_t result = result_of(alnico_id_create(&own), "ncclGetUniqueId");
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

static ncclResult_t ask(ncclComm_t comm, int *out, size_t member, const char *who)
{
    ncclResult_t result = comm_hold(comm, who);
    if (result != ncclSuccess)
        return result;
    if (out)
        memcpy(out, (const char *)comm + member, sizeof *out);
    else
        result = comm_failed(comm, fail(ncclInvalidArgument, "%s: the result is NULL", who));
    comm_release(comm);
    return result;
}

ncclResult_t ours_CommCount(const ncclComm_t comm, int *out)
{
    return ask(comm, out, offsetof(struct ncclComm, size), "ncclCommCount");
}

ncclResult_t ours_CommCuDevice(const ncclComm_t comm, int *out)
{
    return ask(comm, out, offsetof(struct ncclComm, device), "ncclCommCuDevice");
}

ncclResult_t ours_CommUserRank(const ncclComm_t comm, int *out)
{
    return ask(comm, out, offsetof(struct ncclComm, rank), "ncclCommUserRank");
}

ncclResult_t ours_CommGetAsyncError(ncclComm_t comm, ncclResult_t *out)
{
    const char *who = "ncclCommGetAsyncError";
    ncclResult_t result = comm_hold(comm, who);
    if (result != ncclSuccess)
        return result;
    if (!out) {
        result = comm_failed(comm, fail(ncclInvalidArgument, "%s: the result is NULL", who));
    } else {
        *out = comm_failed(comm, result_of(alnico_comm_status(comm->alnico), who));
        if (*out == ncclSuccess && comm->real)
            result = entries_real()->CommGetAsyncError(comm->real, out);
    }
    comm_release(comm);
    return result;
}

/* ---- The table ---- */

#define ONLY_REAL(name)                                                                            \
    static ncclResult_t ours_##name WORDS                                                          \
    {                                                                                              \
        return fail(ncclInvalidUsage,                                                              \
                    "nccl" #name " is not here; ALNICO_NCCL=off gives the program the real NCCL"); \
    }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
WORD_ENTRIES(ONLY_REAL)
#pragma GCC diagnostic pop

#define OURS_MEMBER(name, parameters, arguments) .name = ours_##name,
#define WORDS_MEMBER(name) .name = ours_##name,
const struct entries entries_ours = {
    ENTRIES(OURS_MEMBER) WORD_ENTRIES(WORDS_MEMBER).GetErrorString = error_string,
    .GetLastError = comm_last_error,
};
