/* What ranks tell each other when a communicator is made or set: an allgather and a broadcast over
 * its transport, each with a deadline that names who did not come, sooner where a process has
 * ended. On the caller's thread. */
#include "comm/comm.h"

#include "device/backoff.h"
#include "status.h"

#include <string.h>

/* Why an exchange gave up. */
struct absence {
    bool unsent; /* only the send was open */
    int lost;    /* a rank whose process has ended, or -1 */
};

static int find_lost(struct transport *t)
{
    for (int i = 0; t->ops->gone && i < t->size; i++)
        if (i != t->rank && t->ops->gone(t, i))
            return i;
    return -1;
}

/* Waits for both; either may be NULL. TIMEOUT at the deadline, or soon after the process of any
 * rank has ended. */
static alnico_status_t wait_both(struct transport *t, struct engine *engine, double timeout,
                                 struct transfer *send, struct transfer *recv,
                                 struct absence *absence)
{
    bool pump = engine && !engine_is_threaded(engine);
    alnico_status_t sent = send ? ALNICO_PENDING : ALNICO_SUCCESS;
    alnico_status_t received = recv ? ALNICO_PENDING : ALNICO_SUCCESS;
    struct backoff backoff = {0};
    backoff_reset(&backoff);
    double end = t->ops->now(t) + timeout, look = t->ops->now(t) + watch_patience(timeout);
    *absence = (struct absence){.lost = -1};
    for (bool last = false; !last;) { /* what was sent before a process ended may have come */
        last = absence->lost >= 0;
        if (received == ALNICO_PENDING)
            received = t->ops->test(t, recv);
        if (sent == ALNICO_PENDING)
            sent = t->ops->test(t, send);
        if (sent != ALNICO_PENDING && received != ALNICO_PENDING)
            return received != ALNICO_SUCCESS ? received : sent;
        if (pump)
            engine_pump(engine);
        double now = t->ops->now(t);
        if (now > end)
            break;
        if (now > look) {
            absence->lost = find_lost(t);
            look = now + watch_patience(timeout);
        }
        backoff_pause(&backoff);
    }
    absence->unsent = received != ALNICO_PENDING;
    if (absence->lost < 0) /* whoever was held up past the deadline has not looked */
        absence->lost = find_lost(t);
    if (received == ALNICO_PENDING)
        t->ops->cancel(t, recv);
    if (sent == ALNICO_PENDING)
        t->ops->cancel(t, send);
    return ALNICO_ERROR_TIMEOUT;
}

static alnico_status_t tell_absence(const struct absence *absence, const char *who, int awaited,
                                    double timeout)
{
    if (absence->lost >= 0)
        return error_set(ALNICO_ERROR_TIMEOUT, "%s: rank %d did not come: its process has ended",
                         who, absence->lost);
    return error_set(ALNICO_ERROR_TIMEOUT, "%s: rank %d did not come within %g s", who, awaited,
                     timeout);
}

alnico_status_t comm_exchange(struct transport *t, struct engine *engine, double timeout,
                              const char *who, const void *mine, void *all, size_t bytes)
{
    char *blocks = all;
    int p = t->size, rank = t->rank;
    memcpy(blocks + (size_t)rank * bytes, mine, bytes);
    for (int i = 0; i < p - 1; i++) {
        int sent = (rank - i + p) % p, received = (rank - i - 1 + p) % p;
        struct transfer send, recv;
        struct absence absence = {.lost = -1};
        TRY(t->ops->irecv(t, (rank - 1 + p) % p, TAG_EXCHANGE, blocks + (size_t)received * bytes,
                          bytes, &recv));
        alnico_status_t status = t->ops->isend(t, (rank + 1) % p, TAG_EXCHANGE,
                                               blocks + (size_t)sent * bytes, bytes, &send);
        if (status == ALNICO_SUCCESS)
            status = wait_both(t, engine, timeout, &send, &recv, &absence);
        else
            t->ops->cancel(t, &recv);
        if (status == ALNICO_ERROR_TIMEOUT)
            return tell_absence(&absence, who, absence.unsent ? (rank + 1) % p : received, timeout);
        TRY(status);
    }
    return ALNICO_SUCCESS;
}

alnico_status_t comm_allgather(alnico_comm_t comm, const char *who, const void *mine, void *all,
                               size_t bytes)
{
    return comm_exchange(comm->transport, comm->family->engine, comm->family->settings.timeout, who,
                         mine, all, bytes);
}

/* ---- Broadcast: down a binomial tree ---- */

static alnico_status_t pass_on(struct transport *t, struct engine *engine, double timeout,
                               const char *who, int peer, bool sends, void *data, size_t bytes)
{
    struct transfer transfer;
    TRY(sends ? t->ops->isend(t, peer, TAG_EXCHANGE, data, bytes, &transfer)
              : t->ops->irecv(t, peer, TAG_EXCHANGE, data, bytes, &transfer));
    struct absence absence;
    alnico_status_t status =
        wait_both(t, engine, timeout, sends ? &transfer : NULL, sends ? NULL : &transfer, &absence);
    return status == ALNICO_ERROR_TIMEOUT ? tell_absence(&absence, who, peer, timeout) : status;
}

alnico_status_t comm_broadcast(struct transport *t, struct engine *engine, double timeout,
                               const char *who, void *data, size_t bytes)
{
    int bit = 1;
    while (bit < t->size && t->rank % (2 * bit) == 0)
        bit *= 2;
    if (t->rank > 0)
        TRY(pass_on(t, engine, timeout, who, t->rank - bit, false, data, bytes));
    for (bit /= 2; bit > 0; bit /= 2)
        if (t->rank + bit < t->size)
            TRY(pass_on(t, engine, timeout, who, t->rank + bit, true, data, bytes));
    return ALNICO_SUCCESS;
}
