/* The life of a communicator from outside: creating it over what the user has, attaching its
 * backends, and destroying it. On the caller's thread. */
#include "comm/api/create.h"
#include "comm/api/premultiplied.h"

#include "base/log.h"
#include "base/status.h"
#include "comm/communicator/out_of_band.h"
#include "comm/communicator/registration.h"
#include "comm/communicator/sharing.h"
#include "comm/operations/engine_operation.h"
#include "comm/operations/stream_operation.h"
#include "comm/rendezvous/callback.h"

#include <stdint.h>
#include <stdio.h>

/* Whether a row of the table for allreduce can work between these ranks. */
static bool has_backend(alnico_comm_t comm)
{
    const struct tuning_step *step = comm->tuning.of[ALNICO_ALLREDUCE][0];
    for (; step->choice.backend; step++) {
        const struct backend_ops *ops = step->choice.backend->ops;
        if (ops && (!ops->supports || ops->supports(comm, NULL, step->choice.algorithm)))
            return true;
    }
    return false;
}

alnico_status_t comm_attach(alnico_comm_t comm, const char *who)
{
    comm->scratch_left = comm->limits.scratch ? comm->limits.scratch : SIZE_MAX;
    comm->scratch_least = 0;
    for (const struct backend_ops *const *b = comm->backends; *b; b++)
        if ((*b)->attach)
            TRY(comm_agree_status(comm, who, (*b)->attach(comm, who)));
    if (has_backend(comm))
        return sharing_attach(comm, who);
    return comm->scratch_least
               ? error_set(
                     ALNICO_ERROR_ARGUMENT,
                     "%s: limits.scratch is %zu; nothing works between these ranks on %s with "
                     "less than %zu bytes",
                     who, comm->limits.scratch, comm->device->name, comm->scratch_least)
               : error_set(ALNICO_ERROR_UNSUPPORTED,
                           "%s: no backend works between these ranks on %s; messages through the "
                           "host need MPI_THREAD_MULTIPLE",
                           who, comm->device->name);
}

void comm_detach(alnico_comm_t comm)
{
    sharing_detach(comm);
    for (const struct backend_ops *const *b = comm->backends; *b; b++)
        if ((*b)->detach)
            (*b)->detach(comm);
}

/* Frees everything but the handle's memory; nothing is in flight. */
static void dismantle(alnico_comm_t comm)
{
    watchdog_remove(&comm->family->watchdog, comm);
    engine_operation_finish(comm);
    comm_close(comm);
    registration_finish(comm);
    premultiplied_finish(comm);
    comm_detach(comm);
    stream_operation_finish(comm);
    comm_free(comm);
}

/* A GPU goes on by itself: nobody may be waiting on the host for what it does. */
void comm_watch(alnico_comm_t comm, const char *who)
{
    if (!comm->device->host_accessible && comm->transport->ops->gone && comm->size > 1 &&
        watchdog_add(&comm->family->watchdog, comm) != ALNICO_SUCCESS)
        log_write(LOG_WARNING, "%s: %s: a rank that ends is found out at the deadline", who,
                  alnico_error_detail());
}

alnico_status_t comm_build(const struct creation *made, alnico_comm_t *out)
{
    alnico_comm_t comm;
    TRY(error_of(made->who, comm_create(made, &comm)));
    stream_operation_attach(comm);
    alnico_status_t status = comm_attach(comm, made->who);
    comm->parent = NULL;
    if (!made->owner)
        comm->called = NULL;
    if (status != ALNICO_SUCCESS) {
        dismantle(comm);
        return error_of(made->who, status);
    }
    comm_open(comm);
    comm->owner = made->owner;
    if (!made->owner)
        comm_watch(comm, made->who);
    *out = comm;
    return ALNICO_SUCCESS;
}

alnico_status_t comm_find_device(alnico_device_t device, const char *who,
                                 const struct device_ops **ops)
{
    if (device != ALNICO_DEVICE_CPU && device != ALNICO_DEVICE_CUDA)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: unknown device %d", who, (int)device);
    *ops = device_find(device);
    if (!*ops)
        return error_set(ALNICO_ERROR_UNSUPPORTED, "%s: %s", who, alnico_error_detail());
    return ALNICO_SUCCESS;
}

alnico_status_t comm_check_create(alnico_device_t device, void *stream, alnico_comm_t *out,
                                  const char *who, const struct device_ops **ops)
{
    if (!out)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: out is NULL", who);
    *out = NULL;
    TRY(comm_find_device(device, who, ops));
    return device_ready(*ops, stream, who);
}

alnico_status_t comm_build_over(struct transport *transport, const struct device_ops *device,
                                void *stream, const char *who, alnico_comm_t *out)
{
    if (stream && device->host_accessible && !transport->concurrent) {
        transport->ops->destroy(transport);
        return error_set(
            ALNICO_ERROR_UNSUPPORTED,
            "%s: a stream needs MPI_THREAD_MULTIPLE, and MPI was initialised below it; "
            "only the inline stream (NULL) works",
            who);
    }
    const struct creation made = {
        .transport = transport, .device = device, .stream = stream, .who = who};
    return comm_build(&made, out);
}

alnico_status_t alnico_comm_create(const alnico_bootstrap_t *bootstrap, alnico_device_t device,
                                   void *stream, alnico_comm_t *out)
{
    const char *who = "alnico_comm_create";
    const struct device_ops *ops = NULL;
    TRY(comm_check_create(device, stream, out, who, &ops));
    if (!bootstrap)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: bootstrap is NULL", who);
    if (bootstrap->size < 1)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: size %d is not positive", who,
                         bootstrap->size);
    if (bootstrap->rank < 0 || bootstrap->rank >= bootstrap->size)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: rank %d is not in 0 to %d", who,
                         bootstrap->rank, bootstrap->size - 1);
    if (!bootstrap->allgather)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: the bootstrap's allgather is NULL", who);
    struct transport *transport;
    TRY(error_of(who, transport_from_callback(bootstrap, settings_own_timeout(), who, &transport)));
    return comm_build_over(transport, ops, stream, who, out);
}

/* Whether there is an error here, an abort that has to be reported, or a report of another rank that
 * this one has not seen yet. */
static bool is_broken(alnico_comm_t comm)
{
    if (atomic_load(&comm->aborted)) {
        struct report report = {.rank = comm->rank, .status = ALNICO_ERROR_ABORTED};
        detector_report_failure(&comm->detector, comm->transport, &report);
    }
    return atomic_load(&comm->latch.status) != ALNICO_SUCCESS ||
           detector_finds_failure(&comm->detector, comm->transport);
}

/* Nobody else would hear of requests that were not waited for and failed, or of what failed while
 * destroy waited. This rank's own abort is no news. */
static void warn_of_failed(alnico_comm_t comm, bool sound)
{
    char names[512], what[544] = "operations";
    int failed = engine_operation_name_failed(comm, names, sizeof names);
    if (atomic_load(&comm->aborted) || (failed == 0 && !sound) ||
        comm_health(comm) == ALNICO_SUCCESS)
        return;
    if (failed)
        snprintf(what, sizeof what, "%d operation%s (%s)", failed, failed == 1 ? "" : "s", names);
    log_write(LOG_WARNING,
              "alnico_comm_destroy: %s of communicator %d, rank %d, did not complete: %s", what,
              comm->id, comm->rank, alnico_error_detail());
}

/* The stream may still be at a gate of the last operation; it passes, and then no one holds the
 * gates. */
void alnico_comm_destroy(alnico_comm_t comm)
{
    if (!comm)
        return;
    if (comm_check(comm, "alnico_comm_destroy") != ALNICO_SUCCESS) {
        log_write(LOG_WARNING, "%s", alnico_error_detail());
        return;
    }
    int before = comm_enter(comm);
    const struct device_ops *device = comm->device;
    if (comm->group.open)
        log_write(LOG_ERROR,
                  "alnico_comm_destroy: a group is open on communicator %d, rank %d: its %d "
                  "messages are forgotten",
                  comm->id, comm->rank, comm->group.count);
    bool sound = comm_health(comm) == ALNICO_SUCCESS;
    if (!sound)
        comm_abort(comm, 0);
    stream_operation_drain(comm);
    comm_drain(comm);
    engine_operation_land(comm);
    warn_of_failed(comm, sound);
    comm->transport->broken = is_broken(comm);
    dismantle(comm);
    if (device->enter)
        device->enter(before);
}
