/*
 * Symmetric windows: registered memory that all ranks of a host map at one place, for NCCL's
 * symmetric kernels. NCCL takes those whenever both buffers lie in windows, so the windows are in
 * an NCCL communicator of their own, made when the first memory is enrolled: "nccl" stays without.
 * On the thread that calls on the communicator.
 */
#include "comm/backends/nccl/nccl.h"
#include "comm/backends/nccl/worker.h"
#include "comm/communicator/registration.h"

#include "base/status.h"
#include "device/cuda/driver.h"

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 3)

bool nccl_has_windows(const struct alnico_comm *comm)
{
    if (!nccl_state_of(comm) || comm->size == 1 || comm->hosts > 1)
        return false;
    const struct nccl_library *library = nccl_library();
    return library && library->ncclCommWindowRegister;
}

bool nccl_in_window(const struct alnico_comm *comm, const void *memory, size_t bytes)
{
    for (const struct alnico_registration *r = comm->registrations; r; r = r->next) {
        const char *at = memory;
        if (r->state[BACKEND_NCCL] && at >= r->base && at <= r->base + r->bytes &&
            bytes <= (size_t)(r->base + r->bytes - at))
            return true;
    }
    return false;
}

static bool is_shareable(const struct cuda_driver *driver, CUdeviceptr start)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp properties = {0};
    if (driver->cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)start) != CUDA_SUCCESS)
        return false;
    bool known =
        driver->cuMemGetAllocationPropertiesFromHandle(&properties, handle) == CUDA_SUCCESS;
    driver->cuMemRelease(handle);
    return known && properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
}

/* A window is one physical allocation of the driver's virtual memory functions, which other
 * processes may map. */
static alnico_status_t check_memory(const struct alnico_registration *registration)
{
    const struct cuda_driver *driver = cuda_driver();
    CUdeviceptr start, base = (CUdeviceptr)(uintptr_t)registration->base;
    size_t bytes;
    if (!driver)
        return ALNICO_ERROR_UNSUPPORTED;
    if (driver->cuMemGetAddressRange(&start, &bytes, base) != CUDA_SUCCESS ||
        !is_shareable(driver, start))
        return error_set(ALNICO_ERROR_UNSUPPORTED,
                         "%p is not memory of cuMemCreate that processes can share by a file "
                         "descriptor, as ncclMemAlloc makes it",
                         (void *)registration->base);
    if ((base - start) % NCCL_WIN_REQUIRED_ALIGNMENT || base + registration->bytes > start + bytes)
        return error_set(ALNICO_ERROR_UNSUPPORTED,
                         "%p and %zu bytes are not at a multiple of %d bytes in one allocation",
                         (void *)registration->base, registration->bytes,
                         NCCL_WIN_REQUIRED_ALIGNMENT);
    return ALNICO_SUCCESS;
}

/* NCCL takes no memory that lies in two windows. */
static alnico_status_t check_window(alnico_comm_t comm,
                                    const struct alnico_registration *registration)
{
    for (const struct alnico_registration *r = comm->registrations; r; r = r->next)
        if (r != registration && r->state[BACKEND_NCCL] &&
            r->base < registration->base + registration->bytes &&
            registration->base < r->base + r->bytes)
            return error_set(ALNICO_ERROR_UNSUPPORTED, "%p is in a window already",
                             (void *)registration->base);
    return check_memory(registration);
}

static alnico_status_t make_symmetric(alnico_comm_t comm, const struct nccl_step *step)
{
    struct nccl_state *state = nccl_state_of(comm);
    if (state->symmetric)
        return ALNICO_SUCCESS;
    ncclComm_t nccl;
    alnico_status_t status = nccl_make(comm, step, &nccl);
    nccl_put(state, &state->symmetric, nccl);
    return status;
}

static alnico_status_t run_window(struct nccl_worker *worker)
{
    ncclWindow_t window = NULL;
    TRY(nccl_status(nccl_library()->ncclCommWindowRegister(worker->nccl, worker->memory,
                                                           worker->bytes, &window,
                                                           NCCL_WIN_COLL_SYMMETRIC),
                    worker->nccl, "ncclCommWindowRegister"));
    worker->window = window;
    if (!window)
        return error_set(ALNICO_ERROR_UNSUPPORTED,
                         "NCCL makes no windows here: it needs peer access between all GPUs, and "
                         "NCCL_CUMEM_ENABLE and NCCL_WIN_ENABLE not 0");
    return ALNICO_SUCCESS;
}

/* *given_up: the NCCL communicator is gone with it, and nobody is to be asked. */
static alnico_status_t make_window(alnico_comm_t comm, const char *who,
                                   struct alnico_registration *registration, bool *given_up)
{
    struct nccl_state *state = nccl_state_of(comm);
    struct nccl_worker *worker = nccl_worker_create(comm, run_window);
    *given_up = false;
    if (!worker)
        return ALNICO_ERROR_MEMORY;
    worker->memory = registration->base;
    worker->bytes = registration->bytes;
    worker->nccl = state->symmetric;
    nccl_put(state, &state->symmetric, NULL);
    alnico_status_t status = nccl_worker_do(comm, who, &worker);
    *given_up = !worker;
    if (worker) {
        registration->state[BACKEND_NCCL] = worker->window;
        nccl_put(state, &state->symmetric, worker->nccl);
    }
    nccl_worker_free(worker);
    return status;
}

alnico_status_t nccl_enroll(alnico_comm_t comm, struct alnico_registration *registration,
                            const char *who)
{
    if (!nccl_has_windows(comm))
        return ALNICO_SUCCESS;
    const struct nccl_step step = {who, "no symmetric window", LOG_INFO};
    bool all;
    TRY(nccl_agree(comm, &step, check_window(comm, registration), &all));
    if (!all)
        return ALNICO_SUCCESS;
    TRY(make_symmetric(comm, &step));
    if (!nccl_state_of(comm)->symmetric)
        return ALNICO_SUCCESS;
    bool given_up;
    alnico_status_t mine = make_window(comm, who, registration, &given_up);
    if (given_up) {
        comm_latch(comm, mine, alnico_error_detail());
        return mine;
    }
    alnico_status_t status = nccl_agree(comm, &step, mine, &all);
    if (!all)
        nccl_withdraw(comm, registration);
    return status;
}

/* A communicator that failed is aborted as a whole: NCCL would wait for its kernels here. */
void nccl_withdraw(alnico_comm_t comm, struct alnico_registration *registration)
{
    struct nccl_state *state = nccl_state_of(comm);
    ncclWindow_t window = registration->state[BACKEND_NCCL];
    registration->state[BACKEND_NCCL] = NULL;
    if (!window || atomic_load(&comm->latch.status) != ALNICO_SUCCESS)
        return;
    ncclComm_t nccl = nccl_enter(state, &state->symmetric);
    if (!nccl)
        return;
    if (nccl_status(nccl_library()->ncclCommWindowDeregister(nccl, window), nccl,
                    "ncclCommWindowDeregister") != ALNICO_SUCCESS)
        log_write(LOG_WARNING, "communicator %d: %s", comm->id, alnico_error_detail());
    nccl_leave(comm);
}

#else

bool nccl_has_windows(const struct alnico_comm *comm)
{
    (void)comm;
    return false;
}

bool nccl_in_window(const struct alnico_comm *comm, const void *memory, size_t bytes)
{
    (void)comm, (void)memory, (void)bytes;
    return false;
}

alnico_status_t nccl_enroll(alnico_comm_t comm, struct alnico_registration *registration,
                            const char *who)
{
    (void)comm, (void)registration, (void)who;
    return ALNICO_SUCCESS;
}

void nccl_withdraw(alnico_comm_t comm, struct alnico_registration *registration)
{
    (void)comm, (void)registration;
}

#endif
