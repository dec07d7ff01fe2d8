/* Reports between ranks of a failing communicator, and the verdict drawn from them. Called where an
 * operation is polled, and by destroy. Every allocation may fail: then fewer ranks hear. */
#include "comm/communicator/failure_detector.h"

#include "base/datatype.h"
#include "base/status.h"
#include "comm/call.h"
#include "comm/tuning/tuning.h"
#include "device/backoff.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool prepare(struct watch *watch, const struct transport *transport)
{
    if (!watch->reports)
        watch->reports = calloc((size_t)transport->size, sizeof *watch->reports);
    return watch->reports != NULL;
}

double watch_patience(double timeout)
{
    return timeout / 8 < 1 ? timeout / 8 : 1;
}

/* Twice the patience, so that a rank that has just begun to wait is heard too. */
static double grace(double timeout)
{
    return 2.5 * watch_patience(timeout);
}

static void take_report(struct watch *watch, const struct transport *transport)
{
    const struct report *r = &watch->arriving;
    bool sound = r->rank >= 0 && r->rank < transport->size && r->status < 0 &&
                 datatype_valid((alnico_datatype_t)r->type) && op_valid((alnico_op_t)r->op) &&
                 r->collective >= 0 && r->collective < COLLECTIVES;
    if (!sound || watch->reports[r->rank].status)
        return;
    watch->reports[r->rank] = *r;
    watch->heard += r->rank != transport->rank;
}

static void listen(struct watch *watch, struct transport *transport)
{
    for (;;) {
        if (!watch->listening &&
            transport->ops->irecv(transport, TRANSPORT_ANY, TAG_REPORT, &watch->arriving,
                                  sizeof watch->arriving, &watch->ear) != ALNICO_SUCCESS)
            break;
        watch->listening = true;
        alnico_status_t status = transport->ops->test(transport, &watch->ear);
        if (status == ALNICO_PENDING)
            break;
        watch->listening = false;
        if (status != ALNICO_SUCCESS)
            break;
        take_report(watch, transport);
    }
}

/* Whether a rank told nothing and never will: what it told before its process ended has come when
 * that is seen. */
static bool is_lost(struct watch *watch, struct transport *transport, int rank)
{
    if (rank == transport->rank || watch->reports[rank].status || !transport->ops->gone ||
        !transport->ops->gone(transport, rank))
        return false;
    listen(watch, transport);
    return !watch->reports[rank].status;
}

static int find_lost(struct watch *watch, struct transport *transport)
{
    for (int i = 0; i < transport->size; i++)
        if (is_lost(watch, transport, i))
            return i;
    return -1;
}

static int count_lost(struct watch *watch, struct transport *transport)
{
    int count = 0;
    for (int i = 0; i < transport->size; i++)
        count += is_lost(watch, transport, i);
    return count;
}

void watch_init(struct watch *watch)
{
    *watch = (struct watch){0};
    pthread_mutex_init(&watch->lock, NULL);
}

bool watch_reported(struct watch *watch, struct transport *transport)
{
    pthread_mutex_lock(&watch->lock);
    if (prepare(watch, transport))
        listen(watch, transport);
    bool reported = watch->heard > 0;
    pthread_mutex_unlock(&watch->lock);
    return reported;
}

bool watch_hears(struct watch *watch, struct transport *transport)
{
    bool hears = watch_reported(watch, transport);
    pthread_mutex_lock(&watch->lock);
    hears = hears || (watch->reports && find_lost(watch, transport) >= 0);
    pthread_mutex_unlock(&watch->lock);
    return hears;
}

bool watch_has_told(struct watch *watch)
{
    pthread_mutex_lock(&watch->lock);
    bool told = watch->told;
    pthread_mutex_unlock(&watch->lock);
    return told;
}

/* ---- Telling ---- */

static bool is_voice(const struct transfer *voice)
{
    return voice->word[3] != UINTPTR_MAX;
}

static void forget_voice(struct transfer *voice)
{
    memset(voice, 0xff, sizeof *voice);
}

static void tell(struct watch *watch, struct transport *transport, const struct report *mine)
{
    if (watch->told || !prepare(watch, transport))
        return;
    watch->told = true;
    watch->told_at = transport->ops->now(transport);
    watch->reports[transport->rank] = *mine;
    watch->voices = calloc((size_t)transport->size, sizeof *watch->voices);
    for (int i = 0; watch->voices && i < transport->size; i++)
        if (i == transport->rank ||
            transport->ops->isend(transport, i, TAG_REPORT, &watch->reports[transport->rank],
                                  sizeof *mine, &watch->voices[i]) != ALNICO_SUCCESS)
            forget_voice(&watch->voices[i]);
}

void watch_tell(struct watch *watch, struct transport *transport, const struct report *mine)
{
    pthread_mutex_lock(&watch->lock);
    tell(watch, transport, mine);
    pthread_mutex_unlock(&watch->lock);
}

/* Whether the transport has yet to take the report for somebody. */
static bool is_speaking(struct watch *watch, struct transport *transport)
{
    bool speaking = false;
    pthread_mutex_lock(&watch->lock);
    for (int i = 0; watch->voices && i < transport->size; i++) {
        if (!is_voice(&watch->voices[i]))
            continue;
        if (transport->ops->test(transport, &watch->voices[i]) == ALNICO_PENDING)
            speaking = true;
        else
            forget_voice(&watch->voices[i]);
    }
    pthread_mutex_unlock(&watch->lock);
    return speaking;
}

void watch_deliver(struct watch *watch, struct transport *transport, double seconds)
{
    struct backoff backoff = {.crowded = true};
    double end = transport->ops->now(transport) + seconds;
    backoff_reset(&backoff);
    while (is_speaking(watch, transport) && transport->ops->now(transport) < end)
        backoff_pause(&backoff);
}

/* ---- The verdict ---- */

/* "rank 3", or "ranks 1, 3 and 5": those without a report. */
static int name_missing(const struct watch *watch, int size, char *text, size_t bytes)
{
    int missing = 0, named = 0;
    for (int i = 0; i < size; i++)
        missing += !watch->reports[i].status;
    size_t length = (size_t)snprintf(text, bytes, missing == 1 ? "rank" : "ranks");
    for (int i = 0; i < size && named < 8; i++) {
        if (watch->reports[i].status)
            continue;
        named++;
        const char *separator = named == 1 ? "" : named == missing ? " and" : ",";
        length += (size_t)snprintf(text + length, bytes - length, "%s %d", separator, i);
    }
    if (missing > named)
        snprintf(text + length, bytes - length, " and %d more", missing - named);
    return missing;
}

/* A rank that gave up for another reason than waiting, or -1. */
static int find_cause(const struct watch *watch, int size)
{
    for (int i = 0; i < size; i++)
        if (watch->reports[i].status && watch->reports[i].status != ALNICO_ERROR_TIMEOUT)
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

/* Messages come after the operation whose number they tell. */
static bool sends_messages(const struct report *r)
{
    return r->collective == ALNICO_SENDRECV;
}

static bool is_elsewhere(const struct report *r, const struct report *mine)
{
    return r->sequence != mine->sequence || sends_messages(r) != sends_messages(mine);
}

/* A rank that calls something else in this rank's operation, or -1; of the rest nothing is known. */
static int find_other(const struct watch *watch, int size, const struct report *mine)
{
    for (int i = 0; i < size; i++) {
        const struct report *r = &watch->reports[i];
        if (r->status && r->sequence && !is_elsewhere(r, mine) && differ(r, mine))
            return i;
    }
    return -1;
}

/* A rank that gave up in an earlier or later operation than this one, or -1. A later one is no
 * mismatch: where this rank was held up in the middle, some may have gone on without it. */
static int find_elsewhere(const struct watch *watch, int size, const struct report *mine)
{
    for (int i = 0; i < size; i++) {
        const struct report *r = &watch->reports[i];
        if (r->status && r->sequence && is_elsewhere(r, mine))
            return i;
    }
    return -1;
}

static const char *describe(const struct report *r, char *text, size_t bytes)
{
    struct call call = call_of(r);
    return call_describe(&call, text, bytes);
}

static int find_latest(const struct watch *watch, int size)
{
    int latest = 0;
    for (int i = 1; i < size; i++)
        if (watch->reports[i].waited < watch->reports[latest].waited)
            latest = i;
    return latest;
}

static alnico_status_t judge(struct watch *watch, struct transport *transport, double timeout,
                             const char *operation, int awaited)
{
    char missing[128];
    int size = transport->size;
    const struct report *mine = &watch->reports[transport->rank];
    int lost = find_lost(watch, transport), cause = find_cause(watch, size);
    if (cause >= 0) {
        alnico_status_t status = (alnico_status_t)watch->reports[cause].status;
        return error_set(status, "%s: rank %d gave up: %s", operation, cause,
                         alnico_status_string(status));
    }
    if (lost >= 0)
        return error_set(ALNICO_ERROR_TIMEOUT, "%s: rank %d did not come: its process has ended",
                         operation, lost);
    if (awaited >= 0 && awaited != transport->rank && watch->reports[awaited].status)
        return error_set(ALNICO_ERROR_TIMEOUT, "%s: rank %d gave up before", operation, awaited);
    if (awaited >= 0)
        return error_set(ALNICO_ERROR_TIMEOUT, "%s: rank %d did not come within %g s", operation,
                         awaited, timeout);
    if (name_missing(watch, size, missing, sizeof missing))
        return error_set(ALNICO_ERROR_TIMEOUT, "%s: %s did not come within %g s", operation,
                         missing, timeout);
    int other = find_other(watch, size, mine);
    if (other >= 0) {
        char here[128], there[128];
        return error_set(ALNICO_ERROR_MISMATCH, "%s: rank %d calls %s, and rank %d %s", operation,
                         mine->rank, describe(mine, here, sizeof here), other,
                         describe(&watch->reports[other], there, sizeof there));
    }
    int elsewhere = find_elsewhere(watch, size, mine);
    if (elsewhere >= 0)
        return error_set(ALNICO_ERROR_TIMEOUT, "%s: rank %d gave up %s operation %llu", operation,
                         elsewhere, sends_messages(&watch->reports[elsewhere]) ? "after" : "in",
                         (unsigned long long)watch->reports[elsewhere].sequence);
    return error_set(ALNICO_ERROR_TIMEOUT, "%s: rank %d came too late, after %g s", operation,
                     find_latest(watch, size), timeout);
}

static alnico_status_t verdict(struct watch *watch, struct transport *transport, double timeout,
                               const char *operation, int awaited)
{
    if (!watch->reports)
        return error_set(ALNICO_ERROR_TIMEOUT, "%s: a rank did not come within %g s", operation,
                         timeout);
    int lost = count_lost(watch, transport); /* first: it may hear some */
    bool complete = watch->heard + lost == transport->size - 1;
    bool over = transport->ops->now(transport) - watch->told_at > grace(timeout);
    if (!complete && !over && find_cause(watch, transport->size) < 0)
        return ALNICO_PENDING;
    return judge(watch, transport, timeout, operation, awaited);
}

alnico_status_t watch_verdict(struct watch *watch, struct transport *transport, double timeout,
                              const char *operation, int awaited)
{
    watch_reported(watch, transport);
    pthread_mutex_lock(&watch->lock);
    alnico_status_t status = verdict(watch, transport, timeout, operation, awaited);
    pthread_mutex_unlock(&watch->lock);
    return status;
}

/* A report that the transport may still read is not freed. */
void watch_finish(struct watch *watch, struct transport *transport)
{
    bool unread = true;
    if (watch->listening)
        transport->ops->cancel(transport, &watch->ear);
    for (int i = 0; watch->voices && i < transport->size; i++)
        if (is_voice(&watch->voices[i]))
            unread &= transport->ops->cancel(transport, &watch->voices[i]);
    free(watch->voices);
    if (unread)
        free(watch->reports);
    pthread_mutex_destroy(&watch->lock);
}
