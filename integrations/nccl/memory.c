/* Memory, registrations and windows. A window is a registration of Alnico, which all ranks make. What
 * ncclCommRegister registers, each rank by itself, is checked only: Alnico has no use for it. */
#include "integrations/nccl/group.h"
#include "integrations/nccl/ours.h"

ncclResult_t ours_MemAlloc(void **out, size_t bytes)
{
    if (!out)
        return fail(ncclInvalidArgument, "ncclMemAlloc: ptr is NULL");
    *out = NULL;
    if (bytes == 0)
        return ncclSuccess;
    return result_of(alnico_memory_allocate(ALNICO_DEVICE_CUDA, bytes, out), "ncclMemAlloc");
}

ncclResult_t ours_MemFree(void *memory)
{
    return result_of(alnico_memory_free(ALNICO_DEVICE_CUDA, memory), "ncclMemFree");
}

static ncclResult_t check_memory(const void *memory, size_t bytes, const void *out, const char *who)
{
    if (!memory || !out)
        return fail(ncclInvalidArgument, "%s: the %s is NULL", who, out ? "buffer" : "result");
    return bytes ? ncclSuccess : fail(ncclInvalidArgument, "%s: the size is 0", who);
}

ncclResult_t ours_CommRegister(const ncclComm_t comm, void *memory, size_t bytes, void **out)
{
    const char *who = "ncclCommRegister";
    ncclResult_t result = comm_hold(comm, who);
    if (result != ncclSuccess)
        return result;
    result = comm_failed(comm, check_memory(memory, bytes, out, who));
    if (result == ncclSuccess)
        *out = memory;
    comm_release(comm);
    return result;
}

ncclResult_t ours_CommDeregister(const ncclComm_t comm, void *handle)
{
    (void)handle;
    ncclResult_t result = comm_hold(comm, "ncclCommDeregister");
    if (result == ncclSuccess)
        comm_release(comm);
    return result;
}

/* A window that cannot be made is NULL and no error, as in NCCL. */
static ncclResult_t register_window(const struct job *job)
{
    alnico_registration_t registration = NULL;
    ncclWindow_t *out = (ncclWindow_t *)job->window;
    ncclResult_t result = comm_hold(job->comm, job->who);
    if (result != ncclSuccess)
        return result;
    alnico_status_t status =
        alnico_comm_register(job->comm->alnico, job->memory, job->bytes, &registration);
    if (status != ALNICO_SUCCESS && status != ALNICO_ERROR_UNSUPPORTED)
        result = comm_failed(job->comm, result_of(status, job->who));
    *out = (ncclWindow_t)(void *)registration;
    comm_release(job->comm);
    return result;
}

ncclResult_t ours_CommWindowRegister(ncclComm_t comm, void *memory, size_t bytes, ncclWindow_t *out,
                                     int flags)
{
    const char *who = "ncclCommWindowRegister";
    ncclResult_t result = comm_hold(comm, who);
    if (result != ncclSuccess)
        return group_result(result);
    result = check_memory(memory, bytes, out, who);
    if (result == ncclSuccess && flags & ~NCCL_WIN_COLL_SYMMETRIC)
        result = fail(ncclInvalidArgument, "%s: unknown flags %#x", who, (unsigned)flags);
    comm_failed(comm, result);
    comm_release(comm);
    struct job job = {.run = register_window,
                      .who = who,
                      .comm = comm,
                      .memory = memory,
                      .bytes = bytes,
                      .window = out};
    return group_result(result == ncclSuccess ? group_job(&job) : result);
}

static ncclResult_t deregister_window(const struct job *job)
{
    ncclResult_t result = comm_hold(job->comm, job->who);
    if (result != ncclSuccess)
        return result;
    result = result_of(
        alnico_comm_deregister(job->comm->alnico, (alnico_registration_t)job->window), job->who);
    comm_failed(job->comm, result);
    comm_release(job->comm);
    return result;
}

ncclResult_t ours_CommWindowDeregister(ncclComm_t comm, ncclWindow_t window)
{
    const char *who = "ncclCommWindowDeregister";
    struct job job = {.run = deregister_window, .who = who, .comm = comm, .window = window};
    ncclResult_t result = comm_hold(comm, who);
    if (result != ncclSuccess)
        return group_result(result);
    comm_release(comm);
    return window ? group_result(group_job(&job)) : ncclSuccess;
}
