/* Memory that users register with a communicator, so that backends may reach it on other ranks
 * directly. On the caller's thread; registering and deregistering are collective. */
#include "comm/communicator/registration.h"

#include "base/status.h"
#include "comm/communicator/comm.h"
#include "comm/communicator/out_of_band.h"
#include "comm/communicator/shareable.h"
#include "comm/communicator/sharing.h"

#include <stdint.h>
#include <stdlib.h>

struct alnico_registration *registration_find(const struct alnico_comm *comm, const void *memory,
                                              size_t bytes)
{
    struct alnico_registration *agreed = sharing_find(comm, memory, bytes);
    for (struct alnico_registration *r = comm->registrations; r && !agreed; r = r->next) {
        size_t at = (size_t)((const char *)memory - r->base);
        if ((const char *)memory >= r->base && at <= r->bytes && bytes <= r->bytes - at)
            return r;
    }
    return agreed;
}

static alnico_status_t check(alnico_comm_t comm, const void *memory, size_t bytes, const char *who)
{
    if (!memory)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: memory is NULL", who);
    if (bytes == 0 || (uintptr_t)memory > UINTPTR_MAX - bytes)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: bytes is %zu, expected 1 to the end of memory",
                         who, bytes);
    int before = comm_enter(comm);
    alnico_status_t status = comm->device->check_memory
                                 ? comm->device->check_memory(memory, "memory", who)
                                 : ALNICO_SUCCESS;
    comm_leave(comm, before);
    return status;
}

/* `mine` is how this rank has fared, with its detail: an error of one rank is everybody's, so that
 * nobody waits for it. */
static alnico_status_t agree(alnico_comm_t comm, uint64_t bytes, alnico_status_t mine,
                             const char *who)
{
    uint64_t *all = calloc((size_t)comm->size, sizeof *all);
    const struct comm_opening opening = {
        .what = who, .who = who, .status = mine, .mine = &bytes, .bytes = sizeof bytes};
    alnico_status_t status = comm_agree_first(comm, &opening, all);
    for (int i = 1; status == ALNICO_SUCCESS && i < comm->size; i++)
        if (all[i] != all[0])
            status =
                error_set(ALNICO_ERROR_MISMATCH, "%s: bytes is %llu on rank 0 and %llu on rank %d",
                          who, (unsigned long long)all[0], (unsigned long long)all[i], i);
    free(all);
    return status;
}

static void withdraw(struct alnico_registration *r)
{
    for (const struct backend_ops *const *b = r->comm->backends; *b; b++)
        if ((*b)->withdraw)
            (*b)->withdraw(r->comm, r);
}

static alnico_status_t enroll(struct alnico_registration *r, const char *who)
{
    for (const struct backend_ops *const *b = r->comm->backends; *b; b++) {
        alnico_status_t status = (*b)->enroll ? (*b)->enroll(r->comm, r, who) : ALNICO_SUCCESS;
        if (status != ALNICO_SUCCESS) {
            withdraw(r);
            return status;
        }
    }
    return ALNICO_SUCCESS;
}

alnico_status_t alnico_comm_register(alnico_comm_t comm, void *memory, size_t bytes,
                                     alnico_registration_t *out)
{
    const char *who = "alnico_comm_register";
    if (!out)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: out is NULL", who);
    *out = NULL;
    TRY(comm_ready(comm, who));
    struct alnico_registration *r = calloc(1, sizeof *r);
    alnico_status_t status =
        r ? check(comm, memory, bytes, who) : error_set(ALNICO_ERROR_MEMORY, "%s: no memory", who);
    status = agree(comm, bytes, status, who);
    if (status == ALNICO_SUCCESS) {
        *r = (struct alnico_registration){.comm = comm, .base = memory, .bytes = bytes};
        int before = comm_enter(comm);
        comm_settle(comm);
        status = enroll(r, who);
        comm_leave(comm, before);
    }
    if (status != ALNICO_SUCCESS) {
        free(r);
        return status;
    }
    r->next = comm->registrations;
    comm->registrations = r;
    *out = r;
    return ALNICO_SUCCESS;
}

alnico_status_t alnico_comm_register_local(alnico_comm_t comm, void *memory, size_t bytes,
                                           alnico_registration_t *out)
{
    const char *who = "alnico_comm_register_local";
    struct shareable *added;
    if (!out)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: out is NULL", who);
    *out = NULL;
    TRY(comm_usable(comm, who));
    TRY(check(comm, memory, bytes, who));
    const struct shareable own = {.comm = comm, .base = memory, .bytes = bytes};
    TRY(error_of(who, shareable_add(&own, &added)));
    *out = (alnico_registration_t)(void *)added;
    return ALNICO_SUCCESS;
}

static void drop(struct alnico_registration *r)
{
    struct alnico_registration **link = &r->comm->registrations;
    while (*link != r)
        link = &(*link)->next;
    *link = r->next;
    withdraw(r);
    free(r);
}

static bool is_live(alnico_comm_t comm, const struct alnico_registration *registration)
{
    for (const struct alnico_registration *r = comm->registrations; r; r = r->next)
        if (r == registration)
            return true;
    return false;
}

alnico_status_t alnico_comm_deregister(alnico_comm_t comm, alnico_registration_t registration)
{
    const char *who = "alnico_comm_deregister";
    TRY(comm_check(comm, who));
    if (shareable_remove(comm, (const struct shareable *)(const void *)registration))
        return ALNICO_SUCCESS;
    if (!is_live(comm, registration))
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "%s: registration %p is not one of communicator %d, or was deregistered",
                         who, (void *)registration, comm->id);
    TRY(alnico_synchronize(comm));
    TRY(agree(comm, registration->bytes, ALNICO_SUCCESS, who));
    int before = comm_enter(comm);
    comm_settle(comm);
    drop(registration);
    comm_leave(comm, before);
    return ALNICO_SUCCESS;
}

void registration_finish(alnico_comm_t comm)
{
    while (comm->registrations)
        drop(comm->registrations);
    shareable_remove_all(comm);
}
