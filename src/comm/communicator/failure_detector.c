/* Reports between ranks of a failing communicator, and the decision drawn from them. Called where an
 * operation is polled, and by destroy. Every allocation may fail: then fewer ranks hear. */
#include "comm/communicator/failure_detector.h"

#include "base/datatype.h"
#include "base/status.h"
#include "comm/call.h"
#include "comm/rendezvous/out_of_band.h"
#include "device/backoff.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool prepare(struct failure_detector *detector, const struct transport *transport)
{
    if (!detector->reports)
        detector->reports = calloc((size_t)transport->size, sizeof *detector->reports);
    return detector->reports != NULL;
}

double detector_patience(double timeout)
{
    return out_of_band_patience(timeout);
}

/* Several times the patience, so that a rank that has just begun to wait can report too, even where
 * a busy machine holds it up. */
static double grace(double timeout)
{
    return (timeout < 50 ? timeout / 20 : 2.5) + 0.04;
}

static void take_report(struct failure_detector *detector, const struct transport *transport)
{
    const struct report *r = &detector->arriving;
    bool sound = r->rank >= 0 && r->rank < transport->size && r->status < 0 &&
                 datatype_valid((alnico_datatype_t)r->type) && op_valid((alnico_op_t)r->op) &&
                 r->collective >= 0 && r->collective < COLLECTIVES && r->late >= 0 &&
                 r->late <= transport->size;
    if (!sound || detector->reports[r->rank].status)
        return;
    detector->reports[r->rank] = *r;
    detector->received += r->rank != transport->rank;
}

static void listen(struct failure_detector *detector, struct transport *transport)
{
    for (;;) {
        if (!detector->listening &&
            transport->ops->irecv(transport, TRANSPORT_ANY, TAG_REPORT, &detector->arriving,
                                  sizeof detector->arriving, &detector->listener) != ALNICO_SUCCESS)
            break;
        detector->listening = true;
        alnico_status_t status = transport->ops->test(transport, &detector->listener);
        if (status == ALNICO_PENDING)
            break;
        detector->listening = false;
        if (status != ALNICO_SUCCESS)
            break;
        take_report(detector, transport);
    }
}

/* Whether a rank sent no report and never will: one that it sent before its process ended has come
 * when that end is seen. */
static bool is_lost(struct failure_detector *detector, struct transport *transport, int rank)
{
    if (rank == transport->rank || detector->reports[rank].status || !transport->ops->gone ||
        !transport->ops->gone(transport, rank))
        return false;
    listen(detector, transport);
    return !detector->reports[rank].status;
}

static int find_lost(struct failure_detector *detector, struct transport *transport)
{
    for (int i = 0; i < transport->size; i++)
        if (is_lost(detector, transport, i))
            return i;
    return -1;
}

void detector_init(struct failure_detector *detector)
{
    *detector = (struct failure_detector){0};
    pthread_mutex_init(&detector->lock, NULL);
}

bool detector_reported(struct failure_detector *detector, struct transport *transport)
{
    pthread_mutex_lock(&detector->lock);
    if (prepare(detector, transport))
        listen(detector, transport);
    bool reported = detector->received > 0;
    pthread_mutex_unlock(&detector->lock);
    return reported;
}

bool detector_finds_failure(struct failure_detector *detector, struct transport *transport)
{
    bool found = detector_reported(detector, transport);
    pthread_mutex_lock(&detector->lock);
    found = found || (detector->reports && find_lost(detector, transport) >= 0);
    pthread_mutex_unlock(&detector->lock);
    return found;
}

bool detector_has_reported(struct failure_detector *detector)
{
    pthread_mutex_lock(&detector->lock);
    bool reported = detector->reported;
    pthread_mutex_unlock(&detector->lock);
    return reported;
}

static bool is_open(const struct transfer *send)
{
    return send->word[3] != UINTPTR_MAX;
}

static void forget_send(struct transfer *send)
{
    memset(send, 0xff, sizeof *send);
}

void detector_report_failure(struct failure_detector *detector, struct transport *transport,
                             const struct report *mine)
{
    pthread_mutex_lock(&detector->lock);
    if (detector->reported || !prepare(detector, transport))
        goto unlock;
    detector->reported = true;
    detector->reported_at = transport_now(transport);
    detector->reports[transport->rank] = *mine;
    detector->sends = calloc((size_t)transport->size, sizeof *detector->sends);
    for (int i = 0; detector->sends && i < transport->size; i++)
        if (i == transport->rank ||
            transport->ops->isend(transport, i, TAG_REPORT, &detector->reports[transport->rank],
                                  sizeof *mine, &detector->sends[i]) != ALNICO_SUCCESS)
            forget_send(&detector->sends[i]);
unlock:
    pthread_mutex_unlock(&detector->lock);
}

/* Whether the transport has yet to take the report for somebody. */
static bool is_sending(struct failure_detector *detector, struct transport *transport)
{
    bool sending = false;
    pthread_mutex_lock(&detector->lock);
    for (int i = 0; detector->sends && i < transport->size; i++) {
        if (!is_open(&detector->sends[i]))
            continue;
        if (transport->ops->test(transport, &detector->sends[i]) == ALNICO_PENDING)
            sending = true;
        else
            forget_send(&detector->sends[i]);
    }
    pthread_mutex_unlock(&detector->lock);
    return sending;
}

void detector_deliver(struct failure_detector *detector, struct transport *transport,
                      double seconds)
{
    struct backoff backoff = {.crowded = true};
    double end = transport_now(transport) + seconds;
    backoff_reset(&backoff);
    while (is_sending(detector, transport) && transport_now(transport) < end)
        backoff_pause(&backoff);
}

/* "rank 3", or "ranks 1, 3 and 5": those without a report. */
static int name_missing(const struct failure_detector *detector, int size, char *text, size_t bytes)
{
    int missing = 0, named = 0;
    for (int i = 0; i < size; i++)
        missing += !detector->reports[i].status;
    size_t length = (size_t)snprintf(text, bytes, missing == 1 ? "rank" : "ranks");
    for (int i = 0; i < size && named < 8; i++) {
        if (detector->reports[i].status)
            continue;
        named++;
        const char *separator = named == 1 ? "" : named == missing ? " and" : ",";
        length += (size_t)snprintf(text + length, bytes - length, "%s %d", separator, i);
    }
    if (missing > named)
        snprintf(text + length, bytes - length, " and %d more", missing - named);
    return missing;
}

/* A rank that aborted for another reason than waiting, or -1. */
static int find_cause(const struct failure_detector *detector, int size)
{
    for (int i = 0; i < size; i++)
        if (detector->reports[i].status && detector->reports[i].status != ALNICO_ERROR_TIMEOUT)
            return i;
    return -1;
}

static struct call call_of(const struct report *r)
{
    return (struct call){.collective = (alnico_collective_t)r->collective,
                         .count = r->count,
                         .type = (alnico_datatype_t)r->type,
                         .op = (alnico_op_t)r->op,
                         .root = r->root};
}

/* In vector forms each rank has a count of its own. */
static bool differ(const struct report *a, const struct report *b)
{
    struct call call = call_of(a);
    return a->collective != b->collective || (a->count != b->count && !call_is_vector(&call)) ||
           a->type != b->type || a->op != b->op || a->root != b->root;
}

/* Messages come after the operation whose number their report has. */
static bool sends_messages(const struct report *r)
{
    return r->collective == ALNICO_SENDRECV;
}

static bool is_elsewhere(const struct report *r, const struct report *mine)
{
    return r->sequence != mine->sequence || sends_messages(r) != sends_messages(mine);
}

/* A rank that calls something else in this rank's operation, or with `elsewhere` one that aborted in
 * an earlier or later operation; -1: none. A later one is no mismatch: where this rank was held up in
 * the middle, some may have gone on without it. */
static int find_other(const struct failure_detector *detector, int size, const struct report *mine,
                      bool elsewhere)
{
    for (int i = 0; i < size; i++) {
        const struct report *r = &detector->reports[i];
        if (r->status && r->sequence && is_elsewhere(r, mine) == elsewhere &&
            (elsewhere || differ(r, mine)))
            return i;
    }
    return -1;
}

static const char *describe(const struct report *r, char *text, size_t bytes)
{
    struct call call = call_of(r);
    return call_describe(&call, text, bytes);
}

static int find_latest(const struct failure_detector *detector, int size)
{
    int latest = 0;
    for (int i = 1; i < size; i++)
        if (detector->reports[i].waited < detector->reports[latest].waited)
            latest = i;
    return latest;
}

/* Who kept a rank waiting that waits for `awaited`: it, or whom it waited for before it aborted, and so
 * on. -1: the last one waited for none in particular. One that has aborted: they waited for each other. */
static int find_last(const struct failure_detector *detector, int size, int awaited)
{
    for (int i = 0; i < size && awaited >= 0 && detector->reports[awaited].status; i++)
        awaited = detector->reports[awaited].late - 1;
    return awaited;
}

/* Only `awaited` was to come. Where the last one to abort missed none in particular, whoever has sent no
 * report is missing there. */
static alnico_status_t decide_on(const struct failure_detector *detector, int size, double timeout,
                                 const char *operation, int awaited)
{
    char missing[128];
    int last = find_last(detector, size, awaited);
    bool known = last >= 0 ? !detector->reports[last].status
                           : name_missing(detector, size, missing, sizeof missing) > 0;
    if (!known)
        return error_set(ALNICO_ERROR_TIMEOUT, "%s: rank %d gave up before", operation, awaited);
    if (last >= 0)
        snprintf(missing, sizeof missing, "rank %d", last);
    return error_set(ALNICO_ERROR_TIMEOUT, "%s: %s did not come within %g s", operation, missing,
                     timeout);
}

static alnico_status_t decide(struct failure_detector *detector, struct transport *transport,
                              double timeout, const char *operation, int awaited)
{
    char missing[128];
    int size = transport->size;
    const struct report *mine = &detector->reports[transport->rank];
    int lost = find_lost(detector, transport), cause = find_cause(detector, size);
    if (cause >= 0) {
        alnico_status_t status = (alnico_status_t)detector->reports[cause].status;
        return error_set(status, "%s: rank %d gave up: %s", operation, cause,
                         alnico_status_string(status));
    }
    if (lost >= 0)
        return error_set(ALNICO_ERROR_TIMEOUT, "%s: rank %d did not come: its process has ended",
                         operation, lost);
    if (awaited == transport->rank)
        return error_set(ALNICO_ERROR_TIMEOUT, "%s: rank %d did not come within %g s", operation,
                         awaited, timeout);
    if (awaited >= 0)
        return decide_on(detector, size, timeout, operation, awaited);
    if (name_missing(detector, size, missing, sizeof missing))
        return error_set(ALNICO_ERROR_TIMEOUT, "%s: %s did not come within %g s", operation,
                         missing, timeout);
    int other = find_other(detector, size, mine, false);
    if (other >= 0) {
        char here[128], there[128];
        return error_set(ALNICO_ERROR_MISMATCH, "%s: rank %d calls %s, and rank %d %s", operation,
                         mine->rank, describe(mine, here, sizeof here), other,
                         describe(&detector->reports[other], there, sizeof there));
    }
    int elsewhere = find_other(detector, size, mine, true);
    if (elsewhere >= 0)
        return error_set(ALNICO_ERROR_TIMEOUT, "%s: rank %d gave up %s operation %llu", operation,
                         elsewhere, sends_messages(&detector->reports[elsewhere]) ? "after" : "in",
                         (unsigned long long)detector->reports[elsewhere].sequence);
    return error_set(ALNICO_ERROR_TIMEOUT, "%s: rank %d came too late, after %g s", operation,
                     find_latest(detector, size), timeout);
}

static alnico_status_t decide_if_complete(struct failure_detector *detector,
                                          struct transport *transport, double timeout,
                                          const char *operation, int awaited)
{
    if (!detector->reports)
        return error_set(ALNICO_ERROR_TIMEOUT, "%s: a rank did not come within %g s", operation,
                         timeout);
    bool known = find_lost(detector, transport) >= 0; /* first: it may hear some */
    known |= detector->received == transport->size - 1;
    known |= find_cause(detector, transport->size) >= 0;
    if (!known && transport_now(transport) - detector->reported_at <= grace(timeout))
        return ALNICO_PENDING;
    return decide(detector, transport, timeout, operation, awaited);
}

alnico_status_t detector_decide(struct failure_detector *detector, struct transport *transport,
                                double timeout, const char *operation, int awaited)
{
    detector_reported(detector, transport);
    pthread_mutex_lock(&detector->lock);
    alnico_status_t status = decide_if_complete(detector, transport, timeout, operation, awaited);
    pthread_mutex_unlock(&detector->lock);
    return status;
}

/* A report that the transport may still read is not freed. */
void detector_finish(struct failure_detector *detector, struct transport *transport)
{
    bool unread = true;
    if (detector->listening)
        transport->ops->cancel(transport, &detector->listener);
    for (int i = 0; detector->sends && i < transport->size; i++)
        if (is_open(&detector->sends[i]))
            unread &= transport->ops->cancel(transport, &detector->sends[i]);
    free(detector->sends);
    if (unread)
        free(detector->reports);
    pthread_mutex_destroy(&detector->lock);
}
