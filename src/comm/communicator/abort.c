/*
 * Abort of a communicator: its backends end what waits for other ranks. Some let kernels of the other
 * ranks end then as though all had come (backend.h, `misleads`): there this rank reports its failure
 * before, and success is confirmed by listening for reports after the end.
 */
#include "comm/communicator/comm.h"

#include "base/status.h"
#include "device/backoff.h"

#include <stdio.h>

static const double delivery = 0.05; /* seconds that a report is given to leave */

static bool misleads(alnico_comm_t comm)
{
    for (const struct backend_ops *const *b = comm->backends; *b; b++)
        if ((*b)->misleads && (*b)->misleads(comm))
            return true;
    return false;
}

static void send_report(alnico_comm_t comm, const struct report *report)
{
    alnico_comm_t told = comm_told(comm);
    detector_report_failure(&told->detector, told->transport, report);
    if (misleads(comm))
        detector_deliver(&told->detector, told->transport, delivery);
}

static void report(alnico_comm_t comm, alnico_status_t status, double waited)
{
    const struct report report = {
        .rank = comm_told(comm)->rank, .status = status, .waited = waited};
    send_report(comm, &report);
}

struct decision {
    alnico_comm_t comm;
    const char *name; /* of the operation */
    double timeout;
    int awaited;
    alnico_status_t status;
};

static enum wait look_for_decision(void *context)
{
    struct decision *d = context;
    alnico_comm_t told = comm_told(d->comm);
    d->status = detector_decide(&told->detector, told->transport, d->timeout, d->name, d->awaited);
    return d->status == ALNICO_PENDING ? WAIT_IDLE : WAIT_DONE;
}

/* After this rank's report: waits until it is known who did not come, and latches that. */
static void wait_for_decision(struct decision *decision)
{
    alnico_comm_t comm = decision->comm;
    wait_until(look_for_decision, decision, WAIT_FOREVER, comm->crowded);
    comm_latch(comm, decision->status, alnico_error_detail());
}

static void decide(alnico_comm_t comm, const char *name)
{
    struct decision decision = {
        .comm = comm, .name = name, .timeout = comm->family->settings.timeout, .awaited = -1};
    wait_for_decision(&decision);
}

/* As messages, an exchange comes after the operation whose number the report has. */
alnico_status_t comm_give_up(alnico_comm_t comm, const struct comm_wait *wait)
{
    const struct report report = {.rank = comm->rank,
                                  .status = ALNICO_ERROR_TIMEOUT,
                                  .sequence = comm->sequence,
                                  .collective = ALNICO_SENDRECV,
                                  .waited = wait->waited,
                                  .late = wait->awaited + 1};
    struct decision decision = {
        .comm = comm, .name = wait->who, .timeout = wait->timeout, .awaited = wait->awaited};
    TRY(comm_latched(comm));
    send_report(comm, &report);
    wait_for_decision(&decision);
    return comm_latched(comm);
}

void comm_listen(alnico_comm_t comm)
{
    for (const struct backend_ops *const *b = comm->backends; *b; b++)
        if ((*b)->listen)
            (*b)->listen(comm);
    if (comm->messages.taken == 0 || atomic_load(&comm->latch.status) != ALNICO_SUCCESS ||
        !detector_finds_failure(&comm_told(comm)->detector, comm_told(comm)->transport))
        return;
    char name[64];
    snprintf(name, sizeof name, "alnico_synchronize of communicator %d", comm->id);
    report(comm, ALNICO_ERROR_TIMEOUT, 0);
    decide(comm, name);
}

bool comm_warned(alnico_comm_t comm)
{
    alnico_comm_t told = comm_told(comm);
    return misleads(comm) && detector_reported(&told->detector, told->transport);
}

enum { LISTENS = 8 }; /* a transport may need several calls to find what lies there */

alnico_status_t comm_confirm(alnico_comm_t comm)
{
    TRY(comm_health(comm));
    if (!misleads(comm))
        return ALNICO_SUCCESS;
    for (int i = 0; i < LISTENS; i++)
        if (comm_warned(comm)) {
            comm_abort(comm, 0);
            break;
        }
    return comm_latched(comm);
}

static void abort_backends(alnico_comm_t comm)
{
    for (const struct backend_ops *const *b = comm->backends; *b; b++)
        if ((*b)->abort)
            (*b)->abort(comm);
}

static void latch_timeout(alnico_comm_t comm, double waited)
{
    char text[128];
    if (misleads(comm)) {
        snprintf(text, sizeof text, "operations of communicator %d", comm->id);
        report(comm, ALNICO_ERROR_TIMEOUT, waited);
        decide(comm, text);
        return;
    }
    snprintf(text, sizeof text,
             "communicator %d: its operations did not end within %g s; a rank did not come",
             comm->id, comm->family->settings.timeout);
    comm_latch(comm, ALNICO_ERROR_TIMEOUT, text);
}

void comm_abort(alnico_comm_t comm, double waited)
{
    alnico_status_t status = (alnico_status_t)atomic_load(&comm->latch.status);
    if (status == ALNICO_SUCCESS)
        latch_timeout(comm, waited);
    else if (misleads(comm))
        report(comm, status, waited);
    abort_backends(comm);
}

void comm_revoke(alnico_comm_t comm)
{
    char text[96];
    snprintf(text, sizeof text, "communicator %d was given up by this rank %d", comm->id,
             comm->rank);
    comm_latch(comm, ALNICO_ERROR_ABORTED, text);
    report(comm, (alnico_status_t)atomic_load(&comm->latch.status), 0);
    abort_backends(comm);
}

void comm_lose(alnico_comm_t comm, int rank)
{
    char text[96];
    snprintf(text, sizeof text, "communicator %d: rank %d did not come: its process has ended",
             comm->id, rank);
    comm_latch(comm, ALNICO_ERROR_TIMEOUT, text);
    if (comm->transport->concurrent)
        report(comm, ALNICO_ERROR_TIMEOUT, 0);
    abort_backends(comm);
}

/* If another thread must not send, the thread that calls on the communicator sends the report, in
 * an operation or in its destroy; a backend that misleads gives it time for that. */
alnico_status_t alnico_comm_abort(alnico_comm_t comm)
{
    TRY(comm_check(comm, "alnico_comm_abort"));
    char detail[96];
    snprintf(detail, sizeof detail, "communicator %d was aborted by this rank %d", comm->id,
             comm->rank);
    comm_latch(comm, ALNICO_ERROR_ABORTED, detail);
    atomic_store(&comm->aborted, true);
    if (comm->transport->concurrent)
        report(comm, ALNICO_ERROR_ABORTED, 0);
    abort_backends(comm);
    return ALNICO_SUCCESS;
}
