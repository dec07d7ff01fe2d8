/* An allgather around a ring and a broadcast down a binomial tree, over any transport. */
#include "comm/rendezvous/out_of_band.h"

#include "base/status.h"
#include "device/backoff.h"
#include "progress/progress.h"

#include <string.h>

double out_of_band_patience(double timeout)
{
    return timeout / 8 < 1 ? timeout / 8 : 1;
}

/* A send and a receive under way; either may be NULL. */
struct pair {
    const struct out_of_band *wait;
    struct transfer *send, *recv;
    alnico_status_t sent, received;
    double end, look; /* the deadline, and when to ask again who is gone */
    int lost;         /* a rank whose process has ended, or -1 */
    bool last;        /* this look is the last one */
};

int out_of_band_find_lost(struct transport *t)
{
    for (int i = 0; t->ops->gone && i < t->size; i++)
        if (i != t->rank && t->ops->gone(t, i))
            return i;
    return -1;
}

static bool is_broken(const struct out_of_band *wait)
{
    return wait->broken && atomic_load(wait->broken) != 0;
}

/* One look. A message that was sent before the deadline, or before a process ended, may have come
 * while this rank itself was held up: it looks once more. */
static enum wait look_at_pair(void *context)
{
    struct pair *p = context;
    struct transport *t = p->wait->transport;
    struct engine *engine = p->wait->engine;
    if (p->received == ALNICO_PENDING)
        p->received = t->ops->test(t, p->recv);
    if (p->sent == ALNICO_PENDING)
        p->sent = t->ops->test(t, p->send);
    if ((p->sent != ALNICO_PENDING && p->received != ALNICO_PENDING) || p->last)
        return WAIT_DONE;
    if (engine && !engine_is_threaded(engine))
        engine_pump(engine);
    double now = transport_now(t);
    if (now > p->look) {
        p->lost = out_of_band_find_lost(t);
        p->look = now + out_of_band_patience(p->wait->timeout);
    }
    p->last = p->lost >= 0 || now > p->end || is_broken(p->wait);
    return p->last ? WAIT_MOVED : WAIT_IDLE;
}

static alnico_status_t name_absent(const struct pair *p, int awaited)
{
    const struct out_of_band *wait = p->wait;
    if (p->lost >= 0)
        return error_set(ALNICO_ERROR_TIMEOUT, "%s: rank %d did not come: its process has ended",
                         wait->who, p->lost);
    return error_set(ALNICO_ERROR_TIMEOUT, "%s: rank %d did not come within %g s", wait->who,
                     awaited, wait->timeout);
}

static alnico_status_t name_caller(const struct out_of_band *wait, alnico_status_t status)
{
    return status == ALNICO_SUCCESS ? status
                                    : error_set(status, "%s: %s", wait->who, alnico_error_detail());
}

/* Waits for both. TIMEOUT at the deadline, soon after the process of any rank has ended, or when an
 * error is latched. `to` and `from` are awaited. */
static alnico_status_t wait_both(const struct out_of_band *wait, struct transfer *send, int to,
                                 struct transfer *recv, int from)
{
    struct transport *t = wait->transport;
    double now = transport_now(t);
    struct pair p = {.wait = wait,
                     .send = send,
                     .recv = recv,
                     .sent = send ? ALNICO_PENDING : ALNICO_SUCCESS,
                     .received = recv ? ALNICO_PENDING : ALNICO_SUCCESS,
                     .end = now + wait->timeout,
                     .look = now + out_of_band_patience(wait->timeout),
                     .lost = -1,
                     .last = is_broken(wait)};
    wait_until(look_at_pair, &p, WAIT_FOREVER, false);
    alnico_status_t status = p.received != ALNICO_SUCCESS ? p.received : p.sent;
    if (p.sent != ALNICO_PENDING && p.received != ALNICO_PENDING && status != ALNICO_ERROR_TIMEOUT)
        return name_caller(wait, status);
    if (p.lost < 0 && p.last) /* whoever was held up past the deadline has not looked */
        p.lost = out_of_band_find_lost(t);
    if (p.received == ALNICO_PENDING)
        t->ops->cancel(t, recv);
    if (p.sent == ALNICO_PENDING)
        t->ops->cancel(t, send);
    return name_absent(&p, p.sent == ALNICO_PENDING && p.received != ALNICO_PENDING ? to : from);
}

alnico_status_t out_of_band_gather(const struct out_of_band *wait, const void *mine, void *all,
                                   size_t bytes)
{
    struct transport *t = wait->transport;
    char *blocks = all;
    int p = t->size, rank = t->rank, next = (rank + 1) % p, before = (rank - 1 + p) % p;
    memcpy(blocks + (size_t)rank * bytes, mine, bytes);
    for (int i = 0; i < p - 1; i++) {
        int sent = (rank - i + p) % p, received = (rank - i - 1 + p) % p;
        struct transfer send, recv;
        TRY(t->ops->irecv(t, before, TAG_OUT_OF_BAND, blocks + (size_t)received * bytes, bytes,
                          &recv));
        alnico_status_t status =
            t->ops->isend(t, next, TAG_OUT_OF_BAND, blocks + (size_t)sent * bytes, bytes, &send);
        if (status != ALNICO_SUCCESS) {
            t->ops->cancel(t, &recv);
            return name_caller(wait, status);
        }
        TRY(wait_both(wait, &send, next, &recv, received));
    }
    return ALNICO_SUCCESS;
}

static alnico_status_t pass_on(const struct out_of_band *wait, int peer, bool sends, void *data,
                               size_t bytes)
{
    struct transport *t = wait->transport;
    struct transfer transfer;
    TRY(sends ? t->ops->isend(t, peer, TAG_OUT_OF_BAND, data, bytes, &transfer)
              : t->ops->irecv(t, peer, TAG_OUT_OF_BAND, data, bytes, &transfer));
    return wait_both(wait, sends ? &transfer : NULL, peer, sends ? NULL : &transfer, peer);
}

alnico_status_t out_of_band_broadcast(const struct out_of_band *wait, void *data, size_t bytes)
{
    const struct transport *t = wait->transport;
    int bit = 1;
    while (bit < t->size && t->rank % (2 * bit) == 0)
        bit *= 2;
    if (t->rank > 0)
        TRY(pass_on(wait, t->rank - bit, false, data, bytes));
    for (bit /= 2; bit > 0; bit /= 2)
        if (t->rank + bit < t->size)
            TRY(pass_on(wait, t->rank + bit, true, data, bytes));
    return ALNICO_SUCCESS;
}
