/* Memory, registrations and windows. A window is a registration of Alnico that all ranks make, and what
 * ncclCommRegister registers one of this rank alone. A communicator's ranks of one thread do not wait for each
 * other: Alnico asks for no more than a moment. */
#include "integrations/nccl/group.h"
#include "integrations/nccl/ours.h"

ncclResult_t ours_MemAlloc(void **out, size_t bytes)
{
    if (!out)
        return fail(ncclInvalidArgument, "ptr is NULL");
    *out = NULL;
    if (bytes == 0)
        return ncclSuccess;
    return result_of(alnico_memory_allocate(ALNICO_DEVICE_CUDA, bytes, out));
}

ncclResult_t ours_MemFree(void *memory)
{
    return result_of(alnico_memory_free(ALNICO_DEVICE_CUDA, memory));
}

static ncclResult_t check_memory(const void *memory, size_t bytes, const void *out)
{
    if (!memory || !out)
        return fail(ncclInvalidArgument, "the %s is NULL", out ? "buffer" : "result");
    return bytes ? ncclSuccess : fail(ncclInvalidArgument, "the size is 0");
}

ncclResult_t ours_CommRegister(const ncclComm_t comm, void *memory, size_t bytes, void **out)
{
    alnico_registration_t registration = NULL;
    ncclResult_t result = check_memory(memory, bytes, out);
    if (result == ncclSuccess)
        result = result_of(alnico_comm_register_local(comm->alnico, memory, bytes, &registration));
    if (out)
        *out = registration;
    return result;
}

ncclResult_t ours_CommDeregister(const ncclComm_t comm, void *handle)
{
    return handle ? result_of(alnico_comm_deregister(comm->alnico, handle)) : ncclSuccess;
}

/* A window that cannot be made is NULL and no error, as in NCCL. */
static ncclResult_t register_window(const struct job *job)
{
    alnico_registration_t registration = NULL;
    alnico_status_t status =
        alnico_comm_register(job->comm->alnico, job->memory, job->bytes, &registration);
    *(ncclWindow_t *)job->window = (ncclWindow_t)(void *)registration;
    return status == ALNICO_ERROR_UNSUPPORTED ? ncclSuccess : result_of(status);
}

ncclResult_t ours_CommWindowRegister(ncclComm_t comm, void *memory, size_t bytes, ncclWindow_t *out,
                                     int flags)
{
    struct job job = {
        .run = register_window, .comm = comm, .memory = memory, .bytes = bytes, .window = out};
    ncclResult_t result = check_memory(memory, bytes, out);
    if (result == ncclSuccess && flags & ~NCCL_WIN_COLL_SYMMETRIC)
        result = fail(ncclInvalidArgument, "unknown flags %#x", (unsigned)flags);
    return result == ncclSuccess ? group_job(&job) : result;
}

static ncclResult_t deregister_window(const struct job *job)
{
    return result_of(alnico_comm_deregister(job->comm->alnico, (alnico_registration_t)job->window));
}

ncclResult_t ours_CommWindowDeregister(ncclComm_t comm, ncclWindow_t window)
{
    struct job job = {.run = deregister_window, .comm = comm, .window = window};
    return window ? group_job(&job) : ncclSuccess;
}
