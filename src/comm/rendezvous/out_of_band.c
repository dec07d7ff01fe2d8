/* What ranks tell each other when a communicator is made or set: an allgather and a broadcast over
 * its transport, each with a deadline that names who did not come, sooner where a process has
 * ended. On the caller's thread. */
#include "comm/agree.h"
#include "comm/communicator/comm.h"

#include "base/status.h"
#include "device/backoff.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Who waits, and for how long. */
struct waiter {
    struct transport *transport;
    struct engine *engine;     /* NULL, or pumped if it has no thread */
    const struct latch *latch; /* NULL, or what an error ends the wait in */
    double timeout;
    const char *who;
};

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

static bool is_broken(const struct waiter *w)
{
    return w->latch && atomic_load(&w->latch->status) != ALNICO_SUCCESS;
}

/* Waits for both; either may be NULL. TIMEOUT at the deadline, soon after the process of any rank
 * has ended, or when an error is latched. What was sent before such an end is seen, or while this
 * rank itself was held up, may have come: it looks once more. */
static alnico_status_t wait_both(const struct waiter *w, struct transfer *send,
                                 struct transfer *recv, struct absence *absence)
{
    struct transport *t = w->transport;
    bool pump = w->engine && !engine_is_threaded(w->engine);
    alnico_status_t sent = send ? ALNICO_PENDING : ALNICO_SUCCESS;
    alnico_status_t received = recv ? ALNICO_PENDING : ALNICO_SUCCESS;
    struct backoff backoff = {0};
    backoff_reset(&backoff);
    double now = transport_now(t), end = now + w->timeout,
           look = now + detector_patience(w->timeout);
    *absence = (struct absence){.lost = -1};
    for (bool last = false; !last;) {
        last = absence->lost >= 0 || now > end || is_broken(w);
        if (received == ALNICO_PENDING)
            received = t->ops->test(t, recv);
        if (sent == ALNICO_PENDING)
            sent = t->ops->test(t, send);
        if (sent != ALNICO_PENDING && received != ALNICO_PENDING)
            return received != ALNICO_SUCCESS ? received : sent;
        if (pump)
            engine_pump(w->engine);
        now = transport_now(t);
        if (now > look) {
            absence->lost = find_lost(t);
            look = now + detector_patience(w->timeout);
        }
        if (!last)
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

static alnico_status_t tell_absence(const struct waiter *w, const struct absence *absence,
                                    int awaited)
{
    if (absence->lost >= 0)
        return error_set(ALNICO_ERROR_TIMEOUT, "%s: rank %d did not come: its process has ended",
                         w->who, absence->lost);
    return error_set(ALNICO_ERROR_TIMEOUT, "%s: rank %d did not come within %g s", w->who, awaited,
                     w->timeout);
}

/* Of an error whose detail is the transport's. */
static alnico_status_t name_caller(const struct waiter *w, alnico_status_t status)
{
    return status == ALNICO_SUCCESS ? status
                                    : error_set(status, "%s: %s", w->who, alnico_error_detail());
}

static alnico_status_t exchange(const struct waiter *w, const void *mine, void *all, size_t bytes)
{
    struct transport *t = w->transport;
    char *blocks = all;
    int p = t->size, rank = t->rank;
    memcpy(blocks + (size_t)rank * bytes, mine, bytes);
    for (int i = 0; i < p - 1; i++) {
        int sent = (rank - i + p) % p, received = (rank - i - 1 + p) % p;
        struct transfer send, recv;
        struct absence absence = {.lost = -1};
        TRY(t->ops->irecv(t, (rank - 1 + p) % p, TAG_OUT_OF_BAND, blocks + (size_t)received * bytes,
                          bytes, &recv));
        alnico_status_t status = t->ops->isend(t, (rank + 1) % p, TAG_OUT_OF_BAND,
                                               blocks + (size_t)sent * bytes, bytes, &send);
        if (status == ALNICO_SUCCESS)
            status = wait_both(w, &send, &recv, &absence);
        else
            t->ops->cancel(t, &recv);
        if (status == ALNICO_ERROR_TIMEOUT)
            return tell_absence(w, &absence, absence.unsent ? (rank + 1) % p : received);
        TRY(name_caller(w, status));
    }
    return ALNICO_SUCCESS;
}

alnico_status_t comm_exchange(struct transport *t, struct engine *engine, double timeout,
                              const char *who, const void *mine, void *all, size_t bytes)
{
    struct waiter waiter = {t, engine, NULL, timeout, who};
    return exchange(&waiter, mine, all, bytes);
}

alnico_status_t comm_allgather(alnico_comm_t comm, const char *who, const void *mine, void *all,
                               size_t bytes)
{
    struct waiter waiter = {comm->transport, comm->family->engine, &comm->latch,
                            comm->family->settings.timeout, who};
    alnico_status_t status = exchange(&waiter, mine, all, bytes);
    return status == ALNICO_ERROR_TIMEOUT && is_broken(&waiter) ? comm_latched(comm) : status;
}

alnico_status_t comm_agree(alnico_comm_t comm, const char *who, const void *mine, void *all,
                           size_t bytes)
{
    alnico_status_t status = comm_allgather(comm, who, mine, all, bytes);
    if (status != ALNICO_SUCCESS)
        comm_latch(comm, status, alnico_error_detail());
    return status;
}

alnico_status_t comm_allgather_called(void *context, const void *mine, void *all, size_t bytes)
{
    struct comm_caller *caller = context;
    alnico_status_t status = comm_allgather(caller->comm, caller->who, mine, all, bytes);
    caller->failed = status != ALNICO_SUCCESS;
    return status;
}

alnico_status_t comm_agree_status(alnico_comm_t comm, const char *who, alnico_status_t *status)
{
    struct comm_caller caller = {.comm = comm, .who = who};
    struct step_result *all = malloc((size_t)comm->size * sizeof *all);
    if (!all)
        return error_set(ALNICO_ERROR_MEMORY, "%s: no memory for %d ranks", who, comm->size);
    alnico_status_t agreed =
        agree_on_status(comm_allgather_called, &caller, all, comm->size, NULL, status);
    free(all);
    return agreed;
}

/* ---- The first exchange of a public call ---- */

enum { NAME_BYTES = 32 };

/* What a rank tells in it: so many bytes whatever it calls, so that those who call different things
 * understand each other. */
struct opening {
    char what[NAME_BYTES], who[NAME_BYTES];
    char mine[AGREE_BYTES];
};

static alnico_status_t compare_calls(const struct opening *openings, int size, const char *who)
{
    for (int i = 1; i < size; i++)
        if (strcmp(openings[i].what, openings[0].what) != 0)
            return error_set(ALNICO_ERROR_MISMATCH, "%s: rank 0 calls %s, and rank %d %s", who,
                             openings[0].who, i, openings[i].who);
    return ALNICO_SUCCESS;
}

alnico_status_t comm_agree_first(alnico_comm_t comm, const char *what, const char *who,
                                 const void *mine, void *all, size_t bytes)
{
    struct opening own = {0}, *openings = calloc((size_t)comm->size, sizeof *openings);
    assert(bytes <= AGREE_BYTES);
    if (!openings)
        return error_set(ALNICO_ERROR_MEMORY, "%s: no memory for %d ranks", who, comm->size);
    snprintf(own.what, sizeof own.what, "%s", what);
    snprintf(own.who, sizeof own.who, "%s", who);
    memcpy(own.mine, mine, bytes);
    alnico_status_t status = comm_agree(comm, who, &own, openings, sizeof own);
    if (status == ALNICO_SUCCESS)
        status = compare_calls(openings, comm->size, who);
    for (int i = 0; status == ALNICO_SUCCESS && i < comm->size; i++)
        memcpy((char *)all + (size_t)i * bytes, openings[i].mine, bytes);
    free(openings);
    return status;
}

/* ---- Broadcast: down a binomial tree ---- */

static alnico_status_t pass_on(const struct waiter *w, int peer, bool sends, void *data,
                               size_t bytes)
{
    struct transport *t = w->transport;
    struct transfer transfer;
    TRY(sends ? t->ops->isend(t, peer, TAG_OUT_OF_BAND, data, bytes, &transfer)
              : t->ops->irecv(t, peer, TAG_OUT_OF_BAND, data, bytes, &transfer));
    struct absence absence;
    alnico_status_t status =
        wait_both(w, sends ? &transfer : NULL, sends ? NULL : &transfer, &absence);
    return status == ALNICO_ERROR_TIMEOUT ? tell_absence(w, &absence, peer)
                                          : name_caller(w, status);
}

alnico_status_t comm_broadcast(struct transport *t, struct engine *engine, double timeout,
                               const char *who, void *data, size_t bytes)
{
    struct waiter waiter = {t, engine, NULL, timeout, who};
    int bit = 1;
    while (bit < t->size && t->rank % (2 * bit) == 0)
        bit *= 2;
    if (t->rank > 0)
        TRY(pass_on(&waiter, t->rank - bit, false, data, bytes));
    for (bit /= 2; bit > 0; bit /= 2)
        if (t->rank + bit < t->size)
            TRY(pass_on(&waiter, t->rank + bit, true, data, bytes));
    return ALNICO_SUCCESS;
}
